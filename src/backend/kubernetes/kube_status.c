/* Converts failed answers of an API server to errors. */
#include <string.h>

#include "backend/kubernetes/kube_http.h"
#include "base/cleanup.h"
#include "base/str.h"

#define MESSAGE_MAX 2000
#define AFTER_MAX   3600

typedef struct verdict {
    long status;
    err_code code;
    const char *kind; /* if the Status has no reason */
} verdict;

static const verdict VERDICTS[] = {
    {400, ERR_INVALID_REQUEST, "BadRequest"},
    {401, ERR_UNAVAILABLE, "Unauthorized"},
    {403, ERR_FORBIDDEN, KUBE_FORBIDDEN},
    {404, ERR_NOT_FOUND, KUBE_NOT_FOUND},
    {405, ERR_UNSUPPORTED, "MethodNotAllowed"},
    {409, ERR_CONFLICT, KUBE_CONFLICT},
    {410, ERR_CONFLICT, KUBE_EXPIRED},
    {413, ERR_TOO_LARGE, "RequestEntityTooLarge"},
    {415, ERR_UNSUPPORTED, "UnsupportedMediaType"},
    {422, ERR_INVALID_REQUEST, KUBE_INVALID},
    {429, ERR_UNAVAILABLE, KUBE_BUSY},
    {504, ERR_TIMEOUT, "Timeout"},
};

static verdict verdict_of(long status)
{
    for (size_t i = 0; i < ARRAY_LEN(VERDICTS); i++)
        if (VERDICTS[i].status == status)
            return VERDICTS[i];
    return (verdict){status, status >= 400 && status < 500 ? ERR_INVALID_REQUEST : ERR_UNAVAILABLE,
                     "InternalError"};
}

bool kube_is(const err *e, const char *kind)
{
    return e && str_eq(e->kind, kind);
}

/* Returns whether a 403 is about a quota: admission says so only in its message. */
static bool is_quota(long status, const char *message)
{
    return status == 403 && message &&
           (strstr(message, "exceeded quota:") || strstr(message, "failed quota:") ||
            strstr(message, "usage per "));
}

/* Returns whether a JSON Patch's test failed: then there are no causes; a schema error has some. */
static bool is_failed_test(const kube_reply *r, const json_t *status)
{
    return r->json_patch && r->status == 422 &&
           !json_array_size(json_object_get(json_object_get(status, "details"), "causes"));
}

/* Returns whether a merge patch named a uid, and the object has another one by now. */
static bool is_another(const kube_reply *r, const json_t *status)
{
    size_t i;
    json_t *cause;

    json_array_foreach(json_object_get(json_object_get(status, "details"), "causes"), i,
                       cause) if (r->status == 422 &&
                                  str_eq(json_str(cause, "field"), "metadata.uid")) return true;
    return false;
}

static const char *remedy_of(const err *e)
{
    if (kube_is(e, "Unauthorized"))
        return "Check the token or client certificate: it may have expired.";
    if (kube_is(e, KUBE_FORBIDDEN))
        return "Give bothy's service account the rights of deploy/kubernetes, or use one that has them.";
    if (kube_is(e, KUBE_QUOTA))
        return "Raise the namespace's ResourceQuota or LimitRange, or end something that is counted.";
    return NULL;
}

static int seconds_of(const kube_reply *r, const json_t *status)
{
    int64_t said = json_int(json_object_get(status, "details"), "retryAfterSeconds", 0);

    said = said > r->retry_after ? said : r->retry_after;
    return (int)(said < 0 ? 0 : said > AFTER_MAX ? AFTER_MAX : said);
}

static err *kube_status_make(const kube_reply *r, const json_t *status, const char *what)
{
    verdict v = verdict_of(r->status);
    const char *message = json_str(status, "message"), *reason = json_str(status, "reason");
    err *e = err_new(v.code, "%s was answered with status %ld", what, r->status);

    if (is_quota(r->status, message)) {
        e->code = ERR_QUOTA_EXCEEDED;
        reason = KUBE_QUOTA;
    } else if (is_failed_test(r, status)) {
        e->code = ERR_CONFLICT;
        reason = KUBE_TEST_FAILED;
    } else if (is_another(r, status)) {
        e->code = ERR_CONFLICT;
        reason = KUBE_CONFLICT;
    }
    e->retryable = err_info_of(e->code)->retryable;
    e = err_kind(e, reason && ascii_visible(reason) && strlen(reason) < 64 ? reason : v.kind);
    if (message)
        e = err_because(e, "%.*s", MESSAGE_MAX, message);
    if (remedy_of(e))
        e = err_remedy(e, "%s", remedy_of(e));
    return err_retry_after(e, seconds_of(r, status));
}

/* Makes an error of an answer that is not a Status: its text is the cause, if it is printable. */
static err *make_of_text(const kube_reply *r, const char *what)
{
    err *e = kube_status_make(r, NULL, what);
    size_t n = r->nbody < MESSAGE_MAX ? r->nbody : MESSAGE_MAX;

    while (n && strchr("\r\n ", ((const char *)r->body)[n - 1]))
        n--;
    CLEANUP(freep) char *text = xstrndup(n ? r->body : "", n);
    return n && utf8_valid(text, strlen(text)) && !utf8_has_control(text)
               ? err_because(e, "%s", text)
               : e;
}

err *kube_reply_err(const kube_reply *r, const char *method, const char *path)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    /* The query may be long, and adds nothing to the path. */
    CLEANUP(freep) char *what = str_printf("%s %.*s", method, (int)strcspn(path, "?"), path);

    /* a proxy's answer may be HTML */
    err_free(json_parse(r->nbody ? r->body : "", r->nbody, &root));
    if (json_is_object(root) && str_eq(json_str(root, "kind"), "Status"))
        return kube_status_make(r, root, what);
    return make_of_text(r, what);
}

err *kube_status_err(const json_t *status)
{
    kube_reply r = {.status = (long)json_int(status, "code", 500)};

    return kube_status_make(&r, status, "the request");
}
