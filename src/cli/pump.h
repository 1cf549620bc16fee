/* Moves bytes both ways between a local socket and a stream of the daemon. Each direction ends by
 * itself. Blocks until both have ended or one has failed. Uses the calling thread. */
#pragma once

#include "net/client.h"

/* Closes neither. */
void pump_run(int local, client_stream *remote);
