/* Extracts the requested part of a file, by bytes or by lines, from the pieces it comes in. Pure.
 *
 * A gap between two pieces, or behind the last one, is a hole: zeros of any length. No more of them
 * are made than the part has room for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct page {     /* page_done() frees */
    uint64_t first, last; /* requested lines, from 1 */
    size_t limit;         /* maximum number of bytes */

    buf bytes;
    uint64_t at;   /* the next byte of the file that is wanted */
    uint64_t line; /* the line that `at` is in; 0: lines are not counted */
    uint64_t seen; /* end of the pieces so far */
    bool full;     /* the part is complete */
} page;
void page_of_bytes(page *p, uint64_t from, size_t limit);
void page_of_lines(page *p, uint64_t first, uint64_t last, size_t limit);
/* Adds a piece. Pieces come in order; bytes before the requested part are skipped. */
void page_take(page *p, uint64_t offset, const char *bytes, size_t n);
/* Ends the file, which has `size` bytes. */
void page_end(page *p, uint64_t size);
void page_done(page *p);
