/* The planner of one pod that is, or may be, claimed. Pure.
 *
 * It believes init first, then the pod's labels, then the Sandbox object. Unclaimed pods that fail
 * are the pool planner's (plan_pool.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "operator/objects.h"
#include "operator/plan_pool.h"

#define POD_ORPHAN_NS  UINT64_C(60000000000) /* claimed, but no caller knows of it */
#define POD_SUSPECT    3u                    /* consecutive failed dials */
#define POD_SUSPECT_NS UINT64_C(30000000000) /* after so long without contact it is given up */
#define POD_NODE_NS    UINT64_C(60000000000) /* for a node to answer again */
#define POD_GRACE_NS   UINT64_C(2000000000)  /* from a sandbox's end to the deletion of its pod */
#define POD_REFRESH_NS UINT64_C(60000000000) /* maximum age of the recorded last activity */

typedef struct claim_world {
    const pod_view *pod; /* as it was last seen */
    bool gone;           /* the watch says that it is deleted */
    enum init_state init;
    const char *claim;         /* INIT_CLAIMED: the sandbox that init names; NULL: unknown */
    bool known;                /* the engine has that sandbox, or is making it */
    bool told;                 /* a caller knows of it */
    uint64_t claimed_ns;       /* all times are on the clock of `now` */
    uint64_t active_ns;        /* its last traffic; 0: none */
    uint64_t recorded_ns;      /* the recorded last activity */
    uint32_t failed_dials;     /* consecutive */
    uint64_t silent_ns;        /* since when dials to it fail; 0: they do not */
    bool asked_another_way;    /* over a fresh exec, after it became suspect, */
    bool answered;             /* and it answered */
    uint64_t node_silent_ns;   /* since when its node is not ready; 0: it is ready */
    uint64_t draining_ns;      /* since when its node is cordoned; 0: it is not */
    uint64_t drain_after_ns;   /* from there, or the claim, to the sandbox's end; 0: never */
    uint64_t ended_ns;         /* when its sandbox ended; 0: it is alive, or there is none */
    bool hibernatable;         /* it has a workspace, and a Sandbox object that keeps it */
    const char *wanted_digest; /* wanted digest of the image ("sha256:…"); NULL: unknown */
    uint64_t now;
} claim_world;

enum pod_act {
    POD_ACT_NONE,
    POD_ACT_OFFER,      /* it is warm: offer it to claims */
    POD_ACT_RECORD,     /* write labels and annotation of its claim */
    POD_ACT_CORRECT,    /* overwrite labels that name another sandbox, and send an event */
    POD_ACT_REFRESH,    /* write when it was last active */
    POD_ACT_STOP,       /* no caller knows of the sandbox: end it */
    POD_ACT_ASK,        /* contact it over a fresh exec */
    POD_ACT_FINISH,     /* end the sandbox for `cause`; then delete the pod if it exists */
    POD_ACT_HIBERNATED, /* the sandbox has lost its pod, and keeps its disk */
    POD_ACT_DELETE,
    POD_ACTS
};
extern const char *const POD_ACT_NAMES[POD_ACTS];

typedef struct pod_orders {
    enum pod_act act;
    const char *cause;   /* FINISH, HIBERNATED: a code of Sandbox.status.cause; static */
    const char *message; /* from the pod; borrowed; or NULL */
    bool keep_volume;    /* FINISH, DELETE: the disk stays until plan_sandbox.c deletes it */
    uint64_t again_ns;   /* 0: no need */
} pod_orders;

pod_orders plan_pod(const claim_world *w);
/* Returns why a pod ended, judging by its status. */
const char *pod_end_cause(const pod_view *p);
