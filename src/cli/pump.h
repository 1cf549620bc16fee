/* Bytes both ways between a local socket and a stream of the daemon, each side with its own end.
 * Blocks until both have ended or one has broken. One thread a pump. */
#pragma once

#include "net/client.h"

/* Neither is closed. */
void pump_run(int local, client_stream *remote);
