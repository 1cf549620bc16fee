/* Snapshots: what a sandbox has written becomes a layer. It stands still meanwhile; a warden that
 * is killed then finds the file `snapshot` beside the slot's state and lets it go on at its start.
 */
#pragma once

#include "warden/warden.h"

struct job;

/* The slot is claimed and referenced. Nothing is made for one who has gone, or after its deadline.
 * EBUSY: a copy of it, or a FREEZE or THAW, is under way. ESRCH: it ended meanwhile. */
err *snapshot_take(warden *w, slot *s, const struct job *j, const struct wp_snapshot *ask,
                   struct wp_snapshotted *ret_what) ERR_MUST;
/* True: a copy holds it still; whether it is to be frozen when that is done is noted. False: no
 * copy begins until slot.freezing is taken back. */
bool snapshot_leaves(warden *w, slot *s, bool freeze);
/* At start, of a claimed slot, with the lock. */
void snapshot_recover(warden *w, slot *s);
