/* Events: read by number. The watcher is notified after their commit. */
#include <stdatomic.h>
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "store/internal.h"

void event_row_done(event_row *r)
{
    free(r->sandbox);
    free(r->owner);
    free(r->type);
    free(r->detail);
    memset(r, 0, sizeof *r);
}

/* ---- the writer's side ---- */

/* SQLite's update hook; also called for inserts by triggers. */
static void on_update(void *arg, int op, const char *db, const char *table, sqlite3_int64 rowid)
{
    store_events *ev = arg;

    (void)db;
    if (op == SQLITE_INSERT && !strcmp(table, "events"))
        ev->newest = (uint64_t)rowid;
}

err *store_events_open(store_events *ev, store_conn *writer)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(writer, SQL_EVENT_LAST, &st));
    if (sqlite3_step(st) != SQLITE_ROW)
        return store_error(writer, "read the newest event");
    ev->last = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_update_hook(writer->db, on_update, ev);
    return NULL;
}

bool store_events_committed(store_events *ev, bool done)
{
    uint64_t newest = ev->newest;

    ev->newest = 0;
    if (!newest || !done)
        return false;
    atomic_store(&ev->last, newest);
    return true;
}

void store_events_notify(store_events *ev)
{
    LOCK_SCOPE(&ev->lock);

    if (ev->notify)
        ev->notify(ev->arg);
}

void store_event_watch(store *s, void (*notify)(void *arg), void *arg)
{
    store_events *ev = &s->writer.events;
    LOCK_SCOPE(&ev->lock);

    ev->notify = notify;
    ev->arg = arg;
}

uint64_t store_event_last(store *s)
{
    return atomic_load(&s->writer.events.last);
}

/* ---- reading ---- */

static void read_event(sqlite3_stmt *st, event_row *r)
{
    *r = (event_row){.seq = (uint64_t)sqlite3_column_int64(st, 0),
                     .time_ns = (uint64_t)sqlite3_column_int64(st, 1),
                     .sandbox = column_text(st, 2),
                     .owner = column_text(st, 3),
                     .type = column_text(st, 4),
                     .detail = column_text(st, 5)};
}

err *store_event_list(store *s, const event_page *page, event_row **ret_rows, size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    CLEANUP(freep) event_row *rows = xcalloc(page->max, sizeof *rows);
    size_t n = 0;
    int step = SQLITE_DONE;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c,
                   page->sandbox ? SQL_EVENT_LIST_SANDBOX
                   : page->owner ? SQL_EVENT_LIST_OWNER
                                 : SQL_EVENT_LIST,
                   &st));
    bind_time(st, 1, page->after);
    sqlite3_bind_int64(st, 2, (sqlite3_int64)page->max);
    if (page->sandbox || page->owner)
        bind_text(st, 3, page->owner);
    if (page->sandbox)
        bind_text(st, 4, page->sandbox);
    while (n < page->max && (step = sqlite3_step(st)) == SQLITE_ROW)
        read_event(st, &rows[n++]);
    if (n < page->max && step != SQLITE_DONE) {
        while (n)
            event_row_done(&rows[--n]);
        return store_error(r.c, "list events");
    }
    *ret_rows = TAKE_PTR(rows);
    *ret_n = n;
    return NULL;
}

err *store_event_first(store *s, uint64_t *ret_seq)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_EVENT_FIRST, &st));
    if (sqlite3_step(st) != SQLITE_ROW)
        return store_error(r.c, "read the oldest event");
    *ret_seq = (uint64_t)sqlite3_column_int64(st, 0);
    return NULL;
}
