/* Turns: threads that wait, owners that hold places, and the choice of the next thread. */
#include "engine/turns.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"

typedef struct turn {
    struct turn *next;
    const char *owner;
    uint64_t after; /* count of turns when its owner had its last one, or when it came */
} turn;

typedef struct holder {
    struct holder *next;
    unsigned n;
    char *owner;
} holder;

void turns_init(turns *t, unsigned places, unsigned each)
{
    *t = (turns){.places = places, .each = each};
    pthread_mutex_init(&t->lock, NULL);
    cond_init(&t->changed);
}

void turns_done(turns *t)
{
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

static holder **holder_of(turns *t, const char *owner)
{
    holder **at = &t->holders;

    while (*at && !str_eq((*at)->owner, owner))
        at = &(*at)->next;
    return at;
}

/* Returns the next thread to get a place: the first one of the owner who has waited longest and may
 * have another place. NULL if there is none. */
static const turn *next_of(turns *t)
{
    const turn *best = NULL;

    for (const turn *i = t->waiting; i; i = i->next) {
        const holder *h = *holder_of(t, i->owner);
        if ((!h || h->n < t->each) && (!best || i->after < best->after))
            best = i;
    }
    return best;
}

static turn **place_of(turns *t, const turn *who)
{
    turn **at = &t->waiting;

    while (*at != who)
        at = &(*at)->next;
    return at;
}

static void turns_begin(turns *t, const char *owner)
{
    holder **h = holder_of(t, owner);

    if (!*h) {
        *h = xcalloc(1, sizeof **h);
        (*h)->owner = xstrdup(owner);
    }
    (*h)->n++;
    t->places--;
    t->begun++;
    for (turn *i = t->waiting; i; i = i->next)
        if (str_eq(i->owner, owner))
            i->after = t->begun;
}

bool turns_take(turns *t, const char *owner, uint64_t until_ns)
{
    LOCK_SCOPE(&t->lock);
    turn self = {.owner = owner, .after = t->begun};
    bool mine, in_time = true;

    *place_of(t, NULL) = &self;
    while (!(mine = t->places && !t->closed && next_of(t) == &self) && !t->closed && in_time)
        in_time = cond_wait_until(&t->changed, &t->lock, until_ns);
    *place_of(t, &self) = self.next;
    if (mine)
        turns_begin(t, owner);
    pthread_cond_broadcast(&t->changed); /* another thread may be the next one now */
    return mine;
}

void turns_give(turns *t, const char *owner)
{
    LOCK_SCOPE(&t->lock);
    holder **h = holder_of(t, owner), *gone = *h;

    t->places++;
    if (!--gone->n) {
        *h = gone->next;
        free(gone->owner);
        free(gone);
    }
    pthread_cond_broadcast(&t->changed);
}

void turns_close(turns *t)
{
    LOCK_SCOPE(&t->lock);

    t->closed = true;
    pthread_cond_broadcast(&t->changed);
}
