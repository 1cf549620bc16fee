/* Rows of template builds. Their files are snapshots. */
#include <string.h>

#include "base/str.h"
#include "store/internal.h"

void build_row_done(build_row *r)
{
    free(r->owner);
    free(r->name);
    free(r->tags);
    free(r->state);
    free(r->spec);
    free(r->reason);
    free(r->snapshot);
    memset(r, 0, sizeof *r);
}

void build_rows_free(build_row *rows, size_t n)
{
    while (n)
        build_row_done(&rows[--n]);
    free(rows);
}

static void read_build(sqlite3_stmt *st, build_row *r)
{
    CLEANUP(freep) char *id = column_text(st, 0);
    CLEANUP(freep) char *template = column_text(st, 1);

    memset(r, 0, sizeof *r);
    str_copy(r->id, sizeof r->id, str_or(id, ""));
    str_copy(r->template, sizeof r->template, str_or(template, ""));
    r->owner = column_text(st, 2);
    r->name = column_text(st, 3);
    r->tags = column_text(st, 4);
    r->state = column_text(st, 5);
    r->spec = column_text(st, 6);
    r->reason = column_text(st, 7);
    r->snapshot = column_text(st, 8);
    r->created_ns = (uint64_t)sqlite3_column_int64(st, 9);
    r->changed_ns = (uint64_t)sqlite3_column_int64(st, 10);
}

typedef struct build_insert {
    const build_row *row;
    size_t max;
} build_insert;

static err *insert_one(store_conn *c, const build_insert *in)
{
    const build_row *r = in->row;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_BUILD_INSERT, &st));
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->template);
    bind_text(st, 3, r->owner);
    bind_text(st, 4, r->name);
    bind_text(st, 5, r->tags);
    bind_text(st, 6, r->state);
    bind_text(st, 7, r->spec);
    bind_text(st, 8, r->reason);
    bind_text(st, 9, r->snapshot);
    bind_time(st, 10, r->created_ns);
    bind_time(st, 11, r->changed_ns);
    bind_time(st, 12, in->max);
    return store_step_done(c, st, "record a build");
}

static err *forget_bare(store_conn *c, const char *owner)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_BUILD_FORGET_BARE, &st));
    bind_text(st, 1, owner);
    return store_step_done(c, st, "forget a build");
}

static err *run_build_insert(store_conn *c, void *arg)
{
    const build_insert *in = arg;
    const build_row *r = in->row;

    TRY(insert_one(c, in));
    if (sqlite3_changes(c->db))
        return NULL;
    TRY(forget_bare(c, r->owner));
    if (sqlite3_changes(c->db))
        return insert_one(c, in);
    return err_remedy(err_new(ERR_QUOTA_EXCEEDED, "'%s' has %zu builds, as many as one may have",
                              r->owner, in->max),
                      "Remove templates that are not used any more.");
}

err *store_build_insert(store *s, const build_row *r, size_t max)
{
    return store_write(s, run_build_insert, &(build_insert){r, max});
}

typedef struct build_update {
    const build_row *rows;
    size_t n;
} build_update;

static err *run_build_update(store_conn *c, void *arg)
{
    const build_update *u = arg;

    for (size_t i = 0; i < u->n; i++) {
        const build_row *r = &u->rows[i];
        CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

        TRY(store_stmt(c, SQL_BUILD_UPDATE, &st));
        bind_text(st, 1, r->id);
        bind_text(st, 2, r->tags);
        bind_text(st, 3, r->state);
        bind_text(st, 4, r->spec);
        bind_text(st, 5, r->reason);
        bind_text(st, 6, r->snapshot);
        bind_time(st, 7, r->changed_ns);
        TRY(store_step_done(c, st, "change a build"));
        if (!sqlite3_changes(c->db))
            return err_kind(err_new(ERR_NOT_FOUND, "there is no build '%s'", r->id), "build");
    }
    return NULL;
}

err *store_build_update(store *s, const build_row *rows, size_t n)
{
    return store_write(s, run_build_update, &(build_update){rows, n});
}

static err *run_build_remove(store_conn *c, void *arg)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_BUILD_REMOVE, &st));
    bind_text(st, 1, arg);
    return store_step_done(c, st, "remove a build");
}

err *store_build_remove(store *s, const char *id)
{
    return store_write(s, run_build_remove, (void *)id);
}

static err *run_build_forget(store_conn *c, void *arg)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_BUILD_FORGET, &st));
    bind_time(st, 1, *(const uint64_t *)arg);
    return store_step_done(c, st, "forget builds");
}

err *store_build_forget(store *s, uint64_t before_ns)
{
    return store_write(s, run_build_forget, &before_ns);
}

err *store_build_list(store *s, const char *owner, const char *of, build_row **ret_rows,
                      size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    build_row *rows = NULL;
    size_t n = 0;
    int step;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_BUILD_LIST, &st));
    bind_text(st, 1, owner);
    bind_text(st, 2, of);
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        if (!(n & (n + 1))) /* 0, 1, 3, 7, …: the array doubles */
            rows = xrealloc(rows, (2 * n + 1) * sizeof *rows);
        read_build(st, &rows[n++]);
    }
    if (step != SQLITE_DONE) {
        build_rows_free(rows, n);
        return store_error(r.c, "list builds");
    }
    *ret_rows = rows;
    *ret_n = n;
    return NULL;
}
