/* Keeping slots ready: at most two workers of low priority, each making one slot at a time. */
#pragma once

#define REFILL_WORKERS 2

struct warden;

/* A worker; arg is the warden. */
void *refill_run(void *arg);
/* With warden.lock held: seconds a claim that found none may come back after. */
unsigned refill_retry_after(const struct warden *w);
/* The helper process of a refill: caps the shared kernel pools of the user namespace that is
 * descriptor 3. Returns an exit status. */
int refill_cap_userns(void);
