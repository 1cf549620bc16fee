/* Table-checked state machines: the legal transitions are data. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct sm_edge {
    int from;
    int to;
} sm_edge;

static inline bool sm_allows(const sm_edge *table, size_t n, int from, int to)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].from == from && table[i].to == to)
            return true;
    return false;
}
