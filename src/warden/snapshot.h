/* Snapshots: the files that a sandbox has written become a layer. The sandbox is frozen meanwhile.
 * If the warden is killed then, the next one finds the file `snapshot` beside the slot's state and
 * thaws the sandbox at its start. */
#pragma once

#include "warden/warden.h"

struct job;

/* Takes a snapshot of a slot that is claimed and referenced. Makes nothing if the caller has
 * disconnected, or after its deadline. EBUSY: a copy of it, or a FREEZE or THAW, is under way.
 * ESRCH: it ended meanwhile. */
err *snapshot_take(warden *w, slot *s, const struct job *j, const struct wp_snapshot *ask,
                   struct wp_snapshotted *ret_what) ERR_MUST;
/* Returns true if a copy keeps the slot frozen; then it records whether the slot is to be frozen
 * when the copy is done. False: no copy begins until slot.freezing is cleared. */
bool snapshot_leaves(warden *w, slot *s, bool freeze);
/* Thaws a claimed slot that was frozen for a copy when the previous warden ended. At start, lock
 * held. */
void snapshot_recover(warden *w, slot *s);
