/* Which start of the machine the state belongs to: after another one nothing that ran can be there.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* The machine was started since boot_remember(); false if that is not known. */
bool boot_is_new(int state);
/* Returns true if it was not; false if that is not known. */
bool boot_is_same(int state);
/* When everything of before has been settled. */
void boot_remember(int state);
/* A name for whoever works on this state: the same until the machine is started again, and of no
 * copy of it. The state's lock is held, so whoever had the name before is dead. */
err *boot_holder(int state, char **ret_name) ERR_MUST;
