/* Ranges of a stream that are gone: ascending, none touches another. The owner locks. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct span {
    uint64_t from, to;
} span;
typedef struct spans {
    span *at;
    size_t n, cap;
} spans;

/* Adds a range; ranges that it touches become one with it. */
void spans_add(spans *s, uint64_t from, uint64_t to);
/* Returns how many bytes of [from, to) are in ranges. */
uint64_t spans_bytes(const spans *s, uint64_t from, uint64_t to);
/* Returns the first range that ends behind `at`, or NULL. */
const span *spans_find(const spans *s, uint64_t at);
void spans_done(spans *s);
