/* Inside the kubernetes backend. Nobody else includes this.
 *
 * One lock guards everything. Functions of the link are called with it held: they wait for nobody
 * and deliver nothing on the caller's thread. The API server is never asked with it held. Link
 * events and the watch take it; what they hand to others (done, hooks) is called without it. */
#pragma once

#include <pthread.h>

#include "backend/kubernetes/kube_watch.h"
#include "backend/kubernetes/kubernetes.h"
#include "backend/link.h"
#include "base/cleanup.h"
#include "base/map.h"

#define WORKERS     4
#define TRIES_MAX   3      /* pods for one create */
#define START_MS    120000 /* for a pod to come up, beside the queue's time */
#define CLAIM_MS    10000  /* for init to answer */
#define ORPHAN_NS   (UINT64_C(60) * 1000000000)
#define RECIPES_MAX 16
#define RECIPE_NS   (UINT64_C(600) * 1000000000) /* used lately */
#define ENDED_MAX   4096                         /* fates that are remembered */
#define UNMADE_MAX  1024                         /* creates that failed unheard */
#define WORK_MAX    20000

typedef struct kubernetes kubernetes;
typedef struct request request;

/* A pod of the cell. */
typedef struct pod {
    pod_facts f;
    char *handle;    /* of the link; another for each life of the container */
    link_warm *warm; /* or NULL */
    bool ready;      /* the warm one */
    bool was_ready;
    bool greeted; /* it has answered once, or never will: nobody waits to know whose it is */
    bool tainted;
    bool retired;                /* nobody may claim it */
    bool going;                  /* its deletion was asked for */
    bool marked;                 /* the API server knows of the claim */
    char id[SANDBOX_ID_LEN + 1]; /* whose it is, or will be; "" */
    const char *klass;
    request *r;       /* the create it is for, until that is answered */
    unsigned swapped; /* restarts that were asked for: a container of another number is not ours */
    char *id_before;  /* the image's id before that was asked for; NULL: it was not */
    uint64_t same_ns; /* since when the container that was asked for is seen; 0: it is not */
    uint64_t seen_ns, orphan_ns;
    bool lost_told;
} pod;

enum request_state {
    REQUEST_WAITS,  /* for a pod of its pool */
    REQUEST_MAKES,  /* a worker has it: a pod is asked for, or another image */
    REQUEST_STARTS, /* its pod comes up */
    REQUEST_CLAIMS, /* the link has it */
};

/* A create under way. */
struct request {
    kubernetes *b;
    request *next; /* of all */
    enum request_state state;
    box_spec spec; /* its texts are the request's own; env is wiped */
    sandbox_spec sandbox;
    const box_events *ev;
    void *arg;
    create_done *done;
    kubernetes_wish wish;
    const char *network;
    uint64_t began_ns;
    uint64_t queue_ns, until_ns; /* for a pod to be free; for one to come up */
    uint64_t made_ns;
    unsigned tries;
    bool cancelled; /* it was destroyed while it was made */
};

/* What was asked for lately: it is kept warm. */
typedef struct recipe {
    char hash[POD_HASH_LEN + 1];
    json_t *spec;
    const char *network;
    uint64_t used_ns, not_before_ns;
    uint64_t extra_ns; /* since when there are more warm pods than are wanted; 0: there are not */
    unsigned making, failures;
} recipe;

/* Something to ask the API server for, by a worker; again until it succeeds or is refused. */
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
    pthread_rwlock_t hooks_lock; /* held while one runs; never with the lock below */
    const kubernetes_hooks *hooks;
    void *hooks_arg;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* pods, work, stop */
    map pods;               /* uid → pod */
    map ids;                /* sandbox → pod */
    map handles;            /* link handle → pod */
    map ended;              /* sandbox → box_fate */
    map unmade; /* sandboxes whose pod may come though its create failed → the backend */
    request *requests;
    unsigned nrequests;
    unsigned nmaking; /* pods that are asked for and have no id in the table yet */
    recipe recipes[RECIPES_MAX];
    size_t nrecipes;
    uint32_t warm, max;
    work *queue;
    size_t nqueue;
    bool stop, synced;
    bool vouched; /* somebody else builds walls, and keeps them */
    pthread_t workers[WORKERS];
    uint64_t refills_failed;
    char last_error[POOL_ERROR_MAX];
};

static inline kubernetes *kubernetes_of(backend *b)
{
    return (kubernetes *)b;
}

/* pods.c; lock held unless said otherwise */
extern const kube_watch_events PODS_WATCH;
extern const link_warm_events PODS_LINK;
pod *pods_by_id(kubernetes *b, const char *id);
pod *pods_by_uid(kubernetes *b, const char *uid);
void pods_set_id(kubernetes *b, pod *p, const char *id); /* "": nobody's */
/* Puts one in as the API server answered a create; may be there already. */
pod *pods_put(kubernetes *b, const json_t *object);
/* Looks at what it is now, and does what that asks for. */
void pods_look(kubernetes *b, pod *p);
/* Asks for its deletion, by its uid. */
void pods_remove(kubernetes *b, pod *p, const char *why);
void pods_on_lease(void *arg, bool held, uint64_t epoch); /* takes the lock */
bool pods_is_warm(const pod *p);
void pods_fate(const pod *p, box_fate *ret_fate);
err *pods_dial(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream);
void pods_condemned(void *arg, const char *handle, const char *why);

/* create.c; a request is whoever's it was given to */
void requests_begin(backend *b, const box_spec *spec, const box_events *ev, void *arg,
                    create_done *done);
/* Lock held. Its pod is ready to be claimed / will not come: it is tried with another, or fails. */
void requests_claim(kubernetes *b, request *r, pod *p);
void requests_pod_failed(kubernetes *b, request *r, err *why);
/* Lock held. A pod is ready, or there is room for another: whether somebody waits for that. */
void requests_offer(kubernetes *b);
/* Lock held. Who destroys a sandbox that is being made gets none. */
void requests_cancel(kubernetes *b, const char *id);
void requests_expire(kubernetes *b, uint64_t now);
void requests_end_all(kubernetes *b);
/* A pod whose create has failed without a word of the API server's goes. */
void requests_look_unmade(kubernetes *b, pod *p);

/* refill.c; lock held */
void refill_used(kubernetes *b, const request *r);
void refill_look(kubernetes *b, uint64_t now);

/* work.c */
void *work_thread(void *arg);
work *work_new(void (*run)(kubernetes *b, work *w));
void work_add(kubernetes *b, work *w); /* lock held; takes it */
/* From run: the same once more, later. */
void work_again(kubernetes *b, work *w, const err *why);
void work_free(work *w);
void work_mark(kubernetes *b, const pod *p); /* lock held: its claim is told */
/* Without the lock: what the operator wants to know, if there is one. */
void hooks_claimed(kubernetes *b, const kubernetes_claim *c);
void hooks_ended(kubernetes *b, const char *id, const char *why);
err *hooks_wish(kubernetes *b, const box_spec *spec, kubernetes_wish *wish) ERR_MUST;
bool kubernetes_fenced(kubernetes *b, err **ret_why); /* the lease is another's */
