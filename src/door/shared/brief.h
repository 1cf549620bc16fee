/* Lets a request thread wait shortly for a session's command that ends at once. That
 * saves two switches between threads. Threads are few and shared by all callers, so
 * only a few may wait, and not long. */
#pragma once

#include <stdbool.h>

#include "engine/engine.h"

/* Waits until `over` returns true; calls it again when the session changes. Returns false if that
 * took too long, or if too many threads wait already. */
bool brief_wait(session *s, bool (*over)(void *arg), void *arg);
