/* A backend for tests of the exec layer: the link over the real init in container mode, one guest
 * at a time. A process without threads starts it, and attach in it. */
#pragma once

#include "backend/backend.h"

/* Before any thread. False: this machine has no guests; *ret_why says why. */
bool guest_backend_prepare(const char *init_program, const char **ret_why);
/* cut_every: the stream ends at every n-th read. */
err *guest_backend_new(unsigned cut_every, backend **ret_backend) ERR_MUST;
