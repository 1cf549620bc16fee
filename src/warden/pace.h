/* Priorities of refills. One that nobody is in need of (core/pool.h: hurry) runs at nice 19, the
 * others as everything else does; so does the slot's pid 1 before anybody sees it.
 *
 * Measured with claims beside running refills (decision 0005): on a quiet node nice 19 made claims
 * faster (p50 3.0 to 3.7 ms instead of 4.7 to 4.9), nice 10 did not. With four busy sandboxes on
 * two cores low priority made them slower (p99 103 to 288 ms instead of 24 to 61), and SCHED_IDLE
 * still more: the pool runs dry, and a refill that does not get to run probably holds locks of the
 * kernel that claims need. So nobody who is needed is slow, and SCHED_IDLE is not used. */
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
