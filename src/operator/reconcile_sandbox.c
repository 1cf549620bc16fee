/* Reconciles Sandbox objects: carries out what plan_sandbox() orders. Makes the objects of
 * sandboxes that were made through the API (records). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"
#include "operator/status.h"
#include "operator/text.h"

#define LOOK_AGAIN_NS  UINT64_C(5000000000) /* after an act was ordered */
#define SECRETS_MAX    (1u << 20)
#define LABEL_SEEN_NS  UINT64_C(2000000000) /* from a claim to its label in the watch */
#define RECORD_PREFIX  "sbx-"
#define RECORD_POD_NS  UINT64_C(15000000000) /* until a sandbox counts as of no pool */
#define RECORD_LOOK_NS UINT64_C(300000000)

/* ---- the present state ---- */

typedef struct sandbox_scene {
    kube_operator *op;
    seen *object, *pool, *template, *pod;
    char id[SANDBOX_ID_LEN + 1]; /* "": none yet */
    char hash[HASH_TEXT_LEN + 1];
    char *refused;
    err *forbidden; /* why it may not have what it names; NULL: it may */
    bool known;     /* the engine knows it: */
    operator_look look;
    sandbox_orders orders;
    char *volume;
} sandbox_scene;

static void scene_done(sandbox_scene *s)
{
    sandbox_orders_done(&s->orders);
    operator_look_done(&s->look);
    free(s->refused);
    err_free(s->forbidden);
    free(s->volume);
    seen_unref(s->op, s->pod);
    seen_unref(s->op, s->template);
    seen_unref(s->op, s->pool);
    seen_unref(s->op, s->object);
}

/* Returns the sandbox id of a record, by its name, if its proof is
 * valid; NULL: it is not a record. */
static const char *recorded_id(const kube_operator *op, const object_meta *m)
{
    const char *proof = strv_env_get(m->annotations, NOTE_RECORD);
    char is[HASH_TEXT_LEN + 1];

    if (!proof || !str_starts(m->name, RECORD_PREFIX))
        return NULL;
    const char *id = m->name + strlen(RECORD_PREFIX);
    if (!id_is_sandbox(id))
        return NULL;
    record_proof(op->o.record_key, op->namespace, m->name, id, is);
    return !strcmp(is, proof) ? id : NULL;
}

static void find_id(sandbox_scene *s)
{
    const crd_sandbox *x = &s->object->sandbox;
    const char *recorded = recorded_id(s->op, &x->meta);
    LOCK_SCOPE(&s->op->lock);
    sandbox_track *t = op_sandbox_track(s->op, s->object->uid);
    const char *id = x->status.id && id_is_sandbox(x->status.id) ? x->status.id : NULL;

    if (!id)
        id = *t->id ? t->id : recorded;
    if (id) {
        str_copy(s->id, sizeof s->id, id);
        free(map_put_str(&s->op->by_id, id, xstrdup(s->object->uid)));
    }
}

/* Reads the engine's state of the sandbox. After a reset or a resume its box has another name. */
static void ask_engine(sandbox_scene *s)
{
    kube_operator *op = s->op;

    s->known = *s->id && op->o.host->look(op->o.host_arg, s->id, &s->look);
    LOCK_SCOPE(&op->lock);
    if (s->look.life == LIFE_LIVE) /* the request that waited for it is served */
        op_sandbox_track(op, s->object->uid)->wanted = false;
    if (s->look.box)
        free(map_put_str(&op->by_id, s->look.box, xstrdup(s->object->uid)));
}

static void find_objects(sandbox_scene *s)
{
    kube_operator *op = s->op;
    const crd_sandbox *x = &s->object->sandbox;
    const char *template = x->spec.template;

    if (x->spec.pool && *x->spec.pool) {
        s->pool = op_find_name(op, OPERATOR_POOL, x->spec.pool);
        template = s->pool ? s->pool->pool.spec.template : NULL;
    }
    if (template && *template)
        s->template = op_find_name(op, OPERATOR_TEMPLATE, template);
    if (s->template && !s->template->error)
        template_hash(&s->template->template, s->pool && s->pool->pool.spec.any_image,
                      &op->manifest, s->hash);
    if (s->template && !s->template->error)
        s->forbidden = template_grant_check(&s->template->template, s->pool ? &s->pool->pool : NULL,
                                            op->namespace, op_owner_of(op, x));
    if (*s->id)
        s->pod = op_pod_of(op, s->look.box ? s->look.box : s->id);
    const char *volume = s->pod && s->pod->pod.volume ? s->pod->pod.volume : x->status.volume;
    s->volume = volume && *volume ? xstrdup(volume) : NULL;
}

/* Returns whether spec.expiresAt differs from the time that the engine got. A change made while no
 * bothyd ran shows in the generation. Lock held. */
static bool is_retimed(const sandbox_scene *s, sandbox_track *t)
{
    const crd_sandbox *x = &s->object->sandbox;
    bool missed = x->status.observed && x->meta.generation > x->status.observed;

    if (!t->timed && s->known) {
        t->timed = true;
        t->expires_ns = missed ? UINT64_MAX : x->spec.expires_ns;
    }
    return t->timed && t->expires_ns != x->spec.expires_ns;
}

static sandbox_world world_of(sandbox_scene *s)
{
    kube_operator *op = s->op;
    const crd_sandbox *x = &s->object->sandbox;
    bool named = (x->spec.pool && *x->spec.pool) || (x->spec.template && *x->spec.template);
    const pod_view *p = s->pod ? &s->pod->pod : NULL;
    bool draining = p && p->node && op_node_draining(op, p->node);
    LOCK_SCOPE(&op->lock);
    sandbox_track *t = op_sandbox_track(op, s->object->uid);

    s->refused = t->refused ? xstrdup(t->refused) : NULL;
    return (sandbox_world){.sandbox = x,
                           .invalid = s->object->error,
                           .pool_missing = x->spec.pool && *x->spec.pool && !s->pool,
                           .template =
                               s->template && !s->template->error ? &s->template->template : NULL,
                           .template_missing = named && (!s->template || s->template->error),
                           .forbidden = s->forbidden ? s->forbidden->message : NULL,
                           .forbidden_reason = s->forbidden ? s->forbidden->kind : NULL,
                           .claiming = t->claiming,
                           .refused = s->refused,
                           .retry_ns = t->retry_ns,
                           .has_id = *s->id != 0,
                           .id = *s->id ? s->id : NULL,
                           .life = s->known ? s->look.life : LIFE_UNKNOWN,
                           .end = {s->look.cause, s->look.cause_message, s->look.exit_code},
                           .pod = p ? p->meta.name : NULL,
                           .pod_uid = p ? p->meta.uid : NULL,
                           .node = p ? p->node : NULL,
                           .class = s->look.class,
                           .volume = s->volume,
                           .claimed_ns = s->look.created_ns,
                           .active_ns = s->look.active_ns,
                           .ends_ns = s->look.ends_ns,
                           .retimed = is_retimed(s, t),
                           .busy = s->look.busy,
                           .wanted_now = t->wanted,
                           .pod_there = p != NULL,
                           .pod_going = p && p->meta.deleting_ns,
                           .volume_there = s->volume && !t->volume_gone,
                           .node_draining = draining,
                           .crowded = op_is_crowded(op),
                           .now = op_real(op)};
}

/* ---- secrets ---- */

static void wipe_json(json_t *j)
{
    const char *name;
    json_t *v;

    if (json_is_string(j))
        secret_wipe((char *)json_string_value(j), json_string_length(j));
    json_object_foreach(j, name, v) wipe_json(v);
}

/* Adds one variable of a Secret. Names that are not valid variables
 * are skipped, as the kubelet does. */
static void take_pair(char ***env, const char *name, const json_t *value)
{
    void *bytes = NULL;
    size_t n = 0;
    bool plain = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
                     strlen(name) &&
                 *name && (*name < '0' || *name > '9');

    if (!plain || !json_is_string(value) ||
        !base64_decode(json_string_value(value), json_string_length(value), &bytes, &n))
        return;
    if (!memchr(bytes, 0, n))
        strv_push(env, str_printf("%s=%.*s", name, (int)n, (const char *)bytes));
    secret_wipe(bytes, n);
    free(bytes);
}

static void free_secrets(char ***v)
{
    for (size_t i = 0; *v && (*v)[i]; i++)
        secret_wipe((*v)[i], strlen((*v)[i]));
    strv_free(*v);
}

static err *read_secret(sandbox_scene *s, const char *name, char ***env)
{
    kube_operator *op = s->op;
    json_t *secret = NULL;
    const char *key;
    json_t *value;

    if (!name_is_dns(name, KUBE_NAME_MAX))
        return err_new(ERR_INVALID_REQUEST, "envFrom: '%.128s' is not a name of a Secret", name);
    CLEANUP(freep) char *path = op_path(op, API_CORE, "secrets", name, NULL);
    TRY(err_wrap(op->o.api->get(op->o.api_arg, path, &secret), "envFrom: the Secret '%s'", name));
    json_t *data = json_object_get(secret, "data");
    json_object_foreach(data, key, value) take_pair(env, key, value);
    wipe_json(data);
    json_decref(secret);
    return NULL;
}

static err *read_secrets(sandbox_scene *s, char ***ret_env)
{
    const crd_sandbox *x = &s->object->sandbox;
    CLEANUP(free_secrets) char **env = NULL;
    size_t all = 0;

    for (size_t i = 0; i < x->spec.nsecrets; i++)
        TRY(read_secret(s, x->spec.secrets[i].name, &env));
    for (size_t i = 0; env && env[i]; i++)
        all += strlen(env[i]) + 1;
    if (all > SECRETS_MAX)
        return err_new(ERR_TOO_LARGE, "envFrom: its Secrets have %zu bytes, at most %u are taken",
                       all, SECRETS_MAX);
    *ret_env = TAKE_PTR(env);
    return NULL;
}

/* ---- acts ---- */

/* Builds the NetworkPolicy of a pod that no pool makes, before the pod: for a sandbox that names
 * only a template, or is resumed. */
static err *build_walls(sandbox_scene *s, const crd_template *t)
{
    kube_operator *op = s->op;
    char hash[HASH_TEXT_LEN + 1];

    template_hash(t, false, &op->manifest, hash);
    CLEANUP(json_decrefp)
    json_t *policy = manifest_network(t, &op->manifest, op->namespace, hash);
    return op_build_policy(op, policy);
}

/* Checks the image. A pool's pods run the template's image, unless
 * they take any image at the claim. */
static err *check_image(const sandbox_scene *s, const crd_template *t, const char *image)
{
    TRY(template_image_check(&t->spec, image));
    if (!s->pool || s->pool->pool.spec.any_image || *s->id || str_eq(image, t->spec.image))
        return NULL;
    return err_remedy(err_new(ERR_FORBIDDEN,
                              "pods of pool %s run %.256s only: it does not have anyImage",
                              s->pool->name, t->spec.image),
                      "Leave the image out, or use a pool with anyImage.");
}

static err *claim_of(sandbox_scene *s, operator_claim *ret)
{
    const crd_template *t = s->template && !s->template->error ? &s->template->template : NULL;
    const crd_sandbox *x = &s->object->sandbox;
    uint64_t ends = sandbox_expiry(x, t), now = op_real(s->op);

    TRY(TAKE_PTR(s->forbidden));
    if (x->spec.image && *x->spec.image && t)
        TRY(check_image(s, t, x->spec.image));
    if (t && !s->pool && !*s->id && t->spec.workspace.path)
        return err_remedy(err_new(ERR_UNSUPPORTED, "a sandbox with a workspace comes from a pool"),
                          "Make a SandboxPool of the template, if only with replicas 0, and name "
                          "it as poolRef.");
    if (t && (!s->pool || *s->id))
        TRY(build_walls(s, t));
    *ret = (operator_claim){.sandbox = x,
                            .template = t,
                            .pool = s->pool ? &s->pool->pool : NULL,
                            .hash = *s->hash ? s->hash : NULL,
                            .owner = op_owner_of(s->op, x),
                            .ttl_ms = ends > now ? (ends - now) / NS_PER_MS : 0};
    return read_secrets(s, &ret->secrets);
}

/* Records that the engine has this end time: from now on another one in the spec is a change. */
static void reconcile_sandbox_timed(sandbox_scene *s)
{
    LOCK_SCOPE(&s->op->lock);
    sandbox_track *t = op_sandbox_track(s->op, s->object->uid);

    t->timed = true;
    t->expires_ns = s->object->sandbox.spec.expires_ns;
}

static err *set_time(sandbox_scene *s)
{
    kube_operator *op = s->op;

    TRY(op->o.host->end_at(op->o.host_arg, s->id, s->orders.ends_ns));
    reconcile_sandbox_timed(s);
    return NULL;
}

/* Sets the idle time of a sandbox made with kubectl, from its object.
 * For a record, the API sets it. */
static err *set_idle(sandbox_scene *s)
{
    kube_operator *op = s->op;
    const crd_sandbox *x = &s->object->sandbox;
    const crd_template *t = s->template && !s->template->error ? &s->template->template : NULL;
    uint64_t idle = sandbox_idle_ms(x, t);

    if (s->look.life != LIFE_LIVE || idle == s->look.idle_ms || x->meta.deleting_ns ||
        recorded_id(op, &x->meta) || (!t && !x->spec.has_idle))
        return NULL;
    return op->o.host->idle(op->o.host_arg, s->id, idle);
}

/* Creates the sandbox. An invalid request counts as a refused create. */
static void reconcile_sandbox_claim(sandbox_scene *s)
{
    kube_operator *op = s->op;
    operator_claim c = {0};
    err *e = claim_of(s, &c);

    reconcile_sandbox_timed(s);
    {
        LOCK_SCOPE(&op->lock);
        op_sandbox_track(op, s->object->uid)->claiming = true;
    }
    if (e)
        operator_created(op, s->object->uid, NULL, e);
    else
        op->o.host->create(op->o.host_arg, op, &c);
    free_secrets(&c.secrets);
}

static void reconcile_sandbox_refuse(sandbox_scene *s, err *e)
{
    if (e)
        operator_created(s->op, s->object->uid, NULL, e);
}

static err *reconcile_sandbox_resume(sandbox_scene *s)
{
    kube_operator *op = s->op;
    operator_claim c = {0};
    err *e = claim_of(s, &c);

    if (!e)
        e = op->o.host->resume(op->o.host_arg, s->id, &c);
    free_secrets(&c.secrets);
    if (!e) {
        LOCK_SCOPE(&op->lock);
        op_sandbox_track(op, s->object->uid)->wanted = false;
    }
    reconcile_sandbox_refuse(s, e);
    if (!s->orders.want_running)
        return NULL;
    CLEANUP(freep) char *path = op_path(op, API_OURS, "sandboxes", s->object->name, NULL);
    CLEANUP(json_decrefp)
    json_t *patch = json_pack("{s:{s:s}, s:{s:s}}", "metadata", "uid", s->object->uid, "spec",
                              "desiredState", "Running");
    return op_merge(op, path, patch);
}

static err *delete_pod(sandbox_scene *s)
{
    if (!s->pod)
        return NULL;
    CLEANUP(freep) char *path = op_path(s->op, API_CORE, "pods", s->pod->name, NULL);
    return op_remove(s->op, path, s->pod->uid);
}

static err *delete_volume(sandbox_scene *s)
{
    kube_operator *op = s->op;
    CLEANUP(freep)
    char *path = op_path(op, API_CORE, "persistentvolumeclaims", s->volume, NULL);

    TRY(op_remove(op, path, NULL));
    LOCK_SCOPE(&op->lock);
    op_sandbox_track(op, s->object->uid)->volume_gone = true;
    return NULL;
}

/* Hands a retained disk over to its owner: without the operator's labels no sweep finds it. */
static err *leave_volume(sandbox_scene *s)
{
    kube_operator *op = s->op;
    bool gone;

    {
        LOCK_SCOPE(&op->lock);
        gone = op_sandbox_track(op, s->object->uid)->volume_gone;
    }
    if (!s->volume || gone)
        return NULL;
    CLEANUP(freep)
    char *path = op_path(op, API_CORE, "persistentvolumeclaims", s->volume, NULL);
    CLEANUP(json_decrefp)
    json_t *patch =
        json_pack("{s:{s:{s:n, s:n}}}", "metadata", "labels", LABEL_MANAGED, LABEL_CELL);
    err *e = op_merge(op, path, patch);
    if (e && e->code == ERR_NOT_FOUND) {
        err_free(e);
        return NULL;
    }
    return e;
}

/* Returns when the status may be written. A new phase or pod is written at once, as callers wait
 * for it; other changes once in OPERATOR_STATUS_NS. Running waits for the pod's label, so that a
 * caller which sees it finds the pod, node and disk beside it. */
static uint64_t status_due(sandbox_scene *s, uint64_t now)
{
    LOCK_SCOPE(&s->op->lock);
    sandbox_track *t = op_sandbox_track(s->op, s->object->uid);
    uint64_t next = t->status_ns ? t->status_ns + OPERATOR_STATUS_NS : 0;
    bool moved = t->phase != s->orders.phase || (s->pod && !str_eq(t->pod_uid, s->pod->uid));

    if (s->orders.phase != PHASE_RUNNING || s->pod)
        t->podless_ns = 0;
    else if (!t->podless_ns)
        t->podless_ns = now;
    if (t->podless_ns && t->phase != PHASE_RUNNING && now < t->podless_ns + LABEL_SEEN_NS)
        return t->podless_ns + LABEL_SEEN_NS;
    return moved || next < now ? now : next;
}

/* Sends events for rare changes that cost the user something. There are no
 * others: each event is a write. */
static void tell_sleep(sandbox_scene *s, enum sandbox_phase before)
{
    const event_about about = {"Sandbox", s->object->name, s->object->uid};

    if (s->orders.phase == PHASE_HIBERNATED && before == PHASE_HIBERNATING)
        op_event(s->op, &about, false, "Hibernated", "Reconcile",
                 "its disk is kept; memory and processes are lost");
    if (s->orders.phase == PHASE_RUNNING && before == PHASE_RESUMING)
        op_event(s->op, &about, false, "Resumed", "Reconcile", "it runs in pod %s on its disk",
                 s->pod ? s->pod->name : "(not seen yet)");
}

static void status_written(sandbox_scene *s, uint64_t now)
{
    tell_sleep(s, s->object->sandbox.status.phase);
    LOCK_SCOPE(&s->op->lock);
    sandbox_track *t = op_sandbox_track(s->op, s->object->uid);

    t->status_ns = now;
    t->phase = s->orders.phase;
    if (s->pod) {
        free(t->pod_uid);
        t->pod_uid = xstrdup(s->pod->uid);
    }
}

static err *write_status(sandbox_scene *s, uint64_t *again)
{
    kube_operator *op = s->op;
    const json_t *is = s->object->sandbox.status_json;
    uint64_t now = op_now(op);

    if (!s->orders.status || !status_differs(is, s->orders.status))
        return NULL;
    uint64_t due = status_due(s, now);
    if (due > now) {
        *again = *again && *again < due ? *again : due;
        return NULL;
    }
    CLEANUP(json_decrefp) json_t *patch = status_patch(is, s->orders.status);
    CLEANUP(freep) char *path = op_path(op, API_OURS, "sandboxes", s->object->name, "status");
    TRY(op_merge(op, path, patch));
    status_written(s, now);
    return NULL;
}

static err *reconcile_sandbox_act(sandbox_scene *s)
{
    kube_operator *op = s->op;
    const object_meta *m = &s->object->sandbox.meta;
    CLEANUP(freep) char *path = op_path(op, API_OURS, "sandboxes", s->object->name, NULL);

    switch (s->orders.act) {
    case SANDBOX_ADD_FINALIZER:
        return op_finalizer(op, path, m, FINALIZER_SANDBOX, true);
    case SANDBOX_DROP_FINALIZER:
        TRY(leave_volume(s));
        return op_finalizer(op, path, m, FINALIZER_SANDBOX, false);
    case SANDBOX_CLAIM:
        reconcile_sandbox_claim(s);
        return NULL;
    case SANDBOX_HIBERNATE:
        return op->o.host->hibernate(op->o.host_arg, s->id);
    case SANDBOX_RESUME:
        return reconcile_sandbox_resume(s);
    case SANDBOX_TIME:
        return set_time(s);
    case SANDBOX_END:
        return op->o.host->end(op->o.host_arg, s->id, s->orders.end, s->orders.why);
    case SANDBOX_DELETE_POD:
        return delete_pod(s);
    case SANDBOX_DELETE_VOLUME:
        return delete_volume(s);
    case SANDBOX_FORGET:
        return op_remove(op, path, m->uid);
    default:
        return NULL;
    }
}

static void tell_end(sandbox_scene *s)
{
    const event_about about = {"Sandbox", s->object->name, s->object->uid};
    const json_t *why = json_object_get(s->orders.status, "cause");

    if (s->orders.phase == PHASE_TERMINATED && why)
        op_event(s->op, &about, false, "Terminated", "Reconcile", "%s %s",
                 str_or(json_str(why, "code"), ""), str_or(json_str(why, "message"), ""));
}

err *reconcile_sandbox(kube_operator *op, const char *uid, uint64_t *again)
{
    CLEANUP(scene_done) sandbox_scene s = {.op = op, .object = op_find(op, OPERATOR_SANDBOX, uid)};

    if (!s.object || !s.object->sandbox.meta.name)
        return NULL;
    find_id(&s);
    ask_engine(&s);
    find_objects(&s);
    sandbox_world w = world_of(&s);
    s.orders = plan_sandbox(&w);
    if (s.orders.again_ns)
        *again = op_mono_of(op, s.orders.again_ns);
    /* A claim does not wait for the status to be written. For other acts the status comes first:
     * only the object knows of a hibernated sandbox, so it must be written before the pod goes. */
    if (s.orders.act == SANDBOX_CLAIM)
        TRY(reconcile_sandbox_act(&s));
    TRY(write_status(&s, again));
    tell_end(&s);
    TRY(set_idle(&s));
    if (s.orders.act != SANDBOX_CLAIM)
        TRY(reconcile_sandbox_act(&s));
    if (s.orders.act && s.orders.act != SANDBOX_CLAIM) {
        uint64_t soon = op_now(op) + LOOK_AGAIN_NS;
        *again = *again && *again < soon ? *again : soon;
    }
    return NULL;
}

/* ---- records of what was made through the API ---- */

static json_t *labels_json(char *const *labels)
{
    json_t *o = json_object();

    for (size_t i = 0; labels && labels[i] && i < 64; i++) {
        size_t n = strcspn(labels[i], "=");
        CLEANUP(freep) char *name = xstrndup(labels[i], n);
        if (labels[i][n] && strlen(labels[i] + n + 1) <= 256 && !name_is_reserved(name))
            json_object_set_new(o, name, json_string(labels[i] + n + 1));
    }
    return o;
}

/* Sets the pool's name, NULL if it is of none, and its recordAfter. Returns false while neither the
 * claim nor the pod's label has said which pool it is, for RECORD_POD_NS. */
static bool find_pool(kube_operator *op, const char *id, const seen *pod, char **ret_pool,
                      uint64_t *ret_after_ms)
{
    LOCK_SCOPE(&op->lock);
    const record_track *t = op_record_track(op, id);
    const char *label = pod ? pod_label(&pod->pod, LABEL_POOL) : t->placed ? t->pool : NULL;
    const seen_list *l = index_find(&op->index, POOLS_BY_LABEL, label);

    if (l->n) {
        *ret_after_ms = l->v[0]->pool.spec.record_after_ms;
        *ret_pool = xstrdup(l->v[0]->name);
    }
    return l->n || pod || t->placed || op_now(op) >= t->since_ns + RECORD_POD_NS;
}

static json_t *record_of(kube_operator *op, const char *id, const operator_look *l,
                         const char *pool)
{
    char name[sizeof RECORD_PREFIX + SANDBOX_ID_LEN], proof[HASH_TEXT_LEN + 1];

    snprintf(name, sizeof name, RECORD_PREFIX "%s", id);
    record_proof(op->o.record_key, op->namespace, name, id, proof);
    json_t *spec = json_pack("{s:o}", "labels", labels_json(l->labels));
    if (pool)
        json_object_set_new(spec, "poolRef", json_string(pool));
    else
        json_object_set_new(spec, "image", status_text(str_or(l->image, "?"), 512));
    json_object_set_new(spec, "tenant", status_text(str_or(l->owner, ""), 128));
    /* 0: the engine ends an idle or expired record, by the API's times. */
    json_object_set_new(spec, "idleSeconds", json_integer(0));
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s, s:s}, s:{s:s}, s:[s]}, s:o}", "apiVersion",
                     OPERATOR_API_VERSION, "kind", "Sandbox", "metadata", "name", name, "namespace",
                     op->namespace, "labels", LABEL_CELL, op->cell, LABEL_SANDBOX, id,
                     "annotations", NOTE_RECORD, proof, "finalizers", FINALIZER_SANDBOX, "spec",
                     spec);
}

static bool has_object(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    return map_get_str(&op->by_id, id) != NULL;
}

static void forget_record(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    free(map_take_str(&op->records, id));
}

/* Returns true if the record is to be retried soon: its create is not committed yet, or the engine
 * does not know of the claim yet. */
static bool is_early(kube_operator *op, const char *id, bool known, const operator_look *l)
{
    LOCK_SCOPE(&op->lock);
    const record_track *t = map_get_str(&op->records, id);

    if (known)
        return l->life == LIFE_BEING_MADE;
    return t && t->placed && op_now(op) < t->since_ns + RECORD_POD_NS;
}

static err *create_record(kube_operator *op, const char *id, const operator_look *l,
                          const char *pool)
{
    CLEANUP(json_decrefp) json_t *record = record_of(op, id, l, pool);
    CLEANUP(freep) char *path = op_path(op, API_OURS, "sandboxes", NULL, NULL);
    err *e = op_create(op, path, record);

    if (e && e->code == ERR_CONFLICT) { /* it exists: the watch will show it */
        err_free(e);
        e = NULL;
    }
    if (!e) {
        LOCK_SCOPE(&op->lock);
        op_record_track(op, id)->made_ns = op_now(op);
    }
    return e;
}

/* Returns until when the watch may take to show a record that was made; 0: none was. */
static uint64_t made_until(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    const record_track *t = map_get_str(&op->records, id);
    uint64_t until = t && t->made_ns ? t->made_ns + RECORD_POD_NS : 0;

    return until > op_now(op) ? until : 0;
}

err *reconcile_record(kube_operator *op, const char *id, uint64_t *again)
{
    CLEANUP(operator_look_done) operator_look l = {0};
    CLEANUP(freep) char *pool = NULL;
    uint64_t after_ms = 0;

    bool wanted = op->o.records && !has_object(op, id);
    bool known = wanted && op->o.host->look(op->o.host_arg, id, &l);
    if (!known || l.life != LIFE_LIVE) {
        if (wanted && is_early(op, id, known, &l))
            *again = op_now(op) + RECORD_LOOK_NS;
        else
            forget_record(op, id);
        return NULL;
    }
    *again = made_until(op, id);
    if (*again)
        return NULL;
    seen *pod = op_pod_of(op, l.box ? l.box : id);
    bool found = find_pool(op, id, pod, &pool, &after_ms);
    seen_unref(op, pod);
    uint64_t due =
        found ? op_mono_of(op, l.created_ns + after_ms * NS_PER_MS) : op_now(op) + RECORD_LOOK_NS;
    if (due > op_now(op)) {
        *again = due;
        return NULL;
    }
    TRY(create_record(op, id, &l, pool));
    *again = made_until(op, id); /* by then the watch has shown it, and its track is freed */
    return NULL;
}
