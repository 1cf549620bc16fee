/* Restrictions that every program of the project puts on itself, whatever its purpose. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Sanitizer runtimes make system calls and mappings of their own, so such a build is confined
 * less. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define CONFINE_SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define CONFINE_SANITIZED 1
#    endif
#endif
#ifndef CONFINE_SANITIZED
#    define CONFINE_SANITIZED 0
#endif

/* Disables core files for this process and its children: memory holds secrets and tenants' data. */
err *confine_no_core(void) ERR_MUST;
/* Refuses from now on to make memory executable unless it was mapped so from a file (PR_SET_MDWE,
 * Linux 6.3). With `children` the restriction is inherited, also through exec; without, it is not
 * (Linux 6.6). Returns false if the kernel lacks it, and in sanitizer builds. */
bool confine_no_new_code(bool children);
/* Sets the hard and soft limit of a process; pid 0 is the caller. */
err *confine_limit(int pid, int which, uint64_t value) ERR_MUST;
