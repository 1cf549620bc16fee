/* What the operator makes for a template and a pool: pods, volumes, NetworkPolicies, a budget for
 * disruptions, a DaemonSet that pulls. Pure: values in, JSON out, the caller's reference. */
#pragma once

#include "base/json.h"
#include "operator/names.h"
#include "operator/objects.h"

typedef struct manifest_options {
    const char *cell;
    const char *bothy_image; /* brings bothy-init and bothy-kit into a pod */
    bool image_volume;       /* the cluster mounts images; else an init container copies */
    uint64_t disk;           /* bytes a pod may have whose template does not say; 0: no limit */
    uint32_t shm_mib;        /* of /dev/shm, which no template says; 0: the runtime's */
} manifest_options;

#define POD_NONCE_LEN 16
typedef struct pod_identity {
    const char *name;
    const char *namespace;
    const char *pool;    /* NULL: of none, made for one sandbox */
    const char *sandbox; /* its id, if it is known already; or NULL */
    const char *image;   /* NULL: the template's */
    const char *volume;  /* claim of its workspace; NULL: "ws-" and its name, if there is one */
    uint8_t nonce[POD_NONCE_LEN]; /* for its attach secret (backend/link.h) */
} pod_identity;

#define NOTE_NONCE "bothy.dev/nonce" /* annotation: POD_NONCE_LEN bytes, hex */

/* any_image: its container may be restarted with another image. */
json_t *manifest_pod(const crd_template *t, bool any_image, const manifest_options *o,
                     const pod_identity *who);
/* Bytes its pods may have on the node's disk; 0: no limit. */
uint64_t template_disk(const template_spec *t, const manifest_options *o);
/* 128 bits of everything that makes a pod of this template what it is: another hash, another
 * pod. */
void template_hash(const crd_template *t, bool any_image, const manifest_options *o,
                   char ret_hash[HASH_TEXT_LEN + 1]);

/* The volume of a pod with a workspace; NULL if the template has none. It has no owner: a deleted
 * pool must not take a tenant's disk with it. */
json_t *manifest_volume(const crd_template *t, const manifest_options *o, const char *namespace,
                        const char *name);
void volume_name(const char *pod, char ret_name[KUBE_NAME_MAX + 1]);

/* One for each hash in a namespace, as long as a pod has it: what a claimed pod may reach does not
 * change under it. Nothing comes in: nothing listens. */
json_t *manifest_network(const crd_template *t, const manifest_options *o, const char *namespace,
                         const char hash[HASH_TEXT_LEN + 1]);
void network_name(const char hash[HASH_TEXT_LEN + 1], char ret_name[KUBE_LABEL_MAX + 1]);
/* One for the cell: pods that are labelled to have no network reach nobody, whoever made them. */
json_t *manifest_no_network(const manifest_options *o, const char *namespace);
void no_network_name(const char *cell, char ret_name[KUBE_NAME_MAX + 1]);
/* Whether a policy, as the API server has it (NULL: it has none), is what was written. */
bool network_is(const json_t *policy, const json_t *wanted);

/* Nobody drains a claimed pod. NULL if the pool does not want it. The number is the largest there
 * is: a percentage needs something with a scale behind the pods. */
json_t *manifest_budget(const crd_pool *p, const manifest_options *o);
/* Whether pods of the template may run the image, so that a pool may have it pulled. */
bool pre_pull_allows(const template_spec *t, const char *image);
/* Pulls the pool's images ahead, those that its template allows; NULL if it names none. */
json_t *manifest_pre_pull(const crd_pool *p, const crd_template *t, const manifest_options *o);

/* What was found when the policy was tried. */
enum policy_state {
    POLICY_UNKNOWN, /* not tried, or it could not be */
    POLICY_HOLDS,
    POLICY_NOT_ENFORCED,
    POLICY_VOUCHED, /* the administrator says that it holds */
};
/* From the two dials of the self-test: one from a pod that the policy forbids it, one from a pod
 * that nothing forbids it. Whoever answers, if only by a refusal, was reached. */
enum dial_outcome {
    DIAL_NOT_TRIED,
    DIAL_REACHED, /* connected, or refused by the peer */
    DIAL_SILENT,  /* nothing came back in time, or the network said no */
};
enum policy_state policy_of_dials(enum dial_outcome forbidden, enum dial_outcome free);
/* Whether sandboxes of the template may run: its walls stand, or it wants none. */
bool policy_allows(const network_spec *n, enum policy_state s);
