/* The warden's own mount namespace and what it keeps there.
 *
 * crun reaches the idle root with the rights of the slot's root, so every directory above it must
 * let others pass; the state directory does not, and its mode is not ours to change. Therefore a
 * tmpfs of our own is mounted over a directory we need nothing of, seen by nobody else:
 *
 *   idle/     root of unclaimed slots: proc sys dev init(0111)
 *   empty/    what masked directories of a slot show
 *   runtime   crun itself, bound read-only: a new version is used after our next start
 *   crun/     crun's records, gone after each refill
 *
 * On hybrid hosts the v2 hierarchy is covered by an empty tmpfs there: crun would otherwise try to
 * limit slots in it. */
#pragma once

#include "base/err.h"

/* Where hybrid hosts have the v2 hierarchy. */
#define PLACE_COVERED "/sys/fs/cgroup/unified"

struct warden;

err *place_enter(struct warden *w) ERR_MUST;
/* Fills the place and state/skel. After place_enter(). */
err *place_furnish(struct warden *w) ERR_MUST;
