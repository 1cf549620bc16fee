/* Runs FREEZE and THAW in steps that do not wait, so that a sandbox that resists holds up no other
 * one. */
#pragma once

#include "warden/conn.h"
#include "warden/warden.h"

/* Does one step of a job for this slot, which is claimed and referenced. Steps of one slot must
 * come one after the other. Returns the time to call it again, or 0 when it is over, with the
 * outcome. */
uint64_t freezing_step(warden *w, slot *s, job *j, err **ret_outcome);
