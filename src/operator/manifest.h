/* Makes the Kubernetes objects of a template and a pool: pods, volumes, NetworkPolicies,
 * a disruption budget, a DaemonSet that pulls images. Pure: values in, JSON out. The
 * caller owns the returned reference. */
#pragma once

#include "base/json.h"
#include "operator/names.h"
#include "operator/objects.h"

typedef struct manifest_options {
    const char *cell;
    const char *bothy_image; /* brings bothy-init and bothy-kit into a pod */
    bool image_volume;       /* the cluster can mount images; else an init container copies */
    uint64_t disk;           /* bytes for a pod whose template names no limit; 0: no limit */
    /* size of /dev/shm, which no template names; 0: the runtime's default */
    uint32_t shm_mib;
} manifest_options;

#define POD_NONCE_LEN 16
typedef struct pod_identity {
    const char *name;
    const char *namespace;
    const char *pool;    /* NULL: of no pool, made for one sandbox */
    const char *sandbox; /* its id if it is already known; or NULL */
    const char *image;   /* NULL: the template's */
    /* claim of its workspace; NULL: volume_name() of the pod, if it has a workspace */
    const char *volume;
    uint8_t nonce[POD_NONCE_LEN]; /* for its attach secret (backend/link.h) */
} pod_identity;

#define NOTE_NONCE "bothy.dev/nonce" /* annotation: POD_NONCE_LEN bytes, hex */

/* any_image: the container may be restarted with another image. */
json_t *manifest_pod(const crd_template *t, bool any_image, const manifest_options *o,
                     const pod_identity *who);
/* Returns how many bytes its pods may use on the node's disk; 0: no limit. */
uint64_t template_disk(const template_spec *t, const manifest_options *o);
/* Hashes everything that defines a pod of this template, to 128 bits:
 * pods with another hash are stale. */
void template_hash(const crd_template *t, bool any_image, const manifest_options *o,
                   char ret_hash[HASH_TEXT_LEN + 1]);

/* Makes the volume of a pod with a workspace; NULL if the template has none. The volume has no
 * owner reference: a deleted pool must not delete a tenant's disk. */
json_t *manifest_volume(const crd_template *t, const manifest_options *o, const char *namespace,
                        const char *name);
void volume_name(const char *pod, char ret_name[KUBE_NAME_MAX + 1]);

/* Makes the NetworkPolicy of one template hash in a namespace. It exists as long as a pod
 * has the hash: a claimed pod keeps its rules when the template changes. Ingress is
 * always denied, as nothing listens. */
json_t *manifest_network(const crd_template *t, const manifest_options *o, const char *namespace,
                         const char hash[HASH_TEXT_LEN + 1]);
/* Makes the cell's one policy for all pods labelled to have no network: they reach nothing. */
json_t *manifest_no_network(const manifest_options *o, const char *namespace);
/* Returns whether a policy, as the API server has it (NULL: none), is the wanted one. */
bool network_is(const json_t *policy, const json_t *wanted);

/* Makes the budget that keeps drains from evicting claimed pods; NULL if the pool does not want
 * one. Its minAvailable is the largest integer: a percentage needs a scalable owner of the pods. */
json_t *manifest_budget(const crd_pool *p, const manifest_options *o);
/* Returns whether pods of the template may run the image, so that a pool may pre-pull it. */
bool pre_pull_allows(const template_spec *t, const char *image);
/* Makes the DaemonSet that pulls the pool's images which the template
 * allows; NULL if there are none. */
json_t *manifest_pre_pull(const crd_pool *p, const crd_template *t, const manifest_options *o);

/* The result of the self-test of NetworkPolicies. */
enum policy_state {
    POLICY_UNKNOWN, /* not tested, or the test failed */
    POLICY_HOLDS,
    POLICY_NOT_ENFORCED,
    POLICY_VOUCHED, /* the administrator says that policies hold */
};
/* The outcome of one dial of the self-test. One pod dials although a policy forbids it, another
 * dials freely. A refusal by the peer counts as reached. */
enum dial_outcome {
    DIAL_NOT_TRIED,
    DIAL_REACHED, /* connected, or refused by the peer */
    DIAL_SILENT,  /* no answer in time, or the network refused */
};
enum policy_state policy_of_dials(enum dial_outcome forbidden, enum dial_outcome free);
/* Returns whether sandboxes of the template may run: policies hold, or it needs none. */
bool policy_allows(const network_spec *n, enum policy_state s);
