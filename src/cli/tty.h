/* Our own terminal: raw while somebody else's program has it, and as it was whatever ends us.
 *
 * One per program, main thread. tty_raw() puts it back at exit() and before a signal kills us; only
 * SIGKILL and a crash of the machine leave it raw. Signals arrive as bytes of a pipe, to be polled
 * with everything else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* rows and cols of the first of our descriptors that is a terminal; false: none is. */
bool tty_size(uint16_t *ret_rows, uint16_t *ret_cols);

/* stdin becomes raw; what it was is kept. */
err *tty_raw(void) ERR_MUST;
void tty_restore(void); /* as it was; again: nothing */
void tty_again(void);   /* raw, if it should be: a shell has had it meanwhile */

/* From now on WINCH, CONT, TSTP, INT, TERM, HUP and QUIT are numbers in the pipe, except those that
 * were ignored. The pipe's end to poll; tty_signal() gives the next one, 0: none. */
int tty_signals_start(void);
int tty_signal(void);
void tty_signals_stop(void); /* as before */
/* Stops us, as a terminal's Ctrl-Z would have; returns when we are continued, raw again if it was.
 */
void tty_suspend(void);
