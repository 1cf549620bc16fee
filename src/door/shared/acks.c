#include "door/shared/acks.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define ACKS_MAX 256 /* beyond it the newest two are merged, so that less is known exactly */

void follow_acks_note(follow_acks *a, size_t bytes, const uint64_t at[2])
{
    a->wire += bytes;
    follow_ack *last = a->n ? &a->list[a->n - 1] : NULL;
    follow_ack now = {.wire = a->wire, .at = {at[0], at[1]}};

    if (last && last->at[0] == at[0] && last->at[1] == at[1])
        return;
    if (last && a->n == ACKS_MAX) {
        *last = now;
        return;
    }
    if (!a->list || a->n == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 4;
        a->list = xrealloc(a->list, a->cap * sizeof *a->list);
    }
    a->list[a->n++] = now;
}

bool follow_acks_take(follow_acks *a, uint64_t unacked, uint64_t ret_at[2])
{
    uint64_t have = a->wire > unacked ? a->wire - unacked : 0;
    size_t n = 0;

    while (n < a->n && a->list[n].wire <= have)
        n++;
    if (!n)
        return false;
    memcpy(ret_at, a->list[n - 1].at, sizeof a->list[0].at);
    a->n -= n;
    memmove(a->list, a->list + n, a->n * sizeof *a->list);
    if (!a->n) { /* thousands of streams may wait: keep no empty list */
        free(a->list);
        a->list = NULL;
        a->cap = 0;
    }
    return true;
}

void follow_acks_done(follow_acks *a)
{
    free(a->list);
    *a = (follow_acks){0};
}
