/* Calls to a Kubernetes API server: one call, one answer, or a stream delivered to a callback.
 *
 * libcurl, HTTP/1.1 over TLS (each call has its own connection, so h2 would gain nothing, and an
 * upgrade needs 1.1). Any thread may call; concurrent calls have separate connections, a few of
 * which are kept. Everything here waits, at most as long as the call says.
 *
 * Credentials. A token in a file is read again when a minute has passed or the file changed, and
 * at once when the server answers 401 (the call is then sent a second time). Certificates in
 * files are read for every new connection.
 *
 * Errors. The server's Status becomes the error: its message the cause, its reason (or one of the
 * KUBE_ words below) the kind, Retry-After kept. Codes: 404 not_found; 409 conflict; 410 conflict,
 * kind Expired; 422 invalid_request, but conflict if a JSON Patch's test failed (KUBE_TEST_FAILED)
 * or a merge patch names another uid (KUBE_CONFLICT); 403 of a quota quota_exceeded; 403 forbidden;
 * 405, 415 unsupported; 413 too_large; other 4xx invalid_request; 401, 429, 5xx and connection
 * errors unavailable, retryable; 504 timeout. The server did not process a call that it answers
 * with 429: it is sent again after its Retry-After while the call has time for that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kubernetes/kube_config.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define KUBE_CALL_MS    30000              /* default of timeout_ms */
#define KUBE_ANSWER_MAX (64 * 1024 * 1024) /* bytes of a collected answer */

/* Kinds of errors: the server's reasons that callers check. */
#define KUBE_EXISTS      "AlreadyExists"
#define KUBE_CONFLICT    "Conflict"
#define KUBE_EXPIRED     "Expired"
#define KUBE_INVALID     "Invalid"
#define KUBE_FORBIDDEN   "Forbidden"
#define KUBE_NOT_FOUND   "NotFound"
#define KUBE_BUSY        "TooManyRequests"
#define KUBE_QUOTA       "QuotaExceeded"      /* our own: 403 by a ResourceQuota or a LimitRange */
#define KUBE_TEST_FAILED "TestFailed"         /* our own: 422 of a JSON Patch whose test failed */
bool kube_is(const err *e, const char *kind); /* false for NULL */

typedef struct kube kube;
err *kube_new(const kube_config *c, kube **ret_kube) ERR_MUST; /* copies what it needs */
/* Call it when no call is under way. */
void kube_free(kube *k);
static inline void kube_freep(kube **k)
{
    kube_free(*k);
}
const char *kube_server(const kube *k);    /* its address, for people */
const char *kube_namespace(const kube *k); /* the configuration's namespace, or "default" */

typedef struct kube_call {
    const char *method;
    const char *path;   /* with query, already encoded */
    const json_t *json; /* body, or NULL */
    const char *type;   /* of the body; NULL: application/json */
    /* Streaming: called for every piece of a 2xx body; return false to stop. NULL: collect. */
    bool (*on_bytes)(void *arg, const void *p, size_t n);
    /* Called about every second; returning false ends the call. May be NULL. */
    bool (*on_tick)(void *arg);
    void *arg;
    uint64_t timeout_ms; /* 0: KUBE_CALL_MS, for a stream none */
    uint64_t silence_ms; /* of a stream: lost after so long without a byte; 0: never */
    bool once;           /* a 429 is not retried */
} kube_call;
/* Makes a call. ret_json may be NULL; an answer without a body is JSON's null. A stream succeeds
 * when its body ends or on_bytes stops it. */
err *kube_do(kube *k, const kube_call *call, json_t **ret_json) ERR_MUST;

/* ---- paths ---- */
typedef struct kube_resource {
    const char *group; /* "" for the core group */
    const char *version, *plural;
} kube_resource;
extern const kube_resource KUBE_PODS, KUBE_LEASES, KUBE_EVENTS;
/* Returns "/api/v1/namespaces/NS/pods/NAME/SUB"; ns, name and sub may be NULL. malloc'ed. */
char *kube_path(const kube_resource *r, const char *ns, const char *name, const char *sub);
/* Appends "?k=v" or "&k=v", encoded. */
void kube_query(buf *path, const char *key, const char *value);

/* ---- verbs ---- ret_object may always be NULL */
err *kube_get(kube *k, const char *path, json_t **ret_object) ERR_MUST;
err *kube_create(kube *k, const char *path, const json_t *object, json_t **ret_object) ERR_MUST;
/* Replaces the object, if it still has the resourceVersion in `object`. */
err *kube_put(kube *k, const char *path, const json_t *object, json_t **ret_object) ERR_MUST;
enum kube_patch {
    KUBE_PATCH_JSON,      /* operations, see kube_op() */
    KUBE_PATCH_MERGE,     /* RFC 7396; a uid in it protects a later object of the same name */
    KUBE_PATCH_STRATEGIC, /* built-in kinds only */
};
err *kube_patch(kube *k, const char *path, enum kube_patch how, const json_t *patch,
                json_t **ret_object) ERR_MUST;
/* Server-side apply. force: take over fields of other managers; otherwise they are a conflict. */
err *kube_apply(kube *k, const char *path, const char *manager, bool force, const json_t *object,
                json_t **ret_object) ERR_MUST;
/* Deletes an object. Success if it is gone already, or if the name belongs to another object now
 * (uid is not NULL and differs). *ret_hit: whether anything was deleted; may be NULL. grace_s < 0:
 * the object's own. */
err *kube_delete(kube *k, const char *path, const char *uid, int grace_s, bool *ret_hit) ERR_MUST;

/* Appends an operation of RFC 6902. Takes ownership of value (NULL: the operation has none). Escape
 * parts of a path that contain '/' or '~' with kube_pointer(). */
void kube_op(json_t *ops, const char *op, const char *path, json_t *value);
char *kube_pointer(const char *text);

/* ---- without I/O ---- */
typedef struct kube_reply {
    long status;
    long retry_after; /* seconds; 0: not given */
    const void *body;
    size_t nbody;
    bool json_patch; /* the request was a JSON Patch */
} kube_reply;
/* Makes the error of an answer that is not 2xx. */
err *kube_reply_err(const kube_reply *r, const char *method, const char *path) ERR_MUST;
/* Makes the error of a Status object, from a watch's ERROR event or an exec's channel. */
err *kube_status_err(const json_t *status) ERR_MUST;
