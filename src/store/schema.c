/* The schema of the store's file: migrations and checks. */
#include <string.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/str.h"
#include "store/internal.h"

/* SQL for the current time in nanoseconds, precise to the millisecond. */
#define NOW_NS "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000000"

/* MIGRATIONS[n] upgrades version n to n + 1. A released one is never changed. */
static const char *const MIGRATIONS[] = {
    /* seq: the order of creation, for pages, because ids are random. */
    "CREATE TABLE sandboxes ("
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  owner TEXT NOT NULL,"
    "  name TEXT,"
    "  state TEXT NOT NULL,"
    "  cause TEXT,"
    "  image TEXT NOT NULL,"
    "  digest BLOB NOT NULL,"
    "  spec TEXT NOT NULL,"
    "  created INTEGER NOT NULL,"
    "  ttl INTEGER NOT NULL,"
    "  ended INTEGER NOT NULL,"
    "  key BLOB,"
    "  body BLOB"
    ") STRICT;"
    "CREATE UNIQUE INDEX sandboxes_name ON sandboxes (owner, name)"
    "  WHERE name IS NOT NULL AND state <> 'gone';"
    "CREATE UNIQUE INDEX sandboxes_key ON sandboxes (key) WHERE key IS NOT NULL;"
    "CREATE INDEX sandboxes_ended ON sandboxes (ended) WHERE state = 'gone';"
    "CREATE TABLE keys ("
    "  id TEXT PRIMARY KEY,"
    "  owner TEXT NOT NULL,"
    "  role TEXT NOT NULL CHECK (role IN ('admin', 'user', 'read')),"
    "  note TEXT,"
    "  sha256 BLOB NOT NULL UNIQUE,"
    "  created INTEGER NOT NULL,"
    "  expires INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE images ("
    "  name TEXT PRIMARY KEY,"
    "  digest BLOB NOT NULL,"
    "  config TEXT NOT NULL,"
    "  created INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE events ("
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  time INTEGER NOT NULL,"
    "  sandbox TEXT,"
    "  type TEXT NOT NULL,"
    "  detail TEXT"
    ") STRICT;"
    "CREATE INDEX events_time ON events (time);",
    "ALTER TABLE sandboxes ADD COLUMN walls TEXT;",
    "ALTER TABLE sandboxes ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;",
    /* Triggers on the rows write events, so every committed change has exactly one event. pending:
     * limits are being changed; if the result was never recorded, the row's limits are set
     * again. */
    "ALTER TABLE sandboxes ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN max_sandboxes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN creates_milli INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN max_concurrent INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN max_ttl INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE events ADD COLUMN owner TEXT;"
    "CREATE INDEX events_owner ON events (owner);"
    "CREATE INDEX events_sandbox ON events (sandbox);"
    "CREATE TRIGGER sandbox_made AFTER INSERT ON sandboxes BEGIN"
    "  INSERT INTO events (time, sandbox, owner, type, detail)"
    "  VALUES (NEW.created, NEW.id, NEW.owner, NEW.state, NEW.cause); END;"
    "CREATE TRIGGER sandbox_moved AFTER UPDATE OF state ON sandboxes"
    "  WHEN NEW.state <> OLD.state BEGIN"
    "  INSERT INTO events (time, sandbox, owner, type, detail)"
    "  VALUES (" NOW_NS ", NEW.id, NEW.owner, NEW.state, NEW.cause); END;"
    "CREATE TRIGGER sandbox_changed AFTER UPDATE OF spec, ttl ON sandboxes"
    "  WHEN NEW.state = OLD.state AND (NEW.spec <> OLD.spec OR NEW.ttl <> OLD.ttl) BEGIN"
    "  INSERT INTO events (time, sandbox, owner, type)"
    "  VALUES (" NOW_NS ", NEW.id, NEW.owner, 'updated'); END;",
    "CREATE TABLE templates ("
    "  id TEXT PRIMARY KEY,"
    "  owner TEXT NOT NULL,"
    "  name TEXT NOT NULL,"
    "  public INTEGER NOT NULL,"
    "  spec TEXT NOT NULL,"
    "  created INTEGER NOT NULL,"
    "  changed INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX templates_name ON templates (owner, name);"
    "CREATE UNIQUE INDEX templates_public ON templates (name) WHERE public;",
    "CREATE TABLE snapshots ("
    "  id TEXT PRIMARY KEY,"
    "  owner TEXT NOT NULL,"
    "  sandbox TEXT NOT NULL,"
    "  image TEXT NOT NULL,"
    "  bytes INTEGER NOT NULL,"
    "  entries INTEGER NOT NULL,"
    "  created INTEGER NOT NULL,"
    "  secrets INTEGER NOT NULL,"
    "  fork INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX snapshots_owner ON snapshots (owner, created);",
    "CREATE TABLE builds ("
    "  id TEXT PRIMARY KEY,"
    "  template TEXT NOT NULL,"
    "  owner TEXT NOT NULL,"
    "  name TEXT NOT NULL,"
    "  tags TEXT NOT NULL,"
    "  state TEXT NOT NULL,"
    "  spec TEXT NOT NULL,"
    "  reason TEXT,"
    "  snapshot TEXT,"
    "  created INTEGER NOT NULL,"
    "  changed INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX builds_owner ON builds (owner, created);"
    "CREATE INDEX builds_template ON builds (template);",
    /* Tokens contain the owner's epoch, so removing a key invalidates them. An administrator's key
     * may have read tokens of every owner: '' counts for all owners. */
    "CREATE TABLE epochs ("
    "  owner TEXT PRIMARY KEY,"
    "  epoch INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TRIGGER key_removed AFTER DELETE ON keys BEGIN"
    "  INSERT INTO epochs (owner, epoch)"
    "  VALUES (CASE OLD.role WHEN 'admin' THEN '' ELSE OLD.owner END, 1)"
    "  ON CONFLICT (owner) DO UPDATE SET epoch = epoch + 1; END;"
    /* Lists read live rows, or an owner's rows, in the order of seq. The cost must not depend on
     * the number of ended sandboxes. */
    "CREATE INDEX sandboxes_live ON sandboxes (seq) WHERE state <> 'gone';"
    "CREATE INDEX sandboxes_owner ON sandboxes (owner, seq);",
};
_Static_assert(ARRAY_LEN(MIGRATIONS) == STORE_VERSION, "a migration for each version");

static err *read_version(store_conn *c, int *ret_version)
{
    sqlite3_stmt *st = NULL;
    err *e = NULL;

    if (sqlite3_prepare_v2(c->db, "PRAGMA user_version", -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW)
        e = store_error(c, "read the store's version");
    else
        *ret_version = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return e;
}

err *store_touch_index(store_conn *c)
{
    int version = 0;

    TRY(read_version(c, &version));
    CLEANUP(freep) char *sql = str_printf("PRAGMA user_version = %d", version);
    if (sqlite3_exec(c->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_error(c, "write the index of the store's WAL");
    return NULL;
}

static err *run_text(store_conn *c, const char *sql, int to)
{
    CLEANUP(freep) char *doing = str_printf("bring the store to version %d", to);

    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK ? NULL : store_error(c, doing);
}

/* Makes one upgrade in a transaction: after a kill the file has one version or the other. */
static err *migrate_step(store_conn *c, int from)
{
    CLEANUP(freep) char *version = str_printf("PRAGMA user_version = %d", from + 1);

    TRY(run_text(c, "BEGIN IMMEDIATE", from + 1));
    err *e = run_text(c, MIGRATIONS[from], from + 1);
    if (!e)
        e = run_text(c, version, from + 1);
    FAULT_KILL("store.migrating");
    if (!e)
        e = run_text(c, "COMMIT", from + 1);
    if (e && !sqlite3_get_autocommit(c->db))
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    return e;
}

err *store_check_version(store_conn *c, int *ret_version)
{
    int version = 0;

    TRY(read_version(c, &version));
    if (version < 0 || version > STORE_VERSION)
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "the store has version %d, this bothyd knows up to %d",
                    version, STORE_VERSION),
            "Run the version of bothy that wrote it, or a newer one; a store is never taken back.");
    *ret_version = version;
    return NULL;
}

/* Checks the pages. The pragma's first row is "ok", or the damage. */
err *store_check_pages(store_conn *c, const char *which)
{
    CLEANUP(freep) char *sql = str_printf("PRAGMA %s(1)", which);
    sqlite3_stmt *st = NULL;
    err *e = NULL;

    if (sqlite3_prepare_v2(c->db, sql, -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW)
        e = store_error(c, "check the store");
    else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
        e = store_damaged("check the store", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return e;
}

err *store_migrate(store_conn *c)
{
    int version = 0;

    TRY(store_check_version(c, &version));
    for (; version < STORE_VERSION; version++)
        TRY(migrate_step(c, version));
    return NULL;
}
