/* Calls to a Kubernetes API server: one call, one answer, or a stream delivered to a callback.
 *
 * libcurl, HTTP/1.1 over TLS (a call has its connection for itself, so h2 would gain nothing, and
 * an upgrade needs 1.1). Any thread may call; calls at the same time have connections of their own,
 * a few of which are kept. Everything here waits, at most as long as the call says.
 *
 * Credentials. A token in a file is read again when a minute has passed or the file changed, and
 * at once when the server answers 401 (the call is then sent a second time). Certificates in
 * files are read for every new connection.
 *
 * Errors. What the server's Status says becomes the error: its message the cause, its reason (or
 * one of the KUBE_ words below) the kind, Retry-After kept. Codes: 404 not_found; 409 conflict; 410
 * conflict, kind Expired; 422 invalid_request, but conflict when a JSON Patch's test did not hold
 * (KUBE_TEST_FAILED) or a merge patch names another uid (KUBE_CONFLICT); 403 of a quota
 * quota_exceeded; 403 forbidden; 400, 415 invalid_request; 413 too_large; 401, 429, 5xx and
 * everything about the connection unavailable, retryable; 504 timeout. A 429 was not looked at by
 * the server: it is sent again after its Retry-After while the call has time for that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kubernetes/kube_config.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define KUBE_CALL_MS    30000              /* a call that says nothing else */
#define KUBE_ANSWER_MAX (64 * 1024 * 1024) /* of a collected answer */

/* Kinds of errors: the server's reasons that callers look at. */
#define KUBE_EXISTS      "AlreadyExists"
#define KUBE_CONFLICT    "Conflict"
#define KUBE_EXPIRED     "Expired"
#define KUBE_INVALID     "Invalid"
#define KUBE_FORBIDDEN   "Forbidden"
#define KUBE_NOT_FOUND   "NotFound"
#define KUBE_BUSY        "TooManyRequests"
#define KUBE_QUOTA       "QuotaExceeded" /* ours: 403 by a ResourceQuota or a LimitRange */
#define KUBE_TEST_FAILED "TestFailed"    /* ours: 422 of a JSON Patch whose test did not hold */
bool kube_is(const err *e, const char *kind); /* NULL is nothing */

typedef struct kube kube;
err *kube_new(const kube_config *c, kube **ret_kube) ERR_MUST; /* copies what it needs */
/* When no call is under way. */
void kube_free(kube *k);
static inline void kube_freep(kube **k)
{
    kube_free(*k);
}
const char *kube_server(const kube *k);    /* its address, for people */
const char *kube_namespace(const kube *k); /* the configuration's, or "default" */

typedef struct kube_call {
    const char *method;
    const char *path;   /* with query, already encoded */
    const json_t *json; /* body, or NULL */
    const char *type;   /* of the body; NULL: application/json */
    /* Streaming: called for every piece of a 2xx body; return false to stop. NULL: collect. */
    bool (*on_bytes)(void *arg, const void *p, size_t n);
    /* Asked about every second; false ends the call. NULL: nobody is. */
    bool (*on_tick)(void *arg);
    void *arg;
    uint64_t timeout_ms; /* 0: KUBE_CALL_MS, of a stream: none */
    uint64_t silence_ms; /* of a stream: without a byte, then it is lost; 0: for ever */
    bool once;           /* 429 is not waited out */
} kube_call;
/* ret_json may be NULL; an answer without a body is JSON's null. Streams: success when the body has
 * ended or on_bytes stopped it. */
err *kube_do(kube *k, const kube_call *call, json_t **ret_json) ERR_MUST;

/* ---- paths ---- */
typedef struct kube_resource {
    const char *group; /* "" for the core group */
    const char *version, *plural;
} kube_resource;
extern const kube_resource KUBE_PODS, KUBE_LEASES, KUBE_EVENTS;
/* "/api/v1/namespaces/NS/pods/NAME/SUB"; ns, name and sub may be NULL. Malloced. */
char *kube_path(const kube_resource *r, const char *ns, const char *name, const char *sub);
/* Appends "?k=v" or "&k=v", encoded. */
void kube_query(buf *path, const char *key, const char *value);

/* ---- verbs ---- ret_object may be NULL everywhere */
err *kube_get(kube *k, const char *path, json_t **ret_object) ERR_MUST;
err *kube_create(kube *k, const char *path, const json_t *object, json_t **ret_object) ERR_MUST;
/* Replaces what has the resourceVersion that the object names. */
err *kube_put(kube *k, const char *path, const json_t *object, json_t **ret_object) ERR_MUST;
enum kube_patch {
    KUBE_PATCH_JSON,      /* operations, see kube_op() */
    KUBE_PATCH_MERGE,     /* RFC 7396; a uid in it hits no successor of the same name */
    KUBE_PATCH_STRATEGIC, /* built-in kinds only */
};
err *kube_patch(kube *k, const char *path, enum kube_patch how, const json_t *patch,
                json_t **ret_object) ERR_MUST;
/* Server-side apply. force: fields of other managers become ours; else they are a conflict. */
err *kube_apply(kube *k, const char *path, const char *manager, bool force, const json_t *object,
                json_t **ret_object) ERR_MUST;
/* What is gone, or is another by now (uid, if not NULL, differs), is success: *ret_hit tells
 * whether something was deleted; may be NULL. grace_s < 0: the object's own. */
err *kube_delete(kube *k, const char *path, const char *uid, int grace_s, bool *ret_hit) ERR_MUST;

/* Appends an operation of RFC 6902; value is taken over (NULL: the operation has none). Parts of a
 * path that hold '/' or '~' are escaped with kube_pointer(). */
void kube_op(json_t *ops, const char *op, const char *path, json_t *value);
char *kube_pointer(const char *text);

/* ---- without I/O ---- */
typedef struct kube_reply {
    long status;
    long retry_after; /* seconds; 0: not said */
    const void *body;
    size_t nbody;
    bool json_patch; /* what it answers was one */
} kube_reply;
/* The error of an answer that is not 2xx. */
err *kube_reply_err(const kube_reply *r, const char *method, const char *path) ERR_MUST;
/* The same of a Status object, as a watch's ERROR event or an exec's channel brings it. */
err *kube_status_err(const json_t *status) ERR_MUST;
