/* Names of the operator's objects and labels, and the names that users may not use.
 *
 * Labels and annotations of `bothy.dev/` belong to the operator: it selects pods by them, and so do
 * NetworkPolicies. User input with such a name is refused, not filtered: filtering would silently
 * drop what the user meant. Hashes in names are 128 bits of SHA-256. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

#define OPERATOR_GROUP       "bothy.dev"
#define OPERATOR_API_VERSION "bothy.dev/v1alpha1"
#define OPERATOR_MANAGER     "bothy-operator" /* fieldManager, reportingController */

#define LABEL_MANAGED       "bothy.dev/managed"
#define LABEL_CELL          "bothy.dev/cell"
#define LABEL_POOL          "bothy.dev/pool"
#define LABEL_STATE         "bothy.dev/state" /* warm, claimed */
#define LABEL_TEMPLATE_HASH "bothy.dev/template-hash"
#define LABEL_SANDBOX       "bothy.dev/sandbox" /* its id */
#define LABEL_NETWORK       "bothy.dev/network" /* none, open; on pods that no pool made */
#define NOTE_CLAIM          "bothy.dev/claim"   /* annotation: the claim without secrets, JSON */
#define NOTE_RECORD         "bothy.dev/record" /* annotation: proof that bothyd made this Sandbox */
#define NOTE_FORCE          "bothy.dev/force"  /* annotation of a pool that is being deleted */
#define NOTE_SAFE_TO_EVICT  "cluster-autoscaler.kubernetes.io/safe-to-evict"
#define FINALIZER_SANDBOX   "bothy.dev/sandbox"
#define FINALIZER_POOL      "bothy.dev/pool"

#define STATE_WARM    "warm"
#define STATE_CLAIMED "claimed"

#define KUBE_NAME_MAX  253
#define KUBE_LABEL_MAX 63
#define HASH_TEXT_LEN  32 /* hex digits of 128 bits */

/* Returns whether the name is reserved for the operator: "bothy.dev/x", "x.bothy.dev/y". */
bool name_is_reserved(const char *key);
/* Checks that names and values are valid Kubernetes labels, and that none is reserved. what: the
 * member, for the message. ERR_INVALID_REQUEST. */
err *labels_check(char *const *labels, const char *what) ERR_MUST;
/* Checks annotations in the same way; their values may be anything. */
err *annotations_check(char *const *annotations, const char *what) ERR_MUST;
bool name_is_dns(const char *name, size_t max); /* a DNS-1123 subdomain */

void hash_text(const void *p, size_t n, char ret_text[HASH_TEXT_LEN + 1]);
/* Hashes a JSON value, independent of the order of its members. */
void hash_json(const json_t *j, char ret_text[HASH_TEXT_LEN + 1]);

/* "<pool>-<10 of [a-z0-9]>", at most 63 bytes: a long pool name is cut. The operator chooses the
 * name, not the API server, so that it recognises a pod whose create got no answer. */
#define POD_NAME_RANDOM 10
void pod_name_of(const char *pool, const char random[POD_NAME_RANDOM + 1],
                 char ret_name[KUBE_LABEL_MAX + 1]);
/* Makes a label value: the name itself if it is a valid one, else its hash. */
void label_of_name(const char *name, char ret_value[KUBE_LABEL_MAX + 1]);

/* Computes the HMAC, under this cell's key, of an object's namespace, its name and
 * its sandbox id. It proves that bothyd made the Sandbox object: a user who may only
 * write objects cannot forge it. */
void record_proof(const uint8_t key[32], const char *namespace, const char *name, const char *id,
                  char ret_proof[HASH_TEXT_LEN + 1]);
