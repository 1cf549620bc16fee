/* bothyd --restore FILE: puts back what 'bothy backup' wrote, while no bothyd runs. */
#pragma once

#include "base/err.h"

/* "-" is stdin. Opened before walls are built. */
err *restore_open(const char *path, int *ret_fd) ERR_MUST;
/* Into the state directory, whose lock the caller holds. Says what is in it and what will happen.
 */
err *restore_store(int state_fd, int spool_fd, int from_fd) ERR_MUST;
