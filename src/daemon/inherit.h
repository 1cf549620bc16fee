/* Listening sockets passed to bothyd by systemd's socket units, or by any parent that uses the same
 * protocol: LISTEN_FDS of them from descriptor 3 on, for the process LISTEN_PID. The parent keeps
 * them, too: while bothyd is replaced, clients that connect wait. */
#pragma once

#include "base/err.h"

#define INHERIT_MAX 8

typedef struct inherited {
    int fd[INHERIT_MAX];
    bool is_unix[INHERIT_MAX];
    unsigned n;
} inherited;

/* Takes the passed sockets; there may be none. Call before there are threads; removes the
 * variables. */
err *inherit_listeners(inherited *ret_listeners) ERR_MUST;
