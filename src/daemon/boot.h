/* Which start of the machine the state belongs to: after another one nothing that ran can be there.
 */
#pragma once

#include <stdbool.h>

/* The machine was started since boot_remember(); false if that is not known. */
bool boot_is_new(int state);
/* When everything of before has been settled. */
void boot_remember(int state);
