/* The walls of a slot, as the warden sees them: what init says of them, what can be compared from
 * outside, and the count of those that failed. A wall that fails is an error that names it, and
 * whoever gets the error destroys the slot. */
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

/* Whatever could not be built is the failure of a wall: gives the error its name and counts it.
 * NULL and other errors pass. */
err *walls_blame(err *e, enum wall wall, enum walls_when when) ERR_MUST;
/* These failed: one error for all, counted. */
err *walls_failed(uint32_t failed, enum walls_when when, const char *who) ERR_MUST;

/* Right after HELLO, before anything else is done with the slot. */
err *walls_at_refill(const struct warden *w, struct slot *s) ERR_MUST;
/* It is where its limits are, and they are what was written. What is 0 or what it had before is not
 * read again. */
err *walls_limits(const struct warden *w, const struct slot *s, const struct wp_limits *before,
                  const struct wp_limits *want) ERR_MUST;
bool walls_in_cgroup(const struct warden *w, const struct slot *s);
/* The calling thread has entered the slot's namespaces: its /proc is the slot's, and its host name
 * what a slot has before its claim. (Inodes of namespaces would say the same, ten times slower.) */
err *walls_entered(dev_t proc) ERR_MUST;

/* For the pool's last error. With the lock. */
void walls_note(struct warden *w, const err *e);
