/* What the host must have for so many sandboxes: shared kernel pools and our own descriptors. */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define NUMBERS_HEADROOM 64u /* slots that are being taken apart keep their number */

/* Raises what is too small for so many sandboxes (core/sysctl.h), never lowers. What cannot be
 * raised is a warning here, in /readyz and in `bothy doctor`. */
uint64_t host_threads_max(void); /* kernel.threads-max; 0: not known */
void host_raise_sysctls(uint32_t sandboxes);

/* What the kernel counts for all user namespaces that one user made: the warden's own limit is
 * what all slots have together, so it goes; each slot has one of its own (bundle.c). What cannot
 * be raised is a warning. */
void host_raise_shared(void);

/* Descriptors we need: a sandbox has two here (its directory, its pid 1), a ready slot two more
 * (its user namespace, the connection to pid 1). */
uint64_t host_descriptors(uint32_t max, uint32_t high);
/* Raises the limit of open files as far as it goes; an error if that is not enough. */
err *host_raise_nofile(uint32_t max, uint32_t high) ERR_MUST;
/* Whether such a pool fits; after host_raise_nofile(), from any thread. */
err *host_fits(uint32_t max, uint32_t high) ERR_MUST;
