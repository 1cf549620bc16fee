/* Internals of the operator: its state, its cache of objects, what its files
 * share. Private to this folder. */
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
#define ORPHAN_DISK_NS       UINT64_C(600000000000) /* a volume that no object names */
#define EXPECT_NS            UINT64_C(300000000000) /* for a created pod to appear in the watch */
#define GOING_NS             UINT64_C(30000000000)  /* until an unseen deletion is repeated */
#define TEMPLATE_STATUS_NS   UINT64_C(5000000000)   /* between writes of one; cells share it */
#define EVENT_NS             UINT64_C(60000000000)
#define EVENTS_MAX           4096
#define UNHELD_NS            UINT64_C(2000000000) /* without the lease: try again after */
#define POD_LOOK_NS          UINT64_C(60000000000)
#define INIT_LOOK_NS         UINT64_C(300000000)
#define POOL_LARGE           500 /* pods; from there on, events share a reconcile: */
#define POOL_LOOK_NS_PER_POD UINT64_C(20000)

/* An object as last seen. Immutable: a change replaces it by another. */
struct seen {
    unsigned refs;                  /* under the operator's lock */
    uint32_t at[INDEXES];           /* its places in the lists of index.h */
    char label[KUBE_LABEL_MAX + 1]; /* pools: the label value of their pods */
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

/* State of a pod beyond its object; by uid. */
typedef struct pod_track {
    uint64_t seen_ns;   /* when first seen */
    uint64_t placed_ns; /* when first seen on a node; 0: it was from the first */
    bool unplaced;      /* it was seen without a node */
    uint64_t going_ns;  /* when its deletion was requested; 0: it was not */
    bool was_warm;
    uint64_t claimed_ns; /* when first seen claimed */
} pod_track;

typedef struct expected {
    char name[KUBE_LABEL_MAX + 1];
    uint64_t until_ns;
} expected;

/* State of a pool beyond its object; by uid. */
typedef struct pool_track {
    unsigned looks; /* reconciles that use it without the lock */
    bool lost;      /* the pool is deleted: the last of those reconciles frees it */
    pool_memory memory;
    demand demand;
    uint64_t since_ns;
    expected *coming;
    size_t ncoming;
    uint64_t status_ns;                    /* when its status was last written */
    char applied[HASH_TEXT_LEN + 1];       /* hash of the last manifests written beside its pods */
    pool_counts counts;                    /* as last added to the metrics */
    uint32_t pending;                      /* likewise */
    bool no_budget, no_pre_pull;           /* known to be absent */
    uint64_t exact, kubelet, cold, failed; /* claims */
    uint64_t claimed_real_ns;
    enum pool_trouble trouble; /* the last one reported as an event */
} pool_track;

/* State of a Sandbox beyond its object; by uid. */
typedef struct sandbox_track {
    bool claiming;
    char id[SANDBOX_ID_LEN + 1]; /* as its create returned it */
    char *refused;
    uint64_t retry_ns; /* real time */
    unsigned tries;
    bool wanted;
    bool volume_gone;    /* its deletion was requested */
    bool timed;          /* the engine has an end time from it: */
    uint64_t expires_ns; /* spec.expiresAt at that time */
    uint64_t podless_ns; /* since when it runs and its pod is not seen */
    uint64_t status_ns;  /* the last write of its status, which had: */
    enum sandbox_phase phase;
    char *pod_uid;
} sandbox_track;

/* A sandbox made through the API that has no object yet; by id. */
typedef struct record_track {
    uint64_t since_ns;
    uint64_t made_ns; /* when its object was created; the watch shows it later */
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
    map events;                 /* uid/reason → when this event was last sent */
    map idle_disks;             /* volume → since when no object names it */
    map nodes_silent;           /* node → since when */
    map nodes_draining;         /* likewise */
    queue queue;
    enum policy_state policy;
    uint64_t probe_ns;      /* when the running self-test began; 0: none runs */
    uint64_t probe_next_ns; /* earliest start of the next one */
    bool probed;            /* one has finished */
    bool none_built;        /* the NetworkPolicy for sandboxes without a network exists */
    uint64_t none_next_ns;  /* when it is checked again */
};

/* operator.c */
uint64_t op_now(const kube_operator *op);
uint64_t op_real(const kube_operator *op);
bool op_held(const kube_operator *op);
/* Enqueues a key that is due at `due`; any thread, the lock not held. */
void op_add(kube_operator *op, uint64_t due, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with the lock held. */
void op_add_locked(kube_operator *op, uint64_t due, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* takes a reference */
seen *op_find(kube_operator *op, enum operator_kind kind, const char *uid);
/* takes a reference */
seen *op_find_name(kube_operator *op, enum operator_kind kind, const char *name);
/* takes none; lock held */
seen *op_find_name_locked(kube_operator *op, enum operator_kind kind, const char *name);
void seen_unref(kube_operator *op, seen *s);
/* Returns references to all pods of a pool, by its label; NULL-terminated. */
seen **op_pods_of(kube_operator *op, const char *pool, size_t *ret_n);
pod_track *op_pod_track(kube_operator *op, const char *uid);         /* lock held */
pool_track *op_pool_track(kube_operator *op, const char *uid);       /* lock held */
sandbox_track *op_sandbox_track(kube_operator *op, const char *uid); /* lock held */
record_track *op_record_track(kube_operator *op, const char *id);    /* lock held */
/* Holds a pool's track for a reconcile, which takes long: if the pool is deleted meanwhile,
 * its track stays until the drop. */
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
/* Sends an event. Never fails: losing one is acceptable. */
void op_event(kube_operator *op, const event_about *about, bool warning, const char *reason,
              const char *action, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Returns whether more than half of OPERATOR_OBJECTS_MAX Sandbox objects exist; lock held. */
bool op_is_crowded(const kube_operator *op);

/* reconcile_pod.c: converts real time to the clock of op_now(); 0 stays 0 */
uint64_t op_mono_of(const kube_operator *op, uint64_t real_ns);
/* Returns a reference to the pod of this sandbox; NULL if none is seen. */
seen *op_pod_of(kube_operator *op, const char *id);
bool op_node_draining(kube_operator *op, const char *node);

/* source.c: returns the owner of an object's sandbox: the tenant it names, else its namespace. */
const char *op_owner_of(const kube_operator *op, const crd_sandbox *s);

/* reconcile_pool.c: computes pool_track.applied for pods of this hash. */
void op_applied_of(const crd_pool *p, const char *hash, char ret[HASH_TEXT_LEN + 1]);

/* reconcile_*.c: reconcile one object each. An error: retry later.
 * *again: or at that time (0: no need). */
err *reconcile_template(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_pool(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_pod(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_sandbox(kube_operator *op, const char *uid, uint64_t *again) ERR_MUST;
err *reconcile_record(kube_operator *op, const char *id, uint64_t *again) ERR_MUST;
err *reconcile_sweep(kube_operator *op, const char *what, uint64_t *again) ERR_MUST;
err *reconcile_probe(kube_operator *op, uint64_t *again) ERR_MUST;
/* walls.c: writes a NetworkPolicy unless it exists as wanted. */
err *op_build_policy(kube_operator *op, const json_t *policy) ERR_MUST;
/* walls.c: does the due work that needs none of the operator's own
 * objects. Returns when more is due. */
uint64_t step_walls(kube_operator *op);
/* Handles the deletion of a pod: hibernates its sandbox if it has a disk. Otherwise the backend
 * reports the sandbox's end to the engine. */
void pod_gone(kube_operator *op, const seen *s);
