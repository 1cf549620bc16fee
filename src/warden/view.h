/* Shows programs of a sandbox its limits where they look for the machine's: which processors there
 * are, and how much memory. This is no wall: the cgroup enforces what is shown here.
 *
 *   view/<n>.mem   lies over /proc/meminfo of slot n
 *   view/<n>.cpu   lies over /sys/devices/system/cpu/online
 *
 * The refill makes both and the runtime binds them, read-only. Afterwards only their bytes change:
 * at a claim or a LIMITS that names other values, and every few seconds for the free memory. */
#pragma once

#include "base/err.h"
#include "warden/slot.h"

/* Binds the directory where the runtime, as a slot's root, can reach it. Called once at start. */
err *view_open(struct warden *w) ERR_MUST;
/* Makes both files, with the defaults, before the runtime is started. */
err *view_make(struct warden *w, slot *s) ERR_MUST;
/* Chooses processors for so many thousandths, counts them until view_forget_cpus(), sets and shows
 * them. */
err *view_set_cpus(struct warden *w, slot *s, uint32_t milli) ERR_MUST;
/* Releases the slot's share of its processors. Lock held. */
void view_forget_cpus(struct warden *w, slot *s);
/* Writes /proc/meminfo from the slot's present limit and use. */
err *view_show_memory(struct warden *w, slot *s) ERR_MUST;
/* Takes over the processors of a slot that an earlier warden made. Lock held. */
void view_recover(struct warden *w, slot *s);
void view_remove(const struct warden *w, uint32_t n);

/* Runs the thread that keeps the free memory up to date; arg is the warden. */
void *view_run(void *arg);
