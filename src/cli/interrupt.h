/* Ctrl-C while a command runs: the first signal goes to the command, the second ends everything.
 *
 * A thread waits for INT, TERM, HUP and QUIT; interrupt_start() blocks them everywhere else, so it
 * is called before any other thread is made. There is one per program. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "cli/cli.h"

/* remove: the second signal removes the sandbox; otherwise it only kills the command. */
err *interrupt_start(const cli *c, bool remove) ERR_MUST;
/* What there is to interrupt now. exec may be NULL until the command runs. */
void interrupt_sandbox(const char *sandbox);
void interrupt_exec(const char *exec);
/* A signal came before there was a command: its number, else 0. */
int interrupt_pending(void);
/* Before the program ends by itself: if the thread is just ending it, this never returns. */
void interrupt_stop(void);
