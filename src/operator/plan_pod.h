/* What becomes of one pod that is, or may be, claimed: the table "Pod ↔ claim".
 *
 * Who is believed: init, then the pod's labels, then the Sandbox object. Unclaimed pods that fail
 * are the pool's (plan_pool.h). Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "operator/objects.h"
#include "operator/plan_pool.h"

#define POD_ORPHAN_NS  UINT64_C(60000000000) /* claimed, and nobody was told of it */
#define POD_SUSPECT    3u                    /* dials that failed in a row */
#define POD_SUSPECT_NS UINT64_C(30000000000) /* so long after that it is given up */
#define POD_NODE_NS    UINT64_C(60000000000) /* a node that does not answer */
#define POD_GRACE_NS   UINT64_C(2000000000)  /* of a sandbox that has ended */
#define POD_REFRESH_NS UINT64_C(60000000000) /* how old the record of the last activity may be */

typedef struct claim_world {
    const pod_view *pod; /* as it was last seen */
    bool gone;           /* the watch says that it is deleted */
    enum init_state init;
    const char *claim;         /* INIT_CLAIMED: the sandbox it says it has; NULL: not known */
    bool known;                /* the engine has that sandbox, or is making it */
    bool told;                 /* a caller has been told of it */
    uint64_t claimed_ns;       /* all times are of the clock of `now` */
    uint64_t active_ns;        /* its last traffic; 0: none yet */
    uint64_t recorded_ns;      /* the activity that the record has */
    uint32_t failed_dials;     /* in a row */
    uint64_t silent_ns;        /* since when nothing reaches it; 0: it is reached */
    bool asked_another_way;    /* by a fresh exec, after it became suspect, */
    bool answered;             /* and it answered */
    uint64_t node_silent_ns;   /* since when its node is not ready; 0: it is */
    uint64_t draining_ns;      /* since when its node takes no more pods; 0: it does */
    uint64_t drain_after_ns;   /* its pool ends it so long after that; 0: never */
    uint64_t ended_ns;         /* when its sandbox ended; 0: it lives, or there is none */
    bool hibernatable;         /* it has a workspace, and a Sandbox object to keep it */
    const char *wanted_digest; /* that the image must have ("sha256:…"); NULL: not known */
    uint64_t now;
} claim_world;

enum pod_act {
    POD_ACT_NONE,
    POD_ACT_OFFER,   /* it is warm: it may be claimed */
    POD_ACT_RECORD,  /* write labels and annotation of its claim */
    POD_ACT_CORRECT, /* the same over those of another; somebody should know */
    POD_ACT_REFRESH, /* write when it was last active */
    POD_ACT_STOP,    /* nobody will ever ask for it: end it */
    POD_ACT_ASK,     /* ask it by a fresh exec */
    POD_ACT_FINISH, /* its sandbox has ended, for `cause`; then the pod is deleted if it is there */
    POD_ACT_HIBERNATED, /* its sandbox has lost its pod and keeps its disk */
    POD_ACT_DELETE,
    POD_ACTS
};
extern const char *const POD_ACT_NAMES[POD_ACTS];

typedef struct pod_orders {
    enum pod_act act;
    const char *cause;   /* of FINISH, HIBERNATED: a code of Sandbox.status.cause; static */
    const char *message; /* of the pod; borrowed; or NULL */
    bool keep_volume;    /* FINISH, DELETE: the disk is not ours to delete yet */
    uint64_t again_ns;   /* 0: no need */
} pod_orders;

pod_orders plan_pod(const claim_world *w);
/* Why a pod ended, by what its status says. */
const char *pod_end_cause(const pod_view *p);
