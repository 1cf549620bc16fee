/* bothyd --restore FILE: restores a copy made by 'bothy backup', while no bothyd runs. */
#pragma once

#include "base/err.h"

/* Opens the file before confinement; "-" is stdin. */
err *restore_open(const char *path, int *ret_fd) ERR_MUST;
/* Restores into the state directory, whose lock the caller holds. Prints what the copy holds and
 * what will happen. */
err *restore_store(int state_fd, int spool_fd, int from_fd) ERR_MUST;
