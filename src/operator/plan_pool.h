/* The planner of pools: decides what a pool needs, as a pure function.
 *
 * Level-triggered: it decides from the present state alone. Facts that must survive from one
 * reconcile to the next (pauses after failures, the batch size, the last steps of the scale) are in
 * `pool_memory`, which only the planner and the pool_note functions change. A restart loses it,
 * which costs a slow start and nothing else.
 *
 * Rules, strongest first:
 *   a pool that is being deleted deletes its unclaimed pods, waits for the claimed ones (unless it
 *     is forced), and then drops its finalizer;
 *   a pod that has ended, or did not come up in time, is deleted and counted as a failure; failures
 *     pause creates, doubling to POOL_PAUSE_MAX_NS; a pod is never used twice;
 *   without its template, without its walls, in a pause, out of quota, or while a pod cannot be
 *     scheduled or pulled, no pod is created;
 *   there are never more pods than maxSandboxes; the unclaimed ones are brought to the target:
 *     replicas, or what demand asks for;
 *   unclaimed pods of another template are replaced, at most maxUnavailable at a time.
 *
 * To delete an unclaimed pod, the executor first RETIREs it at the part that hands out pods. It
 * then deletes, by uid, only a pod that was not claimed meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/demand.h"
#include "operator/manifest.h"
#include "operator/objects.h"

#define POOL_BATCH_MAX      50u
#define POOL_PAUSE_NS       UINT64_C(5000000000)   /* after the first failure */
#define POOL_PAUSE_MAX_NS   UINT64_C(300000000000) /* five minutes */
#define POOL_QUOTA_NS       UINT64_C(30000000000)  /* after a refusal for quota */
#define POOL_UNSCHEDULED_NS UINT64_C(60000000000)  /* until a pod counts as unschedulable */
#define POOL_MANY           8u /* if so many pods start, they may take turns: each gets */
#define POOL_TURNS          5u /* a new start time when another comes up, at most so often */
#define POOL_OUTCOMES       64u
#define POOL_OUTCOMES_NS    UINT64_C(300000000000)
#define POOL_DOWN_PERCENT   20u                   /* of the target */
#define POOL_DOWN_NS        UINT64_C(60000000000) /* at most once in this time */

/* The state of a pod's init, from the holder of the stream to it. */
enum init_state {
    INIT_UNKNOWN, /* not reached yet */
    INIT_WARM,
    INIT_CLAIMED,
    INIT_TAINTED,
    INIT_UNREACHABLE, /* reached before, but not now */
    INIT_RETIRED,     /* withdrawn from claims, and to be deleted */
};

typedef struct pool_pod {
    const pod_view *pod;
    enum init_state init;
    uint64_t seen_ns;   /* when this operator first saw it, by its own clock */
    uint64_t placed_ns; /* when it got a node after it was seen without; 0: it always had one */
    bool going;         /* its deletion was requested and is not seen yet */
} pool_pod;

enum pool_trouble {
    TROUBLE_NONE,
    TROUBLE_TEMPLATE_MISSING,
    TROUBLE_TEMPLATE_INVALID,
    TROUBLE_NAMESPACE,
    TROUBLE_POLICY,
    TROUBLE_QUOTA,
    TROUBLE_FORBIDDEN,
    TROUBLE_IMAGE,
    TROUBLE_CONFIG,
    TROUBLE_CRASH,
    TROUBLE_UNSCHEDULABLE,
    TROUBLE_STARTUP,
    TROUBLES
};
const char *pool_trouble_reason(enum pool_trouble t); /* of the condition Degraded */

typedef struct pool_memory {
    uint32_t batch;         /* how many pods may be created at once; 0: 1 */
    uint32_t failures;      /* consecutive */
    uint64_t not_before_ns; /* no creates before that */
    enum pool_trouble why;  /* the reason of that pause */
    char *message;          /* for people; or NULL */
    /* template that the failures are of; another template starts from zero */
    char hash[HASH_TEXT_LEN + 1];
    struct {
        uint64_t at_ns;
        bool good;
    } outcome[POOL_OUTCOMES]; /* a ring */
    uint32_t noutcomes;       /* since the start */
    uint32_t target;          /* the last one, for autoscaling */
    bool has_target;
    uint64_t warm_ns;    /* when a pod last came up */
    uint64_t lowered_ns; /* the last step down */
    uint64_t scaled_ns;  /* the last change of the target, real time */
} pool_memory;
void pool_memory_done(pool_memory *m);

/* Events. */
void pool_note_created(pool_memory *m, uint32_t n); /* a batch was created whole */
/* A create was refused: by a quota (403), another rule, or with an error. message may be NULL. */
void pool_note_refused(pool_memory *m, enum pool_trouble why, const char *message, uint64_t now);
void pool_note_warm(pool_memory *m, uint64_t now); /* a pod became ready for the first time */

bool pod_is_placed(const pod_view *p); /* it has a node, as far as its status says */

typedef struct pool_world { /* the present state; borrowed */
    const crd_pool *pool;
    const crd_template *template; /* NULL: no template has that name */
    const char *template_error;   /* why it cannot be used; or NULL */
    const char *hash;             /* hash that its pods must have now; NULL without a template */
    enum policy_state policy;
    const pool_pod *pods; /* all pods of the pool, in any state */
    size_t npods;
    uint32_t coming;      /* created, not seen yet */
    uint32_t pending;     /* claims that wait for a pod of it */
    uint64_t rate;        /* claims in a thousand seconds (demand.h) */
    uint64_t refill_ms;   /* 0: unknown */
    uint64_t claimed_ago; /* ns since the last claim, or the operator's start */
    uint64_t now;         /* clock of seen_ns and pool_memory: monotonic */
    uint64_t now_real;    /* since 1970, for statuses */
} pool_world;

enum removal_why {
    REMOVE_EXCESS,
    REMOVE_STALE,    /* of another template */
    REMOVE_ENDED,    /* Failed, Succeeded, evicted */
    REMOVE_STUCK,    /* did not come up in time */
    REMOVE_TAINTED,  /* its init is not to be trusted */
    REMOVE_DRAINING, /* the pool is being deleted */
    REMOVALS
};
const char *removal_text(enum removal_why why);

typedef struct pool_removal {
    const pod_view *pod;
    enum removal_why why;
    bool retire; /* retire it first: it may have been claimed meanwhile */
} pool_removal;

typedef struct pool_counts {
    uint32_t ready, starting, claimed, failed, going; /* of pods */
    uint32_t updated;                                 /* unclaimed pods with the current hash */
} pool_counts;

typedef struct pool_orders {
    uint32_t create;
    pool_removal *removals;
    size_t nremovals;
    bool add_finalizer, drop_finalizer;
    uint32_t target;
    uint64_t again_ns; /* reconcile again then at the latest; 0: no need */
    pool_counts counts;
    enum pool_trouble trouble;
    bool held;             /* the trouble stops all creates; else it only explains a pause */
    char *trouble_message; /* or NULL */
    bool scaling_conflict;
    json_t *status; /* the wanted status, without claims and lastClaimTime */
} pool_orders;
void pool_orders_done(pool_orders *o);

void plan_pool(const pool_world *w, pool_memory *m, pool_orders *ret_orders);
