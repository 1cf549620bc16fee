#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "store/internal.h"

#define IDLE_MAX  16   /* readers kept open; more are opened as needed and closed after use */
#define SETTLE_MS 1000 /* how long store_settle() waits for readers and for the writer */

DEFINE_CLEANUP(store, store_close)

/* Writes the WAL once to its usual length. A commit that makes the WAL longer also commits the file
 * system's journal, and takes twice as long as one that overwrites. SQLite starts from the front
 * again after each checkpoint, by default at 1,000 pages. The zeros are safe: no frame has a salt
 * of zeros, and bytes after the last valid frame are never read. */
#define WAL_BYTES (1100 * (4096 + 24))

static err *lengthen_wal(const store *s)
{
    CLEANUP(freep) char *name = str_printf("%s-wal", s->name);
    CLEANUP(freep) char *zeros = xcalloc(1, WAL_BYTES);
    CLEANUP(closep) int fd = openat(s->dirfd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return NULL; /* a file system on which SQLite could not use a WAL */
    if (fd < 0 || fstat(fd, &st))
        return err_sys(ERR_INTERNAL, errno, "cannot open the store's WAL");
    if (st.st_size >= WAL_BYTES)
        return NULL;
    size_t n = (size_t)(WAL_BYTES - st.st_size);
    ssize_t done = pwrite(fd, zeros, n, st.st_size);
    int errnum = done < 0 ? errno : (size_t)done < n ? ENOSPC : fdatasync(fd) ? errno : 0;
    if (!errnum)
        return NULL;
    if (ftruncate(fd, st.st_size)) /* the disk needs the space */
        log_warn("store", "cannot shorten the WAL again: %s", strerrordesc_np(errno));
    return fs_error(errnum, "cannot lengthen the store's WAL");
}

/* ---- the check of pages ---- */

/* The identity of the store's file after an orderly close, kept beside it. If the file is still the
 * same, the start skips the page check, which reads all of it: seconds for a day's records. */
typedef struct identity {
    uint64_t ino, size, changed_ns, written_ns;
} identity;

static uint64_t ns_of(struct timespec t)
{
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static bool identity_of(const store *s, identity *ret)
{
    struct stat st;

    if (fstatat(s->dirfd, s->name, &st, AT_SYMLINK_NOFOLLOW))
        return false;
    *ret = (identity){.ino = st.st_ino,
                      .size = (uint64_t)st.st_size,
                      .changed_ns = ns_of(st.st_ctim),
                      .written_ns = ns_of(st.st_mtim)};
    return true;
}

static char *closed_name(const store *s)
{
    return str_printf("%s.closed", s->name);
}

/* Returns true if the WAL may hold writes. SQLite removes it when the last connection is closed in
 * order, and store_settle() empties it. */
static bool has_wal(const store *s)
{
    CLEANUP(freep) char *name = str_printf("%s-wal", s->name);
    struct stat st;

    if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno != ENOENT;
    return st.st_size > 0;
}

/* Returns true if the file is as the last process closed it. Call it before the file is opened. */
static bool was_closed(const store *s)
{
    CLEANUP(freep) char *name = closed_name(s);
    CLEANUP(buf_done) buf b = {0};
    identity now;
    err *failure = fs_read(s->dirfd, name, sizeof now, &b);
    bool same = !failure && b.len == sizeof now && identity_of(s, &now) &&
                !memcmp(b.p, &now, sizeof now) && !has_wal(s);

    err_free(failure);
    return same;
}

/* Notes an orderly end. Without the note the next start checks the pages. */
static void note_closed(const store *s)
{
    CLEANUP(freep) char *name = closed_name(s);
    identity now;

    if (!has_wal(s) && identity_of(s, &now))
        err_drop(fs_write(s->dirfd, name, &now, sizeof now, 0600, false), "store");
}

err *store_open(int dirfd, const char *path, const char *sync, store **ret_store)
{
    CLEANUP(store_closep) store *s = xcalloc(1, sizeof *s);
    store_conn *c = NULL;

    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->copying, NULL);
    pthread_mutex_init(&s->states.lock, NULL);
    pthread_mutex_init(&s->writer.events.lock, NULL);
    s->name = xstrdup(path);
    s->sync = xstrdup(sync);
    /* Kept open: the file is reached through /proc/self/fd/N for as long as the store lives. */
    s->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    if (s->dirfd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot keep the store's directory");
    if (!str_eq(sync, "full") && !str_eq(sync, "normal"))
        return err_new(ERR_INVALID_REQUEST, "store.sync must be 'full' or 'normal', not '%s'",
                       sync);
    TRY(store_finish_restore(s->dirfd));
    bool closed = was_closed(s);
    TRY(store_conn_open(s->dirfd, s->name, s->sync, true, &c));
    err *e = closed ? NULL : store_check_pages(c, "quick_check");
    if (!e)
        e = store_migrate(c);
    if (!e)
        e = store_events_open(&s->writer.events, c);
    if (!e)
        err_drop(lengthen_wal(s), "store"); /* the store works without it, only slower */
    if (!e)
        err_drop(store_touch_index(c), "store"); /* on a full disk the store can still be read */
    if (e) {
        store_conn_free(c);
        return e;
    }
    store_writer_start(&s->writer, c);
    *ret_store = TAKE_PTR(s);
    return NULL;
}

void store_close(store *s)
{
    if (!s)
        return;
    for (store_conn *c = s->idle, *next; c; c = next) {
        next = c->next;
        store_conn_free(c);
    }
    bool opened = s->writer.conn;
    store_writer_stop(&s->writer);
    if (opened)
        note_closed(s);
    if (s->dirfd >= 0)
        close(s->dirfd);
    free(s->name);
    free(s->sync);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->copying);
    pthread_mutex_destroy(&s->states.lock);
    pthread_mutex_destroy(&s->writer.events.lock);
    free(s);
}

err *store_settle(store *s)
{
    store_conn *c = NULL;

    TRY(store_flush(s));
    TRY(store_conn_open(s->dirfd, s->name, s->sync, false, &c));
    sqlite3_busy_timeout(c->db, SETTLE_MS);
    err *e = NULL;
    if (sqlite3_exec(c->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL))
        e = store_error(c, "empty the WAL");
    else if (has_wal(s))
        e = err_new(ERR_UNAVAILABLE, "cannot empty the WAL: the store is in use");
    store_conn_free(c);
    if (!e)
        note_closed(s);
    return e;
}

static store_conn *take_idle(store *s)
{
    LOCK_SCOPE(&s->lock);
    store_conn *c = s->idle;

    if (c) {
        s->idle = c->next;
        s->nidle--;
    }
    return c;
}

err *store_read_begin(store *s, store_read *ret_read)
{
    store_conn *c = take_idle(s);

    if (!c)
        TRY(store_conn_open(s->dirfd, s->name, s->sync, false, &c));
    *ret_read = (store_read){s, c};
    return NULL;
}

static bool give_idle(store *s, store_conn *c)
{
    LOCK_SCOPE(&s->lock);

    if (s->nidle >= IDLE_MAX)
        return false;
    c->next = s->idle;
    s->idle = c;
    s->nidle++;
    return true;
}

void store_read_end(store_read *r)
{
    if (r->c && !give_idle(r->s, r->c))
        store_conn_free(r->c);
}
