/* The warden: root process of a node. It makes slots, puts images under them, limits, freezes,
 * counts and destroys them. It never looks into a sandbox and never parses what a stranger wrote:
 * its only peer is bothyd, by fixed frames (wire/wardenp.h).
 *
 * Threads (each says in its own file what it may do):
 *   main      the socket: receives frames, checks them, hands them on          conn.c
 *   ops       short requests that touch a slot                                 ops.c
 *   layers    unpacking and pruning                                            ops.c
 *   claimer   one staging mount namespace each; takes claims off the FIFO      fifo.c
 *             and puts roots under slots                                       claim.c, stage.c
 *   refill    at low priority; spawns crun                                     refill.c
 *   cleaner   takes dead slots apart                                           destroy.c
 *   trash     removes their uppers, at low priority                            destroy.c
 *   view      keeps what sandboxes see of their memory up to date              view.c
 *
 * One lock (warden.lock) covers the table of slots, the FIFO of claims and the counts. It is never
 * held across a system call that may wait for another process. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/map.h"
#include "core/admit.h"
#include "core/cpus.h"
#include "core/pool.h"
#include "core/rounds.h"
#include "warden/cgroup.h"
#include "warden/layers.h"
#include "warden/nettable.h"
#include "warden/slot.h"
#include "wire/wardenp.h"

#define UID_BASE  0x10000000u
#define UID_RANGE 65536u
#define SLOTS_MAX 16384u

typedef struct warden_options {
    const char *state; /* absolute, resolved */
    const char *socket;
    const char *cgroup; /* absolute below the mount of each hierarchy */
    const char *init;
    const char *unpack;
    const char *crun;
    const char *seccomp;
    uid_t uid; /* user that may connect, besides root */
    gid_t gid;
    uint32_t low, high;  /* watermarks of ready slots */
    uint32_t max;        /* slots at a time */
    uint32_t overcommit; /* sum of memory limits <= RAM times this */
    uint32_t reserve;    /* per cent of RAM that stay available */
    uint32_t nested;     /* user namespaces that an id of a sandbox may make */
    cgroup_rate rate;    /* of the disk, for each slot */
    bool keep_sysctls;
    net_plan network; /* subnet 0: sandboxes have none */
} warden_options;

typedef struct fifo { /* fifo.c */
    struct claim_job *head, *tail;
    rounds turns; /* the same, by owner */
    map by_id;    /* sandbox id -> claim_job */
    uint32_t n;
    uint64_t earliest_ns;       /* no claim in the queue expires before this; 0: it is empty */
    enum admit_verdict held_by; /* why admission holds claims up: the first one's reason */
} fifo;

typedef struct refill_worker { /* refill.c */
    pid_t tid, child;          /* 0: none */
    bool low;                  /* at low priority now */
} refill_worker;

typedef struct warden {
    warden_options o;
    int state_fd, slots_fd, uppers_fd, trash_fd, view_fd;
    int lock_fd;
    int proc_fd;       /* /proc, for threads that do not see it */
    const char *place; /* mount point of the private tmpfs: idle root, empty directory, crun */
    char *runtime;     /* crun, on a mount that cannot be written */
    bool covered;      /* a tmpfs lies over PLACE_COVERED */
    char *seccomp;     /* the profile's bytes */
    char *filter;      /* the same compiled, in base64; NULL: crun compiles it for every slot */
    cgroups cg;
    layers *layers;
    struct network *network; /* network.c */
    bool quota;              /* uppers can be limited (quota.c) */

    pthread_mutex_t lock;
    pthread_cond_t claims; /* signalled when a slot, a claim or room comes */
    pthread_cond_t refill; /* signalled when a slot goes or a watermark changes */
    pthread_cond_t trash;  /* signalled when there is something to remove */
    bool trash_full;
    slot **slots;    /* by number */
    uint32_t nslots; /* numbers there are: o.max, and more for slots being taken apart */
    map by_id;       /* sandbox id -> slot, claiming or claimed */
    slot *dying_list;
    layers_stack *stacks; /* to be released by slot_unlock_release() */
    size_t nstacks;
    int reaper, reaper_wake;       /* epoll with the pid 1 of each dying slot; an eventfd in it */
    slot *ready_head, *ready_tail; /* the oldest first */
    uint32_t *free_numbers, nfree; /* a stack */
    fifo fifo;
    pool pool;
    refill_worker worker[POOL_WORKERS];
    struct wp_digest expected; /* the image that the next claim will probably name: ahead.c */
    bool expects;
    uint32_t making, giving, ready, claimed, ndying;
    uint32_t refills_failed;
    char refill_error[WP_POOL_ERROR]; /* the last failure of a refill or of a wall */
    int refill_errnum;                /* its errno, or 0 */
    uint64_t memory_claimed;          /* sum of the limits, as admit_counted() has them */
    uint64_t pids_claimed;            /* sum of the limits of processes */
    uint64_t memory_total;
    uint64_t threads;      /* kernel.threads-max; 0: not known */
    cpus cpus;             /* what is promised of each processor */
    uint32_t next_project; /* to be tried for the next slot */
    int meminfo_fd;
    uint64_t available, available_at_ns; /* MemAvailable, and when it was read */
} warden;

static inline uint32_t slot_uid_base(uint32_t n)
{
    return UID_BASE + n * UID_RANGE;
}
