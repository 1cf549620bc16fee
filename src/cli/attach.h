/* Somebody in front of a command: what is typed goes to it, what it writes comes here.
 *
 * The bytes of the sandbox go to our terminal as they are: that is what a terminal is for, and what
 * makes it the one place where a sandbox drives the user's terminal. A connection that is lost is
 * made again and goes on at the offset reached. One at a time, main thread. */
#pragma once

#include <stdbool.h>

#include "cli/cli.h"
#include "cli/keys.h"

#define DETACH_OPT(type, member)                          \
    OPT(0, "detach-keys", "KEYS", OPT_TEXT, type, member, \
        "what leaves it running (default " KEYS_DEFAULT "; empty: nothing)")

typedef struct attach_args {
    const char *sandbox, *exec;
    const char *offset;     /* "out.err", or NULL */
    const char *scrollback; /* without an offset: bytes; NULL: the daemon's default */
    bool input;             /* our stdin is the command's */
    bool again;             /* it may have drawn a screen already: have it drawn anew */
    bool bound;             /* its sandbox goes when a signal ends us */
    keys detach;
} attach_args;

enum attach_how {
    ATTACH_ENDED,    /* status is the command's */
    ATTACH_DETACHED, /* by the keys */
    ATTACH_SIGNAL,   /* by TERM or HUP, or PIPE: nobody reads; status is 128 + n */
};
/* Says what there is to say on stderr: how it ended, how to come back. */
err *attach_run(cli *c, const attach_args *a, enum attach_how *ret_how, int *status) ERR_MUST;

/* For verbs with a terminal: stdin must be one if it is used. */
err *attach_check_tty(bool input, const char *otherwise) ERR_MUST;
/* stdio, size and TERM of a terminal like ours, into the body of an exec. */
void attach_set_tty(json_t *body, bool input);
