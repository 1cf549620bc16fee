/* What every program of ours gives up about itself, whatever it is for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The sanitizers' runtimes make calls and mappings of their own: such a build is confined less. */
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

/* No core file, of this process or any child: memory holds secrets and tenants' data. */
err *confine_no_core(void) ERR_MUST;
/* From now on no memory becomes executable that was not mapped so from a file (PR_SET_MDWE, Linux
 * 6.3); with children those too, also through exec, without them none (6.6). False where the kernel
 * does not have it. */
bool confine_no_new_code(bool children);
/* Hard and soft limit of a process; pid 0 is the caller. */
err *confine_limit(int pid, int which, uint64_t value) ERR_MUST;
