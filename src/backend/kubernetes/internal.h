/* Internals of the kubernetes backend; only its own files include this.
 *
 * One lock guards everything. Functions of the link are called with it held: they do not wait and
 * deliver nothing on the caller's thread. The API server is never called with it held. Link events
 * and the watch take it; callbacks of others (done, hooks) are called without it. */
#pragma once

#include <pthread.h>

#include "backend/kubernetes/kube_watch.h"
#include "backend/kubernetes/kubernetes.h"
#include "backend/link.h"
#include "base/cleanup.h"
#include "base/map.h"

#define WORKERS     4
#define TRIES_MAX   3      /* pods for one create */
#define START_MS    120000 /* for a pod to start, after its time in the queue */
#define CLAIM_MS    10000  /* for init to answer */
#define ORPHAN_NS   (UINT64_C(60) * 1000000000)
#define RECIPES_MAX 16
#define RECIPE_NS   (UINT64_C(600) * 1000000000) /* how long a recipe counts as recently used */
#define ENDED_MAX   4096                         /* fates that are remembered */
#define UNMADE_MAX  1024                         /* failed creates whose pod may exist */
#define WORK_MAX    20000

typedef struct kubernetes kubernetes;
typedef struct request request;

/* A pod of the cell. */
typedef struct pod {
    pod_facts f;
    char *handle;    /* of the link; changes with each restart of the container */
    link_warm *warm; /* NULL if none */
    bool ready;      /* state of warm */
    bool was_ready;
    bool greeted; /* its init has answered once, or never will: list() need not wait for it */
    bool tainted;
    bool retired;                /* must not be claimed any more */
    bool going;                  /* its deletion was requested */
    bool marked;                 /* the API server has recorded the claim */
    char id[SANDBOX_ID_LEN + 1]; /* its sandbox, now or as soon as it is claimed; "" */
    const char *klass;
    request *r;       /* the create it serves, until that is answered */
    unsigned swapped; /* expected restart count: a container with another count is not ours */
    char *id_before;  /* id of the image before the requested change; NULL: no change */
    uint64_t same_ns; /* since when the changed container runs; 0: not yet */
    uint64_t seen_ns, orphan_ns;
    bool lost_told;
} pod;

enum request_state {
    REQUEST_WAITS,  /* waits for a pod of its pool */
    REQUEST_MAKES,  /* a worker makes a pod or changes an image for it */
    REQUEST_STARTS, /* its pod is starting */
    REQUEST_CLAIMS, /* its claim is sent through the link */
};

/* A create under way. */
struct request {
    kubernetes *b;
    request *next; /* of the list of all requests */
    enum request_state state;
    box_spec spec; /* strings are copies; env is wiped */
    sandbox_spec sandbox;
    const box_events *ev;
    void *arg;
    create_done *done;
    kubernetes_wish wish;
    const char *network;
    uint64_t began_ns;
    uint64_t queue_ns, until_ns; /* time limits: for a pod to be free, for it to start */
    uint64_t made_ns;
    unsigned tries;
    bool cancelled; /* destroyed while it was being made */
};

/* A recently requested configuration, for which pods are kept warm. */
typedef struct recipe {
    char hash[POD_HASH_LEN + 1];
    json_t *spec;
    const char *network;
    uint64_t used_ns, not_before_ns;
    uint64_t extra_ns; /* since when there are too many warm pods; 0: there are not */
    unsigned making, failures;
} recipe;

/* A call to the API server for a worker; retried until it succeeds or is refused. */
typedef struct work {
    struct work *next;
    void (*run)(kubernetes *b, struct work *w);
    char *name, *uid, *id, *text;
    json_t *json;
    request *r;
    err *failure;
    uint64_t due_ns;
    unsigned tries;
} work;

struct kubernetes {
    backend base;
    kube *k;
    link_host *links;
    kube_watcher *watcher;
    kube_lease *lease;
    pod_world world;
    char *ns, *cell, *bothy_image, *runtime_class, *identity;
    pthread_rwlock_t hooks_lock; /* held while a hook runs; never together with the lock below */
    const kubernetes_hooks *hooks;
    void *hooks_arg;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* pods, work, stop */
    map pods;               /* uid → pod */
    map ids;                /* sandbox → pod */
    map handles;            /* link handle → pod */
    map ended;              /* sandbox → box_fate */
    map unmade; /* sandboxes of failed creates whose pod may still appear → the backend */
    request *requests;
    unsigned nrequests;
    unsigned nmaking; /* pods being created that are not in the table yet */
    recipe recipes[RECIPES_MAX];
    size_t nrecipes;
    uint32_t warm, max;
    work *queue;
    size_t nqueue;
    bool stop, synced;
    bool vouched; /* something else enforces `network: none` */
    pthread_t workers[WORKERS];
    uint64_t refills_failed;
    char last_error[POOL_ERROR_MAX];
};

static inline kubernetes *kubernetes_of(backend *b)
{
    return (kubernetes *)b;
}

/* pods.c; lock held unless stated otherwise */
extern const kube_watch_events PODS_WATCH;
extern const link_warm_events PODS_LINK;
pod *pods_by_id(kubernetes *b, const char *id);
pod *pods_by_uid(kubernetes *b, const char *uid);
void pods_set_id(kubernetes *b, pod *p, const char *id); /* "": no sandbox */
/* Adds a pod as the API server returned it from a create; returns the known one if there is one. */
pod *pods_put(kubernetes *b, const json_t *object);
/* Handles the present state of a pod: links it, claims it, ends it or fails its create. */
void pods_look(kubernetes *b, pod *p);
/* Requests its deletion, by its uid. */
void pods_remove(kubernetes *b, pod *p, const char *why);
void pods_on_lease(void *arg, bool held, uint64_t epoch); /* takes the lock */
bool pods_is_warm(const pod *p);
void pods_fate(const pod *p, box_fate *ret_fate);
err *pods_dial(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream);
void pods_condemned(void *arg, const char *handle, const char *why);

/* create.c; a request belongs to the function it is passed to */
void requests_begin(backend *b, const box_spec *spec, const box_events *ev, void *arg,
                    create_done *done);
/* The request's pod can be claimed / will not start: another pod is tried, or the create fails.
 * Lock held. */
void requests_claim(kubernetes *b, request *r, pod *p);
void requests_pod_failed(kubernetes *b, request *r, err *why);
/* Retries waiting creates: a pod is ready, or there is room for another. Lock held. */
void requests_offer(kubernetes *b);
/* Cancels the create of a sandbox that is being destroyed. Lock held. */
void requests_cancel(kubernetes *b, const char *id);
void requests_expire(kubernetes *b, uint64_t now);
void requests_end_all(kubernetes *b);
/* Deletes a pod whose create failed without an answer of the API server. */
void requests_look_unmade(kubernetes *b, pod *p);

/* refill.c; lock held */
void refill_used(kubernetes *b, const request *r);
void refill_look(kubernetes *b, uint64_t now);

/* work.c */
void *work_thread(void *arg);
work *work_new(void (*run)(kubernetes *b, work *w));
void work_add(kubernetes *b, work *w); /* takes ownership; lock held */
/* Called from run: queues the work again, with a delay. */
void work_again(kubernetes *b, work *w, const err *why);
void work_free(work *w);
void work_mark(kubernetes *b, const pod *p); /* records its claim; lock held */
/* Call the operator's hooks, if there are any. Lock not held. */
void hooks_claimed(kubernetes *b, const kubernetes_claim *c);
void hooks_ended(kubernetes *b, const char *id, const char *why);
err *hooks_wish(kubernetes *b, const box_spec *spec, kubernetes_wish *wish) ERR_MUST;
/* returns true if this bothyd does not hold the lease */
bool kubernetes_fenced(kubernetes *b, err **ret_why);
