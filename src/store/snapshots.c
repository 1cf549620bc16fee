/* Rows of snapshots: owner and source sandbox. Their files are an image of the node. */
#include <string.h>

#include "base/str.h"
#include "store/internal.h"

void snapshot_row_done(snapshot_row *r)
{
    free(r->owner);
    free(r->image);
    memset(r, 0, sizeof *r);
}

static void read_snapshot(sqlite3_stmt *st, snapshot_row *r)
{
    CLEANUP(freep) char *id = column_text(st, 0);
    CLEANUP(freep) char *sandbox = column_text(st, 2);

    memset(r, 0, sizeof *r);
    str_copy(r->id, sizeof r->id, str_or(id, ""));
    r->owner = column_text(st, 1);
    str_copy(r->sandbox, sizeof r->sandbox, str_or(sandbox, ""));
    r->image = column_text(st, 3);
    r->bytes = (uint64_t)sqlite3_column_int64(st, 4);
    r->entries = (uint64_t)sqlite3_column_int64(st, 5);
    r->created_ns = (uint64_t)sqlite3_column_int64(st, 6);
    r->secrets = sqlite3_column_int64(st, 7);
    r->fork = sqlite3_column_int64(st, 8);
}

static err *no_snapshot(const char *id)
{
    return err_kind(err_new(ERR_NOT_FOUND, "there is no snapshot '%.64s'", id), "snapshot");
}

static err *no_room(const char *owner, size_t max)
{
    return err_remedy(
        err_new(ERR_QUOTA_EXCEEDED, "'%s' has %zu snapshots, as many as one may have", owner, max),
        "Remove some that are not used any more.");
}

err *store_snapshot_room(store *s, const char *owner, size_t max)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_SNAPSHOT_COUNT, &st));
    bind_text(st, 1, owner);
    if (sqlite3_step(st) != SQLITE_ROW)
        return store_error(r.c, "count snapshots");
    return (uint64_t)sqlite3_column_int64(st, 0) < max ? NULL : no_room(owner, max);
}

typedef struct snapshot_insert {
    const snapshot_row *row;
    size_t max;
} snapshot_insert;

static err *run_snapshot_insert(store_conn *c, void *arg)
{
    const snapshot_insert *in = arg;
    const snapshot_row *r = in->row;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SNAPSHOT_INSERT, &st));
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->owner);
    bind_text(st, 3, r->sandbox);
    bind_text(st, 4, r->image);
    bind_time(st, 5, r->bytes);
    bind_time(st, 6, r->entries);
    bind_time(st, 7, r->created_ns);
    bind_time(st, 8, in->max);
    bind_time(st, 9, r->secrets);
    bind_time(st, 10, r->fork);
    TRY(store_step_done(c, st, "record a snapshot"));
    return sqlite3_changes(c->db) ? NULL : no_room(r->owner, in->max);
}

err *store_snapshot_insert(store *s, const snapshot_row *r, size_t max)
{
    return store_write(s, run_snapshot_insert, &(snapshot_insert){r, max});
}

err *store_snapshot_find(store *s, const char *owner, const char *id, bool forks,
                         snapshot_row *ret_row)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_SNAPSHOT_FIND, &st));
    bind_text(st, 1, id);
    bind_text(st, 2, owner);
    bind_time(st, 3, forks);
    int step = sqlite3_step(st);
    if (step == SQLITE_DONE)
        return no_snapshot(id);
    if (step != SQLITE_ROW)
        return store_error(r.c, "read a snapshot");
    read_snapshot(st, ret_row);
    return NULL;
}

static err *run_snapshot_remove(store_conn *c, void *arg)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SNAPSHOT_REMOVE, &st));
    bind_text(st, 1, arg);
    TRY(store_step_done(c, st, "remove a snapshot"));
    return sqlite3_changes(c->db) ? NULL : no_snapshot(arg);
}

err *store_snapshot_remove(store *s, const char *id)
{
    return store_write(s, run_snapshot_remove, (void *)id);
}

err *store_snapshot_list(store *s, const char *owner, const char *sandbox, bool forks,
                         snapshot_row **ret_rows, size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    snapshot_row *rows = NULL;
    size_t n = 0;
    int step;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_SNAPSHOT_LIST, &st));
    bind_text(st, 1, owner);
    bind_text(st, 2, sandbox);
    bind_time(st, 3, forks);
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        if (!(n & (n + 1))) /* 0, 1, 3, 7, …: the array doubles */
            rows = xrealloc(rows, (2 * n + 1) * sizeof *rows);
        read_snapshot(st, &rows[n++]);
    }
    if (step != SQLITE_DONE) {
        while (n)
            snapshot_row_done(&rows[--n]);
        free(rows);
        return store_error(r.c, "list snapshots");
    }
    *ret_rows = rows;
    *ret_n = n;
    return NULL;
}
