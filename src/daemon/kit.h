/* bothy-kit in memory: read once at the start, sealed, passed to sandboxes by descriptor. */
#pragma once

#include "base/err.h"

/* Loads the kit. Leaves *ret_fd, which the caller sets to -1, if there is none (path empty, or
 * missing, which is logged). Call before confinement: it may lie anywhere. */
err *kit_load(const char *path, int *ret_fd) ERR_MUST;
