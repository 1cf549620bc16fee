/* Exit statuses: the command's own, or those that docker uses. */
#pragma once

#include "base/err.h"
#include "base/json.h"

/* Returns the status for an end record: its exit code, 128+n, 124, 126, 127; 125 if the end is
 * unknown. */
int exit_of_end(const json_t *end);
/* Returns the status for an error: the error table's, but 127 for a program that does not exist. */
int exit_of_error(const err *e);
/* Returns the message for an end that is not a plain exit, or NULL. */
err *exit_error_of_end(const json_t *end);
