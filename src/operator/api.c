/* Writes to the API server, behind the fence, and events. */
#include <stdarg.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"
#include "operator/status.h"
#include "operator/text.h"

char *op_path(const kube_operator *op, const char *api, const char *plural, const char *name,
              const char *sub)
{
    bool everywhere = !strcmp(plural, "sandboxtemplates") || !strcmp(plural, "nodes");
    CLEANUP(freep)
    char *where = everywhere ? xstrdup("") : str_printf("namespaces/%s/", op->namespace);

    return str_printf("/%s/%s%s%s%s%s%s", api, where, plural, name ? "/" : "", str_or(name, ""),
                      sub ? "/" : "", str_or(sub, ""));
}

static err *api_fence(const kube_operator *op)
{
    return op_held(op) ? NULL : err_new(ERR_UNAVAILABLE, "the lease is another's");
}

static err *api_counted(err *e)
{
    count_write(e);
    return e;
}

err *op_create(kube_operator *op, const char *path, const json_t *object)
{
    TRY(api_fence(op));
    return api_counted(op->o.api->create(op->o.api_arg, path, object, NULL));
}

err *op_merge(kube_operator *op, const char *path, const json_t *patch)
{
    TRY(api_fence(op));
    return api_counted(op->o.api->patch(op->o.api_arg, path, OPERATOR_MERGE, patch));
}

err *op_apply(kube_operator *op, const char *path, const json_t *object)
{
    TRY(api_fence(op));
    return api_counted(op->o.api->patch(op->o.api_arg, path, OPERATOR_APPLY, object));
}

err *op_remove(kube_operator *op, const char *path, const char *uid)
{
    TRY(api_fence(op));
    return api_counted(op->o.api->remove(op->o.api_arg, path, uid));
}

/* Adds or removes a finalizer, with the resourceVersion that was seen: the list is replaced whole,
 * and an entry of another controller must not be lost. */
err *op_finalizer(kube_operator *op, const char *path, const object_meta *m, const char *name,
                  bool add)
{
    json_t *list = json_array();

    for (size_t i = 0; m->finalizers && m->finalizers[i]; i++)
        if (strcmp(m->finalizers[i], name) != 0)
            json_array_append_new(list, json_string(m->finalizers[i]));
    if (add)
        json_array_append_new(list, json_string(name));
    CLEANUP(json_decrefp)
    json_t *patch = json_pack("{s:{s:s, s:s, s:o}}", "metadata", "uid", str_or(m->uid, ""),
                              "resourceVersion", str_or(m->version, ""), "finalizers", list);
    err *e = op_merge(op, path, patch);
    if (e && e->code == ERR_NOT_FOUND && !add) {
        err_free(e);
        return NULL;
    }
    return e;
}

/* ---- events ---- */

/* Returns whether the same event was sent a moment ago. */
static bool is_repeated(kube_operator *op, const char *uid, const char *reason)
{
    CLEANUP(freep) char *key = str_printf("%s/%s", uid, reason);
    LOCK_SCOPE(&op->lock);
    uint64_t now = op_now(op), *at = map_get_str(&op->events, key);

    if (at && now - *at < EVENT_NS)
        return true;
    /* too many: forget them all, which may repeat some events */
    if (!at && op->events.count >= EVENTS_MAX) {
        map_iter it = {0};
        while (map_next(&op->events, &it))
            free(map_take(&op->events, it.entry->key, it.entry->len));
    }
    if (!at) {
        at = xcalloc(1, sizeof *at);
        map_put_str(&op->events, key, at);
    }
    *at = now;
    return false;
}

void op_event(kube_operator *op, const event_about *about, bool warning, const char *reason,
              const char *action, const char *fmt, ...)
{
    char when[TIME_TEXT_MAX], random[11];
    va_list ap;

    if (!about->uid || is_repeated(op, about->uid, reason))
        return;
    va_start(ap, fmt);
    CLEANUP(freep) char *note = str_vprintf(fmt, ap);
    va_end(ap);
    time_to_micro(op_real(op), when);
    id_random(random, sizeof random - 1);
    CLEANUP(freep) char *name = str_printf("%.200s.%s", about->name, random);
    CLEANUP(json_decrefp)
    json_t *event = json_pack(
        "{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:{s:s, s:s, s:s, s:s, s:s}}",
        "apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "name", name, "namespace",
        op->namespace, "eventTime", when, "reportingController", OPERATOR_MANAGER,
        "reportingInstance", op->instance, "action", action, "reason", reason, "type",
        warning ? "Warning" : "Normal", "note", status_text(note, 1000), "regarding", "apiVersion",
        strcmp(about->kind, "Pod") ? OPERATOR_API_VERSION : "v1", "kind", about->kind, "name",
        about->name, "namespace", op->namespace, "uid", about->uid);
    CLEANUP(freep) char *path = op_path(op, "apis/events.k8s.io/v1", "events", NULL, NULL);
    err_free(op_create(op, path, event)); /* losing one is acceptable */
}
