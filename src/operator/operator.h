/* The operator: looks at the objects of one namespace, asks the planners, and writes.
 *
 * It runs in bothyd, which is the one that claims pods. What it needs of the outside comes in as
 * two tables of functions: `operator_api` (an API server) and `operator_host` (the engine and the
 * backend of this bothyd), so that a test can be both. operator_run.h makes them of a real cluster
 * and a real engine.
 *
 * What is there is told by operator_saw() and operator_lost(), from any thread: they keep a copy
 * and put what is concerned on the queue. operator_step() does the work that is due; one thread at
 * a time, which may wait for the API server. Nothing of ours is locked meanwhile.
 *
 * The fence. Every write asks host.held() immediately before: a bothyd that has lost its lease
 * writes nothing, whatever it had planned. Besides, a pod is deleted by its uid, finalizers change
 * with the version that was seen, and a claim is settled by init alone.
 *
 * Ceilings: OPERATOR_OBJECTS_MAX of each kind; statuses at most once a second for each pool and
 * each sandbox, every five for each template, but for a change of the sandbox's phase or pod; events at most one a minute for an object and a reason. */
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

/* ---- the API server; each waits ---- */

enum operator_patch {
    OPERATOR_MERGE,
    OPERATOR_APPLY, /* server-side, by force: what we generate is ours */
};
/* Paths as of the server. Errors as backend/kubernetes/kube_http.h has them. */
typedef struct operator_api {
    err *(*get)(void *arg, const char *path, json_t **ret_object);
    err *(*create)(void *arg, const char *path, const json_t *object, json_t **ret_object);
    err *(*patch)(void *arg, const char *path, enum operator_patch how, const json_t *patch);
    /* uid NULL: whichever has the name. What is gone is success. */
    err *(*remove)(void *arg, const char *path, const char *uid);
} operator_api;

/* ---- this bothyd; none waits ---- */

typedef struct operator_look { /* texts are the receiver's to free: operator_look_done() */
    enum engine_life life;
    char *cause, *cause_message; /* LIFE_ENDED: a code of Sandbox.status.cause */
    int32_t exit_code;
    char *owner, *image, *class;
    char *box; /* what its pod's label says; NULL: its id */
    char **labels;
    uint64_t created_ns, active_ns; /* real time; 0: not known */
    uint64_t ends_ns;               /* by its time, 0: never; LIFE_ENDED: when it has ended */
    uint64_t idle_ms;               /* that it ends or sleeps after; 0: never */
    bool busy;
} operator_look;
void operator_look_done(operator_look *l);

/* A create for a Sandbox object; texts are borrowed for the call. */
typedef struct operator_claim {
    const crd_sandbox *sandbox;
    const crd_template *template; /* or NULL: of an image alone */
    const crd_pool *pool;         /* or NULL */
    const char *hash;             /* of the template's pods; NULL without one */
    const char *owner;            /* the tenant it names, else its namespace */
    char **secrets;               /* NAME=value; taken, and wiped by the receiver */
    uint64_t ttl_ms;
} operator_claim;

typedef struct operator_host {
    bool (*held)(void *arg); /* the lease is ours, now */
    enum init_state (*init)(void *arg, const char *pod_uid);
    /* Takes an unclaimed pod out of what may be claimed; false: it is claimed. */
    bool (*retire)(void *arg, const char *pod_uid);
    uint32_t (*pending)(void *arg, const char *pool); /* creates that wait for a pod of it */
    /* Through the engine's create, with a key of the object's uid: asked twice, there is one. It
     * is answered by operator_created(), once, from any thread. */
    void (*create)(void *arg, kube_operator *o, const operator_claim *c);
    bool (*look)(void *arg, const char *id, operator_look *ret_look); /* false: never heard of */
    /* Ends it for that cause, a code of Sandbox.status.cause; message: for people, or NULL. Success
     * also when it has ended. */
    err *(*end)(void *arg, const char *id, const char *cause, const char *message);
    /* Its time is over then, whatever it was before; what runs ends by itself. */
    err *(*end_at)(void *arg, const char *id, uint64_t real_ns);
    /* It is idle after that time from here on. */
    err *(*idle)(void *arg, const char *id, uint64_t idle_ms);
    /* The pod goes, the record and the disk stay; and back. Answered by what look() says then. */
    err *(*hibernate)(void *arg, const char *id);
    err *(*resume)(void *arg, const char *id, const operator_claim *c);
    /* Ids of the sandboxes that live, for those that have no object yet; malloc'ed. */
    size_t (*list)(void *arg, char (**ret_ids)[SANDBOX_ID_LEN + 1]);
} operator_host;

typedef struct operator_options {
    const operator_api *api;
    void *api_arg;
    const operator_host *host;
    void *host_arg;
    const clock_source *clock;
    void (*wake)(void *arg); /* something is due sooner than operator_step() said; may be NULL */
    void *wake_arg;
    const char *namespace; /* copied, as all texts */
    const char *cell, *bothy_image;
    bool image_volume;
    uint64_t disk; /* as manifest_options has them */
    uint32_t shm_mib;
    const char *instance;     /* who reports events */
    uint8_t record_key[32];   /* record_proof()'s */
    enum policy_state policy; /* POLICY_VOUCHED or POLICY_UNKNOWN */
    bool records;             /* sandboxes made through the API get their object */
} operator_options;

kube_operator *operator_new(const operator_options *o);
void operator_free(kube_operator *op);

/* What is there; any thread. The object is copied. */
void operator_saw(kube_operator *op, enum operator_kind kind, const char *uid,
                  const json_t *object);
/* object: its last state, or NULL. */
void operator_lost(kube_operator *op, enum operator_kind kind, const char *uid,
                   const json_t *object);
/* The kind's whole list has been told: nothing is done before each has. */
void operator_synced(kube_operator *op, enum operator_kind kind);

/* What happened; any thread. */
/* A create was answered: id, or why not (taken). */
void operator_created(kube_operator *op, const char *object_uid, const char *id, err *failure);
/* A pod was claimed, or a create failed for want of one (class NULL). pool: as its label has it. */
void operator_claimed(kube_operator *op, const char *pool, const char *class);
/* This sandbox has a pod of that pool, by its label; "": of none. */
void operator_placed(kube_operator *op, const char *id, const char *pool);
void operator_sandbox_changed(kube_operator *op, const char *id);  /* began, ended, moved */
void operator_pod_changed(kube_operator *op, const char *pod_uid); /* what its init says */
/* A request is there for one that sleeps. */
void operator_wanted(kube_operator *op, const char *id);
/* Its pod was taken away: its disk is known, and it may sleep on it. */
bool operator_keeps(kube_operator *op, const char *id);
/* It has done nothing for its idle time: true: it has a disk and is put to sleep. */
bool operator_idle(kube_operator *op, const char *id);
/* What the self-test of NetworkPolicies has found. */
void operator_policy_found(kube_operator *op, enum policy_state s);
enum policy_state operator_policy(kube_operator *op);
/* Builds the wall of sandboxes without a network now, if it can, and not only when operator_step()
 * gets there: before the first create. Waits for the API server. */
void operator_build_walls(kube_operator *op);

/* Does what is due. Returns when something will be (CLOCK_MONOTONIC; 0: nothing is waited for). */
uint64_t operator_step(kube_operator *op);

/* Which pool a create through the API takes its pod from. */
typedef struct operator_source {
    char pool[KUBE_LABEL_MAX + 1]; /* as its label; "": none */
    char hash[HASH_TEXT_LEN + 1];
    bool any_image;
    uint32_t most;    /* pods of the pool; 0: no cap */
    json_t *pod_spec; /* of a pod to be made if none is warm */
    bool open;        /* its pods reach something */
    bool walled;      /* a NetworkPolicy keeps them from something */
    bool built;       /* and the API server has it */
    bool refused;     /* none: its Sandbox object may not have what it names, or that is gone */
} operator_source;
/* For an image as a template names it, which a pod that is made for it runs, the limits asked for,
 * whose it is, and whether it may have a network. False: no pool is for that, or it is `refused`.
 */
typedef struct operator_wish {
    const char *image, *owner;
    uint64_t memory, disk;
    uint32_t cpu_milli, shm_mib;
    bool network;
    const char *object_uid; /* of the Sandbox it is made for: its pool is taken; or NULL */
    const char *waking;     /* id of one that sleeps: it gets its disk again; or NULL */
} operator_wish;
bool operator_source_of(kube_operator *op, const operator_wish *w, operator_source *ret_source);
/* Whether a sandbox may be handed out that counts on a NetworkPolicy: it is there, and the cluster
 * is known to enforce them. s: where its pod comes from; NULL: of no pool, without a network.
 * ERR_WALL_FAILED: it would not hold. ERR_UNAVAILABLE: that is not known yet. */
err *operator_wall(kube_operator *op, const operator_source *s) ERR_MUST;
