/* The backend's interface for the operator, which runs in the same bothyd, beside the contract
 * (backend.h). Any thread. */
#pragma once

#include "backend/backend.h"
#include "backend/kubernetes/kube_http.h"
#include "backend/kubernetes/kube_lease.h"
#include "backend/kubernetes/pod.h"

kube *kubernetes_kube(backend *b);
const char *kubernetes_namespace(const backend *b);
kube_lease *kubernetes_lease(backend *b); /* of the cell; NULL: runs without a lease */
const pod_world *kubernetes_world(const backend *b);

/* Where a sandbox's pod comes from. */
typedef struct kubernetes_wish {
    char *pool;     /* warm pods of this pool, by their label; NULL: any pod with the hash */
    bool any_image; /* its pods take the image at the claim */
    uint32_t most;  /* pods of the pool, claimed or not; 0: no limit */
    json_t *spec;   /* spec of the pod to make if none is warm; NULL: do not make one */
    char hash[POD_HASH_LEN + 1]; /* of that spec: a warm pod with it is `exact` */
} kubernetes_wish;
void kubernetes_wish_done(kubernetes_wish *w);

typedef struct kubernetes_claim {
    const char *id, *pod, *uid, *node, *pool, *klass, *image;
} kubernetes_claim;

typedef struct kubernetes_hooks { /* each may be NULL; must not wait */
    /* Changes *wish, which contains the defaults. */
    err *(*wish)(void *arg, const box_spec *spec, kubernetes_wish *wish);
    void (*claimed)(void *arg, const kubernetes_claim *c);
    void (*ended)(void *arg, const char *id, const char *why);
} kubernetes_hooks;
/* Sets the hooks; NULL: none. Waits for running hooks, so must not be called from one. */
void kubernetes_set_hooks(backend *b, const kubernetes_hooks *h, void *arg);

/* Takes an unclaimed pod out of use. Returns true if it is not claimed and will not be, so that it
 * may be deleted (by its uid). */
bool kubernetes_retire(backend *b, const char *uid);
enum kubernetes_init { /* state of a pod's init, as its stream shows */
    KUBERNETES_UNKNOWN,
    KUBERNETES_READY,
    KUBERNETES_CLAIMED,
    KUBERNETES_LOST,    /* was ready before */
    KUBERNETES_TAINTED, /* violated the protocol */
    KUBERNETES_RETIRED, /* kubernetes_retire() */
};
enum kubernetes_init kubernetes_init_of(backend *b, const char *uid);
/* Counts the creates that wait for a pod of this pool. */
unsigned kubernetes_pending(backend *b, const char *pool);
