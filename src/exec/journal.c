/* The journal of a sandbox: codec and file. */
#include "exec/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "exec/exec.h"

#define SCAN_RECORDS 256u

const unsigned EXEC_JOURNAL_FORMAT = JOURNAL_FORMAT;

/* CRC-32 (IEEE), eight bytes at a step: a start reads three million records within seconds. */
static uint32_t crc_table[8][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_make(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
        crc_table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = crc_table[k - 1][i];
            crc_table[k][i] = c >> 8 ^ crc_table[0][c & 255];
        }
}

static uint32_t crc32_of(const void *p, size_t n)
{
    const uint8_t *at = p;
    uint32_t crc = 0xffffffffu;

    pthread_once(&crc_once, crc_make);
    for (; n >= 8; at += 8, n -= 8) {
        uint32_t low =
            crc ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^
              crc_table[5][low >> 16 & 255] ^ crc_table[4][low >> 24] ^ crc_table[3][at[4]] ^
              crc_table[2][at[5]] ^ crc_table[1][at[6]] ^ crc_table[0][at[7]];
    }
    for (; n; at++, n--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 255];
    return ~crc;
}

void journal_seal(journal_rec *r)
{
    r->magic = JOURNAL_MAGIC;
    r->format = JOURNAL_FORMAT;
    r->checksum = 0;
    r->checksum = crc32_of(r, sizeof *r);
}

#define HAS_NUL(text) (memchr(text, 0, sizeof(text)) != NULL)

static bool is_sound(const journal_rec *r)
{
    if (!r->exec)
        return false;
    switch (r->type) {
    case JOURNAL_BEGIN:
        return HAS_NUL(r->begin.command);
    case JOURNAL_END:
        return r->end.how > 0 && r->end.how < 16 && r->end.rec.state <= SP_FAILED;
    case JOURNAL_MARK:
        return (r->mark.stream == 1 || r->mark.stream == 2) && r->mark.from < r->mark.to;
    case JOURNAL_ASKED:
        return r->asked.signo > 0 && r->asked.signo < 32;
    case JOURNAL_PAUSE:
        return r->pause.from_ns <= r->pause.to_ns;
    case JOURNAL_RESET:
        return HAS_NUL(r->reset.box) && *r->reset.box;
    case JOURNAL_IDS:
        return r->ids.until > r->exec && r->ids.until <= SP_ID_MAX;
    case JOURNAL_SESSION:
        return r->session.shell && HAS_NUL(r->session.name) && HAS_NUL(r->session.user) &&
               HAS_NUL(r->session.program);
    case JOURNAL_COMMAND:
        return r->command.seq && r->command.shell && HAS_NUL(r->command.text) &&
               r->command.in_offset + r->command.in_bytes >= r->command.in_offset;
    case JOURNAL_COMMAND_END:
        return r->command_end.seq && HAS_NUL(r->command_end.cwd);
    default:
        return false;
    }
}

enum journal_verdict journal_decode(const void *raw, journal_rec *ret_rec)
{
    journal_rec r;

    memcpy(&r, raw, sizeof r);
    if (r.magic != JOURNAL_MAGIC)
        return JOURNAL_TORN;
    uint32_t sum = r.checksum;
    r.checksum = 0;
    if (crc32_of(&r, sizeof r) != sum)
        return JOURNAL_TORN;
    r.checksum = sum;
    if (r.format > JOURNAL_FORMAT)
        return JOURNAL_NEWER;
    if (r.format != JOURNAL_FORMAT || !is_sound(&r))
        return JOURNAL_TORN;
    *ret_rec = r;
    return JOURNAL_OK;
}

static err *journal_newer(const char *path)
{
    return err_remedy(err_new(ERR_UNSUPPORTED, "%s was written by a newer bothy", path),
                      "Run the bothyd that wrote it, or a later one; nothing was changed.");
}

static err *journal_scan(journal *j, const char *path,
                         void (*each)(void *arg, uint32_t index, const journal_rec *r), void *arg)
{
    CLEANUP(freep) char *chunk = xmalloc(SCAN_RECORDS * JOURNAL_REC);

    for (uint32_t at = 0; at < j->count;) {
        ssize_t n = pread(j->fd, chunk, SCAN_RECORDS * JOURNAL_REC, (off_t)at * JOURNAL_REC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < (ssize_t)JOURNAL_REC)
            return err_sys(ERR_INTERNAL, n < 0 ? errno : EIO, "cannot read %s", path);
        for (uint32_t i = 0; i < (uint32_t)n / JOURNAL_REC && at < j->count; i++, at++) {
            journal_rec r;
            enum journal_verdict v = journal_decode(chunk + i * JOURNAL_REC, &r);
            if (v == JOURNAL_NEWER)
                return journal_newer(path);
            if (v == JOURNAL_OK) {
                each(arg, at, &r);
                continue;
            }
            j->damaged = true;
            log_warn("journal_torn", "%s: record %u is not valid and is ignored", path, at);
        }
    }
    return NULL;
}

/* Cuts off a torn tail, which would misalign all later records. */
static err *cut_tail(journal *j, const char *path)
{
    struct stat st;

    if (fstat(j->fd, &st))
        return err_sys(ERR_INTERNAL, errno, "cannot stat %s", path);
    if (st.st_size / JOURNAL_REC >= UINT32_MAX)
        return err_new(ERR_INTERNAL, "%s is too large", path);
    j->count = (uint32_t)(st.st_size / JOURNAL_REC);
    if (st.st_size % JOURNAL_REC == 0)
        return NULL;
    j->damaged = true;
    log_warn("journal_torn", "%s: %ld bytes of a torn record at its end are ignored", path,
             (long)(st.st_size % JOURNAL_REC));
    if (ftruncate(j->fd, (off_t)j->count * JOURNAL_REC))
        return err_sys(ERR_INTERNAL, errno, "cannot cut the torn end of %s", path);
    return NULL;
}

err *journal_open(int dirfd, const char *path, journal *j,
                  void (*each)(void *arg, uint32_t index, const journal_rec *r), void *arg)
{
    /* Member by member: the sync thread may read `unsynced` at any time. */
    j->fd = openat(dirfd, path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    j->count = 0;
    j->damaged = j->torn = false;
    atomic_store(&j->unsynced, false);
    if (j->fd < 0)
        return fs_error(errno, "cannot open %s", path);
    err *e = cut_tail(j, path);
    if (!e)
        e = journal_scan(j, path, each, arg);
    if (e)
        journal_close(j);
    return e;
}

/* Cuts half a record off. If it stayed, it would misalign all later records. */
static void journal_cut(journal *j)
{
    j->torn = ftruncate(j->fd, (off_t)j->count * JOURNAL_REC);
    if (j->torn)
        log_error("journal", "cannot cut a half-written record: %s", strerrordesc_np(errno));
}

err *journal_append(journal *j, journal_rec *r, uint32_t *ret_index)
{
    ssize_t n;

    if (j->torn)
        journal_cut(j);
    if (j->torn)
        return fs_error(EIO, "cannot write to the sandbox's journal");
    journal_seal(r);
    do
        n = write(j->fd, r, sizeof *r);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof *r) {
        if (ret_index)
            *ret_index = j->count;
        j->count++;
        atomic_store(&j->unsynced, true);
        return NULL;
    }
    int errnum = n < 0 ? errno : ENOSPC;
    if (n > 0)
        journal_cut(j);
    return fs_error(errnum, "cannot write to the sandbox's journal");
}

err *journal_read(const journal *j, uint32_t index, journal_rec *ret_rec)
{
    char raw[JOURNAL_REC];
    ssize_t n = pread(j->fd, raw, sizeof raw, (off_t)index * JOURNAL_REC);

    if (n != (ssize_t)sizeof raw)
        return err_sys(ERR_INTERNAL, n < 0 ? errno : EIO, "cannot read the sandbox's journal");
    if (journal_decode(raw, ret_rec) != JOURNAL_OK)
        return err_new(ERR_INTERNAL, "record %u of the sandbox's journal is not valid", index);
    return NULL;
}

void journal_close(journal *j)
{
    closep(&j->fd);
    j->fd = -1;
}
