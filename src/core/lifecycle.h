/* The states of a sandbox and the moves between them:
 *
 *     creating → running ⇄ paused        running/paused → hibernated → running
 *        └────────────┴──────────┴──────────────┴──► gone
 *
 * The store and the API use the same state names. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum lifecycle {
    LIFE_CREATING,
    LIFE_RUNNING,
    LIFE_PAUSED,
    LIFE_HIBERNATED,
    LIFE_GONE,
    LIFE_STATES
};

const char *lifecycle_name(enum lifecycle s);
/* Returns the state of this name, or LIFE_STATES. */
enum lifecycle lifecycle_by_name(const char *name);
bool lifecycle_allows(enum lifecycle from, enum lifecycle to);
static inline bool lifecycle_alive(enum lifecycle s)
{
    return s != LIFE_GONE;
}
/* Moves *state. Returns ERR_SANDBOX_GONE, ERR_SANDBOX_PAUSED or ERR_CONFLICT (kind "state") if the
 * move is not legal. */
err *lifecycle_move(enum lifecycle *state, enum lifecycle to) ERR_MUST;
