/* Secrets from people: typed without an echo, or piped in; never from our arguments. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Asks on the terminal (not stdin). The answer is wiped by secret_freep(). */
err *prompt_line(const char *question, bool echo, char **ret_text) ERR_MUST;
/* All of stdin, at most max bytes, without its last newline. */
err *password_from_stdin(size_t max, char **ret_text) ERR_MUST;
