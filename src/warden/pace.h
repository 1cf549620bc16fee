/* Priorities of refills. A refill nobody waits for runs under SCHED_IDLE: whatever else wants a
 * processor gets it at once. One that somebody waits for runs as everything else does; so does the
 * slot's pid 1 before anybody sees it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum pace {
    PACE_NORMAL,
    PACE_LOW
};

/* Of one thread; children that it starts inherit it. False: not possible (then it stays normal:
 * without CAP_SYS_NICE nobody could give pid 1 of a slot its priority back). */
bool pace_set(pid_t tid, enum pace p);
/* A child of ours that has not been waited for, and its children. */
void pace_raise_tree(int proc_fd, pid_t pid);
