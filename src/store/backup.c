/* Copies the store while it is in use, and restores a copy while it is not.
 *
 *   backup.tmp          a copy being made; unlinked as soon as it is complete, or at the next start
 *   restore.tmp         a copy being read in and checked
 *   store.db.restored   checked and on the disk; put in place now, or by the next process that
 *                       opens the store
 *   store.db.replaced   the store before it, with its -wal */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "store/internal.h"

#define COPY          "backup.tmp"
#define TAKEN_IN      "restore.tmp"
#define STORE         "store.db"
#define RESTORED      STORE ".restored"
#define REPLACED      STORE ".replaced"
#define COPY_BYTES    (1 << 20)
#define RESTORE_MAX   (UINT64_C(64) << 30)
#define WRITE_VERSION 18 /* offset in SQLite's header; the read version follows */

/* ---- a copy ---- */

static err *copy_pages(store_conn *to, store_conn *from)
{
    sqlite3_backup *b = sqlite3_backup_init(to->db, "main", from->db, "main");

    if (!b)
        return store_error(to, "begin a copy of the store");
    int r = sqlite3_backup_step(b, -1); /* one snapshot; writers are not blocked */
    sqlite3_backup_finish(b);
    return r == SQLITE_DONE ? NULL : store_error(to, "copy the store");
}

static err *backup_fill(store *s)
{
    CLEANUP(store_read_end) store_read r = {0};
    store_conn *to = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_conn_open_plain(s->dirfd, COPY, &to));
    err *e = copy_pages(to, r.c);
    store_conn_free(to);
    FAULT_KILL("store.copied");
    return e;
}

/* Opens the copy. Marks it as a file without a WAL, so that a reader need not write beside it. */
static err *open_copy(const store *s, int *ret_fd)
{
    static const uint8_t ROLLBACK[2] = {1, 1};
    CLEANUP(closep) int fd = openat(s->dirfd, COPY, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || pwrite(fd, ROLLBACK, sizeof ROLLBACK, WRITE_VERSION) != sizeof ROLLBACK)
        return err_sys(ERR_INTERNAL, errno, "cannot open the copy of the store");
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

err *store_backup(store *s, int *ret_fd)
{
    if (pthread_mutex_trylock(&s->copying))
        return err_retry_after(err_new(ERR_CONFLICT, "another copy of the store is being made"), 1);
    unlinkat(s->dirfd, COPY, 0);
    err *e = backup_fill(s);
    if (!e)
        e = open_copy(s, ret_fd);
    unlinkat(s->dirfd, COPY, 0);
    pthread_mutex_unlock(&s->copying);
    return e;
}

/* ---- putting one back ---- */

static err *take_in(int dirfd, int from)
{
    CLEANUP(freep) char *space = xmalloc(COPY_BYTES);
    CLEANUP(closep)
    int to = openat(dirfd, TAKEN_IN, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    uint64_t all = 0;
    ssize_t n;

    if (to < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot make %s", TAKEN_IN);
    while ((n = read(from, space, COPY_BYTES)) > 0) {
        int r = fs_write_all(to, space, (size_t)n);
        if (r)
            return err_sys(r == -ENOSPC ? ERR_DISK_FULL : ERR_INTERNAL, -r, "cannot write %s",
                           TAKEN_IN);
        if ((all += (uint64_t)n) > RESTORE_MAX)
            return err_new(ERR_TOO_LARGE, "the file is too large for a store");
    }
    if (n < 0 || fsync(to))
        return err_sys(ERR_INTERNAL, errno, "cannot take the file in");
    return NULL;
}

static err *backup_number(store_conn *c, const char *sql, uint64_t *ret)
{
    sqlite3_stmt *st = NULL;
    err *e = NULL;

    if (sqlite3_prepare_v2(c->db, sql, -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW)
        e = store_error(c, "look into the file");
    else
        *ret = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return e;
}

static err *look_at(store_conn *c, store_restored *ret)
{
    TRY(store_check_version(c, &ret->version));
    if (!ret->version)
        return err_new(ERR_INVALID_REQUEST, "it is a database, but no store of bothy");
    TRY(store_check_pages(c, "integrity_check"));
    TRY(backup_number(c, "SELECT count(*) FROM sandboxes", &ret->sandboxes));
    TRY(backup_number(c, "SELECT count(*) FROM sandboxes WHERE state <> 'gone'", &ret->live));
    TRY(backup_number(c, "SELECT count(*) FROM keys", &ret->keys));
    return backup_number(c, "SELECT count(*) FROM images", &ret->images);
}

static err *try_out(int dirfd, store_restored *ret)
{
    store_conn *c = NULL;

    TRY(store_conn_open_plain(dirfd, TAKEN_IN, &c));
    err *e = look_at(c, ret);
    store_conn_free(c);
    if (!e || e->code == ERR_DISK_FULL || e->code == ERR_UNSUPPORTED)
        return e;
    return err_remedy(e, "Give a file that 'bothy backup' wrote; nothing was changed.");
}

err *store_restore(int dirfd, int from_fd, store_restored *ret_what)
{
    *ret_what = (store_restored){0};
    err *e = take_in(dirfd, from_fd);

    if (!e)
        e = try_out(dirfd, ret_what);
    if (!e && (renameat(dirfd, TAKEN_IN, dirfd, RESTORED) || fsync(dirfd)))
        e = err_sys(ERR_INTERNAL, errno, "cannot keep the restored store");
    unlinkat(dirfd, TAKEN_IN, 0);
    TRY(e);
    return store_finish_restore(dirfd);
}

static bool is_there(int dirfd, const char *name)
{
    return !faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* Puts a restored store in its place. A kill may come after any step; repeating the steps gives the
 * same result. The old store's WAL must be gone before the new store gets its name. */
err *store_finish_restore(int dirfd)
{
    unlinkat(dirfd, COPY, 0); /* left by a killed process */
    if (!is_there(dirfd, RESTORED))
        return NULL;
    if (is_there(dirfd, STORE))
        unlinkat(dirfd, REPLACED "-wal", 0);
    if (renameat(dirfd, STORE, dirfd, REPLACED) && errno != ENOENT)
        return err_sys(ERR_INTERNAL, errno, "cannot put the old store aside");
    FAULT_KILL("restore.aside");
    if (renameat(dirfd, STORE "-wal", dirfd, REPLACED "-wal") && errno != ENOENT)
        return err_sys(ERR_INTERNAL, errno, "cannot put the old store's WAL aside");
    unlinkat(dirfd, STORE "-shm", 0);
    if (renameat(dirfd, RESTORED, dirfd, STORE) || fsync(dirfd))
        return err_sys(ERR_INTERNAL, errno, "cannot put the restored store in its place");
    log_warn("store", "a restored store is in place; the one before it is %s", REPLACED);
    return NULL;
}
