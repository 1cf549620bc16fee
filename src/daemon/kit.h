/* bothy-kit in memory: read once at start, sealed, given to sandboxes by descriptor. */
#pragma once

#include "base/err.h"

/* *ret_fd is -1 where there is none (path empty or missing: that is logged). Before confinement: it
 * may lie anywhere. */
err *kit_load(const char *path, int *ret_fd) ERR_MUST;
