/* What programs of a sandbox see of its limits where they look for the machine's: which processors
 * there are, and how much memory. No wall: the cgroup holds what is shown here.
 *
 *   view/<n>.mem   lies over /proc/meminfo of slot n
 *   view/<n>.cpu   lies over /sys/devices/system/cpu/online
 *
 * The refill makes both and the runtime binds them, read-only; afterwards only their bytes change:
 * at a claim or a LIMITS that names other values, and every few seconds for what is free. */
#pragma once

#include "base/err.h"
#include "warden/slot.h"

/* Binds the directory where the runtime, as a slot's root, can reach it. Once at start. */
err *view_open(struct warden *w) ERR_MUST;
/* Both files, with the defaults; before the runtime is started. */
err *view_make(struct warden *w, slot *s) ERR_MUST;
/* Processors for so many thousandths: chosen, counted until view_forget_cpus(), given, shown. */
err *view_set_cpus(struct warden *w, slot *s, uint32_t milli) ERR_MUST;
/* With the lock. */
void view_forget_cpus(struct warden *w, slot *s);
/* /proc/meminfo, as the slot's limit and use are now. */
err *view_show_memory(struct warden *w, slot *s) ERR_MUST;
/* A claimed slot of a warden before us: takes over what it has. With the lock. */
void view_recover(struct warden *w, slot *s);
void view_remove(const struct warden *w, uint32_t n);

/* The thread that keeps what is free up to date; arg is the warden. */
void *view_run(void *arg);
