/* The system calls of bothyd and skopeo. docs/security/threat-model.md says what the lists are for;
 * deploy/systemd/bothyd.service has the same, and a test compares them. */
#pragma once

#include "base/err.h"

/* For the whole process and what it starts. Every other call answers ENOSYS, on which libraries
 * fall back to older calls, as they must from clone3, whose flags no filter can read. */
err *calls_all(void) ERR_MUST;
/* Above it, for threads that start no program. */
err *calls_no_programs(void) ERR_MUST;
/* Above calls_all(), for skopeo. */
err *calls_skopeo(void) ERR_MUST;
