/* The Kubernetes operator: watches the objects of one namespace, lets the planners decide, and
 * writes the results to the API server.
 *
 * It runs inside bothyd, because bothyd claims the pods. Its outside comes in as two tables of
 * functions: `operator_api` (an API server) and `operator_host` (this bothyd's engine and
 * backend). A test can implement both. operator_run.h and operator_engine.h implement them over a
 * real cluster and a real engine.
 *
 * Watches report objects through operator_saw() and operator_lost(), from any thread. These
 * keep a copy and enqueue every key that the change affects. operator_step() does the work
 * that is due. One thread at a time calls it; it may wait for the API server, and holds no
 * lock of the operator meanwhile.
 *
 * The fence. Every write asks host.held() immediately before: a bothyd that has lost its lease
 * writes nothing, whatever it had planned. Besides, a pod is deleted by its uid, finalizers change
 * with the version that was seen, and init alone decides a claim.
 *
 * Ceilings: OPERATOR_OBJECTS_MAX of each kind. A status is written at most once a second for each
 * pool and each sandbox, every five seconds for each template. A change of a sandbox's phase or pod
 * is written at once. At most one event a minute is sent for an object and a reason. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "operator/manifest.h"
#include "operator/plan_pool.h"
#include "operator/plan_sandbox.h"

#define OPERATOR_OBJECTS_MAX 20000
#define OPERATOR_STATUS_NS   UINT64_C(1000000000)

typedef struct kube_operator kube_operator;

enum operator_kind {
    OPERATOR_TEMPLATE,
    OPERATOR_POOL,
    OPERATOR_SANDBOX,
    OPERATOR_POD,
    OPERATOR_NODE,
    OPERATOR_KINDS
};

/* ---- the API server; each function waits for it ---- */

enum operator_patch {
    OPERATOR_MERGE,
    OPERATOR_APPLY, /* server-side apply, forced: the operator owns what it generates */
};
/* Paths are those of the API server. Errors as backend/kubernetes/kube_http.h has them. */
typedef struct operator_api {
    err *(*get)(void *arg, const char *path, json_t **ret_object);
    err *(*create)(void *arg, const char *path, const json_t *object, json_t **ret_object);
    err *(*patch)(void *arg, const char *path, enum operator_patch how, const json_t *patch);
    /* uid NULL: delete whichever object has the name. A missing object is success. */
    err *(*remove)(void *arg, const char *path, const char *uid);
} operator_api;

/* ---- this bothyd; no function waits ---- */

typedef struct operator_look { /* the receiver frees the texts: operator_look_done() */
    enum engine_life life;
    char *cause, *cause_message; /* LIFE_ENDED: a code of Sandbox.status.cause */
    int32_t exit_code;
    char *owner, *image, *class;
    char *box; /* the value of its pod's sandbox label; NULL: equal to its id */
    char **labels;
    uint64_t created_ns, active_ns; /* real time; 0: unknown */
    /* real time; when its ttl ends it, 0: never. LIFE_ENDED: when it ended */
    uint64_t ends_ns;
    uint64_t idle_ms; /* idle time after which it ends or hibernates; 0: never */
    bool busy;
} operator_look;
void operator_look_done(operator_look *l);

/* A create for a Sandbox object. The texts are borrowed for the call. */
typedef struct operator_claim {
    const crd_sandbox *sandbox;
    const crd_template *template; /* NULL: the object names an image only */
    const crd_pool *pool;         /* or NULL */
    const char *hash;             /* of the template's pods; NULL without a template */
    const char *owner;            /* the tenant that the object names, else its namespace */
    char **secrets;               /* NAME=value; borrowed: the caller wipes them after the call */
    uint64_t ttl_ms;
} operator_claim;

typedef struct operator_host {
    bool (*held)(void *arg); /* Returns whether this bothyd holds the lease now. */
    enum init_state (*init)(void *arg, const char *pod_uid);
    /* Withdraws an unclaimed pod from claims. Returns false if it is claimed. */
    bool (*retire)(void *arg, const char *pod_uid);
    uint32_t (*pending)(void *arg, const char *pool); /* creates that wait for a pod of the pool */
    /* Creates a sandbox through the engine, with the object's uid in the idempotency
     * key: a repeated call makes no second one. The result comes through
     * operator_created(), once, from any thread. */
    void (*create)(void *arg, kube_operator *o, const operator_claim *c);
    /* Returns false if the engine does not know it. */
    bool (*look)(void *arg, const char *id, operator_look *ret_look);
    /* Ends the sandbox for `cause`, a code of Sandbox.status.cause. message: for people, or NULL.
     * Success also if it has ended already. */
    err *(*end)(void *arg, const char *id, const char *cause, const char *message);
    /* Sets when the ttl is over, whatever it was before. The engine
     * ends running sandboxes itself. */
    err *(*end_at)(void *arg, const char *id, uint64_t real_ns);
    /* Sets the idle time. */
    err *(*idle)(void *arg, const char *id, uint64_t idle_ms);
    /* hibernate deletes the pod and keeps the record and the disk; resume makes a new pod. Later
     * calls of look() show the result. */
    err *(*hibernate)(void *arg, const char *id);
    err *(*resume)(void *arg, const char *id, const operator_claim *c);
    /* Lists the ids of all live sandboxes, so that those without an object get one. malloc'ed. */
    size_t (*list)(void *arg, char (**ret_ids)[SANDBOX_ID_LEN + 1]);
} operator_host;

typedef struct operator_options {
    const operator_api *api;
    void *api_arg;
    const operator_host *host;
    void *host_arg;
    const clock_source *clock;
    void (*wake)(void *arg); /* something is due sooner than operator_step() said; or NULL */
    void *wake_arg;
    const char *namespace; /* copied, like all texts here */
    const char *cell, *bothy_image;
    bool image_volume;
    uint64_t disk; /* as in manifest_options */
    uint32_t shm_mib;
    const char *instance;     /* the reporter of events */
    uint8_t record_key[32];   /* key of record_proof() */
    enum policy_state policy; /* POLICY_VOUCHED or POLICY_UNKNOWN */
    bool records;             /* sandboxes made through the API get a Sandbox object */
} operator_options;

kube_operator *operator_new(const operator_options *o);
void operator_free(kube_operator *op);

/* Reports an object that exists; any thread. The object is copied. */
void operator_saw(kube_operator *op, enum operator_kind kind, const char *uid,
                  const json_t *object);
/* Reports a deleted object; any thread. object: its last state, or NULL. */
void operator_lost(kube_operator *op, enum operator_kind kind, const char *uid,
                   const json_t *object);
/* The first full list of the kind is complete. Nothing but the walls is done before every kind
 * is synced; nodes are optional. */
void operator_synced(kube_operator *op, enum operator_kind kind);

/* Events; any thread. */
/* A create was answered. id: the sandbox, NULL if it failed; failure: why (takes ownership). */
void operator_created(kube_operator *op, const char *object_uid, const char *id, err *failure);
/* A pod was claimed, or a create failed because none was free (class NULL). pool: label value. */
void operator_claimed(kube_operator *op, const char *pool, const char *class);
/* The sandbox has a pod of the pool with this label value; "": of no pool. */
void operator_placed(kube_operator *op, const char *id, const char *pool);
void operator_sandbox_changed(kube_operator *op, const char *id);  /* it began, ended or moved */
void operator_pod_changed(kube_operator *op, const char *pod_uid); /* its init's state changed */
/* A request waits for a hibernated sandbox. */
void operator_wanted(kube_operator *op, const char *id);
/* The sandbox's pod was taken away. Returns true if its disk is known, so that it can hibernate. */
bool operator_keeps(kube_operator *op, const char *id);
/* The sandbox was idle for its idle time. Returns true if it has a disk: it will hibernate. */
bool operator_idle(kube_operator *op, const char *id);
/* The self-test of NetworkPolicies came to this result. */
void operator_policy_found(kube_operator *op, enum policy_state s);
enum policy_state operator_policy(kube_operator *op);
/* Builds the NetworkPolicy for sandboxes without a network now, if possible, instead of at the next
 * operator_step(): it must exist before the first create. Waits for the API server. */
void operator_build_walls(kube_operator *op);

/* Does all work that is due. Returns when to call it next (CLOCK_MONOTONIC; 0: no work waits). */
uint64_t operator_step(kube_operator *op);

/* Where bothyd gets the pod of a new box: from a pool's warm pods, or made from pod_spec. */
typedef struct operator_source {
    char pool[KUBE_LABEL_MAX + 1]; /* label value; "": no pool */
    char hash[HASH_TEXT_LEN + 1];
    bool any_image;
    uint32_t most;    /* ceiling of the pool's pods; 0: none */
    json_t *pod_spec; /* for a new pod, if none is warm */
    bool open;        /* its pods have egress */
    bool walled;      /* a NetworkPolicy restricts them, */
    bool built;       /* and exists in the API server */
    bool refused;     /* no source: the object names what it may not use, or is gone */
} operator_source;
/* A request for a pod: the image as a template names it, the limits, the owner, and whether it may
 * have a network. operator_source_of() returns false if no pool serves it, or if it is refused. */
typedef struct operator_wish {
    const char *image, *owner;
    uint64_t memory, disk;
    uint32_t cpu_milli, shm_mib;
    bool network;
    const char *object_uid; /* uid of the Sandbox it is made for, whose pool is used; or NULL */
    const char *waking;     /* id of the hibernated sandbox that gets its disk again; or NULL */
} operator_wish;
bool operator_source_of(kube_operator *op, const operator_wish *w, operator_source *ret_source);
/* Checks that a sandbox which relies on a NetworkPolicy may be handed out: the policy exists, and
 * the cluster is known to enforce policies. s: source of its pod; NULL: no pool and no network.
 * ERR_WALL_FAILED: the self-test showed that policies are not enforced, or could not tell.
 * ERR_UNAVAILABLE: the self-test still runs, or the policy does not exist yet. */
err *operator_wall(kube_operator *op, const operator_source *s) ERR_MUST;
