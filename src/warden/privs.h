/* Gives up privileges before the warden listens (README.md lists them with the reasons). */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Forbids core files, tracing by others than root with SYS_PTRACE, and new code in memory. Children
 * do not inherit the last: tenants' programs compile as they run. */
err *privs_close_memory(void) ERR_MUST;
/* Reduces the bounding, permitted and effective sets of the whole process; children get no more. */
err *privs_drop_caps(void) ERR_MUST;
/* Refuses system calls that neither the warden, nor crun, nor unpack, nor any sandbox may make. All
 * children inherit this, so no call that a tenant's program needs can be on the list. */
err *privs_filter_all(void) ERR_MUST;

/* Confines the network helper at its start: CAP_NET_ADMIN and no other capability, the deny list,
 * no new privileges. */
err *privs_network(void) ERR_MUST;
/* Confines it further once its table is loaded: an allow list of the calls that its sockets need.
 * Aborts if the filter cannot be built. */
void privs_network_loaded(void);

/* Returns true if the warden has CAP_SYS_NICE. After privs_drop_caps(). */
bool privs_may_renice(void);

/* The rest applies to the calling thread only; call it at the thread's start. Threads share memory:
 * these filters are a second hurdle for an attacker who has taken a thread over, not a wall. All
 * abort if the filter cannot be built. */

/* For threads that start no program: no exec, no new privileges. Gives the thread its name. */
void privs_thread(const char *name);
/* The same for threads that make whiteouts and FIFOs; without CAP_MKNOD they can make no other
 * nodes. */
void privs_copier(void);
/* For the thread that reads frames: an allow list without mounts, namespaces and processes. */
void privs_reader(void);
