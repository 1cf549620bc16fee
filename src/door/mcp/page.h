/* The part of a file that is asked for, out of the pieces it comes in: by bytes or by lines. Pure.
 *
 * What lies between two pieces, or behind the last one, is a hole: zeros of any length, of which no
 * more are made than the part has room for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct page {     /* page_done() frees */
    uint64_t first, last; /* lines that are wanted, from 1 */
    size_t limit;         /* bytes of it at most */

    buf bytes;
    uint64_t at;   /* the next byte of the file that is expected */
    uint64_t line; /* that `at` is in; 0: lines are not counted */
    uint64_t seen; /* so far the pieces reach */
    bool full;     /* nothing more is wanted */
} page;
void page_of_bytes(page *p, uint64_t from, size_t limit);
void page_of_lines(page *p, uint64_t first, uint64_t last, size_t limit);
/* Pieces come in order; what is before the first byte that is wanted is passed over. */
void page_take(page *p, uint64_t offset, const char *bytes, size_t n);
/* There are no more, and the file has so many bytes. */
void page_end(page *p, uint64_t size);
void page_done(page *p);
