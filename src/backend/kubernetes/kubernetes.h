/* What the operator, which runs in the same bothyd, needs of the backend beside its contract
 * (backend.h). Any thread. */
#pragma once

#include "backend/backend.h"
#include "backend/kubernetes/kube_http.h"
#include "backend/kubernetes/kube_lease.h"
#include "backend/kubernetes/pod.h"

kube *kubernetes_kube(backend *b);
const char *kubernetes_namespace(const backend *b);
kube_lease *kubernetes_lease(backend *b); /* of the cell; NULL: it runs without */
const pod_world *kubernetes_world(const backend *b);

/* Where a sandbox comes from. */
typedef struct kubernetes_wish {
    char *pool;     /* its warm pods, as their label has it; NULL: any pod of the hash */
    bool any_image; /* pods of it take the image at the claim */
    uint32_t most;  /* pods of it, claimed or not; 0: as many as there may be */
    json_t *spec;   /* of the pod to make if there is none warm; NULL: none is made */
    char hash[POD_HASH_LEN + 1]; /* of that spec: warm pods of it are exact */
} kubernetes_wish;
void kubernetes_wish_done(kubernetes_wish *w);

typedef struct kubernetes_claim {
    const char *id, *pod, *uid, *node, *pool, *klass, *image;
} kubernetes_claim;

typedef struct kubernetes_hooks { /* each may be NULL; must not wait */
    /* Fills what it knows better than the default, which is in *wish. */
    err *(*wish)(void *arg, const box_spec *spec, kubernetes_wish *wish);
    void (*claimed)(void *arg, const kubernetes_claim *c);
    void (*ended)(void *arg, const char *id, const char *why);
} kubernetes_hooks;
/* NULL: none. Waits for those that run; not from one of them. */
void kubernetes_set_hooks(backend *b, const kubernetes_hooks *h, void *arg);

/* Takes an unclaimed pod out: true when nobody has claimed it and nobody will, so that it may be
 * deleted (by its uid). */
bool kubernetes_retire(backend *b, const char *uid);
enum kubernetes_init { /* what init says, through the stream to it */
    KUBERNETES_UNKNOWN,
    KUBERNETES_READY,
    KUBERNETES_CLAIMED,
    KUBERNETES_LOST,    /* it was ready before */
    KUBERNETES_TAINTED, /* not to be believed */
    KUBERNETES_RETIRED, /* kubernetes_retire() */
};
enum kubernetes_init kubernetes_init_of(backend *b, const char *uid);
/* Creates that wait for a pod of this pool. */
unsigned kubernetes_pending(backend *b, const char *pool);
