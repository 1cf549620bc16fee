/* Before anything is promised: a root is built once the way claims build it, and written in. */
#pragma once

#include "base/err.h"

struct warden;

/* The error names the step that failed and what to do. */
err *probe_run(struct warden *w) ERR_MUST;
/* The helper process: makes a user namespace and waits for the end of its input. */
int probe_userns(void);
