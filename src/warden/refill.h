/* Keeping slots ready: workers, each making one slot at a time when the planner (core/pool.h) says
 * so; at low priority while nobody is in need of it. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "core/pool.h"

struct warden;

/* A worker; arg is the warden. */
void *refill_run(void *arg);
/* The directories and files of a writable layer below uppers/; the claim only has to fill them.
 * project: of quota_take(); 0: that of the directory it lies in. */
err *refill_make_upper(const struct warden *w, const char *name, uint32_t project) ERR_MUST;

/* With warden.lock held. */
pool_level refill_level(const struct warden *w);
/* Seconds after which a claim with so many before it may come back. */
unsigned refill_retry_after(const struct warden *w, uint32_t before);
/* Refills under way go on at normal priority if somebody waits for them. */
void refill_hurry(struct warden *w);
