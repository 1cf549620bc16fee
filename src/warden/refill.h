/* Keeps slots ready. Each worker makes one slot at a time when the planner (core/pool.h) says so,
 * at low priority while it is not urgent (hurry). */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "core/pool.h"

struct warden;

/* Runs a worker thread; arg is the warden. */
void *refill_run(void *arg);
/* Makes the directories and files of a writable layer below uppers/; the claim only has to fill the
 * files. project: of quota_take(); 0: that of the directory it lies in. */
err *refill_make_upper(const struct warden *w, const char *name, uint32_t project) ERR_MUST;

/* The functions below need warden.lock held. */
pool_level refill_level(const struct warden *w);
/* Returns the seconds after which a claim with so many before it may retry. */
unsigned refill_retry_after(const struct warden *w, uint32_t before);
/* Raises refills under way to normal priority if a claim waits for them. */
void refill_hurry(struct warden *w);
