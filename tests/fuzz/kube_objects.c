/* Objects of an API server, as whoever may write them has written them: what is taken lies within
 * its limits, and whatever a template and a pool say becomes manifests that carry our labels. The
 * first byte chooses the kind. */
#include "base/cleanup.h"
#include "base/json.h"
#include "operator/manifest.h"
#include "operator/objects.h"
#include "operator/plan_pod.h"
#include "operator/plan_pool.h"
#include "operator/plan_sandbox.h"

#include "fuzz.h"

static const manifest_options OPTIONS = {.cell = "abcd", .bothy_image = "bothy:1"};
#define NOW UINT64_C(1800000000000000000)

static bool refused(err *e)
{
    MUST(!e || (e->message && *e->message));
    bool is = e != NULL;
    err_free(e);
    return is;
}

static void check_pod(const json_t *pod, const char *hash)
{
    const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");

    MUST(str_eq(json_str(labels, LABEL_TEMPLATE_HASH), hash));
    MUST(str_eq(json_str(labels, LABEL_POOL), "p"));
    MUST(str_eq(json_str(labels, LABEL_CELL), "abcd"));
    MUST(str_eq(json_str(labels, LABEL_STATE), STATE_WARM));
    MUST(json_is_false(
        json_object_get(json_object_get(pod, "spec"), "automountServiceAccountToken")));
}

static void drive_template(const json_t *j)
{
    crd_template t;
    char hash[HASH_TEXT_LEN + 1];
    const pod_identity who = {.name = "p-x", .namespace = "ns", .pool = "p"};

    if (refused(crd_template_decode(j, &t)))
        return;
    if (!refused(crd_template_check(&t))) {
        MUST(t.spec.max_ms && t.spec.startup_ms && t.spec.cpu_milli && t.spec.memory);
        for (size_t i = 0; t.spec.overrides.labels && t.spec.overrides.labels[i]; i++)
            MUST(!name_is_reserved(t.spec.overrides.labels[i]));
        template_hash(&t, false, &OPTIONS, hash);
        CLEANUP(json_decrefp) json_t *pod = manifest_pod(&t, false, &OPTIONS, &who);
        CLEANUP(json_decrefp) json_t *net = manifest_network(&t, &OPTIONS, "ns", hash);
        check_pod(pod, hash);
        MUST(json_array_size(json_object_get(json_object_get(net, "spec"), "ingress")) == 0);
    }
    crd_template_done(&t);
}

static void drive_pool(const json_t *j)
{
    crd_pool p;
    pool_memory m = {0};
    pool_orders o;

    if (refused(crd_pool_decode(j, &p)))
        return;
    if (!refused(crd_pool_check(&p)) && p.meta.namespace) {
        MUST(p.spec.replicas <= OBJECT_REPLICAS_MAX);
        MUST(pool_max_unavailable(&p.spec, p.spec.replicas) >= 1);
        plan_pool(&(pool_world){.pool = &p, .now = NOW, .now_real = NOW}, &m, &o);
        MUST(!o.create && !o.nremovals && o.status);
        pool_orders_done(&o);
    }
    pool_memory_done(&m);
    crd_pool_done(&p);
}

static void drive_sandbox(const json_t *j)
{
    crd_sandbox s;

    if (refused(crd_sandbox_decode(j, &s)))
        return;
    err *wrong = crd_sandbox_check(&s);
    sandbox_world w = {.sandbox = &s, .invalid = wrong ? wrong->message : NULL, .now = NOW};
    sandbox_orders o = plan_sandbox(&w);
    MUST(o.act < SANDBOX_ACTS && o.phase < PHASES);
    MUST(!o.again_ns || o.again_ns > 0);
    sandbox_orders_done(&o);
    err_free(wrong);
    crd_sandbox_done(&s);
}

static void drive_pod(const json_t *j)
{
    pod_view p;

    if (refused(pod_view_decode(j, &p)))
        return;
    for (int init = INIT_UNKNOWN; init <= INIT_UNREACHABLE; init++) {
        pod_orders o =
            plan_pod(&(claim_world){.pod = &p, .init = (enum init_state)init, .now = NOW});
        MUST(o.act < POD_ACTS && (o.act != POD_ACT_FINISH || o.cause));
        /* Nobody is given a pod that says it is somebody's. */
        MUST(o.act != POD_ACT_OFFER || !pod_is_claimed(&p));
    }
    MUST(pod_end_cause(&p));
    pod_view_done(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const DRIVES[])(const json_t *) = {drive_template, drive_pool, drive_sandbox,
                                                     drive_pod};
    fuzz_in in = {data, size};
    uint8_t kind = fuzz_byte(&in);
    CLEANUP(json_decrefp) json_t *j = NULL;

    if (refused(json_parse(in.p, in.n, &j)))
        return 0;
    DRIVES[kind % ARRAY_LEN(DRIVES)](j);
    return 0;
}
