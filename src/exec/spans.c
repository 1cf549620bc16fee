/* Ranges of a stream that are gone, in a sorted array. */
#include "exec/spans.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* Returns the index of the first range that ends at `at` or behind it. */
static size_t spans_index(const spans *s, uint64_t at)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->at[mid].to < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void spans_add(spans *s, uint64_t from, uint64_t to)
{
    size_t i = spans_index(s, from), j;

    for (j = i; j < s->n && s->at[j].from <= to; j++) {
        from = s->at[j].from < from ? s->at[j].from : from;
        to = s->at[j].to > to ? s->at[j].to : to;
    }
    if (i == j && s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1;
        s->at = xrealloc(s->at, s->cap * sizeof *s->at);
    }
    memmove(s->at + i + 1, s->at + j, (s->n - j) * sizeof *s->at);
    s->at[i] = (span){from, to};
    s->n = s->n - (j - i) + 1;
}

uint64_t spans_bytes(const spans *s, uint64_t from, uint64_t to)
{
    uint64_t n = 0;

    for (size_t i = spans_index(s, from); i < s->n && s->at[i].from < to; i++) {
        uint64_t a = s->at[i].from > from ? s->at[i].from : from;
        uint64_t b = s->at[i].to < to ? s->at[i].to : to;
        n += b > a ? b - a : 0;
    }
    return n;
}

const span *spans_find(const spans *s, uint64_t at)
{
    size_t i = spans_index(s, at + 1);

    return i < s->n ? &s->at[i] : NULL;
}

void spans_done(spans *s)
{
    free(s->at);
    *s = (spans){0};
}
