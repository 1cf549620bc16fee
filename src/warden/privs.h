/* What the warden gives up before it listens (README.md lists it with the reasons). */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* No core files, not to be traced but by root with SYS_PTRACE, no new code in our memory. The last
 * is not for children: tenants' programs compile as they run. */
err *privs_close_memory(void) ERR_MUST;
/* Bounding, permitted and effective sets of the whole process; children get no more. */
err *privs_drop_caps(void) ERR_MUST;
/* System calls that neither we, nor crun, nor unpack, nor any sandbox may make: inherited by all
 * children, so nothing that a tenant's program lives by can be on the list. */
err *privs_filter_all(void) ERR_MUST;

/* The network helper, at its start: CAP_NET_ADMIN and no other, the deny list, no new privileges.
 */
err *privs_network(void) ERR_MUST;
/* The same when its table stands: an allow list of what its sockets take. Aborts when it cannot be
 * built. */
void privs_network_loaded(void);

/* Whether CAP_SYS_NICE is ours; after privs_drop_caps(). */
bool privs_may_renice(void);

/* For the calling thread only, at its start. Threads share memory: these are a second hurdle for
 * whoever has taken one over, not a wall. Both abort when they cannot be built. */

/* Threads that start no program: no exec, no new privileges. Gives the thread its name. */
void privs_thread(const char *name);
/* The same for who makes whiteouts and FIFOs: without CAP_MKNOD a thread makes no other nodes. */
void privs_copier(void);
/* The thread that reads frames: an allow list without mounts, namespaces and processes. */
void privs_reader(void);
