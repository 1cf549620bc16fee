/* Tells whether the machine was restarted since the state was written: then nothing that ran can
 * still be there. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Returns true if the machine was restarted since boot_remember(); false if not, or unknown. */
bool boot_is_new(int state);
/* Returns true if the machine was not restarted since boot_remember(); false if it was, or unknown.
 */
bool boot_is_same(int state);
/* Records this boot. Called when everything from before the restart has been settled. */
void boot_remember(int state);
/* Returns a name for the bothyd that uses this state directory. It stays the same until the machine
 * restarts, and a copy of the directory gets another. The caller holds the state's lock, so a
 * previous holder of the name is dead. */
err *boot_holder(int state, char **ret_name) ERR_MUST;
