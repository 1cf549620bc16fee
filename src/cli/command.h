/* Runs one command in a sandbox and shows its output: shared by run and exec. */
#pragma once

#include <stdbool.h>

#include "cli/attach.h"
#include "cli/cli.h"

typedef struct command {
    const char *sandbox; /* its id */
    json_t *body;        /* of POST .../processes; owned by the caller */
    bool stdin_open;     /* our stdin is passed on */
    bool bound;          /* the sandbox is removed when we end */
} command;

/* Starts the command; *ret_exec is its id. */
err *command_start(cli *c, const command *cmd, char **ret_exec) ERR_MUST;
/* Follows the command to its end and sets *status to the exit status. With --json everything is
 * printed in one object at the end. If our stdout is closed, ends the command and sets
 * 128+SIGPIPE. */
err *command_follow(cli *c, const command *cmd, const char *exec, int *status) ERR_MUST;
/* Makes the body of an exec from its argv. */
err *command_body(char *const *argv, json_t **ret_body) ERR_MUST;
/* Checks -t against -i and stdin, and parses the detach keys (text; NULL: the default). */
err *command_check_tty(bool tty, bool input, const char *text, keys *ret_keys) ERR_MUST;
/* Starts the command and attaches our terminal to it. */
err *command_attach(cli *c, const command *cmd, const keys *detach, enum attach_how *ret_how,
                    int *status) ERR_MUST;
