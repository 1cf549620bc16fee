/* Taking slots apart: the kill is sent at once, the rest is the cleaner's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "warden/slot.h"

/* Before any other. */
void destroy_init(struct warden *w);

/* With warden.lock held. The slot leaves the table of ids and all counts, is marked dead on disk,
 * everything in it gets SIGKILL, and the cleaner takes over the table's reference. */
void destroy_slot(struct warden *w, slot *s);

/* The cleaner; arg is the warden. */
void *destroy_run(void *arg);
/* Removes the uppers of slots that are gone, however large; arg is the warden. */
void *destroy_trash_run(void *arg);
/* Takes apart what is dying until nothing is left, the time is over, or nothing runs and the disk
 * lets nothing be removed. */
err *destroy_wait(struct warden *w, uint64_t timeout_ms) ERR_MUST;
