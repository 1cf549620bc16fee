/* Raises limits of the host that many sandboxes need: shared kernel pools and the warden's
 * descriptors. */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define NUMBERS_HEADROOM 64u /* slots that are being taken apart keep their number */

uint64_t host_threads_max(void); /* kernel.threads-max; 0: not known */
/* Raises sysctls that are too small for so many sandboxes (core/sysctl.h), never lowers them. If
 * one cannot be raised, that is a warning here, in /readyz and in `bothy doctor`. */
void host_raise_sysctls(uint32_t sandboxes);

/* Lifts the warden's own limits that the kernel counts for all user namespaces which one user made:
 * they would be shared by all slots. Each slot has limits of its own (bundle.c). Warns about a
 * limit that cannot be lifted. */
void host_raise_shared(void);

/* Returns the number of descriptors that the warden needs: a sandbox has two here (its directory,
 * its pid 1), a ready slot two more (its user namespace, the connection to pid 1). */
uint64_t host_descriptors(uint32_t max, uint32_t high);
/* Raises the limit of open files as far as it goes. Returns an error if that is not enough. */
err *host_raise_nofile(uint32_t max, uint32_t high) ERR_MUST;
/* Returns an error if such a pool does not fit. After host_raise_nofile(), from any thread. */
err *host_fits(uint32_t max, uint32_t high) ERR_MUST;
