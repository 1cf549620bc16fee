/* A sandbox's pod: how it is made and what its object says. Pure: values in, JSON out, and back.
 *
 * One container, `sandbox`, whose command is bothy-init from a volume that is read-only there; an
 * init container of bothy's image fills it. Nothing listens in it, it has no token of the
 * cluster's, and unless the administrator says otherwise it is what Pod Security calls restricted.
 *
 * Its hash is that of everything in the spec: pods of one hash can stand in for each other. The
 * nonce, which its attach secret is derived from, is no secret (link.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/link.h"
#include "base/err.h"
#include "base/json.h"

#define POD_CONTAINER "sandbox"
#define POD_DIR       "/.bothy"
#define POD_UID       1000 /* who commands are where nobody may be root */
#define POD_GRACE_S   2    /* between TERM and KILL; init ends at once */
#define POD_NAME_MAX  253
#define POD_UID_MAX   63
#define POD_HASH_LEN  32 /* hex digits of 128 bits */

#define POD_MANAGED "bothy.dev/managed" /* labels */
#define POD_CELL    "bothy.dev/cell"
#define POD_POOL    "bothy.dev/pool"
#define POD_STATE   "bothy.dev/state" /* warm, claimed */
#define POD_HASH    "bothy.dev/template-hash"
#define POD_SANDBOX "bothy.dev/sandbox"
#define POD_NETWORK "bothy.dev/network" /* none, open: what NetworkPolicies go by */
#define POD_NONCE   "bothy.dev/nonce"   /* annotations */
#define POD_CLAIM   "bothy.dev/claim"
#define POD_EVICT   "cluster-autoscaler.kubernetes.io/safe-to-evict"
#define POD_WARM    "warm"
#define POD_CLAIMED "claimed"

/* ---- made ---- */

typedef struct pod_world { /* what the administrator has said */
    const char *ns, *cell;
    const char *bothy_image;
    const char *runtime_class; /* or NULL */
    bool baseline;             /* root inside, with the runtime's capabilities */
    bool image_volume;         /* the cluster mounts images: no init container */
} pod_world;

/* The pod's spec for a sandbox. ERR_UNSUPPORTED: what only root can have. */
err *pod_spec_of(const pod_world *w, const box_spec *s, json_t **ret_spec) ERR_MUST;
void pod_hash_of(const json_t *spec, const char *network, char ret_hash[POD_HASH_LEN + 1]);

typedef struct pod_name {
    const char *name;
    const char *pool;    /* or NULL */
    const char *sandbox; /* whose it is from the first; NULL: warm */
    const char *network; /* none, open */
    const char *hash;
    uint8_t nonce[LINK_NONCE_LEN];
} pod_name;
/* Takes the spec over. */
json_t *pod_make(const pod_world *w, const pod_name *who, json_t *spec);
/* The label's form of any text: as it is, or with a hash at its end. */
bool pod_label_ok(const char *value);

/* ---- read ---- */

enum pod_phase_seen {
    POD_STARTING,
    POD_RUNS, /* the container does */
    POD_ENDED,
};

typedef struct pod_facts {
    char uid[POD_UID_MAX + 1], name[POD_NAME_MAX + 1];
    char pool[64], hash[POD_HASH_LEN + 1], sandbox[SANDBOX_ID_LEN + 1];
    bool claimed; /* by its label */
    bool deleting;
    bool has_nonce;
    uint8_t nonce[LINK_NONCE_LEN];
    enum pod_phase_seen phase;
    unsigned restarts;
    int exit_code; /* of the container's last end; -1: none yet */
    bool oom, evicted, node_lost;
    bool image_trouble;  /* waits for an image that does not come */
    bool config_trouble; /* cannot be started as it is */
    bool unschedulable;
    uint64_t memory; /* limit, bytes; 0: none */
    char *image;
    char *image_id;
    char *node;
    char *message; /* the cluster's words about what is wrong, or NULL */
} pod_facts;
/* ERR_INVALID_REQUEST: no pod of ours. */
err *pod_facts_read(const json_t *pod, pod_facts *ret_facts) ERR_MUST;
void pod_facts_done(pod_facts *f);

enum pod_swap {
    POD_SWAP_WAITS,
    POD_SWAP_DONE,
    POD_SWAP_LOST, /* it was started more often than it was asked to: nobody knows with what */
};
#define POD_SAME_NS (UINT64_C(2) * 1000000000)
/* Whether the container of that life runs the image it was given. A pod that is always started
 * again may have died by itself at that very moment: the next life is then the old image's once
 * more, until the kubelet sees the new one. Names and digests that a kubelet reports cannot be
 * foretold (one image has many), but another id than before is another image. The same id may be
 * another name of the same image, or that accident: same_ns is how long it has run so, and what is
 * left alone for POD_SAME_NS is taken. */
enum pod_swap pod_swap_of(const pod_facts *f, unsigned life, const char *id_before,
                          uint64_t same_ns);
/* What init is called by: for each life of the container another name. */
char *pod_handle(const char *ns, const pod_facts *f);
/* What became of it, for people; malloced. */
char *pod_why(const pod_facts *f);
void pod_fate(const pod_facts *f, box_fate *ret_fate);
