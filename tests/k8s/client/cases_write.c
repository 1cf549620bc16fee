/* Writes that must not hit the wrong thing, and what the server says then: k8s-design's tests 6, 7.
 */
#include <string.h>

#include "tests/k8s/client/client.h"

static const kube_resource QUOTAS = {"", "v1", "resourcequotas"};

static err *json_patch(world *w, const char *path, const char *expected, const char *wanted)
{
    CLEANUP(json_decrefp) json_t *ops = json_array();

    kube_op(ops, "test", "/data/value", json_string(expected));
    kube_op(ops, "replace", "/data/value", json_string(wanted));
    return kube_patch(w->k, path, KUBE_PATCH_JSON, ops, NULL);
}

static err *check_value(world *w, const char *path, const char *wanted)
{
    CLEANUP(json_decrefp) json_t *o = NULL;

    TRY(kube_get(w->k, path, &o));
    const char *is = json_str(json_object_get(o, "data"), "value");
    if (!str_eq(is, wanted))
        FAIL("it is '%s', not '%s'", is, wanted);
    return NULL;
}

static err *merge_with(world *w, const char *path, const char *key, const char *value)
{
    CLEANUP(json_decrefp)
    json_t *patch = json_pack("{s:{s:s}, s:{s:s}}", "metadata", key, value, "data", "value", "bad");

    return kube_patch(w->k, path, KUBE_PATCH_MERGE, patch, NULL);
}

static err *applies(world *w, const char *path)
{
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:s, s:s, s:{s:s}, s:{s:s}}", "apiVersion", "v1", "kind", "ConfigMap",
                          "metadata", "name", "applied", "data", "value", "mine");
    CLEANUP(json_decrefp) json_t *first = NULL, *second = NULL;

    TRY(kube_apply(w->k, path, "bothy-a", false, o, &first));
    TRY(kube_apply(w->k, path, "bothy-a", false, o, &second));
    MUST(str_eq(json_str(json_object_get(first, "metadata"), "resourceVersion"),
                json_str(json_object_get(second, "metadata"), "resourceVersion")));
    json_object_set_new(json_object_get(o, "data"), "value", json_string("theirs"));
    TRY(expect_kind(kube_apply(w->k, path, "bothy-b", false, o, NULL), KUBE_CONFLICT));
    TRY(kube_apply(w->k, path, "bothy-b", true, o, NULL));
    return check_value(w, path, "theirs");
}

err *case_patches(world *w)
{
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, "patched");
    CLEANUP(freep) char *applied = in_ns(w, &CONFIG_MAPS, "applied");
    CLEANUP(json_decrefp) json_t *made = NULL, *bad = NULL;

    TRY(make_map(w, "patched", 1, &made));
    TRY(expect_kind(make_map(w, "patched", 1, NULL), KUBE_EXISTS));
    TRY(json_patch(w, path, "1", "2"));
    TRY(expect_kind(json_patch(w, path, "1", "3"), KUBE_TEST_FAILED));
    TRY(check_value(w, path, "2"));
    TRY(expect_kind(merge_with(w, path, "resourceVersion", "1"), KUBE_CONFLICT));
    TRY(expect_kind(merge_with(w, path, "uid", "00000000-0000-0000-0000-000000000000"),
                    KUBE_CONFLICT));
    TRY(check_value(w, path, "2"));
    TRY(expect_kind(kube_put(w->k, path, made, NULL), KUBE_CONFLICT)); /* its version is old */
    bad = json_pack("{s:{s:i}}", "data", "value", 7);
    err *e = kube_patch(w->k, path, KUBE_PATCH_MERGE, bad, NULL);
    MUST(e && e->code == ERR_INVALID_REQUEST);
    err_free(e);
    return applies(w, applied);
}

/* Between the decision and the delete the name became another's. */
err *case_name_reuse(world *w)
{
    CLEANUP(json_decrefp) json_t *first = NULL, *second = NULL, *still = NULL;
    CLEANUP(freep) char *path = in_ns(w, &KUBE_PODS, "reused");
    bool hit = true;

    TRY(make_pod(w, "reused", &first));
    const char *uid = json_str(json_object_get(first, "metadata"), "uid");
    TRY(kube_delete(w->k, path, uid, 0, &hit));
    MUST(hit);
    TRY(wait_gone(w, path, uid));
    TRY(kube_delete(w->k, path, uid, 0, &hit));
    MUST(!hit);
    TRY(make_pod(w, "reused", &second));
    TRY(kube_delete(w->k, path, uid, 0, &hit));
    MUST(!hit);
    nap_ms(500);
    TRY(kube_get(w->k, path, &still));
    MUST(!json_object_get(json_object_get(still, "metadata"), "deletionTimestamp"));
    return kube_delete(w->k, path, json_str(json_object_get(still, "metadata"), "uid"), 0, NULL);
}

static err *over_quota(world *w)
{
    CLEANUP(freep) char *list = in_ns(w, &QUOTAS, NULL);
    CLEANUP(freep) char *one = in_ns(w, &QUOTAS, "q");
    CLEANUP(json_decrefp)
    json_t *o =
        json_pack("{s:s, s:s, s:{s:s}, s:{s:{s:s}}}", "apiVersion", "v1", "kind", "ResourceQuota",
                  "metadata", "name", "q", "spec", "hard", "configmaps", "1");

    TRY(kube_create(w->k, list, o, NULL));
    err *e = NULL;
    for (int i = 0; i < 100 && !e; i++) { /* until the quota counts */
        CLEANUP(freep) char *name = str_printf("quota%d", i);
        nap_ms(100);
        e = make_map(w, name, i, NULL);
    }
    TRY(kube_delete(w->k, one, NULL, -1, NULL));
    bool retryable = e && e->code == ERR_QUOTA_EXCEEDED && e->retryable;
    TRY(expect_kind(e, KUBE_QUOTA));
    MUST(retryable);
    return NULL;
}

err *case_refusals(world *w)
{
    kube_config c = w->config; /* borrowed */
    CLEANUP(kube_freep) kube *k = NULL;
    CLEANUP(freep) char *maps = in_ns(w, &CONFIG_MAPS, NULL);
    CLEANUP(freep) char *none = in_ns(w, &CONFIG_MAPS, "none");
    char *as[] = {"Impersonate-User: nobody", NULL};

    TRY(expect_kind(kube_get(w->k, none, NULL), KUBE_NOT_FOUND));
    c.as = as;
    TRY(kube_new(&c, &k));
    err *e = kube_get(k, maps, NULL);
    bool told = e && e->code == ERR_FORBIDDEN && e->cause && strstr(e->cause, "nobody");
    TRY(expect_kind(e, KUBE_FORBIDDEN));
    MUST(told);
    kube_free(TAKE_PTR(k));
    c.as = NULL;
    c.server = "https://127.0.0.1:1";
    TRY(kube_new(&c, &k));
    e = kube_get(k, maps, NULL);
    MUST(e && e->code == ERR_UNAVAILABLE && e->retryable);
    err_free(e);
    return over_quota(w);
}
