/* The walls of a slot, as the warden sees them: the results that init reports, the comparisons that
 * are possible from outside, and the count of failures. A wall that fails is an error that names
 * it, and the caller that gets the error destroys the slot. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "wire/walls.h"

struct warden;
struct slot;
struct wp_limits;

enum walls_when {
    WALLS_AT_REFILL,
    WALLS_AT_CLAIM
};

/* Adds the wall's name to an ERR_WALL_FAILED and counts the failure. Passes NULL and other errors
 * on. */
err *walls_blame(err *e, enum wall wall, enum walls_when when) ERR_MUST;
/* Counts these failed walls and returns one error for all. */
err *walls_failed(uint32_t failed, enum walls_when when, const char *who) ERR_MUST;

/* Checks the walls right after HELLO, before anything else is done with the slot. */
err *walls_at_refill(const struct warden *w, struct slot *s) ERR_MUST;
/* Checks that the limits are what was written. Limits that are 0 or equal to the one in before are
 * not read again. */
err *walls_limits(const struct warden *w, const struct slot *s, const struct wp_limits *before,
                  const struct wp_limits *want) ERR_MUST;
/* Returns true if pid 1 is in the slot's cgroup, in every hierarchy with a limit. */
bool walls_in_cgroup(const struct warden *w, const struct slot *s);
/* Checks that the calling thread has entered the slot's namespaces: its /proc is the slot's, and
 * its host name that of a slot before its claim. (Inodes of namespaces would say the same, ten
 * times slower.) */
err *walls_entered(dev_t proc) ERR_MUST;

/* Records the pool's last error. Lock held. */
void walls_note(struct warden *w, const err *e);
