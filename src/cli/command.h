/* Running one command in a sandbox and showing it: what run and exec have in common. */
#pragma once

#include <stdbool.h>

#include "cli/attach.h"
#include "cli/cli.h"

typedef struct command {
    const char *sandbox; /* its id */
    json_t *body;        /* of POST .../processes; owned by the caller */
    bool stdin_open;     /* ours is passed on */
    bool bound;          /* the sandbox goes with us */
} command;

/* Starts it; *ret_exec is its id. */
err *command_start(cli *c, const command *cmd, char **ret_exec) ERR_MUST;
/* Follows it to its end. With --json everything is printed in one object at the end.
 * *status becomes the exit status. A reader that went away ends it with 128+SIGPIPE. */
err *command_follow(cli *c, const command *cmd, const char *exec, int *status) ERR_MUST;
/* The body of an exec: its argv. */
err *command_body(char *const *argv, json_t **ret_body) ERR_MUST;
/* -t: what else was given must fit. keys may be NULL. */
err *command_check_tty(bool tty, bool input, const char *text, keys *ret_keys) ERR_MUST;
/* Starts it and stays in front of it. */
err *command_attach(cli *c, const command *cmd, const keys *detach, enum attach_how *ret_how,
                    int *status) ERR_MUST;
