/* Rows of keys and images. */
#include <string.h>

#include "base/str.h"
#include "store/internal.h"

/* ---- keys ---- */

void key_row_done(key_row *r)
{
    free(r->owner);
    free(r->role);
    free(r->note);
    memset(r, 0, sizeof *r);
}

static void read_key(sqlite3_stmt *st, key_row *r)
{
    CLEANUP(freep) char *id = column_text(st, 0);

    memset(r, 0, sizeof *r);
    str_copy(r->id, sizeof r->id, str_or(id, ""));
    r->owner = column_text(st, 1);
    r->role = column_text(st, 2);
    r->note = column_text(st, 3);
    column_blob(st, 4, r->sha256, sizeof r->sha256);
    r->created_ns = (uint64_t)sqlite3_column_int64(st, 5);
    r->expires_ns = (uint64_t)sqlite3_column_int64(st, 6);
    r->quota = (quota){.sandboxes = (uint32_t)sqlite3_column_int64(st, 7),
                       .creates_milli = (uint32_t)sqlite3_column_int64(st, 8),
                       .creating = (uint32_t)sqlite3_column_int64(st, 9),
                       .ttl_ms = (uint64_t)sqlite3_column_int64(st, 10)};
}

/* Binds four columns from i on. */
static void bind_quota(sqlite3_stmt *st, int i, const quota *q)
{
    bind_time(st, i, q->sandboxes);
    bind_time(st, i + 1, q->creates_milli);
    bind_time(st, i + 2, q->creating);
    bind_time(st, i + 3, q->ttl_ms);
}

static err *run_key_insert(store_conn *c, void *arg)
{
    const key_row *r = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_KEY_INSERT, &st));
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->owner);
    bind_text(st, 3, r->role);
    bind_text(st, 4, r->note);
    bind_blob(st, 5, r->sha256, sizeof r->sha256);
    bind_time(st, 6, r->created_ns);
    bind_time(st, 7, r->expires_ns);
    bind_quota(st, 8, &r->quota);
    int done = sqlite3_step(st);
    int code = sqlite3_extended_errcode(c->db);
    if (done == SQLITE_DONE)
        return NULL;
    if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY)
        return err_kind(err_new(ERR_CONFLICT, "there is such a key"), "key");
    if (code == SQLITE_CONSTRAINT_CHECK)
        return err_new(ERR_INVALID_REQUEST, "role must be admin, user or read");
    return store_error(c, "record a key");
}

err *store_key_insert(store *s, const key_row *r)
{
    return store_write(s, run_key_insert, (void *)r);
}

static err *read_one_key(store_conn *c, sqlite3_stmt *st, key_row *ret_row)
{
    int step = sqlite3_step(st);

    if (step == SQLITE_DONE)
        return err_kind(err_new(ERR_NOT_FOUND, "no such key"), "key");
    if (step != SQLITE_ROW)
        return store_error(c, "read a key");
    read_key(st, ret_row);
    return NULL;
}

err *store_key_by_hash(store *s, const uint8_t sha256[32], key_row *ret_row)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_KEY_BY_HASH, &st));
    bind_blob(st, 1, sha256, 32);
    return read_one_key(r.c, st, ret_row);
}

err *store_key_get(store *s, const char *id, key_row *ret_row)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_KEY_BY_ID, &st));
    bind_text(st, 1, id);
    return read_one_key(r.c, st, ret_row);
}

err *store_key_list(store *s, key_row **ret_rows, size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    key_row *rows = NULL;
    size_t n = 0;
    int step;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_KEY_LIST, &st));
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        rows = xrealloc(rows, (n + 1) * sizeof *rows);
        read_key(st, &rows[n++]);
    }
    if (step != SQLITE_DONE) {
        while (n)
            key_row_done(&rows[--n]);
        free(rows);
        return store_error(r.c, "list keys");
    }
    *ret_rows = rows;
    *ret_n = n;
    return NULL;
}

static err *remove_by(store_conn *c, enum store_sql which, const char *id, const char *kind)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, which, &st));
    bind_text(st, 1, id);
    TRY(store_step_done(c, st, "remove a record"));
    if (!sqlite3_changes(c->db))
        return err_kind(err_new(ERR_NOT_FOUND, "no %s '%.128s'", kind, id), kind);
    return NULL;
}

typedef struct key_quota {
    const char *id;
    const quota *quota;
} key_quota;

static err *run_key_quota(store_conn *c, void *arg)
{
    const key_quota *k = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_KEY_QUOTA, &st));
    bind_text(st, 1, k->id);
    bind_quota(st, 2, k->quota);
    TRY(store_step_done(c, st, "change a key"));
    if (!sqlite3_changes(c->db))
        return err_kind(err_new(ERR_NOT_FOUND, "no key '%.128s'", k->id), "key");
    return NULL;
}

err *store_key_quota(store *s, const char *id, const quota *q)
{
    return store_write(s, run_key_quota, &(key_quota){id, q});
}

static err *run_key_remove(store_conn *c, void *arg)
{
    return remove_by(c, SQL_KEY_REMOVE, arg, "key");
}

err *store_key_remove(store *s, const char *id)
{
    return store_write(s, run_key_remove, (void *)id);
}

err *store_epoch_each(store *s, void (*each)(void *arg, const char *owner, uint64_t epoch),
                      void *arg)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    int step;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_EPOCH_LIST, &st));
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        CLEANUP(freep) char *owner = column_text(st, 0);
        each(arg, str_or(owner, ""), (uint64_t)sqlite3_column_int64(st, 1));
    }
    return step == SQLITE_DONE ? NULL : store_error(r.c, "list epochs");
}

/* ---- images ---- */

void image_row_done(image_row *r)
{
    free(r->name);
    free(r->config);
    memset(r, 0, sizeof *r);
}

static err *run_image_put(store_conn *c, void *arg)
{
    const image_row *r = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_IMAGE_PUT, &st));
    bind_text(st, 1, r->name);
    bind_blob(st, 2, r->digest, sizeof r->digest);
    bind_text(st, 3, r->config);
    bind_time(st, 4, r->created_ns);
    return store_step_done(c, st, "record an image");
}

err *store_image_put(store *s, const image_row *r)
{
    return store_write(s, run_image_put, (void *)r);
}

static err *run_image_remove(store_conn *c, void *arg)
{
    return remove_by(c, SQL_IMAGE_REMOVE, arg, "image");
}

err *store_image_remove(store *s, const char *name)
{
    return store_write(s, run_image_remove, (void *)name);
}

err *store_image_list(store *s, image_row **ret_rows, size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    image_row *rows = NULL;
    size_t n = 0;
    int step;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_IMAGE_LIST, &st));
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        rows = xrealloc(rows, (n + 1) * sizeof *rows);
        image_row *row = &rows[n++];
        *row = (image_row){.name = column_text(st, 0), .config = column_text(st, 2)};
        column_blob(st, 1, row->digest, sizeof row->digest);
        row->created_ns = (uint64_t)sqlite3_column_int64(st, 3);
    }
    if (step != SQLITE_DONE) {
        while (n)
            image_row_done(&rows[--n]);
        free(rows);
        return store_error(r.c, "list images");
    }
    *ret_rows = rows;
    *ret_n = n;
    return NULL;
}
