#include "core/rounds.h"

#include <stdlib.h>

#include "base/str.h"

static void line_append(rounds *r, rounds_line *l)
{
    l->prev = r->last;
    l->next = NULL;
    *(r->last ? &r->last->next : &r->first) = l;
    r->last = l;
}

static void line_unlink(rounds *r, rounds_line *l)
{
    *(l->prev ? &l->prev->next : &r->first) = l->next;
    *(l->next ? &l->next->prev : &r->last) = l->prev;
}

static rounds_line *line_of(rounds *r, uint64_t owner)
{
    rounds_line *l = map_get_u64(&r->by_owner, owner);

    if (l)
        return l;
    l = xcalloc(1, sizeof *l);
    l->owner = owner;
    map_put_u64(&r->by_owner, owner, l);
    line_append(r, l);
    return l;
}

static void line_drop(rounds *r, rounds_line *l)
{
    line_unlink(r, l);
    map_take_u64(&r->by_owner, l->owner);
    free(l);
    if (!r->first)
        map_done(&r->by_owner);
}

void rounds_add(rounds *r, rounds_entry *e, uint64_t owner)
{
    rounds_line *l = line_of(r, owner);

    *e = (rounds_entry){.before = l->tail, .line = l};
    *(l->tail ? &l->tail->behind : &l->head) = e;
    l->tail = e;
    l->n++;
}

void rounds_remove(rounds *r, rounds_entry *e)
{
    rounds_line *l = e->line;

    *(e->before ? &e->before->behind : &l->head) = e->behind;
    *(e->behind ? &e->behind->before : &l->tail) = e->before;
    *e = (rounds_entry){0};
    if (!--l->n)
        line_drop(r, l);
}

void rounds_serve(rounds *r, rounds_entry *e)
{
    rounds_line *l = e->line;

    line_unlink(r, l);
    line_append(r, l);
    rounds_remove(r, e);
}

rounds_entry *rounds_next(const rounds *r, const rounds_entry *after)
{
    const rounds_line *l = after ? after->line->next : r->first;

    return l ? l->head : NULL;
}

rounds_entry *rounds_longest(const rounds *r)
{
    const rounds_line *longest = r->first;

    for (const rounds_line *l = longest; l; l = l->next)
        if (l->n > longest->n)
            longest = l;
    return longest ? longest->tail : NULL;
}

uint32_t rounds_waiting(const rounds *r, uint64_t owner)
{
    const rounds_line *l = map_get_u64(&r->by_owner, owner);

    return l ? l->n : 0;
}
