/* Listening sockets that somebody gave us (systemd's socket units, or any parent that speaks the
 * same: LISTEN_FDS of them from descriptor 3 on, for the process LISTEN_PID). They are held by the
 * giver, too: while bothyd is replaced, who connects waits. */
#pragma once

#include "base/err.h"

#define INHERIT_MAX 8

typedef struct inherited {
    int fd[INHERIT_MAX];
    bool is_unix[INHERIT_MAX];
    unsigned n;
} inherited;

/* Takes what was given, none included. Before there are threads; the variables are removed. */
err *inherit_listeners(inherited *ret_listeners) ERR_MUST;
