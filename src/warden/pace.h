/* Priorities of refills. A refill that is not urgent (core/pool.h: hurry) runs at nice 19, the
 * others at normal priority. The slot's pid 1 is back at normal priority before the slot is ready.
 *
 * Measured with claims beside running refills (decision 0005): on a quiet node nice 19 made claims
 * faster (p50 3.0 to 3.7 ms instead of 4.7 to 4.9), nice 10 did not. With four busy sandboxes on
 * two cores low priority made them slower (p99 103 to 288 ms instead of 24 to 61), and SCHED_IDLE
 * still more: the pool runs dry, and a refill that does not get to run probably holds locks of the
 * kernel that claims need. So no refill that is needed is slow, and SCHED_IDLE is not used. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum pace {
    PACE_NORMAL,
    PACE_LOW
};

/* Sets the priority of one thread; children that it starts inherit it. Returns false if that is not
 * possible. Low priority needs CAP_SYS_NICE: without it pid 1 of a slot could not get its priority
 * back. */
bool pace_set(pid_t tid, enum pace p);
/* Raises a child that has not been waited for, and its children, to normal priority. */
void pace_raise_tree(int proc_fd, pid_t pid);
