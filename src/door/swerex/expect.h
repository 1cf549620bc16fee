/* What a caller waits for on a terminal: Python's regular expressions, as pexpect searches them.
 * Pure.
 *
 * Patterns are a caller's, and the text is a tenant's. All patterns are one program (pattern.h), and
 * a machine without backtracking runs it: it holds a set of places in the program and reads each
 * character once. Memory is in proportion to the program. Time is in proportion to program and
 * text, and a call stops after REX_WORK_MAX steps; the next one continues. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define REX_EXPECT_MAX 64u          /* patterns */
#define REX_WINDOW     4096u        /* bytes behind a match in which a better one is waited for */
#define REX_WORK_MAX   (64u * 1024) /* steps of a call, about half a millisecond */

typedef struct rex_expect rex_expect;
/* The patterns are copied; last, taken literally, is one more. ERR_INVALID_REQUEST. */
err *rex_expect_new(char *const *patterns, const char *last, rex_expect **ret_expect) ERR_MUST;
void rex_expect_free(rex_expect *e);
/* Bytes of memory that it holds. */
size_t rex_expect_size(const rex_expect *e);

typedef struct rex_match {
    uint64_t from, to;   /* offsets in the whole text */
    const char *pattern; /* as the caller wrote it; lives as long as the expect */
    bool last;           /* it was `last` */
} rex_match;
enum rex_found {
    REX_FOUND,
    REX_NOTHING,
    REX_MORE /* not all of it was read: call again */
};
/* Begins a search: a text begins at this offset. */
void rex_expect_begin(rex_expect *e, uint64_t at);
uint64_t rex_expect_begun(const rex_expect *e);
/* The next byte that it will read. */
uint64_t rex_expect_at(const rex_expect *e);
/* Reads n bytes at rex_expect_at(). `all`: nothing is behind them now, so a match that could become
 * a longer one is found as it is, and `$` is here. The leftmost match; of those at one place that
 * of the first pattern in the list, as long as Python's `re` makes it, but for repetitions of what can be empty. After REX_FOUND a search
 * begins anew. */
enum rex_found rex_expect_read(rex_expect *e, const char *p, size_t n, bool all,
                               rex_match *ret_match);
