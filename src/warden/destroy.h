/* Takes slots apart: the kill is sent at once, the cleaner thread does the rest. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "warden/slot.h"

/* Call it before any other. */
void destroy_init(struct warden *w);

/* Destroys a slot. The slot leaves the table of ids and all counts, is marked dead on disk,
 * everything in it gets SIGKILL, and the cleaner takes over the table's reference. warden.lock
 * held. */
void destroy_slot(struct warden *w, slot *s);

/* Runs the cleaner thread, which takes dying slots apart; arg is the warden. */
void *destroy_run(void *arg);
/* Runs the trash thread, which removes the uppers of destroyed slots, however large; arg is the
 * warden. */
void *destroy_trash_run(void *arg);
/* Takes dying slots apart until none is left, the time is over, or no process is left and the rest
 * is on a read-only disk. */
err *destroy_wait(struct warden *w, uint64_t timeout_ms) ERR_MUST;
