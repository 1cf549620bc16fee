/* Inside the operator. Nobody else includes this. */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "operator/index.h"
#include "operator/metrics.h"
#include "operator/names.h"
#include "operator/operator.h"
#include "operator/plan_pod.h"
#include "operator/queue.h"

#define SWEEP_NS             UINT64_C(60000000000)
#define ORPHAN_DISK_NS       UINT64_C(600000000000) /* a volume that nobody names */
#define EXPECT_NS            UINT64_C(300000000000) /* a pod that was created and is not seen */
#define GOING_NS             UINT64_C(30000000000) /* a deletion that is not seen is asked for again */
#define TEMPLATE_STATUS_NS   UINT64_C(5000000000) /* between two writes of one: cells share it */
#define EVENT_NS             UINT64_C(60000000000)
#define EVENTS_MAX           4096
#define UNHELD_NS            UINT64_C(2000000000) /* without the lease: look again then */
#define POD_LOOK_NS          UINT64_C(60000000000)
#define INIT_LOOK_NS         UINT64_C(300000000)
#define POOL_LARGE           500 /* pods; from there on events wait for a common look: */
#define POOL_LOOK_NS_PER_POD UINT64_C(20000)

/* An object as it was last seen. Not changed once it is there: another takes its place. */
struct seen {
    unsigned refs;                  /* of the operator's lock */
    uint32_t at[INDEXES];           /* its places in the lists of index.h */
    char label[KUBE_LABEL_MAX + 1]; /* a pool's, of its pods */
    enum operator_kind kind;
    char *uid, *name;
    char *error; /* why it cannot be used; NULL: it can */
    union {
        crd_template template;
        crd_pool pool;
        crd_sandbox sandbox;
        pod_view pod;
        struct {
            bool ready, unschedulable;
        } node;
    };
};

/* A pod, beyond what its object says; by uid. */
typedef struct pod_track {
    uint64_t seen_ns;   /* first */
    uint64_t placed_ns; /* first on a node; 0: it was from the first */
    bool unplaced;      /* it was seen without one */
    uint64_t going_ns;  /* its deletion was asked for; 0: not */
    bool was_warm;
    uint64_t claimed_ns; /* first seen to be */
} pod_track;

typedef struct expected {
    char name[KUBE_LABEL_MAX + 1];
    uint64_t until_ns;
} expected;

/* A pool, likewise; by uid. */
typedef struct pool_track {
    unsigned looks; /* that use it without the lock */
    bool lost;      /* its pool is gone: the last of them frees it */
    pool_memory memory;
    demand demand;
    uint64_t since_ns;
    expected *coming;
    size_t ncoming;
    uint64_t status_ns;              /* the last write */
    char applied[HASH_TEXT_LEN + 1]; /* of the manifests beside its pods, as they were written */
    pool_counts counts;              /* as metrics have them */
    uint32_t pending;                /* likewise */
    bool no_budget, no_pre_pull;     /* known not to be there */
    uint64_t exact, kubelet, cold, failed; /* claims */
    uint64_t claimed_real_ns;
    enum pool_trouble trouble; /* the last one told */
} pool_track;

/* A Sandbox, likewise; by uid. */
typedef struct sandbox_track {
    bool claiming;
    char id[SANDBOX_ID_LEN + 1]; /* that its create answered */
    char *refused;
    uint64_t retry_ns; /* real time */
    unsigned tries;
    bool wanted;
    bool volume_gone;    /* it was deleted */
    bool timed;          /* the engine has a time of it: */
    uint64_t expires_ns; /* spec.expiresAt then */
    uint64_t podless_ns; /* since when it lives and its pod is not seen */
    uint64_t status_ns;  /* the last write of its status, which had: */
    enum sandbox_phase phase;
    char *pod_uid;
} sandbox_track;

/* A sandbox that was made through the API and has no object yet; by id. */
typedef struct record_track {
    uint64_t since_ns;
    uint64_t made_ns; /* its object was; the watch shows it later */
    bool placed;      /* its pool is known: */
    char pool[KUBE_LABEL_MAX + 1];
} record_track;

struct kube_operator {
    operator_options o;
    char *namespace, *cell, *bothy_image, *instance;
    manifest_options manifest;
    pthread_mutex_t lock;
    map objects[OPERATOR_KINDS]; /* uid → seen */
    seen_index index;            /* of all of them */
    bool synced[OPERATOR_KINDS];
    map pods, pools, sandboxes; /* uid → track */
    map templates;              /* uid → when its status was written */
    map records;                /* sandbox id → record_track */
    map by_id;                  /* sandbox id → uid of its object, xstrdup'ed */
    map events;                 /* what was told lately → time */
    map idle_disks;             /* volume → since when nobody names it */
    map nodes_silent;           /* node → since when */
    map nodes_draining;         /* likewise */
    queue queue;
    enum policy_state policy;
    uint64_t probe_ns;      /* when the self-test that is under way began; 0: none is */
    uint64_t probe_next_ns; /* none before that */
    bool probed;            /* one has ended */
    bool none_built;        /* the wall of sandboxes without a network is there */
    uint64_t none_next_ns;  /* it is looked at again then */
};

/* operator.c */
uint64_t op_now(const kube_operator *op);
uint64_t op_real(const kube_operator *op);
bool op_held(const kube_operator *op);
/* What is due now, or then; any thread, the lock not held. */
void op_add(kube_operator *op, uint64_t due, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* lock held */
void op_add_locked(kube_operator *op, uint64_t due, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
seen *op_find(kube_operator *op, enum operator_kind kind, const char *uid);       /* a reference */
seen *op_find_name(kube_operator *op, enum operator_kind kind, const char *name); /* a reference */
seen *op_find_name_locked(kube_operator *op, enum operator_kind kind, const char *name); /* none */
void seen_unref(kube_operator *op, seen *s);
/* References to all pods of a pool, by its label; NULL-terminated. */
seen **op_pods_of(kube_operator *op, const char *pool, size_t *ret_n);
pod_track *op_pod_track(kube_operator *op, const char *uid);         /* lock held */
pool_track *op_pool_track(kube_operator *op, const char *uid);       /* lock held */
sandbox_track *op_sandbox_track(kube_operator *op, const char *uid); /* lock held */
record_track *op_record_track(kube_operator *op, const char *id);    /* lock held */
/* For a look, which takes long: the pool may be lost meanwhile, not its track. */
pool_track *op_pool_track_hold(kube_operator *op, const char *uid);
void op_pool_track_drop(kube_operator *op, pool_track *t);

/* api.c: each write is fenced: ERR_UNAVAILABLE without the lease */
char *op_path(const kube_operator *op, const char *api, const char *plural, const char *name,
              const char *sub);
err *op_create(kube_operator *op, const char *path, const json_t *object) ERR_MUST;
err *op_merge(kube_operator *op, const char *path, const json_t *patch) ERR_MUST;
err *op_apply(kube_operator *op, const char *path, const json_t *object) ERR_MUST;
err *op_remove(kube_operator *op, const char *path, const char *uid) ERR_MUST;
err *op_finalizer(kube_operator *op, const char *path, const object_meta *m, const char *name,
                  bool add) ERR_MUST;
#define API_CORE "api/v1"
#define API_OURS "apis/" OPERATOR_API_VERSION
typedef struct event_about {
    const char *kind, *name, *uid;
} event_about;
/* Never fails: losing one is fine. */
void op_event(kube_operator *op, const event_about *about, bool warning, const char *reason,
              const char *action, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Half of OPERATOR_OBJECTS_MAX Sandbox objects are there; lock held. */
bool op_is_crowded(const kube_operator *op);

/* reconcile_pod.c: of real time, in the clock of op_now(); 0 stays 0 */
uint64_t op_mono_of(const kube_operator *op, uint64_t real_ns);
/* The pod whose sandbox this is, as a reference; or NULL. */
seen *op_pod_of(kube_operator *op, const char *id);
bool op_node_draining(kube_operator *op, const char *node);

/* source.c: whose sandbox an object asks for: the tenant it names, else its namespace. */
const char *op_owner_of(const kube_operator *op, const crd_sandbox *s);

/* reconcile_pool.c: pool_track.applied, of pods of this hash. */
void op_applied_of(const crd_pool *p, const char *hash, char ret[HASH_TEXT_LEN + 1]);

/* reconcile_*.c: one look at one thing. An error: again later. *again: or then (0: no need). */
err *reconcile_template(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_pool(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_pod(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_sandbox(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_record(kube_operator *op, const char *id, uint64_t *again) ERR_MUST;
err *reconcile_sweep(kube_operator *op, const char *what, uint64_t *again) ERR_MUST;
err *reconcile_probe(kube_operator *op, uint64_t *again) ERR_MUST;
/* walls.c: what needs no object of ours to be known, and is due; returns when something will be. */
uint64_t step_walls(kube_operator *op);
/* Its pod's DELETE was seen: what of its sandbox. */
void pod_gone(kube_operator *op, const seen *s);
