/* Rows of sandboxes: inserts, updates, lookups, lists, and forgetting ended ones. */
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "store/internal.h"

void sandbox_row_done(sandbox_row *r)
{
    free(r->owner);
    free(r->name);
    free(r->state);
    free(r->cause);
    free(r->image);
    free(r->spec);
    free(r->walls);
    memset(r, 0, sizeof *r);
}

static err *no_sandbox(const char *id)
{
    return err_kind(err_new(ERR_NOT_FOUND, "no sandbox '%.64s'", id), "sandbox");
}

static bool is_zero(const uint8_t *p, size_t n)
{
    uint8_t any = 0;

    for (size_t i = 0; i < n; i++)
        any |= p[i];
    return !any;
}

static void read_row(sqlite3_stmt *st, sandbox_row *r)
{
    CLEANUP(freep) char *id = column_text(st, 0);

    memset(r, 0, sizeof *r);
    str_copy(r->id, sizeof r->id, str_or(id, ""));
    r->owner = column_text(st, 1);
    r->name = column_text(st, 2);
    r->state = column_text(st, 3);
    r->cause = column_text(st, 4);
    r->image = column_text(st, 5);
    column_blob(st, 6, r->digest, sizeof r->digest);
    r->spec = column_text(st, 7);
    r->created_ns = (uint64_t)sqlite3_column_int64(st, 8);
    r->ttl_ns = (uint64_t)sqlite3_column_int64(st, 9);
    r->ended_ns = (uint64_t)sqlite3_column_int64(st, 10);
    column_blob(st, 11, r->key, sizeof r->key);
    column_blob(st, 12, r->body, sizeof r->body);
    r->walls = column_text(st, 13);
    r->paused_ns = (uint64_t)sqlite3_column_int64(st, 14);
    r->pending = sqlite3_column_int(st, 15) != 0;
}

/* ---- insert ---- */

static err *is_there(store_conn *c, sqlite3_stmt *st, bool *ret_there)
{
    int r = sqlite3_step(st);

    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return store_error(c, "look for a sandbox");
    *ret_there = r == SQLITE_ROW;
    return NULL;
}

static err *name_free(store_conn *c, const char *owner, const char *name)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    bool there = false;

    TRY(store_stmt(c, SQL_SANDBOX_BY_NAME, &st));
    bind_text(st, 1, owner);
    bind_text(st, 2, name);
    TRY(is_there(c, st, &there));
    if (!there)
        return NULL;
    return err_remedy(
        err_kind(err_new(ERR_CONFLICT, "there is a live sandbox named '%s'", name), "name"),
        "Choose another name, or end that sandbox first.");
}

/* Returns which rule an insert broke. Checks the key first: a repeated create of a named sandbox
 * breaks both. */
static err *explain_conflict(store_conn *c, const sandbox_row *row)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *by_key = NULL;
    bool there = false;

    TRY(store_stmt(c, SQL_SANDBOX_BY_KEY, &by_key));
    bind_blob(by_key, 1, row->key, sizeof row->key);
    TRY(is_there(c, by_key, &there));
    if (there && !is_zero(row->key, sizeof row->key))
        return err_kind(err_new(ERR_CONFLICT, "the idempotency key is taken"), "key");
    TRY(name_free(c, row->owner, row->name));
    return err_kind(err_new(ERR_CONFLICT, "there is a sandbox '%s'", row->id), "id");
}

static err *run_insert(store_conn *c, void *arg)
{
    const sandbox_row *r = arg;
    bool keyed = !is_zero(r->key, sizeof r->key);
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_INSERT, &st));
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->owner);
    bind_text(st, 3, r->name);
    bind_text(st, 4, r->state);
    bind_text(st, 5, r->cause);
    bind_text(st, 6, r->image);
    bind_blob(st, 7, r->digest, sizeof r->digest);
    bind_text(st, 8, str_or(r->spec, "{}"));
    bind_time(st, 9, r->created_ns);
    bind_time(st, 10, r->ttl_ns);
    bind_time(st, 11, r->ended_ns);
    if (keyed) {
        bind_blob(st, 12, r->key, sizeof r->key);
        bind_blob(st, 13, r->body, sizeof r->body);
    }
    int done = sqlite3_step(st);
    int code = sqlite3_extended_errcode(c->db);
    if (done == SQLITE_DONE)
        return NULL;
    if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY)
        return explain_conflict(c, r);
    return store_error(c, "record a sandbox");
}

err *store_sandbox_insert(store *s, const sandbox_row *r)
{
    return store_write_about(s, r->id, run_insert, (void *)r);
}

store_pending *store_sandbox_insert_begin(store *s, const sandbox_row *r)
{
    return store_write_begin(s, r->id, run_insert, (void *)r);
}

/* ---- updates ---- */

typedef struct update { /* its strings are owned only when queued */
    store_states *told; /* notify the watcher; NULL: no notification */
    char id[SANDBOX_ID_LEN + 1];
    char *state, *cause, *spec, *walls;
    uint64_t time, ttl;
} update;

static void set_id(update *u, const char *id)
{
    str_copy(u->id, sizeof u->id, id);
}

static void update_free(void *arg)
{
    update *u = arg;

    free(u->state);
    free(u->cause);
    free(u->spec);
    free(u->walls);
    free(u);
}

static void update_told(void *arg, bool settled)
{
    update *u = arg;

    if (!u->told)
        return;
    LOCK_SCOPE(&u->told->lock);
    if (u->told->notify)
        u->told->notify(u->told->arg, u->id, settled);
}

void store_state_watch(store *s, void (*notify)(void *arg, const char *id, bool settled), void *arg)
{
    LOCK_SCOPE(&s->states.lock);

    s->states.notify = notify;
    s->states.arg = arg;
}

/* Queues an update. Takes ownership of u. */
static void update_queue(store *s, update *u, store_write_fn *run)
{
    store_write_queued(
        s,
        &(store_queued){
            .subject = u->id, .run = run, .arg = u, .release = update_free, .told = update_told});
}

static err *run_update(store_conn *c, sqlite3_stmt *st, const char *id)
{
    TRY(store_step_done(c, st, "update a sandbox"));
    return sqlite3_changes(c->db) ? NULL : no_sandbox(id);
}

static err *run_state(store_conn *c, void *arg)
{
    const update *u = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_STATE, &st));
    bind_text(st, 1, u->id);
    bind_text(st, 2, u->state);
    bind_text(st, 3, u->cause);
    bind_time(st, 4, u->time);
    bind_text(st, 5, u->walls);
    return run_update(c, st, u->id);
}

err *store_sandbox_state(store *s, const char *id, const char *state, const char *cause,
                         uint64_t ended_ns)
{
    update u = {.state = (char *)state, .cause = (char *)cause, .time = ended_ns};

    set_id(&u, id);
    return store_write_about(s, u.id, run_state, &u);
}

void store_sandbox_state_queued(store *s, const char *id, const char *state, const char *cause,
                                uint64_t ended_ns)
{
    update *u = xcalloc(1, sizeof *u);

    u->told = &s->states;
    set_id(u, id);
    u->state = xstrdup(state);
    u->cause = cause ? xstrdup(cause) : NULL;
    u->time = ended_ns;
    update_queue(s, u, run_state);
}

void store_sandbox_running_queued(store *s, const char *id, const char *state, const char *walls)
{
    update *u = xcalloc(1, sizeof *u);

    set_id(u, id);
    u->state = xstrdup(state);
    u->walls = walls ? xstrdup(walls) : NULL;
    update_queue(s, u, run_state);
}

static err *run_pause(store_conn *c, void *arg)
{
    const update *u = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_PAUSE, &st));
    bind_text(st, 1, u->id);
    bind_text(st, 2, u->state);
    bind_time(st, 3, u->time);
    bind_time(st, 4, u->ttl);
    return run_update(c, st, u->id);
}

err *store_sandbox_pause(store *s, const char *id, const char *state, uint64_t paused_ns,
                         uint64_t ttl_ns)
{
    update u = {.state = (char *)state, .time = paused_ns, .ttl = ttl_ns};

    set_id(&u, id);
    return store_write_about(s, u.id, run_pause, &u);
}

static err *run_spec(store_conn *c, void *arg)
{
    const update *u = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_SPEC, &st));
    bind_text(st, 1, u->id);
    bind_text(st, 2, u->spec);
    bind_time(st, 3, u->time);
    return run_update(c, st, u->id);
}

err *store_sandbox_spec(store *s, const char *id, const char *spec, uint64_t ttl_ns)
{
    update u = {.spec = (char *)spec, .time = ttl_ns};

    set_id(&u, id);
    return store_write_about(s, u.id, run_spec, &u);
}

static err *run_reset(store_conn *c, void *arg)
{
    const sandbox_reset *r = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *row = NULL;
    CLEANUP(stmt_resetp) sqlite3_stmt *event = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_RESET, &row));
    bind_text(row, 1, r->id);
    bind_text(row, 2, r->spec);
    bind_text(row, 3, r->walls);
    TRY(run_update(c, row, r->id));
    TRY(store_stmt(c, SQL_EVENT_RESET, &event));
    bind_text(event, 1, r->id);
    return store_step_done(c, event, "tell of a reset");
}

store_pending *store_sandbox_reset_begin(store *s, const sandbox_reset *r)
{
    return store_write_begin(s, r->id, run_reset, (void *)r);
}

static err *run_pending(store_conn *c, void *arg)
{
    const update *u = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_PENDING, &st));
    bind_text(st, 1, u->id);
    bind_time(st, 2, u->time);
    return run_update(c, st, u->id);
}

err *store_sandbox_pending(store *s, const char *id, bool pending)
{
    update u = {.time = pending};

    set_id(&u, id);
    return store_write_about(s, u.id, run_pending, &u);
}

static err *run_free_key(store_conn *c, void *arg)
{
    const update *u = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_FREE_KEY, &st));
    bind_text(st, 1, u->id);
    return run_update(c, st, u->id);
}

void store_sandbox_free_key_queued(store *s, const char *id)
{
    update *u = xcalloc(1, sizeof *u);

    set_id(u, id);
    update_queue(s, u, run_free_key);
}

/* ---- reads ---- */

static err *read_one(store_conn *c, sqlite3_stmt *st, const char *id, sandbox_row *ret_row)
{
    int r = sqlite3_step(st);

    if (r == SQLITE_DONE)
        return no_sandbox(id);
    if (r != SQLITE_ROW)
        return store_error(c, "read a sandbox");
    read_row(st, ret_row);
    return NULL;
}

err *store_sandbox_get(store *s, const char *id, sandbox_row *ret_row)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_SANDBOX_GET, &st));
    bind_text(st, 1, id);
    return read_one(r.c, st, id, ret_row);
}

err *store_sandbox_by_key(store *s, const uint8_t key[16], sandbox_row *ret_row)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_SANDBOX_BY_KEY, &st));
    bind_blob(st, 1, key, 16);
    return read_one(r.c, st, "of this key", ret_row);
}

err *store_sandbox_name_free(store *s, const char *owner, const char *name)
{
    CLEANUP(store_read_end) store_read r = {0};

    TRY(store_read_begin(s, &r));
    return name_free(r.c, owner, name);
}

static err *seq_of(store_conn *c, const sandbox_page *page, sqlite3_int64 *ret_seq)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    bool there = false;

    TRY(store_stmt(c, SQL_SANDBOX_SEQ, &st));
    bind_text(st, 1, page->after);
    bind_text(st, 2, page->owner);
    TRY(is_there(c, st, &there));
    if (!there)
        return err_remedy(err_kind(err_new(ERR_NOT_FOUND,
                                           "the list cannot go on after '%.64s', "
                                           "which has been forgotten",
                                           page->after),
                                   "cursor"),
                          "Read the list from its beginning.");
    *ret_seq = sqlite3_column_int64(st, 0);
    return NULL;
}

static void free_rows(sandbox_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sandbox_row_done(&rows[i]);
    free(rows);
}

err *store_sandbox_list(store *s, const sandbox_page *page, sandbox_row **ret_rows, size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    sqlite3_int64 seq = 0;
    sandbox_row *rows = NULL;
    size_t n = 0;
    int step;

    TRY(store_read_begin(s, &r));
    if (*page->after)
        TRY(seq_of(r.c, page, &seq));
    TRY(store_stmt(r.c,
                   page->without_gone ? SQL_SANDBOX_LIST_LIVE
                   : page->owner      ? SQL_SANDBOX_LIST_OWNER
                                      : SQL_SANDBOX_LIST,
                   &st));
    sqlite3_bind_int64(st, 1, seq);
    sqlite3_bind_int64(st, 2, page->max > INT32_MAX ? INT32_MAX : (sqlite3_int64)page->max);
    if (page->without_gone || page->owner)
        bind_text(st, 3, page->owner);
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        if (!(n & (n + 1))) /* 0, 1, 3, 7, …: the array doubles */
            rows = xrealloc(rows, (2 * n + 1) * sizeof *rows);
        read_row(st, &rows[n++]);
    }
    if (step != SQLITE_DONE) {
        free_rows(rows, n);
        return store_error(r.c, "list sandboxes");
    }
    *ret_rows = rows;
    *ret_n = n;
    return NULL;
}

/* ---- forgetting ---- */

typedef struct forgotten {
    uint64_t before;
    char (*ids)[SANDBOX_ID_LEN + 1];
    size_t n;
} forgotten;

static err *collect_ids(store_conn *c, sqlite3_stmt *st, forgotten *f)
{
    int step;

    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        if (!(f->n & (f->n + 1))) /* 0, 1, 3, 7, …: the array doubles */
            f->ids = xrealloc(f->ids, (2 * f->n + 1) * sizeof *f->ids);
        str_copy(f->ids[f->n++], sizeof *f->ids, (const char *)sqlite3_column_text(st, 0));
    }
    return step == SQLITE_DONE ? NULL : store_error(c, "collect the ids of ended sandboxes");
}

err *store_sandbox_ended(store *s, uint64_t from_ns, uint64_t before_ns,
                         char (**ret_ids)[SANDBOX_ID_LEN + 1], size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    forgotten f = {0};

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_SANDBOX_ENDED, &st));
    bind_time(st, 1, from_ns);
    bind_time(st, 2, before_ns);
    err *e = collect_ids(r.c, st, &f);
    if (e) {
        free(f.ids);
        return e;
    }
    *ret_ids = f.ids;
    *ret_n = f.n;
    return NULL;
}

static err *run_forget(store_conn *c, void *arg)
{
    forgotten *f = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_SANDBOX_FORGET, &st));
    bind_time(st, 1, f->before);
    return collect_ids(c, st, f);
}

typedef struct forgotten_events {
    uint64_t before;
    int n;
} forgotten_events;

static err *run_forget_events(store_conn *c, void *arg)
{
    forgotten_events *f = arg;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_EVENT_FORGET, &st));
    bind_time(st, 1, f->before);
    TRY(store_step_done(c, st, "forget events"));
    f->n = sqlite3_changes(c->db);
    return NULL;
}

err *store_sandbox_forget(store *s, uint64_t before_ns, char (**ret_ids)[SANDBOX_ID_LEN + 1],
                          size_t *ret_n)
{
    forgotten f = {.before = before_ns};
    forgotten_events events = {.before = before_ns, .n = 1};
    err *e = NULL;

    while (!e && events.n) /* in pieces, so that other writes can come between */
        e = store_write(s, run_forget_events, &events);
    if (!e)
        e = store_write(s, run_forget, &f);
    if (e) {
        free(f.ids);
        return e;
    }
    *ret_ids = f.ids;
    *ret_n = f.n;
    return NULL;
}
