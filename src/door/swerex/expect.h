/* Searches a terminal's output for the text a caller expects: Python's regular expressions, as
 * pexpect searches them. Pure.
 *
 * The patterns come from a caller, the text from a tenant's program. All patterns are compiled to
 * one program (pattern.h), which a machine without backtracking runs: it holds a set of places in
 * the program and reads each character once. Memory is in proportion to the program. Time is in
 * proportion to program and text. A call stops after REX_WORK_MAX steps; the next one continues. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define REX_EXPECT_MAX 64u          /* patterns */
#define REX_WINDOW     4096u        /* bytes after a match in which a better one may still come */
#define REX_WORK_MAX   (64u * 1024) /* steps of a call, about half a millisecond */

typedef struct rex_expect rex_expect;
/* Compiles copies of the patterns, and `last`, taken literally, as one more.
 * ERR_INVALID_REQUEST. */
err *rex_expect_new(char *const *patterns, const char *last, rex_expect **ret_expect) ERR_MUST;
void rex_expect_free(rex_expect *e);
/* Returns how many bytes of memory it holds. */
size_t rex_expect_size(const rex_expect *e);

typedef struct rex_match {
    uint64_t from, to;   /* offsets in the whole text */
    const char *pattern; /* as the caller wrote it; lives as long as the expect */
    bool last;           /* it is the literal `last` */
} rex_match;
enum rex_found {
    REX_FOUND,
    REX_NOTHING,
    REX_MORE /* not all of the text was read: call again */
};
/* Begins a search in a text that starts at this offset. */
void rex_expect_begin(rex_expect *e, uint64_t at);
uint64_t rex_expect_begun(const rex_expect *e);
/* Returns the offset of the next byte to read. */
uint64_t rex_expect_at(const rex_expect *e);
/* Reads n bytes at rex_expect_at(). `all`: no bytes follow for now, so a match that more text could
 * lengthen is reported as it is, and `$` matches at the end. Reports the leftmost match. If several
 * begin there, the first pattern of the list wins, with the length that Python's `re` gives it,
 * except in repetitions of parts that can be empty. After REX_FOUND a new search begins. */
enum rex_found rex_expect_read(rex_expect *e, const char *p, size_t n, bool all,
                               rex_match *ret_match);
