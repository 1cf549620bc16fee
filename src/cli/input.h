/* Our standard input to a command's, by offset: what was lost on the way is sent again, what had
 * arrived is not. Runs in a thread of its own until end of file, or until the program ends. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "cli/cli.h"

/* Copies both strings. joins: the command's stdin has bytes already; ours come behind them. */
err *input_start(const cli *c, const char *sandbox, const char *exec, int fd, bool joins) ERR_MUST;
/* Some of it could not be read: whatever the command made of the rest is no success. */
bool input_has_failed(void);
