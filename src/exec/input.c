/* Stdin: bytes are appended to a file `<exec>.in`; the pump (or the backend's frames) takes them
 * from there. The bytes survive this process, and so does their end: a file without the owner's
 * write permission gets no more bytes. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "exec/internal.h"

#define PUNCH_STEP (UINT64_C(4) << 20)
#define PUNCH_LAG  (UINT64_C(1) << 20)
#define END_OF_TTY "\004"

void input_path(const exec *x, char ret_path[SPOOL_PATH_MAX])
{
    snprintf(ret_path, SPOOL_PATH_MAX, "%s/%lu.in", x->table->sandbox, x->id);
}

err *input_make(exec *x, int *ret_keep)
{
    char path[SPOOL_PATH_MAX];

    input_path(x, path);
    int root = x->table->hub->o.spool_dir;
    int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) { /* left by a start whose BEGIN did not fit on the disk */
        unlinkat(root, path, 0);
        fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (fd >= 0) {
        close(fd);
        fd = openat(root, path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        return fs_error(errno, "cannot make the command's stdin");
    *ret_keep = fd;
    return NULL;
}

void input_load(exec *x)
{
    char path[SPOOL_PATH_MAX];
    struct stat st;

    if (!(x->flags & JOURNAL_F_STDIN))
        return;
    input_path(x, path);
    if (fstatat(x->table->hub->o.spool_dir, path, &st, AT_SYMLINK_NOFOLLOW))
        return;
    atomic_store(&x->in_len, (uint64_t)st.st_size);
    atomic_store(&x->in_eof, !(st.st_mode & 0200));
}

#define SYNC_FRAME 20u /* bytes of a session's frame that has no record */

void input_mend(exec *x, uint64_t at, uint64_t n)
{
    char path[SPOOL_PATH_MAX];
    uint64_t len = atomic_load(&x->in_len), whole = len;

    if (atomic_load(&x->in_eof)) /* the end is set behind whole frames, and nothing follows it */
        return;
    if (len > at && len < at + n)
        whole = at;
    else if (len > at + n)
        whole = len - (len - at - n) % SYNC_FRAME;
    if (whole == len)
        return;
    input_path(x, path);
    CLEANUP(closep) int fd = openat(x->table->hub->o.spool_dir, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)whole))
        log_error("stdin", "exec %lu: cannot cut a torn frame: %s", x->id, strerrordesc_np(errno));
    else
        atomic_store(&x->in_len, whole);
}

/* Punches out bytes that the command has read, a few MiB behind: pages in the pipe belong to the
 * file until they are read, and a hole in a large folio would write zeros into them. */
void input_punch(exec *x, uint64_t consumed)
{
    char path[SPOOL_PATH_MAX];

    if (!x->table->hub->spools.punch || consumed < x->io.in_punched + PUNCH_STEP + PUNCH_LAG)
        return;
    uint64_t to = (consumed - PUNCH_LAG) & ~UINT64_C(4095);
    input_path(x, path);
    CLEANUP(closep) int fd = openat(x->table->hub->o.spool_dir, path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)x->io.in_punched,
                  (off_t)(to - x->io.in_punched));
    x->io.in_punched = to;
}

/* Removes the stdin file of an exec that has ended. */
void input_over(exec *x)
{
    char path[SPOOL_PATH_MAX];

    if (!(x->flags & JOURNAL_F_STDIN))
        return;
    input_path(x, path);
    unlinkat(x->table->hub->o.spool_dir, path, 0);
}

/* ---- exec_stdin ---- */

static err *check_open(exec *x)
{
    LOCK_SCOPE(&x->table->lock);
    if (x->table->gone || x->table->ended)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->table->sandbox),
                        "sandbox");
    if (x->ended)
        return err_kind(err_new(ERR_CONFLICT, "exec %lu has ended", x->id), "exec");
    if (!(x->flags & JOURNAL_F_STDIN))
        return err_kind(err_new(ERR_CONFLICT, "exec %lu was started without stdin", x->id),
                        "stdin");
    if (x->stdin_over)
        return err_kind(err_new(ERR_CONFLICT, "stdin of exec %lu is closed", x->id), "stdin");
    return NULL;
}

static err *check_room(exec *x, size_t n, uint64_t offset)
{
    uint64_t len = atomic_load(&x->in_len), unread = len - atomic_load(&x->in_taken);
    uint64_t max = x->table->hub->o.stdin_max;

    if (offset != UINT64_MAX && offset != len)
        return err_kind(err_new(ERR_CONFLICT, "stdin's length is %lu, not %lu", len, offset),
                        "offset");
    if (n > max)
        return err_new(ERR_TOO_LARGE, "%zu bytes of stdin at once, the limit is %lu", n, max);
    if (n && unread + n > max)
        return err_retry_after(
            err_kind(err_new(ERR_QUOTA_EXCEEDED,
                             "the command has %lu bytes of stdin to read, the limit is %lu", unread,
                             max),
                     "stdin"),
            1);
    return NULL;
}

static err *input_append(exec *x, const void *p, size_t n, bool eof)
{
    char path[SPOOL_PATH_MAX];

    if (n && !spool_set_has_space(&x->table->hub->spools))
        return err_new(ERR_DISK_FULL, "no room for the command's stdin");
    input_path(x, path);
    CLEANUP(closep)
    int fd = openat(x->table->hub->o.spool_dir, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    int errnum = errno;
    if (fd < 0)
        TRY(check_open(x)); /* the file is removed when its command ends */
    if (fd < 0)
        return fs_error(errnum, "cannot open the command's stdin");
    uint64_t len = atomic_load(&x->in_len);
    int r = fs_pwrite_all(fd, p, n, len);
    if (r) { /* what was written of it must not be taken for input */
        if (ftruncate(fd, (off_t)len))
            log_error("stdin", "exec %lu: %s", x->id, strerrordesc_np(errno));
        return fs_error(-r, "cannot keep the command's stdin");
    }
    atomic_store(&x->in_len, len + n);
    FAULT_KILL("stdin.appended");
    if (eof && fchmod(fd, 0400))
        return fs_error(errno, "cannot end the command's stdin");
    if (eof)
        FAULT_KILL("stdin.ended");
    return NULL;
}

/* Queues input for a terminal in memory: a terminal is fed by write(). */
static void feed_tty(exec *x, const void *p, size_t n, bool eof)
{
    LOCK_SCOPE(&x->table->lock);
    buf_append(&x->tty_in, p, n);
    if (eof)
        buf_append(&x->tty_in, END_OF_TTY, 1);
    atomic_fetch_add(&x->in_len, n);
}

/* Returns true if stdin has ended with these bytes: the request repeats one that was done. */
static bool input_has_ended_so(const exec *x, size_t n, uint64_t offset)
{
    uint64_t len = atomic_load(&x->in_len);

    if (!atomic_load(&x->in_eof))
        return false;
    return offset == UINT64_MAX ? !n : offset <= len && len - offset == n;
}

err *exec_stdin(exec *x, const void *p, size_t n, uint64_t offset, bool eof)
{
    {
        LOCK_SCOPE(&x->in_lock);
        if (eof && input_has_ended_so(x, n, offset)) /* its command may have read it, and ended */
            return NULL;
        TRY(check_open(x));
        if (atomic_load(&x->in_eof))
            return err_kind(err_new(ERR_CONFLICT, "stdin of exec %lu has ended", x->id), "stdin");
        TRY(check_room(x, n, offset));
        if (x->flags & JOURNAL_F_PTY && !x->table->frames) {
            feed_tty(x, p, n, eof);
        } else {
            TRY(input_append(x, p, n, eof));
            atomic_store(&x->in_eof, eof);
        }
    }
    pump_kick(&x->job);
    return NULL;
}

err *exec_stdin_all(exec *x, const void *p, size_t n)
{
    uint64_t at = exec_stdin_length(x);
    err *e = at <= n ? exec_stdin(x, (const char *)p + at, n - at, at, true) : NULL;

    if (e && (e->code == ERR_CONFLICT || e->code == ERR_SANDBOX_GONE)) {
        err_free(e);
        return NULL;
    }
    if (e)
        err_drop(exec_signal(x, SIGKILL, SP_TO_TREE), "stdin");
    return e;
}

uint64_t exec_stdin_length(exec *x)
{
    return atomic_load(&x->in_len);
}

uint64_t exec_stdin_taken(exec *x)
{
    return atomic_load(&x->in_taken);
}

/* Simulates a kill in the middle of a frame (a fault point): a part of it is in the file, but not
 * in in_len. */
static void feed_half(exec *x, const void *p, size_t n)
{
    char path[SPOOL_PATH_MAX];

    input_path(x, path);
    CLEANUP(closep) int fd = openat(x->table->hub->o.spool_dir, path, O_WRONLY | O_CLOEXEC);
    (void)!fs_pwrite_all(fd, p, n / 2, atomic_load(&x->in_len));
    FAULT_KILL("session.half_frame");
}

err *exec_feed(exec *x, const void *p, size_t n, uint64_t offset)
{
    {
        LOCK_SCOPE(&x->in_lock);
        TRY(check_open(x));
        if (offset != atomic_load(&x->in_len))
            return err_new(ERR_INTERNAL, "a frame at %lu of a stdin that ends at %lu", offset,
                           atomic_load(&x->in_len));
        if (FAULT("session.half_frame"))
            feed_half(x, p, n);
        TRY(input_append(x, p, n, false));
    }
    pump_kick(&x->job);
    return NULL;
}
