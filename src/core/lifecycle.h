/* The states of a sandbox and the moves between them:
 *
 *     creating → running ⇄ paused        running/paused → hibernated → running
 *        └────────────┴──────────┴──────────────┴──► gone
 *
 * The texts are those of the store and of the API. */
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
/* LIFE_STATES if there is none of that name. */
enum lifecycle lifecycle_by_name(const char *name);
bool lifecycle_allows(enum lifecycle from, enum lifecycle to);
static inline bool lifecycle_alive(enum lifecycle s)
{
    return s != LIFE_GONE;
}
/* Moves *state, or says why not: ERR_SANDBOX_GONE, ERR_SANDBOX_PAUSED or ERR_CONFLICT (kind
 * "state"). */
err *lifecycle_move(enum lifecycle *state, enum lifecycle to) ERR_MUST;
