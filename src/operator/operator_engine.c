/* Implements operator_host over this bothyd's engine and its `kubernetes` backend,
 * and answers the hooks of both. */
#include "operator/operator_engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kubernetes/kubernetes.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/names.h"
#include "operator/operator_run.h"
#include "operator/status.h"

struct operator_daemon {
    engine *engine;
    backend *backend;
    operator_run *run;
    pthread_mutex_t lock;
    map waking; /* id of a sandbox that is being resumed */
};

/* An administrator: no owner check may refuse the operator's acts. */
static char operator_owner[] = "operator";
static const caller OPERATOR = {.owner = operator_owner, .role = CALLER_ADMIN};

/* ---- pods ---- */

static bool host_held(void *arg)
{
    operator_daemon *d = arg;
    kube_lease *l = kubernetes_lease(d->backend);

    return !l || kube_lease_held(l, NULL);
}

static enum init_state host_init(void *arg, const char *pod_uid)
{
    static const enum init_state STATES[] = {
        [KUBERNETES_UNKNOWN] = INIT_UNKNOWN, [KUBERNETES_READY] = INIT_WARM,
        [KUBERNETES_CLAIMED] = INIT_CLAIMED, [KUBERNETES_LOST] = INIT_UNREACHABLE,
        [KUBERNETES_TAINTED] = INIT_TAINTED, [KUBERNETES_RETIRED] = INIT_RETIRED,
    };
    operator_daemon *d = arg;

    return STATES[kubernetes_init_of(d->backend, pod_uid)];
}

static bool host_retire(void *arg, const char *pod_uid)
{
    return kubernetes_retire(((operator_daemon *)arg)->backend, pod_uid);
}

static uint32_t host_pending(void *arg, const char *pool)
{
    return kubernetes_pending(((operator_daemon *)arg)->backend, pool);
}

/* ---- the state of a sandbox ---- */

static enum engine_life life_of(const char *state)
{
    switch (lifecycle_by_name(state)) {
    case LIFE_CREATING:
        return LIFE_BEING_MADE;
    case LIFE_RUNNING:
    case LIFE_PAUSED:
        return LIFE_LIVE;
    case LIFE_HIBERNATED:
        return LIFE_ASLEEP;
    default:
        return LIFE_ENDED;
    }
}

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static void read_cause(const char *text, operator_look *l)
{
    json_t *j = NULL;
    err *e = text ? json_parse(text, strlen(text), &j) : NULL;

    if (!e) {
        const char *by = json_str(j, "by");
        /* All backends share the engine's causes; objects use the cluster's words. */
        l->cause = dup_or_null(by && strstr(by, "(eviction)") ? "evicted" : json_str(j, "kind"));
        l->cause_message = dup_or_null(json_str(j, "detail"));
    }
    err_free(e);
    json_decref(j);
}

static bool is_waking(operator_daemon *d, const char *id)
{
    LOCK_SCOPE(&d->lock);
    return map_get_str(&d->waking, id);
}

static void read_view(operator_daemon *d, const sandbox_view *v, operator_look *l)
{
    uint64_t now = now_real_ns();

    l->life = life_of(v->state);
    if (l->life == LIFE_ASLEEP && is_waking(d, v->id))
        l->life = LIFE_BEING_MADE;
    l->box = strcmp(v->box, v->id) != 0 ? xstrdup(v->box) : NULL;
    read_cause(v->cause, l);
    l->owner = dup_or_null(v->owner);
    l->image = dup_or_null(v->image_name);
    l->class = dup_or_null(v->receipt.klass);
    l->labels = v->labels ? strv_copy(v->labels) : NULL;
    l->created_ns = v->created_ns;
    l->ends_ns = l->life == LIFE_ENDED ? v->ended_ns : v->ends_ns;
    l->idle_ms = v->idle_ms;
    /* Where idle time is measured, that alone counts: an open shell runs without activity. */
    l->busy = v->idle_for_ns == UINT64_MAX && v->live_execs > 0;
    if (v->idle_for_ns < now)
        l->active_ns = now - v->idle_for_ns;
}

static bool host_look(void *arg, const char *id, operator_look *ret_look)
{
    operator_daemon *d = arg;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(sandbox_view_done) sandbox_view v = {0};
    err *e = engine_find(d->engine, &OPERATOR, id, &sb);

    if (e) {
        err_free(e);
        return false;
    }
    sandbox_get(sb, &v);
    *ret_look = (operator_look){0};
    read_view(d, &v, ret_look);
    return true;
}

static size_t host_list(void *arg, char (**ret_ids)[SANDBOX_ID_LEN + 1])
{
    operator_daemon *d = arg;
    size_t n = 0;
    sandbox **all = engine_live_all(d->engine, &n);

    *ret_ids = xcalloc(n + 1, sizeof **ret_ids);
    for (size_t i = 0; i < n; i++) {
        str_copy((*ret_ids)[i], sizeof **ret_ids, sandbox_id(all[i]));
        sandbox_unref(all[i]);
    }
    free(all);
    return n;
}

/* ---- end, end time, idle time ---- */

static err *host_end(void *arg, const char *id, const char *code, const char *message)
{
    operator_daemon *d = arg;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    const cause why = {.kind = status_cause_kind(code), .by = OPERATOR.owner, .detail = message};

    err *e = engine_find(d->engine, &OPERATOR, id, &sb);
    if (e && e->code == ERR_NOT_FOUND) {
        err_free(e);
        return NULL;
    }
    TRY(e);
    return engine_end_for(d->engine, sb, &why);
}

static err *host_end_at(void *arg, const char *id, uint64_t real_ns)
{
    operator_daemon *d = arg;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(engine_find(d->engine, &OPERATOR, id, &sb));
    TRY(engine_end_at(d->engine, sb, real_ns));
    operator_sandbox_changed(operator_run_operator(d->run), id);
    return NULL;
}

/* Sets the idle time of a sandbox after its object changed it. */
static err *host_idle(void *arg, const char *id, uint64_t idle_ms)
{
    operator_daemon *d = arg;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    const sandbox_patch p = {.has_idle = true, .idle_ms = idle_ms};

    TRY(engine_find(d->engine, &OPERATOR, id, &sb));
    return engine_update(d->engine, &OPERATOR, sb, &p);
}

/* ---- creates ---- */

static void set_waking(operator_daemon *d, const char *id, bool is)
{
    LOCK_SCOPE(&d->lock);

    if (is)
        map_put_str(&d->waking, id, d);
    else
        map_take_str(&d->waking, id);
}

typedef struct create_job {
    operator_daemon *d;
    char *uid;
} create_job;

static void on_created(void *arg, err *failure, sandbox *sb, bool replay)
{
    create_job *j = arg;

    (void)replay;
    operator_created(operator_run_operator(j->d->run), j->uid, sb ? sandbox_id(sb) : NULL, failure);
    sandbox_unref(sb);
    free(j->uid);
    free(j);
}

/* Fills in a spec from the object and its template. The template's variables
 * are in the pod's own environment. */
static void spec_of(const operator_claim *c, sandbox_spec *s)
{
    const crd_sandbox *x = c->sandbox;
    const template_spec *t = c->template ? &c->template->spec : NULL;
    const char *named = x->spec.image && *x->spec.image ? x->spec.image : t ? t->image : "";

    s->image = xstrdup(named);
    s->ttl_ms = c->ttl_ms;
    s->idle_ms = sandbox_idle_ms(x, c->template);
    s->has_network = true;
    s->network =
        t && t->network.egress != EGRESS_NONE && !x->spec.has_egress ? NETWORK_OPEN : NETWORK_NONE;
    if (t) {
        s->limits.memory = t->memory;
        s->limits.cpu_milli = (uint32_t)t->cpu_milli;
        s->limits.disk = t->storage; /* 0: the default, which its pod has, too */
    }
    s->labels = x->spec.labels ? strv_copy(x->spec.labels) : NULL;
    s->object = xstrdup(x->meta.uid);
    for (size_t i = 0; c->secrets && c->secrets[i]; i++)
        strv_push(&s->secrets, xstrdup(c->secrets[i]));
}

/* Creates the sandbox of an object. It counts against its owner's quotas, as if made through the
 * API. A template grants the network and limits that its administrator chose, and nothing else. */
static void host_create(void *arg, kube_operator *op, const operator_claim *c)
{
    operator_daemon *d = arg;
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};
    CLEANUP(freep) char *owner = xstrdup(c->owner);
    CLEANUP(freep) char *key = str_printf("sandbox-object-%s", c->sandbox->meta.uid);
    const caller who = {.owner = owner, .role = CALLER_USER, .granted = c->template};
    const idempotency once = {.key = key, .body = key, .nbody = strlen(key)};
    create_job *j = xcalloc(1, sizeof *j);

    (void)op;
    *j = (create_job){d, xstrdup(c->sandbox->meta.uid)};
    spec_of(c, &spec);
    spec.ttl_ms = engine_ttl_within(d->engine, &who, spec.ttl_ms);
    sandbox_unref(engine_create(d->engine, &who, &spec, PULL_MISSING, &once, on_created, j));
}

/* ---- hibernate and resume ---- */

static err *host_hibernate(void *arg, const char *id)
{
    operator_daemon *d = arg;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(engine_find(d->engine, &OPERATOR, id, &sb));
    TRY(engine_hibernate(d->engine, &OPERATOR, sb));
    operator_sandbox_changed(operator_run_operator(d->run), id);
    return NULL;
}

typedef struct wake_job {
    operator_daemon *d;
    char *uid; /* of its object */
    char id[SANDBOX_ID_LEN + 1];
} wake_job;

static void on_woken(void *arg, err *failure, sandbox *sb, bool replay)
{
    wake_job *j = arg;
    kube_operator *op = operator_run_operator(j->d->run);

    (void)replay;
    set_waking(j->d, j->id, false);
    if (failure)
        operator_created(op, j->uid, NULL, failure);
    operator_sandbox_changed(op, j->id);
    sandbox_unref(sb);
    free(j->uid);
    free(j);
}

static err *host_resume(void *arg, const char *id, const operator_claim *c)
{
    operator_daemon *d = arg;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(sandbox_spec_done) sandbox_spec with = {0};

    if (is_waking(d, id))
        return NULL;
    TRY(engine_find(d->engine, &OPERATOR, id, &sb));
    for (size_t i = 0; c->secrets && c->secrets[i]; i++)
        strv_push(&with.secrets, xstrdup(c->secrets[i]));
    wake_job *j = xcalloc(1, sizeof *j);
    *j = (wake_job){.d = d, .uid = xstrdup(c->sandbox->meta.uid)};
    str_copy(j->id, sizeof j->id, id);
    set_waking(d, id, true);
    engine_wake(d->engine, &OPERATOR, sb, &with, on_woken, j);
    return NULL;
}

static const operator_host HOST = {.held = host_held,
                                   .init = host_init,
                                   .retire = host_retire,
                                   .pending = host_pending,
                                   .create = host_create,
                                   .look = host_look,
                                   .end = host_end,
                                   .end_at = host_end_at,
                                   .idle = host_idle,
                                   .hibernate = host_hibernate,
                                   .resume = host_resume,
                                   .list = host_list};

/* ---- hooks of the backend and the engine ---- */

static err *check_labels(char *const *labels)
{
    for (size_t i = 0; labels && labels[i]; i++)
        if (name_is_reserved(labels[i]))
            return err_remedy(
                err_new(ERR_INVALID_REQUEST, "the label '%.128s' is bothy's own", labels[i]),
                "Use a name without the prefix bothy.dev/.");
    return NULL;
}

/* Returns false if the spec asks for something that a pool's pods do not have. */
static bool is_plain(const sandbox_spec *s)
{
    return !s->ntmpfs && !s->read_only && !s->setuid;
}

static char *owner_of(operator_daemon *d, const box_spec *s)
{
    sandbox *sb = engine_find_live(d->engine, s->hostname ? s->hostname : s->id);
    char *owner = sb ? xstrdup(sandbox_owner(sb)) : NULL;

    sandbox_unref(sb);
    return owner;
}

/* Refuses a sandbox whose network isolation would not hold. */
static err *wall_of(operator_daemon *d, const box_spec *s, const operator_source *source)
{
    bool open = s->spec->network == NETWORK_OPEN;

    if (!source && open)
        return NULL;
    if (source && source->open && !open)
        return err_remedy(
            err_new(ERR_WALL_FAILED, "its pods have a network, and the sandbox is to have none"),
            "Use a template with egress 'None'.");
    return operator_wall(operator_run_operator(d->run), source);
}

static err *on_wish(void *arg, const box_spec *spec, kubernetes_wish *wish)
{
    operator_daemon *d = arg;
    operator_source source = {0};
    const char *uid = spec->hostname ? NULL : spec->spec->object, *waking = NULL;

    /* A reset keeps the sandbox's labels, which were checked at its create. */
    if (!spec->hostname)
        TRY(check_labels(spec->spec->labels));
    else if (is_waking(d, spec->hostname))
        waking = spec->hostname;
    if (!uid && !waking && !is_plain(spec->spec))
        return wall_of(d, spec, NULL);
    CLEANUP(freep) char *owner = owner_of(d, spec);
    const operator_wish w = {.image = str_or(spec->image_name, ""),
                             .owner = owner,
                             .memory = spec->spec->limits.memory,
                             .disk = spec->spec->limits.disk,
                             .cpu_milli = spec->spec->limits.cpu_milli,
                             .shm_mib = spec->spec->limits.shm_mib,
                             .network = spec->spec->network == NETWORK_OPEN,
                             .object_uid = uid,
                             .waking = waking};
    bool found = operator_source_of(operator_run_operator(d->run), &w, &source);
    if (!found && waking)
        return err_new(ERR_UNAVAILABLE, "the disk of sandbox %s is not known", waking);
    if (!found && source.refused)
        return err_new(ERR_FORBIDDEN, "its Sandbox object has no pool or template that it may use");
    err *e = wall_of(d, spec, found ? &source : NULL);
    if (e || !found) {
        json_decref(source.pod_spec);
        return e;
    }
    free(wish->pool);
    wish->pool = *source.pool ? xstrdup(source.pool) : NULL;
    wish->any_image = source.any_image;
    wish->most = source.most;
    json_decref(wish->spec);
    wish->spec = source.pod_spec;
    str_copy(wish->hash, sizeof wish->hash, source.hash);
    return NULL;
}

static void on_claimed(void *arg, const kubernetes_claim *c)
{
    operator_daemon *d = arg;
    kube_operator *op = operator_run_operator(d->run);

    if (c->pool && *c->pool)
        operator_claimed(op, c->pool, c->klass);
    if (c->klass)
        operator_placed(op, c->id, str_or(c->pool, ""));
    operator_pod_changed(op, c->uid);
    operator_sandbox_changed(op, c->id);
}

static void on_ended(void *arg, const char *id, const char *why)
{
    operator_daemon *d = arg;

    (void)why;
    operator_sandbox_changed(operator_run_operator(d->run), id);
}

static void on_asleep(void *arg, const char *id)
{
    operator_daemon *d = arg;

    operator_wanted(operator_run_operator(d->run), id);
}

static bool on_taken(void *arg, const char *id, bool asleep)
{
    kube_operator *op = operator_run_operator(((operator_daemon *)arg)->run);

    if (asleep)
        operator_sandbox_changed(op, id);
    return asleep || operator_keeps(op, id);
}

static bool on_idle(void *arg, const char *id)
{
    return operator_idle(operator_run_operator(((operator_daemon *)arg)->run), id);
}

static const kubernetes_hooks HOOKS = {.wish = on_wish, .claimed = on_claimed, .ended = on_ended};

/* ---- start and end ---- */

operator_daemon *operator_daemon_new(const operator_daemon_options *o)
{
    static const char PURPOSE[] = "records of the operator";
    operator_daemon *d = xcalloc(1, sizeof *d);
    const pod_world *w = kubernetes_world(o->backend);
    operator_run_options r = {.k = kubernetes_kube(o->backend),
                              .host = &HOST,
                              .host_arg = d,
                              .namespace = kubernetes_namespace(o->backend),
                              .cell = o->cell,
                              .bothy_image = w->bothy_image,
                              .image_volume = w->image_volume,
                              .disk = o->defaults.disk,
                              .shm_mib = o->defaults.shm_mib,
                              .instance = str_or(o->instance, o->cell),
                              .policy = o->vouched ? POLICY_VOUCHED : POLICY_UNKNOWN,
                              .records = true};

    d->engine = o->engine;
    d->backend = o->backend;
    pthread_mutex_init(&d->lock, NULL);
    hmac_sha256(o->key, 32, PURPOSE, sizeof PURPOSE - 1, r.record_key);
    d->run = operator_run_new(&r);
    secret_wipe(r.record_key, sizeof r.record_key);
    kubernetes_set_hooks(o->backend, &HOOKS, d);
    engine_on_asleep(o->engine, on_asleep, d);
    engine_on_taken(o->engine, on_taken, d);
    engine_on_idle(o->engine, on_idle, d);
    return d;
}

kube_operator *operator_daemon_operator(operator_daemon *d)
{
    return operator_run_operator(d->run);
}

err *operator_daemon_trouble(operator_daemon *d)
{
    return operator_run_trouble(d->run);
}

void operator_daemon_free(operator_daemon *d)
{
    if (!d)
        return;
    kubernetes_set_hooks(d->backend, NULL, NULL);
    engine_on_asleep(d->engine, NULL, NULL);
    engine_on_taken(d->engine, NULL, NULL);
    engine_on_idle(d->engine, NULL, NULL);
    operator_run_free(d->run);
    map_done(&d->waking);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
