/* What a caller waits for on a terminal: Python's regular expressions, as pexpect searches them.
 * Pure.
 *
 * They are a caller's and become POSIX ones. What those cannot say (lookaround, back-references,
 * flags) is refused; `*?` and its like match as much as they can. Length, number and repetitions
 * are bounded, so that compiling is. A match has at most REX_WINDOW bytes, so that searching takes
 * time in proportion to the text, whatever the pattern. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define REX_EXPECT_MAX      64u   /* patterns */
#define REX_PATTERN_MAX     1024u /* bytes of one */
#define REX_REPETITIONS_MAX 1024u /* of a pattern, all counts multiplied */
#define REX_WINDOW          4096u /* bytes of a match that is certain to be found */

typedef struct rex_expect rex_expect;
/* The patterns are copied; last, taken literally, is one more. ERR_INVALID_REQUEST. */
err *rex_expect_new(char *const *patterns, const char *last, rex_expect **ret_expect) ERR_MUST;
void rex_expect_free(rex_expect *e);

typedef struct rex_match {
    size_t from, to;
    const char *pattern; /* as the caller wrote it; lives as long as the expect */
    bool last;           /* it was `last` */
} rex_match;
/* The leftmost at or behind `from`; of those at one place the first in the list. A NUL follows the
 * text. What a search of the same beginning has not found is found from REX_WINDOW before its end.
 */
bool rex_expect_find(const rex_expect *e, const char *text, size_t n, size_t from,
                     rex_match *ret_match);

/* Appends the POSIX form. For tests. */
err *rex_pattern_translate(const char *pattern, buf *out) ERR_MUST;
