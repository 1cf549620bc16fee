/* SQLite connections: the prepared statements, the VFS, opening a file, and errors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "store/internal.h"

#define SANDBOX_COLUMNS \
    "id, owner, name, state, cause, image, digest, spec, created, ttl, ended, key, body"
#define SANDBOX_LIST(from, which)                                                   \
    "SELECT " SANDBOX_COLUMNS ", walls, paused, pending FROM " from " WHERE " which \
    " AND seq > ?1 ORDER BY seq LIMIT ?2"
#define KEY_COLUMNS                                     \
    "id, owner, role, note, sha256, created, expires, " \
    "max_sandboxes, creates_milli, max_concurrent, max_ttl"
#define BUILD_COLUMNS \
    "id, template, owner, name, tags, state, spec, reason, snapshot, created, changed"
#define BUILD_IS_BARE    "(state = 'ready' AND tags = '[]' AND snapshot IS NULL)"
#define SNAPSHOT_COLUMNS "id, owner, sandbox, image, bytes, entries, created, secrets, fork"
#define TEMPLATE_COLUMNS "id, owner, name, public, spec, created, changed"
#define EVENT_COLUMNS    "seq, time, sandbox, owner, type, detail"

static const char *const SQL[SQL_STATEMENTS] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_SANDBOX_INSERT] = "INSERT INTO sandboxes (" SANDBOX_COLUMNS ") "
                           "VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
    /* An end is final, even for a write that a full disk delayed. */
    [SQL_SANDBOX_STATE] = "UPDATE sandboxes SET state = ?2, cause = ?3, ended = ?4, "
                          "walls = coalesce(?5, walls) "
                          "WHERE id = ?1 AND (state <> 'gone' OR ?2 = 'gone')",
    [SQL_SANDBOX_SPEC] = "UPDATE sandboxes SET spec = ?2, ttl = ?3, pending = 0 "
                         "WHERE id = ?1 AND state <> 'gone'",
    [SQL_SANDBOX_RESET] = "UPDATE sandboxes SET spec = ?2, walls = ?3, state = 'running' "
                          "WHERE id = ?1 AND state IN ('running', 'hibernated')",
    /* The trigger wrote the row's change as a general update. */
    [SQL_EVENT_RESET] = "UPDATE events SET type = 'reset' WHERE type = 'updated' AND seq = "
                        "(SELECT max(seq) FROM events WHERE sandbox = ?1)",
    [SQL_SANDBOX_PENDING] = "UPDATE sandboxes SET pending = ?2 WHERE id = ?1",
    [SQL_SANDBOX_PAUSE] = "UPDATE sandboxes SET state = ?2, paused = ?3, ttl = ?4 "
                          "WHERE id = ?1 AND state <> 'gone'",
    [SQL_SANDBOX_FREE_KEY] = "UPDATE sandboxes SET key = NULL, body = NULL WHERE id = ?1",
    [SQL_SANDBOX_GET] =
        "SELECT " SANDBOX_COLUMNS ", walls, paused, pending FROM sandboxes WHERE id = ?1",
    [SQL_SANDBOX_BY_KEY] =
        "SELECT " SANDBOX_COLUMNS ", walls, paused, pending FROM sandboxes WHERE key = ?1",
    [SQL_SANDBOX_BY_NAME] =
        "SELECT 1 FROM sandboxes WHERE owner = ?1 AND name = ?2 AND state <> 'gone'",
    [SQL_SANDBOX_SEQ] = "SELECT seq FROM sandboxes WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)",
    /* One statement per index. */
    [SQL_SANDBOX_LIST] = SANDBOX_LIST("sandboxes", "true"),
    [SQL_SANDBOX_LIST_OWNER] = SANDBOX_LIST("sandboxes INDEXED BY sandboxes_owner", "owner = ?3"),
    [SQL_SANDBOX_LIST_LIVE] = SANDBOX_LIST("sandboxes INDEXED BY sandboxes_live",
                                           "state <> 'gone' AND (?3 IS NULL OR owner = ?3)"),
    [SQL_SANDBOX_ENDED] =
        "SELECT id FROM sandboxes WHERE state = 'gone' AND ended >= ?1 AND ended < ?2 "
        "ORDER BY ended",
    [SQL_SANDBOX_FORGET] = "DELETE FROM sandboxes WHERE seq IN (SELECT seq FROM sandboxes "
                           "WHERE state = 'gone' AND ended < ?1 ORDER BY ended LIMIT 1000) "
                           "RETURNING id",
    [SQL_KEY_INSERT] = "INSERT INTO keys (" KEY_COLUMNS ") "
                       "VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)",
    [SQL_KEY_BY_HASH] = "SELECT " KEY_COLUMNS " FROM keys WHERE sha256 = ?1",
    [SQL_KEY_BY_ID] = "SELECT " KEY_COLUMNS " FROM keys WHERE id = ?1",
    [SQL_KEY_QUOTA] = "UPDATE keys SET max_sandboxes = ?2, creates_milli = ?3, "
                      "max_concurrent = ?4, max_ttl = ?5 WHERE id = ?1",
    [SQL_KEY_LIST] = "SELECT " KEY_COLUMNS " FROM keys ORDER BY created, id",
    [SQL_KEY_REMOVE] = "DELETE FROM keys WHERE id = ?1",
    [SQL_EPOCH_LIST] = "SELECT owner, epoch FROM epochs",
    [SQL_IMAGE_PUT] = "INSERT INTO images (name, digest, config, created) VALUES (?1,?2,?3,?4) "
                      "ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, "
                      "config = excluded.config, created = excluded.created",
    [SQL_IMAGE_REMOVE] = "DELETE FROM images WHERE name = ?1",
    [SQL_IMAGE_LIST] = "SELECT name, digest, config, created FROM images ORDER BY name",
    [SQL_TEMPLATE_INSERT] =
        "INSERT INTO templates (" TEMPLATE_COLUMNS ") SELECT ?1,?2,?3,?4,?5,?6,?7 "
        "WHERE (SELECT count(*) FROM templates WHERE owner = ?2) < ?8",
    [SQL_TEMPLATE_FIND] =
        "SELECT " TEMPLATE_COLUMNS " FROM templates "
        "WHERE (id = ?1 AND (?3 OR public OR owner = ?2)) OR (name = ?1 AND (public OR owner = ?2)) "
        "ORDER BY owner = ?2 DESC LIMIT 1",
    [SQL_TEMPLATE_BY_NAME] = "SELECT " TEMPLATE_COLUMNS " FROM templates WHERE name = ?1 LIMIT 2",
    [SQL_TEMPLATE_UPDATE] = "UPDATE templates SET name = ?2, public = ?3, spec = ?4, changed = ?5 "
                            "WHERE id = ?1 AND changed = ?6",
    [SQL_TEMPLATE_REMOVE] = "DELETE FROM templates WHERE id = ?1",
    [SQL_TEMPLATE_LIST] = "SELECT " TEMPLATE_COLUMNS " FROM templates "
                          "WHERE ?2 OR public OR owner = ?1 ORDER BY name, created, id",
    [SQL_SNAPSHOT_INSERT] =
        "INSERT INTO snapshots (" SNAPSHOT_COLUMNS ") SELECT ?1,?2,?3,?4,?5,?6,?7,?9,?10 "
        "WHERE ?10 OR (SELECT count(*) FROM snapshots WHERE owner = ?2 AND NOT fork) < ?8",
    [SQL_SNAPSHOT_COUNT] = "SELECT count(*) FROM snapshots WHERE owner = ?1 AND NOT fork",
    [SQL_SNAPSHOT_FIND] = "SELECT " SNAPSHOT_COLUMNS " FROM snapshots "
                          "WHERE id = ?1 AND (?2 IS NULL OR owner = ?2) AND (?3 OR NOT fork)",
    [SQL_SNAPSHOT_REMOVE] = "DELETE FROM snapshots WHERE id = ?1",
    [SQL_SNAPSHOT_LIST] = "SELECT " SNAPSHOT_COLUMNS " FROM snapshots WHERE "
                          "(?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR sandbox = ?2) "
                          "AND fork = ?3 ORDER BY created, id",
    [SQL_BUILD_INSERT] =
        "INSERT INTO builds (" BUILD_COLUMNS ") SELECT ?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11 "
        "WHERE (SELECT count(*) FROM builds WHERE owner = ?3) < ?12",
    [SQL_BUILD_LIST] = "SELECT " BUILD_COLUMNS " FROM builds WHERE "
                       "(?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR id = ?2 OR template = ?2) "
                       "ORDER BY created, id",
    [SQL_BUILD_UPDATE] = "UPDATE builds SET tags = ?2, state = ?3, spec = ?4, reason = ?5, "
                         "snapshot = ?6, changed = ?7 WHERE id = ?1",
    [SQL_BUILD_REMOVE] = "DELETE FROM builds WHERE id = ?1",
    [SQL_BUILD_FORGET] = "DELETE FROM builds WHERE changed < ?1 AND "
                         "(state IN ('waiting', 'error') OR " BUILD_IS_BARE ")",
    [SQL_BUILD_FORGET_BARE] =
        "DELETE FROM builds WHERE id = (SELECT id FROM builds WHERE owner = ?1 AND " BUILD_IS_BARE
        " ORDER BY changed LIMIT 1)",
    /* One statement per index: events are ordered by number in each. */
    [SQL_EVENT_LIST] = "SELECT " EVENT_COLUMNS " FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    [SQL_EVENT_LIST_OWNER] = "SELECT " EVENT_COLUMNS " FROM events WHERE owner = ?3 AND seq > ?1 "
                             "ORDER BY seq LIMIT ?2",
    [SQL_EVENT_LIST_SANDBOX] =
        "SELECT " EVENT_COLUMNS " FROM events WHERE sandbox = ?4 AND seq > ?1 "
        "AND (?3 IS NULL OR owner = ?3) ORDER BY seq LIMIT ?2",
    [SQL_EVENT_FIRST] = "SELECT min(seq) FROM events",
    [SQL_EVENT_LAST] = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'",
    [SQL_EVENT_FORGET] = "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE time < ?1 "
                         "ORDER BY time LIMIT 4000)",
};

/* Keeps a path as it is. SQLite's own VFS resolves every symbolic link, so /proc/self/fd/N/store.db
 * would become the directory's real path, which bothyd may be unable to walk. */
static int keep_path(sqlite3_vfs *vfs, const char *path, int n, char *out)
{
    (void)vfs;
    return snprintf(out, (size_t)n, "%s", path) < n ? SQLITE_OK : SQLITE_CANTOPEN;
}

static void register_vfs(void)
{
    static sqlite3_vfs vfs;

    if (sqlite3_initialize() != SQLITE_OK)
        abort();
    vfs = *sqlite3_vfs_find(NULL);
    vfs.pNext = NULL;
    vfs.zName = "bothy";
    vfs.xFullPathname = keep_path;
    if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK)
        abort();
}

static void need_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_vfs);
}

err *store_damaged(const char *doing, const char *why)
{
    return err_remedy(
        err_kind(
            err_because(err_new(ERR_INTERNAL, "cannot %s: store.db is damaged", doing), "%s", why),
            "damaged"),
        "Sandboxes live on. Stop bothyd and put a copy back with 'bothyd --restore FILE' (what "
        "'bothy backup' wrote); without one, 'sqlite3 store.db .recover' may save most of it. An "
        "empty store would end every sandbox.");
}

/* Returns the error for a disk that cannot be written, also one made read-only after damage. */
static err *read_only(const char *doing, const char *why)
{
    return err_remedy(
        err_because(err_new(ERR_UNAVAILABLE, "cannot %s: its disk cannot be written", doing), "%s",
                    why),
        "Look for the reason in the kernel's log, mend the file system below the state directory, "
        "mount it for writing and start bothyd again. Sandboxes live on.");
}

err *store_error(store_conn *c, const char *doing)
{
    int code = sqlite3_extended_errcode(c->db);
    const char *text = sqlite3_errmsg(c->db);
    int errnum = sqlite3_system_errno(c->db);

    if ((code & 0xff) == SQLITE_CANTOPEN && (errnum == EMFILE || errnum == ENFILE))
        return err_sys(ERR_INTERNAL, errnum, "cannot %s", doing);
    switch (code & 0xff) {
    case SQLITE_FULL:
        return err_because(err_new(ERR_DISK_FULL, "cannot %s", doing), "%s", text);
    case SQLITE_NOMEM:
        return err_because(err_new(ERR_UNAVAILABLE, "cannot %s", doing), "%s", text);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return store_damaged(doing, text);
    case SQLITE_READONLY:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return read_only(doing, text);
    default:
        return err_because(err_new(ERR_INTERNAL, "cannot %s", doing), "%s (SQLite %d)", text, code);
    }
}

static err *conn_pragma(store_conn *c, const char *text)
{
    return sqlite3_exec(c->db, text, NULL, NULL, NULL) ? store_error(c, text) : NULL;
}

static err *set_up(store_conn *c, const char *sync, bool writer)
{
    sqlite3_extended_result_codes(c->db, 1);
    sqlite3_busy_timeout(c->db, 5000);
    sqlite3_limit(c->db, SQLITE_LIMIT_LENGTH, 64 << 20);
    TRY(conn_pragma(c, "PRAGMA temp_store = MEMORY"));
    TRY(conn_pragma(c, "PRAGMA trusted_schema = OFF"));
    if (!writer)
        return conn_pragma(c, "PRAGMA query_only = ON");
    TRY(conn_pragma(c, "PRAGMA journal_mode = WAL"));
    return conn_pragma(c, str_eq(sync, "normal") ? "PRAGMA synchronous = NORMAL"
                                                 : "PRAGMA synchronous = FULL");
}

/* Makes the file, because SQLite would make it readable for all users. */
static err *make_file(int dirfd, const char *name)
{
    CLEANUP(closep) int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd < 0 ? fs_error(errno, "cannot open the store '%s'", name) : NULL;
}

err *store_conn_open(int dirfd, const char *name, const char *sync, bool writer,
                     store_conn **ret_conn)
{
    need_vfs();
    if (writer)
        TRY(make_file(dirfd, name));
    CLEANUP(freep) char *path = str_printf("/proc/self/fd/%d/%s", dirfd, name);
    store_conn *c = xcalloc(1, sizeof *c);
    /* A reader of a WAL writes to its index, so it cannot be opened read-only. query_only forbids
     * all other writes. */
    int r = sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, "bothy");
    err *e = r ? store_error(c, "open the store") : set_up(c, sync, writer);
    if (e) {
        store_conn_free(c);
        return e;
    }
    *ret_conn = c;
    return NULL;
}

err *store_conn_open_plain(int dirfd, const char *name, store_conn **ret_conn)
{
    need_vfs();
    TRY(make_file(dirfd, name));
    CLEANUP(freep) char *path = str_printf("/proc/self/fd/%d/%s", dirfd, name);
    store_conn *c = xcalloc(1, sizeof *c);
    int r = sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, "bothy");
    sqlite3_extended_result_codes(c->db, 1);
    err *e = r ? store_error(c, "open the file") : conn_pragma(c, "PRAGMA trusted_schema = OFF");
    if (!e)
        e = conn_pragma(c, "PRAGMA journal_mode = OFF");
    if (!e)
        e = conn_pragma(c, "PRAGMA synchronous = OFF");
    if (e) {
        store_conn_free(c);
        return e;
    }
    *ret_conn = c;
    return NULL;
}

void store_conn_free(store_conn *c)
{
    if (!c)
        return;
    for (int i = 0; i < SQL_STATEMENTS; i++)
        sqlite3_finalize(c->stmt[i]);
    sqlite3_close(c->db);
    free(c);
}

err *store_stmt(store_conn *c, enum store_sql which, sqlite3_stmt **ret_stmt)
{
    if (!c->stmt[which] && sqlite3_prepare_v3(c->db, SQL[which], -1, SQLITE_PREPARE_PERSISTENT,
                                              &c->stmt[which], NULL) != SQLITE_OK)
        return store_error(c, SQL[which]);
    *ret_stmt = c->stmt[which];
    return NULL;
}

err *store_step_done(store_conn *c, sqlite3_stmt *st, const char *doing)
{
    return sqlite3_step(st) == SQLITE_DONE ? NULL : store_error(c, doing);
}

err *store_run(store_conn *c, enum store_sql which, const char *doing)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, which, &st));
    return store_step_done(c, st, doing);
}

void bind_text(sqlite3_stmt *st, int i, const char *s)
{
    sqlite3_bind_text(st, i, s, -1, SQLITE_STATIC);
}

void bind_blob(sqlite3_stmt *st, int i, const void *p, int n)
{
    sqlite3_bind_blob(st, i, p, n, SQLITE_STATIC);
}

void bind_time(sqlite3_stmt *st, int i, uint64_t ns)
{
    sqlite3_bind_int64(st, i, ns > INT64_MAX ? INT64_MAX : (sqlite3_int64)ns);
}

char *column_text(sqlite3_stmt *st, int i)
{
    const unsigned char *s = sqlite3_column_text(st, i);

    return s ? xstrdup((const char *)s) : NULL;
}

void column_blob(sqlite3_stmt *st, int i, void *p, int n)
{
    const void *from = sqlite3_column_blob(st, i);

    if (from && sqlite3_column_bytes(st, i) == n)
        memcpy(p, from, (size_t)n);
    else
        memset(p, 0, (size_t)n);
}
