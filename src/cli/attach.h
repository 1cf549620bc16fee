/* Attaches the user's terminal to a command: sends what is typed, shows what the command writes.
 *
 * The sandbox's bytes go to the terminal unchanged, because that is what a terminal is for. So this
 * is the one place where a sandbox controls the user's terminal. A lost connection is made again
 * and continues at the offset reached. One at a time, main thread. */
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
    bool input;             /* our stdin is passed to the command */
    bool again;             /* it may have drawn a screen already: make it redraw */
    bool bound;             /* its sandbox is removed when a signal ends us */
    keys detach;
} attach_args;

enum attach_how {
    ATTACH_ENDED,    /* status is the command's */
    ATTACH_DETACHED, /* by the detach keys */
    ATTACH_SIGNAL,   /* by TERM or HUP, or PIPE: stdout was closed; status is 128 + n */
};
/* Runs until one of these; prints on stderr how the command ended or how to attach again. */
err *attach_run(cli *c, const attach_args *a, enum attach_how *ret_how, int *status) ERR_MUST;

/* Returns an error with the remedy `otherwise` if stdin is used but is no terminal. */
err *attach_check_tty(bool input, const char *otherwise) ERR_MUST;
/* Sets stdio, size and TERM in the body of an exec, like those of our terminal. */
void attach_set_tty(json_t *body, bool input);
