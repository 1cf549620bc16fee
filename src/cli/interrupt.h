/* Ctrl-C while a command runs: the first signal is passed to the command, the second ends
 * everything.
 *
 * A thread waits for INT, TERM, HUP and QUIT. interrupt_start() blocks them in all other threads,
 * so call it before any other thread is made. One per program. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "cli/cli.h"

/* remove: the second signal removes the sandbox; otherwise it only kills the command. */
err *interrupt_start(const cli *c, bool remove) ERR_MUST;
/* Set what a signal is to end. Before interrupt_exec() there is only the sandbox. */
void interrupt_sandbox(const char *sandbox);
void interrupt_exec(const char *exec);
/* Returns the number of a signal that came before there was a command, else 0. */
int interrupt_pending(void);
/* Call before the program ends by itself. Never returns if the thread is ending the program. */
void interrupt_stop(void);
