/* Events, as doors read them: by number, with a notification when there are new ones. */
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

const char *const EVENT_TYPES[] = {"creating", "running", "paused", "hibernated",
                                   "gone",     "updated", "reset",  NULL};

#define PAGE_MAX 256

static void events_tell(engine *e)
{
    LOCK_SCOPE(&e->event_lock);

    for (event_watch *w = e->watches; w; w = w->next)
        w->notify(w->arg);
}

static void on_committed(void *arg)
{
    events_tell(arg);
}

void events_open(engine *e)
{
    pthread_mutex_init(&e->event_lock, NULL);
    store_event_watch(e->o.store, on_committed, e);
}

void engine_event_watch(engine *e, event_watch *w)
{
    LOCK_SCOPE(&e->event_lock);

    e->nwatches++;
    w->prev = NULL;
    w->next = e->watches;
    if (w->next)
        w->next->prev = w;
    e->watches = w;
}

void engine_event_unwatch(engine *e, event_watch *w)
{
    LOCK_SCOPE(&e->event_lock);

    e->nwatches--;
    *(w->prev ? &w->prev->next : &e->watches) = w->next;
    if (w->next)
        w->next->prev = w->prev;
}

unsigned engine_event_watchers(engine *e)
{
    return e->nwatches;
}

uint64_t engine_event_last(engine *e)
{
    return store_event_last(e->o.store);
}

err *engine_event_check(engine *e, uint64_t after, uint64_t *ret_gap)
{
    uint64_t last = store_event_last(e->o.store), first = 0;

    if (after > last)
        return err_remedy(
            err_kind(err_new(ERR_NOT_FOUND, "there has been no event %lu yet", after), "cursor"),
            "Read from the beginning: the store was put back, or the number is another node's.");
    TRY(store_event_first(e->o.store, &first));
    uint64_t kept_from = first ? first : last + 1;
    *ret_gap = after && kept_from > after + 1 ? kept_from - 1 : 0;
    return NULL;
}

static bool is_wanted(const event_filter *f, const event_row *r)
{
    for (unsigned i = 0; EVENT_TYPES[i]; i++)
        if (str_eq(EVENT_TYPES[i], r->type))
            return !f->types || f->types & 1u << i;
    return !f->types;
}

/* Reads one page of at most PAGE_MAX rows, so that a request does not take long if most rows are
 * filtered out. *ret_next continues behind the page. */
err *engine_event_list(engine *e, const caller *c, const event_filter *f, event_row **ret_rows,
                       size_t *ret_n, uint64_t *ret_next, bool *ret_more)
{
    const event_page page = {.after = f->after,
                             .max = f->types || f->max > PAGE_MAX ? PAGE_MAX : f->max,
                             .owner = c->role == CALLER_ADMIN ? NULL : c->owner,
                             .sandbox = f->sandbox};
    uint64_t last = store_event_last(e->o.store); /* first, so that no later event is skipped */
    event_row *rows = NULL;
    size_t n = 0, kept = 0, i = 0;

    TRY(store_event_list(e->o.store, &page, &rows, &n));
    *ret_next = f->after;
    for (; i < n && kept < f->max; i++) {
        *ret_next = rows[i].seq;
        if (is_wanted(f, &rows[i]))
            rows[kept++] = rows[i];
        else
            event_row_done(&rows[i]);
    }
    *ret_more = i < n || n == page.max;
    for (; i < n; i++)
        event_row_done(&rows[i]);
    if (!*ret_more && last > *ret_next)
        *ret_next = last; /* skips other owners' events the next time */
    *ret_rows = rows;
    *ret_n = kept;
    return NULL;
}
