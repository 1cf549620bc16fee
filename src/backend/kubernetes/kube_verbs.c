/* Paths, verbs and patches of the API. */
#include <stdio.h>
#include <string.h>

#include "backend/kubernetes/kube_http.h"
#include "base/cleanup.h"
#include "base/str.h"

const kube_resource KUBE_PODS = {"", "v1", "pods"};
const kube_resource KUBE_LEASES = {"coordination.k8s.io", "v1", "leases"};
const kube_resource KUBE_EVENTS = {"events.k8s.io", "v1", "events"};

static void kube_verbs_escape(buf *out, const char *s)
{
    static const char SAFE[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

    for (; *s; s++) {
        if (strchr(SAFE, *s))
            buf_char(out, *s);
        else
            buf_printf(out, "%%%02X", (unsigned char)*s);
    }
}

static void kube_verbs_part(buf *out, const char *name)
{
    if (!name)
        return;
    buf_char(out, '/');
    kube_verbs_escape(out, name);
}

char *kube_path(const kube_resource *r, const char *ns, const char *name, const char *sub)
{
    CLEANUP(buf_done) buf out = {0};

    buf_str(&out, *r->group ? "/apis" : "/api");
    kube_verbs_part(&out, *r->group ? r->group : NULL);
    kube_verbs_part(&out, r->version);
    if (ns)
        buf_str(&out, "/namespaces");
    kube_verbs_part(&out, ns);
    kube_verbs_part(&out, r->plural);
    kube_verbs_part(&out, name);
    kube_verbs_part(&out, sub);
    return buf_take(&out);
}

void kube_query(buf *path, const char *key, const char *value)
{
    buf_char(path, memchr(path->p, '?', path->len) ? '&' : '?');
    kube_verbs_escape(path, key);
    buf_char(path, '=');
    kube_verbs_escape(path, value);
}

/* ---- verbs ---- */

err *kube_get(kube *k, const char *path, json_t **ret_object)
{
    return kube_do(k, &(kube_call){.method = "GET", .path = path}, ret_object);
}

err *kube_create(kube *k, const char *path, const json_t *object, json_t **ret_object)
{
    return kube_do(k, &(kube_call){.method = "POST", .path = path, .json = object}, ret_object);
}

err *kube_put(kube *k, const char *path, const json_t *object, json_t **ret_object)
{
    return kube_do(k, &(kube_call){.method = "PUT", .path = path, .json = object}, ret_object);
}

err *kube_patch(kube *k, const char *path, enum kube_patch how, const json_t *patch,
                json_t **ret_object)
{
    static const char *const TYPES[] = {
        [KUBE_PATCH_JSON] = "application/json-patch+json",
        [KUBE_PATCH_MERGE] = "application/merge-patch+json",
        [KUBE_PATCH_STRATEGIC] = "application/strategic-merge-patch+json",
    };

    return kube_do(k,
                   &(kube_call){.method = "PATCH", .path = path, .json = patch, .type = TYPES[how]},
                   ret_object);
}

err *kube_apply(kube *k, const char *path, const char *manager, bool force, const json_t *object,
                json_t **ret_object)
{
    CLEANUP(buf_done) buf full = {0};

    buf_str(&full, path);
    kube_query(&full, "fieldManager", manager);
    if (force)
        kube_query(&full, "force", "true");
    return kube_do(k,
                   &(kube_call){.method = "PATCH",
                                .path = buf_cstr(&full),
                                .json = object,
                                .type = "application/apply-patch+yaml"}, /* JSON is YAML */
                   ret_object);
}

/* Matches "the UID in the precondition (...) does not match the UID in record": the name belongs to
 * another object now, and the one to delete is gone. */
static bool is_another(const err *e)
{
    return e->code == ERR_CONFLICT && e->cause && strstr(e->cause, "UID in");
}

err *kube_delete(kube *k, const char *path, const char *uid, int grace_s, bool *ret_hit)
{
    CLEANUP(json_decrefp)
    json_t *options = json_pack("{s:s, s:s}", "apiVersion", "v1", "kind", "DeleteOptions");
    bool hit = true;

    if (uid)
        json_object_set_new(options, "preconditions", json_pack("{s:s}", "uid", uid));
    if (grace_s >= 0)
        json_object_set_new(options, "gracePeriodSeconds", json_integer(grace_s));
    err *e = kube_do(k, &(kube_call){.method = "DELETE", .path = path, .json = options}, NULL);
    if (e && (e->code == ERR_NOT_FOUND || (uid && is_another(e)))) {
        err_free(e);
        e = NULL;
        hit = false;
    }
    if (!e && ret_hit)
        *ret_hit = hit;
    return e;
}

/* ---- patches ---- */

void kube_op(json_t *ops, const char *op, const char *path, json_t *value)
{
    json_t *one = json_pack("{s:s, s:s}", "op", op, "path", path);

    if (value)
        json_object_set_new(one, "value", value);
    json_array_append_new(ops, one);
}

char *kube_pointer(const char *text)
{
    CLEANUP(buf_done) buf out = {0};

    for (; *text; text++) {
        if (*text == '~' || *text == '/')
            buf_str(&out, *text == '~' ? "~0" : "~1");
        else
            buf_char(&out, *text);
    }
    return buf_take(&out);
}
