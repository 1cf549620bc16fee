/* Reads secrets: typed without echo, or from stdin; never from our arguments. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Asks on the terminal (not stdin). Wipe the answer with secret_freep(). */
err *prompt_line(const char *question, bool echo, char **ret_text) ERR_MUST;
/* Reads all of stdin, at most max bytes, without the last newline. */
err *password_from_stdin(size_t max, char **ret_text) ERR_MUST;
