/* Snapshots: what a sandbox has written becomes a layer. It stands still meanwhile; a warden that
 * is killed then finds the file `snapshot` beside the slot's state and lets it go on at its start.
 */
#pragma once

#include "warden/warden.h"

/* The slot is claimed and referenced. */
err *snapshot_take(warden *w, slot *s, const uint8_t layer[32],
                   struct wp_snapshotted *ret_what) ERR_MUST;
/* True: a copy holds it still; whether it is to be frozen when that is done is noted. */
bool snapshot_leaves(warden *w, slot *s, bool freeze);
/* At start, of a claimed slot, with the lock. */
void snapshot_recover(warden *w, slot *s);
