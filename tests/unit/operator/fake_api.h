/* An API server in memory, and a bothyd beside it, for the operator's tests: objects by path, with
 * uids, versions, finalizers, the status subresource and the events a watch would bring. Everything
 * happens when the test says so. */
#pragma once

#include <stdlib.h>

#include "base/map.h"
#include "operator/operator.h"

#include "make.h"

#define FAKE_PATH_MAX 512

typedef struct fake_pod {
    enum init_state init;
    char sandbox[SANDBOX_ID_LEN + 1];
} fake_pod;

typedef struct fake_sandbox {
    enum engine_life life;
    const char *cause, *message;
    const char *box; /* NULL: named as the sandbox */
    uint64_t ends_ns, active_ns, idle_ms;
    uint64_t created_ns; /* 0: a second ago */
} fake_sandbox;

typedef struct fake {
    kube_operator *op;
    kube_operator *other; /* of another cell, which sees cluster-scoped objects; or NULL */
    map objects;          /* path → json_t */
    map pods;             /* uid → fake_pod */
    map live;             /* id → fake_sandbox */
    uint64_t now, real;
    unsigned uids, versions;
    unsigned creates, patches, applies, removes, statuses, events, engine_creates, ends;
    unsigned sleeps, resumes, retired, retimed, conflicts;
    bool deaf; /* the watch of Sandboxes is late */
    bool held;
    unsigned quota;             /* pods there may be; 0: any number */
    bool refuse_creates;        /* the engine has no room */
    bool hold_creates;          /* and does not answer */
    bool away;                  /* the server is */
    bool refuse_removes;        /* the server does */
    bool claims_in_retire;      /* somebody is faster */
    const char *lost_in_create; /* a path that goes while a pod is made */
    uint32_t pending;
    char last_secret[64];
    char last_event[1024]; /* its note */
    char held_uid[128];
} fake;

/* ---- the clock ---- */

static uint64_t fake_mono(void *arg)
{
    return ((fake *)arg)->now;
}

static uint64_t fake_real(void *arg)
{
    return ((fake *)arg)->real;
}

/* ---- objects ---- */

static const struct {
    const char *plural;
    enum operator_kind kind;
} FAKE_KINDS[] = {{"/sandboxtemplates/", OPERATOR_TEMPLATE},
                  {"/sandboxpools/", OPERATOR_POOL},
                  {"/sandboxes/", OPERATOR_SANDBOX},
                  {"/pods/", OPERATOR_POD},
                  {"/nodes/", OPERATOR_NODE}};

static bool fake_kind(const char *path, enum operator_kind *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(FAKE_KINDS); i++)
        if (strstr(path, FAKE_KINDS[i].plural))
            return *ret = FAKE_KINDS[i].kind, true;
    return false;
}

static json_t *fake_meta(const json_t *o)
{
    return json_object_get(o, "metadata");
}

static void fake_touch(fake *f, json_t *o)
{
    char version[16];

    snprintf(version, sizeof version, "%u", ++f->versions);
    json_object_set_new(fake_meta(o), "resourceVersion", json_string(version));
}

static void fake_tell(fake *f, const char *path, const json_t *o)
{
    enum operator_kind kind;

    if (fake_kind(path, &kind) && !(f->deaf && kind == OPERATOR_SANDBOX))
        operator_saw(f->op, kind, json_str(fake_meta(o), "uid"), o);
    if (f->other && fake_kind(path, &kind) && kind == OPERATOR_TEMPLATE)
        operator_saw(f->other, kind, json_str(fake_meta(o), "uid"), o);
}

static json_t *fake_get(fake *f, const char *path)
{
    return map_get_str(&f->objects, path);
}

/* Gone for good, as a watch tells it. */
static void fake_drop(fake *f, const char *path)
{
    json_t *o = map_take_str(&f->objects, path);
    enum operator_kind kind;

    if (o && fake_kind(path, &kind))
        operator_lost(f->op, kind, json_str(fake_meta(o), "uid"), o);
    json_decref(o);
}

static void fake_changed(fake *f, const char *path, json_t *o)
{
    fake_touch(f, o);
    if (json_str(fake_meta(o), "deletionTimestamp") &&
        !json_array_size(json_object_get(fake_meta(o), "finalizers"))) {
        fake_drop(f, path);
        return;
    }
    fake_tell(f, path, o);
}

static void fake_put(fake *f, const char *path, json_t *o)
{
    char uid[32];

    snprintf(uid, sizeof uid, "uid-%u", ++f->uids);
    json_object_set_new(fake_meta(o), "uid", json_string(uid));
    if (!json_object_get(fake_meta(o), "generation"))
        json_object_set_new(fake_meta(o), "generation", json_integer(1));
    if (!json_object_get(fake_meta(o), "creationTimestamp"))
        json_object_set_new(fake_meta(o), "creationTimestamp", json_string("2026-01-02T03:00:00Z"));
    fake_touch(f, o);
    map_put_str(&f->objects, path, o);
    fake_tell(f, path, o);
}

/* ---- verbs ---- */

static err *fake_here(const fake *f)
{
    return f->away ? err_new(ERR_UNAVAILABLE, "the server is away") : NULL;
}

/* A list by the prefix of its paths; a selector matches whatever is labelled with the cell. */
static json_t *fake_list(fake *f, const char *prefix)
{
    json_t *items = json_array();
    map_iter it = {0};

    while (map_next(&f->objects, &it)) {
        const json_t *labels = json_object_get(fake_meta(it.entry->value), "labels");
        if (it.entry->len > strlen(prefix) && !strncmp(it.entry->key, prefix, strlen(prefix)) &&
            str_eq(json_str(labels, LABEL_CELL), "abcd"))
            json_array_append(items, it.entry->value);
    }
    return json_pack("{s:o}", "items", items);
}

static err *fake_api_get(void *arg, const char *path, json_t **ret)
{
    fake *f = arg;
    const char *query = strchr(path, '?');

    TRY(fake_here(f));
    if (query) {
        CLEANUP(freep) char *prefix = str_printf("%.*s/", (int)(query - path), path);
        *ret = fake_list(f, prefix);
        return NULL;
    }
    json_t *o = fake_get(f, path);
    if (!o)
        return err_new(ERR_NOT_FOUND, "%s is not there", path);
    *ret = json_deep_copy(o);
    return NULL;
}

static unsigned fake_count(fake *f, const char *part)
{
    map_iter it = {0};
    unsigned n = 0;

    while (map_next(&f->objects, &it)) {
        CLEANUP(freep) char *key = xstrndup(it.entry->key, it.entry->len);
        n += strstr(key, part) != NULL;
    }
    return n;
}

static err *fake_api_create(void *arg, const char *path, const json_t *object, json_t **ret)
{
    fake *f = arg;
    char full[FAKE_PATH_MAX];

    (void)ret;
    TRY(fake_here(f));
    if (strstr(path, "/events")) {
        f->events++;
        str_copy(f->last_event, sizeof f->last_event, str_or(json_str(object, "note"), ""));
        return NULL;
    }
    if (str_ends(path, "/pods") && f->lost_in_create)
        fake_drop(f, f->lost_in_create);
    if (str_ends(path, "/pods") && f->quota && fake_count(f, "/pods/") >= f->quota)
        return err_because(err_new(ERR_QUOTA_EXCEEDED, "POST %s", path), "exceeded quota: q");
    snprintf(full, sizeof full, "%s/%s", path, json_str(fake_meta(object), "name"));
    f->conflicts += fake_get(f, full) != NULL;
    if (fake_get(f, full))
        return err_new(ERR_CONFLICT, "%s is there", full);
    f->creates++;
    fake_put(f, full, json_deep_copy(object));
    return NULL;
}

/* RFC 7396. */
static void fake_merge(json_t *into, const json_t *patch)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)patch, name, v)
    {
        json_t *old = json_object_get(into, name);
        if (json_is_null(v))
            json_object_del(into, name);
        else if (json_is_object(v) && json_is_object(old))
            fake_merge(old, v);
        else
            json_object_set_new(into, name, json_deep_copy(v));
    }
}

static err *fake_preconditions(const json_t *o, const json_t *patch)
{
    const json_t *m = fake_meta(patch);
    const char *uid = json_str(m, "uid"), *version = json_str(m, "resourceVersion");

    if (uid && !str_eq(uid, json_str(fake_meta(o), "uid")))
        return err_new(ERR_CONFLICT, "another uid");
    if (version && !str_eq(version, json_str(fake_meta(o), "resourceVersion")))
        return err_new(ERR_CONFLICT, "another version");
    return NULL;
}

static err *fake_status(fake *f, const char *path, const json_t *patch)
{
    CLEANUP(freep) char *main = xstrndup(path, strlen(path) - strlen("/status"));
    json_t *o = fake_get(f, main);

    if (!o)
        return err_new(ERR_NOT_FOUND, "%s is not there", main);
    f->statuses++;
    json_t *only = json_pack("{s:O}", "status", json_object_get(patch, "status"));
    fake_merge(o, only);
    json_decref(only);
    fake_changed(f, main, o);
    return NULL;
}

static err *fake_apply(fake *f, const char *path, const json_t *object)
{
    json_t *o = fake_get(f, path);

    f->applies++;
    if (!o) {
        fake_put(f, path, json_deep_copy(object));
        return NULL;
    }
    fake_merge(o, object);
    fake_changed(f, path, o);
    return NULL;
}

static err *fake_api_patch(void *arg, const char *path, enum operator_patch how,
                           const json_t *patch)
{
    fake *f = arg;

    TRY(fake_here(f));
    if (how == OPERATOR_APPLY)
        return fake_apply(f, path, patch);
    if (str_ends(path, "/status"))
        return fake_status(f, path, patch);
    json_t *o = fake_get(f, path);
    if (!o)
        return err_new(ERR_NOT_FOUND, "%s is not there", path);
    TRY(fake_preconditions(o, patch));
    f->patches++;
    if (json_object_get(patch, "spec"))
        json_object_set_new(
            fake_meta(o), "generation",
            json_integer(json_integer_value(json_object_get(fake_meta(o), "generation")) + 1));
    fake_merge(o, patch);
    fake_changed(f, path, o);
    return NULL;
}

static err *fake_api_remove(void *arg, const char *path, const char *uid)
{
    fake *f = arg;
    json_t *o = fake_get(f, path);

    TRY(fake_here(f));
    if (f->refuse_removes)
        return err_new(ERR_UNAVAILABLE, "not now");
    if (!o || (uid && !str_eq(uid, json_str(fake_meta(o), "uid"))))
        return NULL;
    f->removes++;
    json_object_set_new(fake_meta(o), "deletionTimestamp", json_string("2026-01-02T03:00:00Z"));
    fake_changed(f, path, o);
    return NULL;
}

static const operator_api FAKE_API = {fake_api_get, fake_api_create, fake_api_patch,
                                      fake_api_remove};

/* ---- the bothyd ---- */

static fake_pod *fake_pod_of(fake *f, const char *uid)
{
    fake_pod *p = map_get_str(&f->pods, uid);

    if (!p) {
        p = xcalloc(1, sizeof *p);
        map_put_str(&f->pods, uid, p);
    }
    return p;
}

static fake_sandbox *fake_sandbox_of(fake *f, const char *id)
{
    fake_sandbox *s = map_get_str(&f->live, id);

    if (!s) {
        s = xcalloc(1, sizeof *s);
        map_put_str(&f->live, id, s);
    }
    return s;
}

static bool fake_held(void *arg)
{
    return ((fake *)arg)->held;
}

static enum init_state fake_init(void *arg, const char *uid)
{
    return fake_pod_of(arg, uid)->init;
}

static bool fake_retire(void *arg, const char *uid)
{
    fake *f = arg;
    fake_pod *p = fake_pod_of(f, uid);

    if (f->claims_in_retire)
        p->init = INIT_CLAIMED;
    f->retired++;
    if (p->init != INIT_CLAIMED)
        p->init = INIT_RETIRED;
    return p->init != INIT_CLAIMED;
}

static uint32_t fake_pending(void *arg, const char *pool)
{
    (void)pool;
    return ((fake *)arg)->pending;
}

/* A warm pod of its pool becomes its own, as the backend would do it. */
static bool fake_claim(fake *f, const char *pool, const char *id)
{
    map_iter it = {0};

    while (map_next(&f->objects, &it)) {
        json_t *o = it.entry->value, *labels = json_object_get(fake_meta(o), "labels");
        const char *uid = json_str(fake_meta(o), "uid");
        if (!str_eq(json_str(o, "kind"), "Pod") || fake_pod_of(f, uid)->init != INIT_WARM ||
            !str_eq(json_str(labels, LABEL_POOL), pool))
            continue;
        fake_pod_of(f, uid)->init = INIT_CLAIMED;
        json_object_set_new(labels, LABEL_STATE, json_string(STATE_CLAIMED));
        json_object_set_new(labels, LABEL_SANDBOX, json_string(id));
        CLEANUP(freep) char *path = xstrndup(it.entry->key, it.entry->len);
        operator_claimed(f->op, pool, "exact");
        fake_changed(f, path, o);
        return true;
    }
    return false;
}

static void fake_id(char ret[SANDBOX_ID_LEN + 1], unsigned n)
{
    snprintf(ret, SANDBOX_ID_LEN + 1, "abcd%016u", n);
}

/* As the engine: asked twice with one key, there is one sandbox. */
static void fake_create(void *arg, kube_operator *op, const operator_claim *c)
{
    fake *f = arg;
    char id[SANDBOX_ID_LEN + 1];
    const char *uid = c->sandbox->meta.uid;

    if (c->secrets && *c->secrets)
        str_copy(f->last_secret, sizeof f->last_secret, *c->secrets);
    if (f->hold_creates) {
        str_copy(f->held_uid, sizeof f->held_uid, uid);
        return;
    }
    fake_id(id, (unsigned)strtoul(uid + strlen("uid-"), NULL, 10));
    if (f->refuse_creates || (c->pool && !fake_claim(f, c->pool->meta.name, id))) {
        operator_created(op, uid, NULL, err_new(ERR_POOL_EXHAUSTED, "no pod is warm"));
        return;
    }
    f->engine_creates++;
    *fake_sandbox_of(f, id) =
        (fake_sandbox){.life = LIFE_LIVE, .ends_ns = f->real + c->ttl_ms * NS_PER_MS};
    operator_created(op, uid, id, NULL);
}

static bool fake_look(void *arg, const char *id, operator_look *ret)
{
    fake *f = arg;
    const fake_sandbox *s = map_get_str(&f->live, id);

    if (!s)
        return false;
    *ret = (operator_look){.life = s->life,
                           .cause = s->cause ? xstrdup(s->cause) : NULL,
                           .cause_message = s->message ? xstrdup(s->message) : NULL,
                           .owner = xstrdup("acme"),
                           .image = xstrdup("i"),
                           .class = xstrdup("exact"),
                           .box = s->box ? xstrdup(s->box) : NULL,
                           .created_ns = s->created_ns ? s->created_ns : f->real - NS_PER_S,
                           .active_ns = s->active_ns,
                           .idle_ms = s->idle_ms,
                           .ends_ns = s->life == LIFE_ENDED ? 0 : s->ends_ns};
    strv_push(&ret->labels, xstrdup("team=x"));
    strv_push(&ret->labels, xstrdup(LABEL_POOL "=forged"));
    return true;
}

static err *fake_end(void *arg, const char *id, const char *cause, const char *message)
{
    fake *f = arg;
    fake_sandbox *s = fake_sandbox_of(f, id);

    f->ends++;
    s->life = LIFE_ENDED;
    s->cause = cause;
    s->message = message;
    operator_sandbox_changed(f->op, id);
    return NULL;
}

static err *fake_end_at(void *arg, const char *id, uint64_t real_ns)
{
    fake *f = arg;

    f->retimed++;
    fake_sandbox_of(f, id)->ends_ns = real_ns;
    operator_sandbox_changed(f->op, id);
    return NULL;
}

static err *fake_idle(void *arg, const char *id, uint64_t idle_ms)
{
    fake_sandbox_of(arg, id)->idle_ms = idle_ms;
    return NULL;
}

static err *fake_hibernate(void *arg, const char *id)
{
    fake *f = arg;

    f->sleeps++;
    fake_sandbox_of(f, id)->life = LIFE_ASLEEP;
    operator_sandbox_changed(f->op, id);
    return NULL;
}

static err *fake_resume(void *arg, const char *id, const operator_claim *c)
{
    fake *f = arg;

    (void)c;
    f->resumes++;
    fake_sandbox_of(f, id)->life = LIFE_LIVE;
    operator_sandbox_changed(f->op, id);
    return NULL;
}

static size_t fake_ids(void *arg, char (**ret)[SANDBOX_ID_LEN + 1])
{
    fake *f = arg;
    map_iter it = {0};
    size_t n = 0;

    *ret = xcalloc(f->live.count + 1, sizeof **ret);
    while (map_next(&f->live, &it))
        if (((const fake_sandbox *)it.entry->value)->life == LIFE_LIVE)
            memcpy((*ret)[n++], it.entry->key, SANDBOX_ID_LEN);
    return n;
}

static const operator_host FAKE_HOST = {.held = fake_held,
                                        .init = fake_init,
                                        .retire = fake_retire,
                                        .pending = fake_pending,
                                        .create = fake_create,
                                        .look = fake_look,
                                        .end = fake_end,
                                        .end_at = fake_end_at,
                                        .idle = fake_idle,
                                        .hibernate = fake_hibernate,
                                        .resume = fake_resume,
                                        .list = fake_ids};

/* ---- the node ---- */

/* Every pod that waits runs, and its init answers. */
static void fake_run_pods(fake *f)
{
    map_iter it = {0};

    while (map_next(&f->objects, &it)) {
        json_t *o = it.entry->value;
        fake_pod *p;
        if (!str_eq(json_str(o, "kind"), "Pod") ||
            str_starts(json_str(fake_meta(o), "name"), "bothy-probe-"))
            continue;
        p = fake_pod_of(f, json_str(fake_meta(o), "uid"));
        if (p->init != INIT_UNKNOWN || json_object_get(o, "status"))
            continue;
        p->init = INIT_WARM;
        json_object_set_new(o, "status",
                            parse("{'phase':'Running','containerStatuses':[{'name':"
                                  "'sandbox','state':{'running':{}}}]}"));
        CLEANUP(freep) char *path = xstrndup(it.entry->key, it.entry->len);
        fake_changed(f, path, o);
    }
}

static void fake_pass(fake *f, double seconds)
{
    f->now += (uint64_t)(seconds * (double)NS_PER_S);
    f->real += (uint64_t)(seconds * (double)NS_PER_S);
}

/* The operator works and the node follows, until nothing is left to do for a while. */
static void fake_settle(fake *f)
{
    for (int i = 0; i < 20; i++) {
        operator_step(f->op);
        fake_run_pods(f);
        fake_pass(f, 1.1);
    }
    operator_step(f->op);
}

static void fake_begin_as(fake *f, bool records, enum policy_state policy)
{
    static clock_source clock = {fake_mono, fake_real, NULL};

    *f = (fake){.now = 1000 * NS_PER_S, .real = UINT64_C(1767322800000000000), .held = true};
    clock.arg = f;
    const operator_options o = {.api = &FAKE_API,
                                .api_arg = f,
                                .host = &FAKE_HOST,
                                .host_arg = f,
                                .clock = &clock,
                                .namespace = "ns",
                                .cell = "abcd",
                                .bothy_image = "bothy:1",
                                .disk = 10 << 20,
                                .shm_mib = 64,
                                .record_key = {7},
                                .policy = policy,
                                .records = records};
    f->op = operator_new(&o);
    for (int i = 0; i < OPERATOR_KINDS; i++)
        operator_synced(f->op, (enum operator_kind)i);
}

static void fake_begin(fake *f, bool records)
{
    fake_begin_as(f, records, POLICY_VOUCHED);
}

static void fake_end_all(fake *f)
{
    map *const maps[] = {&f->pods, &f->live};

    operator_free(f->op);
    for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
        map_iter it = {0};
        while (map_next(maps[i], &it))
            free(it.entry->value);
        map_done(maps[i]);
    }
    map_iter it = {0};
    while (map_next(&f->objects, &it))
        json_decref(it.entry->value);
    map_done(&f->objects);
}

/* ---- for tests to say ---- */

#define OURS "/apis/bothy.dev/v1alpha1/"

static void fake_make(fake *f, const char *path, const char *text)
{
    fake_put(f, path, parse(text));
}

static void fake_make_template(fake *f, const char *spec)
{
    CLEANUP(freep) char *text = str_printf("{'metadata':{'name':'t'},'spec':%s}", spec);

    fake_make(f, OURS "sandboxtemplates/t", text);
}

static void fake_make_pool(fake *f, const char *spec)
{
    CLEANUP(freep)
    char *text = str_printf("{'metadata':{'name':'p','namespace':'ns'},'spec':%s}", spec);

    fake_make(f, OURS "namespaces/ns/sandboxpools/p", text);
}

static void fake_make_sandbox(fake *f, const char *name, const char *spec)
{
    CLEANUP(freep)
    char *text = str_printf("{'metadata':{'name':'%s','namespace':'ns'},'spec':%s}", name, spec);
    CLEANUP(freep) char *path = str_printf(OURS "namespaces/ns/sandboxes/%s", name);

    fake_make(f, path, text);
}

/* As a user with kubectl. */
static void fake_edit(fake *f, const char *path, const char *patch)
{
    CLEANUP(json_decrefp) json_t *j = parse(patch);

    assert_ok(fake_api_patch(f, path, OPERATOR_MERGE, j));
}

static const json_t *fake_status_of(fake *f, const char *path)
{
    return json_object_get(fake_get(f, path), "status");
}

#define POOL_P    OURS "namespaces/ns/sandboxpools/p"
#define SANDBOX_S OURS "namespaces/ns/sandboxes/s"
