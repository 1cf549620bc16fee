/* Options as tables.
 *
 * A verb has one table of options. Parsing, --help, the completion and the manual page all read it,
 * so none of them can say something else than the others. Values go into the verb's own struct by
 * offset; what is not given keeps its zero.
 *
 *     typedef struct ls_args { bool all, quiet; } ls_args;
 *     static const opt OPTS[] = {
 *         OPT('a', "all", NULL, OPT_FLAG, ls_args, all, "also sandboxes that are gone"),
 *         OPT_END};
 *
 * Parsed strings belong to argv; lists and nothing else are allocated (opt_args_done). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum opt_kind {
    OPT_FLAG,     /* bool */
    OPT_TEXT,     /* const char * */
    OPT_LIST,     /* char **: may be given several times */
    OPT_BYTES,    /* uint64_t: 512m */
    OPT_DURATION, /* uint64_t: milliseconds from 30s, 5m */
    OPT_COUNT,    /* uint64_t: a whole number, at least 1 */
    OPT_CORES,    /* uint64_t: thousandths, from 0.5 */
    OPT_CHOICE,   /* const char *: one of the words in arg, "none|open" */
} opt_kind;

typedef struct opt {
    char letter;      /* 0: none */
    const char *name; /* long name, without dashes; NULL ends a table */
    const char *arg;  /* name of its argument, NULL for flags */
    const char *help; /* one line, lower case, no full stop; NULL hides it */
    opt_kind kind;
    size_t offset;
} opt;

#define OPT(letter_, name_, arg_, kind_, type_, member_, help_)      \
    {                                                                \
        letter_, name_, arg_, help_, kind_, offsetof(type_, member_) \
    }
#define OPT_END \
    {           \
        0, NULL \
    }

/* The words that are not options. */
typedef struct opt_words {
    char **v; /* points into argv; NULL-terminated */
    int n;
} opt_words;

/* Parses argv[0..argc) into args and moves the words to the front. stop_early: options end at the
 * first word (as in docker run and exec), and a "--" right after that word is dropped. context: how
 * the verb is called ("bothy run"), for messages. */
err *opt_parse(const opt *table, const char *context, bool stop_early, int argc, char **argv,
               void *args, opt_words *ret_words) ERR_MUST;
/* Frees the lists of an args struct. */
void opt_args_done(const opt *table, void *args);

/* Appends the part of --help that lists the options. */
void opt_help(const opt *table, buf *out);
/* Appends "-e, --env NAME=VALUE". */
void opt_spell(const opt *o, buf *out);
