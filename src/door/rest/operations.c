/* /v1/info, /healthz, /readyz, /metrics, /openapi.json. */
#include "api/openapi.h"
#include "base/metric.h"
#include "base/str.h"
#include "door/rest/internal.h"
#include "engine/files.h"
#include "wire/kit.h"
#include "wire/wardenp.h"

static const char *cap_name(enum cap_level level)
{
    static const char *const NAMES[] = {"absent", "emulated", "native"};

    return NAMES[level];
}

static enum cap_level network_cap(const engine *e)
{
    backend *b = engine_backend(e);

    return b->ops->network ? b->ops->network(b) : CAP_ABSENT;
}

static enum cap_level reset_cap(const engine *e)
{
    backend *b = engine_backend(e);

    return !b->ops->names || b->ops->names(b) ? CAP_NATIVE : CAP_ABSENT;
}

static enum cap_level limits_cap(const engine *e)
{
    return engine_backend(e)->ops->limits ? CAP_NATIVE : CAP_ABSENT;
}

static enum cap_level fate_cap(const engine *e)
{
    return engine_backend(e)->ops->fate ? CAP_NATIVE : CAP_ABSENT;
}

/* Capabilities as the backend states them, or as the engine computes them now. */
static const struct {
    const char *name;
    size_t at; /* in backend_caps */
    enum cap_level (*ask)(const engine *e);
} CAPS[] = {
    {"images", offsetof(backend_caps, images), NULL},
    {"user", offsetof(backend_caps, user), NULL},
    {"stats", 0, engine_stats_cap},
    {"freeze", offsetof(backend_caps, freeze), NULL},
    {"socket", 0, engine_socket_cap},
    {"snapshot", offsetof(backend_caps, snapshot), NULL},
    {"disk_limit", offsetof(backend_caps, disk_limit), NULL},
    {"memory_limit", offsetof(backend_caps, memory_limit), NULL},
    {"cpu_limit", offsetof(backend_caps, cpu_limit), NULL},
    {"pids_limit", offsetof(backend_caps, pids_limit), NULL},
    {"swap_limit", offsetof(backend_caps, swap_limit), NULL},
    {"read_only", offsetof(backend_caps, read_only), NULL},
    {"tmpfs", offsetof(backend_caps, tmpfs), NULL},
    {"setuid", offsetof(backend_caps, setuid), NULL},
    {"hostname", offsetof(backend_caps, hostname), NULL},
    {"walls", offsetof(backend_caps, walls), NULL},
    {"ids", offsetof(backend_caps, ids), NULL},
    {"files", 0, engine_files_cap},
    {"network", 0, network_cap},
    {"reset", 0, reset_cap},
    {"limits", 0, limits_cap},
    {"fate", 0, fate_cap},
};

static json_t *view_caps(engine *e)
{
    json_t *o = json_object();

    for (size_t i = 0; i < ARRAY_LEN(CAPS); i++) {
        const void *at = (const char *)&engine_backend(e)->caps + CAPS[i].at;
        enum cap_level level = CAPS[i].ask ? CAPS[i].ask(e) : *(const enum cap_level *)at;
        json_object_set_new(o, CAPS[i].name, json_string(cap_name(level)));
    }
    return o;
}

static json_t *view_releases(const char *own, backend *b)
{
    json_t *o = json_pack("{s:s}", "bothyd", own);
    char release[BACKEND_RELEASE_MAX] = "";

    if (!b->ops->release)
        return o;
    b->ops->release(b, release);
    json_object_set_new(o, "warden", *release ? json_string(release) : json_null());
    return o;
}

err *rest_info_get(request *rq, response *rs)
{
    engine *e = rest_engine(rq);
    backend *b = engine_backend(e);
    engine_counts n = engine_count(e);
    image **list = NULL;
    size_t images = 0;

    image_list(engine_images(e), &list, &images);
    for (size_t i = 0; i < images; i++)
        image_unref(list[i]);
    free(list);
    json_t *o = json_object();
    json_object_set_new(o, "version", json_string(rest_of(rq)->o.version));
    json_object_set_new(o, "cell", json_string(engine_cell(e)));
    json_object_set_new(o, "backend", json_string(b->caps.name));
    json_object_set_new(o, "caps", view_caps(e));
    json_object_set_new(o, "versions",
                        json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "api", 1, "warden", (int)WP_VERSION,
                                  "spine", (int)SP_VERSION, "kit",
                                  (int)strtol(KIT_VERSION, NULL, 10), "journal",
                                  (int)EXEC_JOURNAL_FORMAT, "store", STORE_VERSION));
    const rest_options *r = &rest_of(rq)->o;
    json_object_set_new(o, "listen",
                        json_pack("{s:s?,s:s?,s:b}", "tcp", r->listen_tcp, "domain",
                                  r->port_domain && *r->port_domain ? r->port_domain : NULL, "e2b",
                                  r->e2b));
    json_object_set_new(o, "releases", view_releases(rest_of(rq)->o.version, b));
    json_object_set_new(o, "pool", view_pool_of(b));
    json_object_set_new(o, "counts",
                        json_pack("{s:I,s:I,s:I,s:I}", "sandboxes",
                                  (json_int_t)(n.running + n.paused), "paused",
                                  (json_int_t)n.paused, "creating", (json_int_t)n.creating,
                                  "images", (json_int_t)images));
    response_json(rs, 200, o);
    return NULL;
}

err *rest_healthz(request *rq, response *rs)
{
    (void)rq;
    response_bytes(rs, "text/plain; charset=utf-8", "ok\n", 3);
    return NULL;
}

/* Adds a readiness check. Returns false if the node should take no work. */
static bool add_check(json_t *checks, const char *name, bool warns, err *failure)
{
    bool ok = !failure || warns;
    json_t *c = json_pack("{s:s,s:b,s:s}", "name", name, "ok", ok, "level",
                          !failure ? "ok"
                          : warns  ? "warn"
                                   : "fail");

    if (failure) {
        json_object_set_new(c, "message", json_string(failure->message));
        json_object_set_new(c, "remedy", json_string(err_remedy_of(failure)));
    }
    json_array_append_new(checks, c);
    err_free(failure);
    return ok;
}

err *rest_readyz(request *rq, response *rs)
{
    const rest_options *o = &rest_of(rq)->o;
    json_t *checks = json_array();
    const char *name = NULL;
    pool_status pool;
    bool pooled;
    bool ready = add_check(checks, "backend", false, engine_ready(o->engine, &pool, &pooled));

    for (size_t i = 0; o->ready; i++) {
        bool warns = false;
        err *failure = o->ready(o->arg, i, pooled ? &pool : NULL, &name, &warns);
        if (!name)
            break;
        ready &= add_check(checks, name, warns, failure);
        name = NULL;
    }
    response_json(rs, ready ? 200 : 503, json_pack("{s:b,s:o}", "ready", ready, "checks", checks));
    return NULL;
}

static metric METRICS[] = {
    METRIC_GAUGE("bothy_backend_up",
                 "1 if the backend (the warden of a node) answered when this was asked for; its "
                 "own metrics are missing otherwise."),
};

err *rest_metrics(request *rq, response *rs)
{
    backend *b = engine_backend(rest_engine(rq));
    CLEANUP(buf_done) buf text = {0}, theirs = {0};
    err *e = b->ops->metrics ? b->ops->metrics(b, &theirs) : NULL;

    metric_register(METRICS, ARRAY_LEN(METRICS));
    metric_set(METRICS, 0, !e);
    err_drop(e, "metrics"); /* bothyd's own metrics are still useful */
    metric_write(&text);
    buf_append(&text, theirs.p, theirs.len);
    response_bytes(rs, "text/plain; version=0.0.4; charset=utf-8", text.p, text.len);
    return NULL;
}

err *rest_openapi(request *rq, response *rs)
{
    (void)rq;
    response_bytes(rs, "application/json", OPENAPI_JSON, OPENAPI_JSON_LEN);
    return NULL;
}
