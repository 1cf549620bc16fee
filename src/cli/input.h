/* Sends our standard input to a command's, by offset: bytes lost on the way are sent again, bytes
 * that arrived are not. Runs in a thread of its own until end of file or the end of the program. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "cli/cli.h"

/* Copies both strings. joins: the command's stdin has bytes already; ours are appended to them. */
err *input_start(const cli *c, const char *sandbox, const char *exec, int fd, bool joins) ERR_MUST;
/* Returns true if some of it could not be read or sent: the command then saw incomplete input, so
 * its result is no success. */
bool input_has_failed(void);
