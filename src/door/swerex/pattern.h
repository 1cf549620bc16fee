/* Compiles a pattern of Python's `re` to a program for a machine that reads a text once (expect.c).
 * Pure.
 *
 * The pattern comes from a caller. It is read from left to right without recursion: open groups lie
 * on a stack of REX_NESTING_MAX. A counted repetition is copied as often as it counts, so the
 * program's size is what is limited, before a byte is copied. Lookaround, back-references and flags
 * are refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define REX_PATTERN_MAX  1024u        /* bytes of a pattern */
#define REX_NESTING_MAX  32u          /* nested groups */
#define REX_COUNT_MAX    1024u        /* {n} */
#define REX_PROGRAM_MAX  8192u        /* instructions of a pattern */
#define REX_PROGRAMS_MAX (32u * 1024) /* of all patterns of an action */

enum rex_op {
    REX_CHAR,       /* consumes the character x */
    REX_ANY,        /* consumes any character */
    REX_CLASS,      /* consumes a character of the class x */
    REX_SPLIT_NEXT, /* continues at the next instruction; second choice: the one x ahead */
    REX_SPLIT_JUMP, /* continues at the one x ahead; second choice: the next */
    REX_JUMP,
    REX_START, /* assertions */
    REX_END,
    REX_EDGE,
    REX_NO_EDGE,
    REX_MATCH, /* of pattern x */
};

typedef struct rex_step {
    enum rex_op op;
    int32_t x; /* jumps are relative, so a part of a program can be copied */
} rex_step;

typedef struct rex_range {
    uint32_t from, to;
} rex_range;

enum rex_kind { /* kinds of characters: bits */
    REX_DIGIT = 1,
    REX_WORD = 2,
    REX_SPACE = 4,
    REX_KINDS = 3
};

typedef struct rex_class {
    bool negated;
    unsigned kinds, other_kinds; /* kinds it has, kinds whose complement it has */
    uint64_t ascii[2];           /* the result for each of the first 128 characters */
    size_t first, n;             /* its ranges */
} rex_class;

/* A zeroed program is empty. */
typedef struct rex_program {
    rex_step *step;
    rex_class *class;
    rex_range *range;
    size_t n, cap;
    size_t nclasses, classes_cap;
    size_t nranges, ranges_cap;
} rex_program;

void rex_program_done(rex_program *p);
/* Appends the pattern and a REX_MATCH of `number`. After ERR_INVALID_REQUEST p must not be used. */
err *rex_program_add(rex_program *p, const char *pattern, int32_t number) ERR_MUST;
/* Appends the text as literal characters, and a REX_MATCH of `number`. */
void rex_program_add_text(rex_program *p, const char *text, int32_t number);
void rex_program_put(rex_program *p, enum rex_op op, int32_t x);
bool rex_class_has(const rex_program *p, const rex_class *c, uint32_t character);
bool rex_is_word(uint32_t character);
