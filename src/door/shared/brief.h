/* A session's command that ends at once is answered by the thread that began it: two ways between
 * threads less. Threads are few and everybody's, so only some may wait like this, and not long. */
#pragma once

#include <stdbool.h>

#include "engine/engine.h"

/* Waits until `over` says so, looking again when the session has news. False: it did not, or too
 * many wait already. */
bool brief_wait(session *s, bool (*over)(void *arg), void *arg);
