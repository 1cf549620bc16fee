/* A sandbox's pod: makes its manifest and reads its object. Pure: values in, JSON out, and back.
 *
 * The pod has one container, `sandbox`, whose command is bothy-init from a volume that is read-only
 * there; an init container of bothy's image fills it. Nothing listens in the pod, it has no token
 * of the cluster, and unless the administrator chooses otherwise it is what Pod Security calls
 * restricted.
 *
 * The hash covers everything in the spec: pods with equal hashes are interchangeable. The nonce,
 * from which the pod's attach secret is derived, is no secret (link.h). */
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
#define POD_UID       1000 /* the user of commands where root is not allowed */
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
#define POD_NETWORK "bothy.dev/network" /* none, open: selects the NetworkPolicy */
#define POD_NONCE   "bothy.dev/nonce"   /* annotations */
#define POD_CLAIM   "bothy.dev/claim"
#define POD_EVICT   "cluster-autoscaler.kubernetes.io/safe-to-evict"
#define POD_WARM    "warm"
#define POD_CLAIMED "claimed"

/* ---- made ---- */

typedef struct pod_world { /* settings of the administrator */
    const char *ns, *cell;
    const char *bothy_image;
    const char *runtime_class; /* or NULL */
    bool baseline;             /* root inside, with the runtime's capabilities */
    bool image_volume;         /* the cluster mounts images: no init container */
} pod_world;

/* Makes a sandbox's pod spec. ERR_UNSUPPORTED: it needs root, which pods do not have here. */
err *pod_spec_of(const pod_world *w, const box_spec *s, json_t **ret_spec) ERR_MUST;
void pod_hash_of(const json_t *spec, const char *network, char ret_hash[POD_HASH_LEN + 1]);

typedef struct pod_name {
    const char *name;
    const char *pool;    /* or NULL */
    const char *sandbox; /* the sandbox it is made for; NULL: warm */
    const char *network; /* none, open */
    const char *hash;
    uint8_t nonce[LINK_NONCE_LEN];
} pod_name;
/* Makes the pod's manifest. Takes ownership of spec. */
json_t *pod_make(const pod_world *w, const pod_name *who, json_t *spec);
/* Returns whether value is valid as a label's value. */
bool pod_label_ok(const char *value);

/* ---- read ---- */

enum pod_phase_seen {
    POD_STARTING,
    POD_RUNS, /* the container runs */
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
    bool image_trouble;  /* waits for an image that cannot be pulled */
    bool config_trouble; /* cannot start with its configuration */
    bool unschedulable;
    uint64_t memory; /* limit, bytes; 0: none */
    char *image;
    char *image_id;
    char *node;
    char *message; /* the cluster's message about a problem, or NULL */
} pod_facts;
/* Reads a pod object. ERR_INVALID_REQUEST: it has no name or uid. */
err *pod_facts_read(const json_t *pod, pod_facts *ret_facts) ERR_MUST;
void pod_facts_done(pod_facts *f);

enum pod_swap {
    POD_SWAP_WAITS,
    POD_SWAP_DONE,
    POD_SWAP_LOST, /* started more often than requested: its image is unknown */
};
#define POD_SAME_NS (UINT64_C(2) * 1000000000)
/* Returns whether the container of that life runs the new image. A pod whose container always
 * restarts may have died by itself at that very moment: then the next life runs the old image once
 * more, until the kubelet sees the new one. The names and digests that a kubelet reports cannot be
 * predicted (an image has many), but a changed id means another image. An unchanged id may be
 * another name of the same image, or that accident: it is accepted after it has run for
 * POD_SAME_NS; same_ns is how long it has run. */
enum pod_swap pod_swap_of(const pod_facts *f, unsigned life, const char *id_before,
                          uint64_t same_ns);
/* Returns the link's handle of its init: a different one for each life of the container. */
char *pod_handle(const char *ns, const pod_facts *f);
/* Returns how it ended, for people; malloc'ed. */
char *pod_why(const pod_facts *f);
void pod_fate(const pod_facts *f, box_fate *ret_fate);
