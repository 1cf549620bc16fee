/* Request bodies of SWE-ReX's clients: plain values with the defaults of its models. Pure.
 *
 * As in SWE-ReX, unknown members are ignored. A wrong type or a missing value is
 * ERR_INVALID_REQUEST, which the door sends as 422. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define REX_RETRIES_MAX 100
#define REX_SECONDS_MAX (30.0 * 86400)

enum rex_check {
    REX_CHECK_RAISE,
    REX_CHECK_SILENT,
    REX_CHECK_IGNORE
};
typedef struct rex_action { /* body of run_in_session */
    char *session;
    char *command; /* wiped by rex_action_done() */
    size_t n;
    double timeout; /* seconds; below 0: none */
    char *error_msg;
    char **expect;
    int retries; /* of an interrupt: how often it is sent */
    enum rex_check check;
    bool interrupt, interactive, quit;
} rex_action;
err *rex_action_decode(const void *p, size_t n, rex_action *ret_action) ERR_MUST;
void rex_action_done(rex_action *a);

typedef struct rex_opening { /* body of create_session */
    char *session;
    char **sources;
    double timeout;
} rex_opening;
err *rex_opening_decode(const void *p, size_t n, rex_opening *ret_opening) ERR_MUST;
void rex_opening_done(rex_opening *o);

typedef struct rex_command { /* body of execute */
    char **argv;
    char *shown; /* repr() of the command */
    char *error_msg;
    char **env;
    char *cwd; /* or NULL */
    double timeout;
    bool check, merge;
} rex_command;
err *rex_command_decode(const void *p, size_t n, rex_command *ret_command) ERR_MUST;
void rex_command_done(rex_command *c);

typedef struct rex_file { /* body of read_file and write_file */
    char *path;
    char *encoding, *errors; /* or NULL */
    char *content;           /* may contain NUL; NULL in a read */
    size_t n;
} rex_file;
err *rex_file_decode(const void *p, size_t n, bool is_write, rex_file *ret_file) ERR_MUST;
void rex_file_done(rex_file *f);

/* Decodes the session's name of close_session. */
err *rex_session_decode(const void *p, size_t n, char **ret_session) ERR_MUST;
