/* The user's terminal: raw while a program in a sandbox uses it, and restored however we end.
 *
 * One per program, main thread. After tty_raw() it is restored at exit() and before a signal kills
 * us; only SIGKILL and a crash of the machine leave it raw. Signals arrive as bytes in a pipe, to
 * be polled with everything else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Returns rows and columns of the first of descriptors 0 to 2 that is a terminal; false if none
 * is. */
bool tty_size(uint16_t *ret_rows, uint16_t *ret_cols);

/* Makes stdin raw, and remembers its state. */
err *tty_raw(void) ERR_MUST;
void tty_restore(void); /* restores that state; does nothing if it is not raw */
void tty_again(void);   /* raw again, if it should be: a shell used it meanwhile */

/* From now on sends WINCH, CONT, TSTP, INT, TERM, HUP and QUIT as numbers into a pipe, except those
 * that were ignored. Returns the descriptor to poll. tty_signal() returns the next number, 0 if
 * there is none. */
int tty_signals_start(void);
int tty_signal(void);
void tty_signals_stop(void); /* restores the handlers */
/* Stops us as Ctrl-Z of a terminal would. Returns when we are continued; raw again if it was
 * raw. */
void tty_suspend(void);
