/* What clients of SWE-ReX send as JSON: plain values with the defaults of its models. Pure.
 *
 * Unknown members are ignored, as they are there; another type, or nothing where something must be,
 * is ERR_INVALID_REQUEST, which the door tells as 422. */
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
typedef struct rex_action { /* of run_in_session */
    char *session;
    char *command; /* wiped by done */
    size_t n;
    double timeout; /* seconds; below 0: none */
    char *error_msg;
    char **expect;
    int retries; /* of an interrupt */
    enum rex_check check;
    bool interrupt, interactive, quit;
} rex_action;
err *rex_action_decode(const void *p, size_t n, rex_action *ret_action) ERR_MUST;
void rex_action_done(rex_action *a);

typedef struct rex_opening { /* of create_session */
    char *session;
    char **sources;
    double timeout;
} rex_opening;
err *rex_opening_decode(const void *p, size_t n, rex_opening *ret_opening) ERR_MUST;
void rex_opening_done(rex_opening *o);

typedef struct rex_command { /* of execute */
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

typedef struct rex_file { /* of read_file and write_file */
    char *path;
    char *encoding, *errors; /* or NULL */
    char *content;           /* NUL may be in it; NULL: of a read */
    size_t n;
} rex_file;
err *rex_file_decode(const void *p, size_t n, bool is_write, rex_file *ret_file) ERR_MUST;
void rex_file_done(rex_file *f);

/* The session of close_session. */
err *rex_session_decode(const void *p, size_t n, char **ret_session) ERR_MUST;
