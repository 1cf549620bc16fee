/* What both programs use. */
#include <string.h>
#include <time.h>

#include "tests/k8s/client/client.h"

const kube_resource CONFIG_MAPS = {"", "v1", "configmaps"};
const kube_resource NAMESPACES = {"", "v1", "namespaces"};
const kube_resource SERVICE_ACCOUNTS = {"", "v1", "serviceaccounts"};

err *fail_at(const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *what = str_vprintf(fmt, ap);
    va_end(ap);
    return err_new(ERR_INTERNAL, "%s:%d: %s", strrchr(file, '/') + 1, line, what);
}

err *skip(const char *why)
{
    return err_kind(err_new(ERR_UNSUPPORTED, "%s", why), "skip");
}

err *expect_kind(err *said, const char *kind)
{
    CLEANUP(err_freep) err *e = said;

    if (!e)
        return err_new(ERR_INTERNAL, "succeeded, but %s was expected", kind);
    if (kube_is(e, kind))
        return NULL;
    return err_new(ERR_INTERNAL, "%s was expected, not %s: %s: %s", kind, str_or(e->kind, "-"),
                   e->message, str_or(e->cause, "-"));
}

void nap_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

char *in_ns(const world *w, const kube_resource *r, const char *name)
{
    return kube_path(r, w->ns, name, NULL);
}

err *make_map(world *w, const char *name, int value, json_t **ret_object)
{
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);
    CLEANUP(freep) char *text = str_printf("%d", value);
    CLEANUP(json_decrefp)
    json_t *o =
        json_pack("{s:s, s:s, s:{s:s, s:{s:s}}, s:{s:s}}", "apiVersion", "v1", "kind", "ConfigMap",
                  "metadata", "name", name, "labels", "test", "yes", "data", "value", text);

    return kube_create(w->k, path, o, ret_object);
}

static err *wait_running(world *w, const char *path, json_t **ret_object)
{
    for (int i = 0; i < 600; i++) {
        CLEANUP(json_decrefp) json_t *o = NULL;
        TRY(kube_get(w->k, path, &o));
        if (str_eq(json_str(json_object_get(o, "status"), "phase"), "Running")) {
            if (ret_object)
                *ret_object = TAKE_PTR(o);
            return NULL;
        }
        nap_ms(100);
    }
    FAIL("%s does not run after a minute", path);
}

err *make_pod(world *w, const char *name, json_t **ret_object)
{
    CLEANUP(freep) char *list = in_ns(w, &KUBE_PODS, NULL);
    CLEANUP(freep) char *path = in_ns(w, &KUBE_PODS, name);
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:s, s:s, s:{s:s}, s:{s:i, s:b, s:s, s:[{s:s, s:s, s:[s,s,s], s:s}]}}",
                          "apiVersion", "v1", "kind", "Pod", "metadata", "name", name, "spec",
                          "terminationGracePeriodSeconds", 0, "automountServiceAccountToken", 0,
                          "dnsPolicy", "Default", "containers", "name", "c", "image", w->image,
                          "command", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done",
                          "imagePullPolicy", "IfNotPresent");

    TRY(kube_create(w->k, list, o, NULL));
    return wait_running(w, path, ret_object);
}

err *wait_gone(world *w, const char *path, const char *uid)
{
    for (int i = 0; i < 600; i++) {
        CLEANUP(json_decrefp) json_t *o = NULL;
        err *e = kube_get(w->k, path, &o);
        bool none = e && e->code == ERR_NOT_FOUND;
        if (none || (o && !str_eq(json_str(json_object_get(o, "metadata"), "uid"), uid))) {
            err_free(e);
            return NULL;
        }
        TRY(e);
        nap_ms(100);
    }
    FAIL("%s is still there after a minute", path);
}
