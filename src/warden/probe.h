/* The start-up probe: before the warden offers anything, it builds a root once the way claims build
 * it, and writes in it. */
#pragma once

#include "base/err.h"

struct warden;

/* Runs the probe. The error names the step that failed and what to do. */
err *probe_run(struct warden *w) ERR_MUST;
/* Runs the helper process: it makes a user namespace and waits for the end of its input. */
int probe_userns(void);
