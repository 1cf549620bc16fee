/* What a pool needs: the table "Pool" of the reconcilers, as a function.
 *
 * Level-triggered: everything is decided from what is there now. What must be remembered from one
 * look to the next (pauses after failures, how far a batch may go, the last steps of the scale) is
 * in `pool_memory`, which the planner and the pool_note functions alone change; losing it at a
 * restart costs a slow start and nothing else.
 *
 * Rules, strongest first:
 *   one that is being deleted gives up its unclaimed pods, waits for the claimed ones (unless it is
 *     forced) and then lets go;
 *   a pod that has ended, or does not come up in its time, is deleted and counted; failures pause
 *     creates, doubling to POOL_PAUSE_MAX_NS; a pod is never used twice;
 *   without its template, without its walls, in a pause, out of quota, or while a pod cannot be
 *     scheduled or pulled, nothing is created;
 *   never more pods than maxSandboxes; unclaimed ones are brought to the target: replicas, or what
 *     demand asks for;
 *   unclaimed pods of another template go, at most maxUnavailable at a time.
 *
 * A deletion of an unclaimed pod is an order to RETIRE it first: whoever executes it asks the one
 * that gives out pods, and deletes only what was not claimed meanwhile, by its uid. */
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
#define POOL_UNSCHEDULED_NS UINT64_C(60000000000)  /* until it counts as such */
#define POOL_MANY           8u /* pods that start at once: they may take turns, so that each has */
#define POOL_TURNS          5u /* its time from the last one that came up, so often at most */
#define POOL_OUTCOMES       64u
#define POOL_OUTCOMES_NS    UINT64_C(300000000000)
#define POOL_DOWN_PERCENT   20u                   /* of the target, */
#define POOL_DOWN_NS        UINT64_C(60000000000) /* each minute */

/* What init says, through whoever holds the stream to it. */
enum init_state {
    INIT_UNKNOWN, /* nobody has reached it yet */
    INIT_WARM,
    INIT_CLAIMED,
    INIT_TAINTED,
    INIT_UNREACHABLE, /* it was reached before */
    INIT_RETIRED,     /* it is not given to anybody any more, and is to go */
};

typedef struct pool_pod {
    const pod_view *pod;
    enum init_state init;
    uint64_t seen_ns;   /* when this operator first saw it: its clock, not the API server's */
    uint64_t placed_ns; /* when it first saw it on a node, after it had none; 0: it always had */
    bool going;         /* its deletion was asked for, and is not seen yet */
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
    uint32_t batch;               /* how many may be created at once; 0: 1 */
    uint32_t failures;            /* in a row */
    uint64_t not_before_ns;       /* no creates until then */
    enum pool_trouble why;        /* that pause's */
    char *message;                /* for people; or NULL */
    char hash[HASH_TEXT_LEN + 1]; /* whose failures these are: another template begins anew */
    struct {
        uint64_t at_ns;
        bool good;
    } outcome[POOL_OUTCOMES]; /* a ring */
    uint32_t noutcomes;       /* ever */
    uint32_t target;          /* the last one; autoscaling's */
    bool has_target;
    uint64_t warm_ns;    /* the last pod that came up */
    uint64_t lowered_ns; /* the last step down */
    uint64_t scaled_ns;  /* the last change of the target, real time */
} pool_memory;
void pool_memory_done(pool_memory *m);

/* What happened. */
void pool_note_created(pool_memory *m, uint32_t n); /* a batch was created whole */
/* A create was refused: 403 of a quota, another refusal, or an error. message may be NULL. */
void pool_note_refused(pool_memory *m, enum pool_trouble why, const char *message, uint64_t now);
void pool_note_warm(pool_memory *m, uint64_t now); /* a pod became ready for the first time */

bool pod_is_placed(const pod_view *p); /* on a node, as far as it says */

typedef struct pool_world { /* what is seen; borrowed */
    const crd_pool *pool;
    const crd_template *template; /* NULL: there is none of that name */
    const char *template_error;   /* it cannot be used, and why; or NULL */
    const char *hash;             /* what pods of it must have now; NULL without a template */
    enum policy_state policy;
    const pool_pod *pods; /* all of the pool, whatever their state */
    size_t npods;
    uint32_t coming;      /* created, not seen yet */
    uint32_t pending;     /* claims that wait for a pod of it */
    uint64_t rate;        /* claims in a thousand seconds (demand.h) */
    uint64_t refill_ms;   /* 0: not known */
    uint64_t claimed_ago; /* ns since the last claim, or the operator's start */
    uint64_t now;         /* of seen_ns and pool_memory: never goes back */
    uint64_t now_real;    /* since 1970, for statuses */
} pool_world;

enum removal_why {
    REMOVE_EXCESS,
    REMOVE_STALE,    /* of another template */
    REMOVE_ENDED,    /* Failed, Succeeded, evicted */
    REMOVE_STUCK,    /* did not come up in its time */
    REMOVE_TAINTED,  /* its init is not to be believed */
    REMOVE_DRAINING, /* the pool goes */
    REMOVALS
};
const char *removal_text(enum removal_why why);

typedef struct pool_removal {
    const pod_view *pod;
    enum removal_why why;
    bool retire; /* ask first: it may have been claimed meanwhile */
} pool_removal;

typedef struct pool_counts {
    uint32_t ready, starting, claimed, failed, going; /* of pods */
    uint32_t updated;                                 /* unclaimed, of the hash */
} pool_counts;

typedef struct pool_orders {
    uint32_t create;
    pool_removal *removals;
    size_t nremovals;
    bool add_finalizer, drop_finalizer;
    uint32_t target;
    uint64_t again_ns; /* look again then at the latest; 0: no need */
    pool_counts counts;
    enum pool_trouble trouble;
    bool held;             /* by it: nothing is created; else only a pause may be */
    char *trouble_message; /* or NULL */
    bool scaling_conflict;
    json_t *status; /* as it should be, but for claims and lastClaimTime */
} pool_orders;
void pool_orders_done(pool_orders *o);

void plan_pool(const pool_world *w, pool_memory *m, pool_orders *ret_orders);
