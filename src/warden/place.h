/* The warden's own mount namespace and what it keeps there.
 *
 * crun reaches the idle root with the rights of the slot's root, so every directory above it must
 * let others pass. The state directory does not, and the warden must not change its mode. Therefore
 * a tmpfs that the rest of the host does not see is mounted over a directory that the warden does
 * not need:
 *
 *   idle/     root of unclaimed slots: proc sys dev init(0111)
 *   empty/    shown in place of masked directories of a slot
 *   runtime   crun itself, bound read-only: a new version is used after the warden's next start
 *   crun/     crun's records, gone after each refill
 *
 * On hybrid hosts the v2 hierarchy is covered by an empty tmpfs there: crun would otherwise try to
 * limit slots in it. */
#pragma once

#include "base/err.h"

/* Mount point of the v2 hierarchy on hybrid hosts. */
#define PLACE_COVERED "/sys/fs/cgroup/unified"

struct warden;

err *place_enter(struct warden *w) ERR_MUST;
/* Fills the place and state/skel. Call it after place_enter(). */
err *place_furnish(struct warden *w) ERR_MUST;
