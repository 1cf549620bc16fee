/* Faults that tests arm: an instruction at which the process dies, an isolation check that is
 * skipped.
 *
 * Only a build with -Dfaults=true has them; in all others the macros are constants and not even the
 * names are in the program. The variable BOTHY_FAULTS names a directory. A fault is armed by a file
 * in it, so a test can arm and disarm faults, and see which were hit, while the program runs.
 *
 *     FAULT_KILL("claim.moved");     dies here, once: the dying process removes the file;
 *                                    files claim.moved.1 to .8 beside it let it pass once each
 *     if (!FAULT("wall.seccomp"))    true as long as the file is there
 *         write_seccomp(out);
 *
 * Names are literals, so that a test can read them from the source. */
#pragma once

#include <stdbool.h>

#ifdef BOTHY_FAULTS
bool fault_armed(const char *name);
void fault_kill(const char *name);
#    define FAULT(name)      fault_armed(name)
#    define FAULT_KILL(name) fault_kill(name)
#else
#    define FAULT(name)      false
#    define FAULT_KILL(name) ((void)0)
#endif
