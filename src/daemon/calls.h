/* The system calls of bothyd and skopeo. docs/security/threat-model.md says what the lists are for;
 * deploy/systemd/bothyd.service has the same, and a test compares them. */
#pragma once

#include "base/err.h"

/* Loads the filter for the whole process and the programs it starts. Every other call returns
 * ENOSYS, on which libraries fall back to older calls. For clone3 they must, because no filter can
 * read its flags. */
err *calls_all(void) ERR_MUST;
/* Adds a filter for threads that start no program. */
err *calls_no_programs(void) ERR_MUST;
/* Adds to calls_all() a filter for skopeo. */
err *calls_skopeo(void) ERR_MUST;
