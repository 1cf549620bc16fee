/* Exit statuses: the command's own, or docker's habits. */
#pragma once

#include "base/err.h"
#include "base/json.h"

/* Of an end record: its exit code, 128+n, 124, 126, 127; 125 when the end is unknown. */
int exit_of_end(const json_t *end);
/* Of an error: the table's, but 127 for a program that is not there. */
int exit_of_error(const err *e);
/* What to tell about an end that is not a plain exit, or NULL. */
err *exit_error_of_end(const json_t *end);
