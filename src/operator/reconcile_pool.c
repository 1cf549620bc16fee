/* Reconciles pools: carries out what plan_pool() orders. Reconciles
 * templates: writes their status. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"
#include "operator/status.h"
#include "operator/text.h"

/* ---- the present state ---- */

/* Everything that a reconcile of a pool needs, as references. */
typedef struct pool_scene {
    kube_operator *op;
    seen *pool, *template;
    seen **pods;
    size_t npods;
    pool_pod *views;
    char label[KUBE_LABEL_MAX + 1];
    char hash[HASH_TEXT_LEN + 1]; /* "": none */
    /* this reconcile's alone, except demand and claims: other threads change them under the lock */
    pool_track *track;
    pool_orders orders;
} pool_scene;

static void scene_done(pool_scene *s)
{
    if (!s->op)
        return;
    pool_orders_done(&s->orders);
    for (size_t i = 0; i < s->npods; i++)
        seen_unref(s->op, s->pods[i]);
    free(s->pods);
    free(s->views);
    seen_unref(s->op, s->template);
    seen_unref(s->op, s->pool);
    op_pool_track_drop(s->op, s->track);
}

/* Returns how many created pods have not appeared yet. Forgets those that
 * did, and those that are overdue. */
static uint32_t count_coming(pool_scene *s, uint64_t now)
{
    pool_track *t = s->track;
    size_t kept = 0;

    for (size_t i = 0; i < t->ncoming; i++) {
        bool here = t->coming[i].until_ns <= now;
        for (size_t k = 0; k < s->npods && !here; k++)
            here = !strcmp(s->pods[k]->name, t->coming[i].name);
        if (!here)
            t->coming[kept++] = t->coming[i];
    }
    t->ncoming = kept;
    return (uint32_t)kept;
}

/* Reads the state of a pod's init, and since when the pod is seen. */
static pool_pod look_at(pool_scene *s, const seen *pod, uint64_t now)
{
    kube_operator *op = s->op;
    pool_pod v = {.pod = &pod->pod, .init = op->o.host->init(op->o.host_arg, pod->uid)};
    LOCK_SCOPE(&op->lock);
    pod_track *t = op_pod_track(op, pod->uid);

    if (!pod_is_placed(&pod->pod))
        t->unplaced = true;
    else if (t->unplaced && !t->placed_ns)
        t->placed_ns = now;
    v.seen_ns = t->seen_ns;
    v.placed_ns = t->placed_ns;
    v.going = t->going_ns && now - t->going_ns < GOING_NS;
    if (v.init == INIT_WARM && !t->was_warm) {
        t->was_warm = true;
        pool_note_warm(&s->track->memory, now);
        demand_refilled(&s->track->demand, (now - t->seen_ns) / NS_PER_MS);
    }
    return v;
}

static pool_world world_of(pool_scene *s)
{
    kube_operator *op = s->op;
    uint64_t now = op_now(op);
    bool usable = s->template && !s->template->error;

    for (size_t i = 0; i < s->npods; i++)
        s->views[i] = look_at(s, s->pods[i], now);
    uint32_t pending = op->o.host->pending(op->o.host_arg, s->label);
    if (usable)
        template_hash(&s->template->template, s->pool->pool.spec.any_image, &op->manifest, s->hash);
    uint32_t coming = count_coming(s, now);
    LOCK_SCOPE(&op->lock);
    demand *d = &s->track->demand;
    return (pool_world){.pool = &s->pool->pool,
                        .template = s->template ? &s->template->template : NULL,
                        .template_error = s->template ? s->template->error : NULL,
                        .hash = usable ? s->hash : NULL,
                        .policy = op->policy,
                        .pods = s->views,
                        .npods = s->npods,
                        .coming = coming,
                        .pending = pending,
                        .rate = demand_rate(d, now),
                        .refill_ms = d->refill_ms,
                        .claimed_ago = now - (d->last_ns ? d->last_ns : s->track->since_ns),
                        .now = now,
                        .now_real = op_real(op)};
}

/* ---- objects beside the pods ---- */

/* An object that carries the pool's name. */
static const struct child {
    const char *api, *plural, *prefix;
} BUDGET = {"apis/policy/v1", "poddisruptionbudgets", "bothy-claimed-"},
  PRE_PULL = {"apis/apps/v1", "daemonsets", "bothy-prepull-"};

static err *remove_child(pool_scene *s, const struct child *c)
{
    CLEANUP(freep) char *name = str_printf("%s%.200s", c->prefix, s->pool->name);
    CLEANUP(freep) char *path = op_path(s->op, c->api, c->plural, name, NULL);

    return op_remove(s->op, path, NULL);
}

/* Applies an object; takes ownership of it. */
static err *reconcile_pool_apply(kube_operator *op, const char *api, const char *plural,
                                 json_t *object)
{
    CLEANUP(json_decrefp) json_t *owned = object;
    const char *name = json_str(json_object_get(object, "metadata"), "name");
    CLEANUP(freep) char *path = op_path(op, api, plural, name, NULL);

    return op_apply(op, path, owned);
}

/* Applies or deletes a pool's object. object NULL: the pool does not want it.
 * *gone: it is known to be absent. */
static err *apply_child(pool_scene *s, const struct child *c, json_t *object, bool *gone)
{
    if (object) {
        *gone = false;
        return reconcile_pool_apply(s->op, c->api, c->plural, object);
    }
    if (*gone)
        return NULL;
    TRY(remove_child(s, c));
    *gone = true;
    return NULL;
}

void op_applied_of(const crd_pool *p, const char *hash, char ret[HASH_TEXT_LEN + 1])
{
    CLEANUP(freep) char *all = str_printf("%s/%llu", hash, (unsigned long long)p->meta.generation);

    hash_text(all, strlen(all), ret);
}

/* Sends one event that names all images which are not pre-pulled because the template does not
 * allow them. Otherwise the template's pull secret would give every node any image of the
 * registry. */
static void tell_not_pulled(const pool_scene *s)
{
    const event_about about = {"SandboxPool", s->pool->name, s->pool->uid};
    char **images = s->pool->pool.spec.pre_pull.images;
    CLEANUP(buf_done) buf names = {0};

    for (size_t i = 0; images && images[i]; i++)
        if (!pre_pull_allows(&s->template->template.spec, images[i]))
            buf_printf(&names, "%s'%.256s'", names.len ? ", " : "", images[i]);
    if (names.len)
        op_event(s->op, &about, true, "ImageNotAllowed", "Reconcile",
                 "prePull: the imagePolicy of the template %s does not allow %s", s->template->name,
                 buf_cstr(&names));
}

/* Applies the objects beside the pods if they changed; the NetworkPolicy precedes the first pod. */
static err *apply_all(pool_scene *s)
{
    kube_operator *op = s->op;
    const crd_pool *p = &s->pool->pool;
    const crd_template *t = &s->template->template;
    char now[HASH_TEXT_LEN + 1];

    op_applied_of(p, s->hash, now);
    if (!strcmp(now, s->track->applied))
        return NULL;
    CLEANUP(json_decrefp)
    json_t *policy = manifest_network(t, &op->manifest, op->namespace, s->hash);
    TRY(op_build_policy(op, policy));
    TRY(apply_child(s, &BUDGET, manifest_budget(p, &op->manifest), &s->track->no_budget));
    TRY(apply_child(s, &PRE_PULL, manifest_pre_pull(p, t, &op->manifest), &s->track->no_pre_pull));
    tell_not_pulled(s);
    str_copy(s->track->applied, sizeof s->track->applied, now);
    return NULL;
}

/* Deletes the objects that a pool leaves, other than its pods and their NetworkPolicies. */
static err *remove_all(pool_scene *s)
{
    TRY(remove_child(s, &BUDGET));
    return remove_child(s, &PRE_PULL);
}

/* ---- pods ---- */

/* Deletes a pod, unless it was claimed since the plan was made: the backend
 * decides both retire() and claims. */
static err *remove_one(pool_scene *s, const pool_removal *r)
{
    kube_operator *op = s->op;
    const char *uid = r->pod->meta.uid;

    if (r->retire && !op->o.host->retire(op->o.host_arg, uid))
        return NULL;
    CLEANUP(freep) char *path = op_path(op, API_CORE, "pods", r->pod->meta.name, NULL);
    TRY(op_remove(op, path, uid));
    LOCK_SCOPE(&op->lock);
    op_pod_track(op, uid)->going_ns = op_now(op);
    log_info("operator", "pool %s: pod %s goes: %s", s->pool->name, r->pod->meta.name,
             removal_text(r->why));
    return NULL;
}

static err *create_volume(pool_scene *s, const char *pod)
{
    kube_operator *op = s->op;
    char name[KUBE_NAME_MAX + 1];

    volume_name(pod, name);
    CLEANUP(json_decrefp)
    json_t *v = manifest_volume(&s->template->template, &op->manifest, op->namespace, name);
    if (!v)
        return NULL;
    CLEANUP(freep) char *path = op_path(op, API_CORE, "persistentvolumeclaims", NULL, NULL);
    return op_create(op, path, v);
}

static void reconcile_pool_expect(pool_track *t, const char *name, uint64_t until)
{
    t->coming = xrealloc(t->coming, (t->ncoming + 1) * sizeof *t->coming);
    str_copy(t->coming[t->ncoming].name, sizeof t->coming->name, name);
    t->coming[t->ncoming++].until_ns = until;
}

static err *create_one(pool_scene *s)
{
    kube_operator *op = s->op;
    char name[KUBE_LABEL_MAX + 1], random[POD_NAME_RANDOM + 1];
    pod_identity who = {.name = name, .namespace = op->namespace, .pool = s->pool->name};

    id_random(random, POD_NAME_RANDOM);
    pod_name_of(s->pool->name, random, name);
    random_bytes(who.nonce, sizeof who.nonce);
    TRY(create_volume(s, name));
    CLEANUP(json_decrefp)
    json_t *pod =
        manifest_pod(&s->template->template, s->pool->pool.spec.any_image, &op->manifest, &who);
    CLEANUP(freep) char *path = op_path(op, API_CORE, "pods", NULL, NULL);
    /* The name is known before the answer: a create that timed out is expected, too. */
    reconcile_pool_expect(s->track, name, op_now(op) + EXPECT_NS);
    err *e = op_create(op, path, pod);
    if (e && e->code != ERR_TIMEOUT)
        s->track->ncoming--;
    return e;
}

static void note_refused(pool_scene *s, const err *e)
{
    CLEANUP(freep)
    char *text = str_printf("%s%s%s", e->message, e->cause ? ": " : "", str_or(e->cause, ""));
    enum pool_trouble why = e->code == ERR_QUOTA_EXCEEDED ? TROUBLE_QUOTA : TROUBLE_FORBIDDEN;

    pool_note_refused(&s->track->memory, why, text, op_now(s->op));
}

/* Returns whether the error is about this pod or quota, and so the pool's trouble. Errors of
 * the API server itself are not. */
static bool is_refusal(const err *e)
{
    return e->code == ERR_QUOTA_EXCEEDED || e->code == ERR_FORBIDDEN ||
           e->code == ERR_INVALID_REQUEST || e->code == ERR_NOT_FOUND;
}

static err *create_all(pool_scene *s, bool *ret_refused)
{
    uint32_t n = s->orders.create;

    for (uint32_t i = 0; i < n; i++) {
        CLEANUP(err_freep) err *e = create_one(s);
        if (!e)
            continue;
        if (!is_refusal(e))
            return TAKE_PTR(e);
        note_refused(s, e);
        *ret_refused = true;
        return NULL;
    }
    if (n) {
        pool_note_created(&s->track->memory, n);
        log_info("operator", "pool %s: %u pods were created", s->pool->name, n);
    }
    return NULL;
}

/* ---- status ---- */

static void add_claims(pool_scene *s, json_t *status)
{
    char when[TIME_TEXT_MAX];
    LOCK_SCOPE(&s->op->lock);
    const pool_track *t = s->track;

    json_object_set_new(status, "claims",
                        json_pack("{s:I, s:I, s:I, s:I}", "exact", (json_int_t)t->exact, "kubelet",
                                  (json_int_t)t->kubelet, "cold", (json_int_t)t->cold, "failed",
                                  (json_int_t)t->failed));
    time_to_text(t->claimed_real_ns, when);
    if (*when)
        json_object_set_new(status, "lastClaimTime", json_string(when));
}

static err *write_status(pool_scene *s, uint64_t *again)
{
    kube_operator *op = s->op;
    uint64_t now = op_now(op), next = s->track->status_ns + OPERATOR_STATUS_NS;
    const json_t *is = s->pool->pool.status_json;

    add_claims(s, s->orders.status);
    if (!status_differs(is, s->orders.status))
        return NULL;
    if (s->track->status_ns && now < next) {
        *again = *again && *again < next ? *again : next;
        return NULL;
    }
    CLEANUP(json_decrefp) json_t *patch = status_patch(is, s->orders.status);
    CLEANUP(freep) char *path = op_path(op, API_OURS, "sandboxpools", s->pool->name, "status");
    s->track->status_ns = now;
    return op_merge(op, path, patch);
}

static void tell_trouble(pool_scene *s)
{
    const pool_orders *o = &s->orders;
    const event_about about = {"SandboxPool", s->pool->name, s->pool->uid};

    if (o->trouble == s->track->trouble)
        return;
    s->track->trouble = o->trouble;
    if (o->trouble)
        op_event(s->op, &about, true, pool_trouble_reason(o->trouble), "Reconcile", "%s",
                 str_or(o->trouble_message, ""));
    else
        op_event(s->op, &about, false, "Healthy", "Reconcile", "what was wrong is over");
}

/* ---- the reconcile ---- */

/* Returns when to reconcile again. No watch reports that an init answers, so the state is
 * polled while one is expected to. */
static uint64_t look_soon(const pool_scene *s, uint64_t again)
{
    uint64_t soon = op_now(s->op) + INIT_LOOK_NS;
    bool waits = false;

    for (size_t i = 0; i < s->npods; i++)
        waits |= s->views[i].init == INIT_UNREACHABLE ||
                 (s->views[i].init == INIT_UNKNOWN && s->views[i].pod->started);
    return waits && (!again || soon < again) ? soon : again;
}

static err *reconcile_pool_execute(pool_scene *s, uint64_t *again)
{
    kube_operator *op = s->op;
    const pool_orders *o = &s->orders;
    bool refused = false;
    CLEANUP(freep) char *path = op_path(op, API_OURS, "sandboxpools", s->pool->name, NULL);

    if (o->add_finalizer)
        return op_finalizer(op, path, &s->pool->pool.meta, FINALIZER_POOL, true);
    if (*s->hash && !s->pool->pool.meta.deleting_ns)
        TRY(apply_all(s));
    for (size_t i = 0; i < o->nremovals; i++)
        TRY(remove_one(s, &o->removals[i]));
    TRY(create_all(s, &refused));
    tell_trouble(s);
    TRY(write_status(s, again));
    if (o->drop_finalizer) {
        TRY(remove_all(s));
        return op_finalizer(op, path, &s->pool->pool.meta, FINALIZER_POOL, false);
    }
    /* One reconcile creates only a batch of pods: continue soon. */
    if (o->create || o->nremovals || refused)
        *again = op_now(op) + (refused ? OPERATOR_STATUS_NS : 1);
    return NULL;
}

err *reconcile_pool(kube_operator *op, const char *uid, uint64_t *again)
{
    CLEANUP(scene_done) pool_scene s = {.op = op, .pool = op_find(op, OPERATOR_POOL, uid)};

    if (!s.pool)
        return NULL;
    if (s.pool->error) { /* the check is stricter than the schema */
        const event_about about = {"SandboxPool", s.pool->name, s.pool->uid};
        op_event(op, &about, true, "InvalidSpec", "Reconcile", "%s", s.pool->error);
        return NULL;
    }
    label_of_name(s.pool->name, s.label);
    s.template = op_find_name(op, OPERATOR_TEMPLATE, s.pool->pool.spec.template);
    s.pods = op_pods_of(op, s.label, &s.npods);
    s.views = xcalloc(s.npods + 1, sizeof *s.views);
    s.track = op_pool_track_hold(op, uid);
    pool_world w = world_of(&s);
    plan_pool(&w, &s.track->memory, &s.orders);
    count_pool(&s.orders.counts, w.pending, &s.track->counts, s.track->pending);
    s.track->counts = s.orders.counts;
    s.track->pending = w.pending;
    *again = look_soon(&s, s.orders.again_ns);
    return reconcile_pool_execute(&s, again);
}

/* ---- templates ---- */

static uint64_t pools_of(kube_operator *op, const char *template)
{
    LOCK_SCOPE(&op->lock);
    return index_find(&op->index, POOLS_BY_TEMPLATE, template)->n;
}

/* Returns the image digest that a kubelet reported for any pod of the hash; NULL if none is
 * known. */
static char *digest_of(kube_operator *op, const char *hash)
{
    LOCK_SCOPE(&op->lock);
    const seen_list *l = index_find(&op->index, PODS_BY_HASH, hash);

    for (size_t i = 0; i < l->n; i++) {
        const char *id = l->v[i]->pod.image_id, *at = id ? strstr(id, "sha256:") : NULL;
        if (at)
            return xstrndup(at, strlen("sha256:") + 64);
    }
    return NULL;
}

/* Makes this cell's entry in status.cells; NULL if the cell has no pool of the template. */
static json_t *template_entry(kube_operator *op, const seen *s, const char *hash)
{
    uint64_t pools = pools_of(op, s->name);
    CLEANUP(freep) char *digest = *hash ? digest_of(op, hash) : NULL;

    if (!pools)
        return NULL;
    return json_pack("{s:I, s:s*, s:s*}", "pools", (json_int_t)pools, "hash", *hash ? hash : NULL,
                     "imageDigest", digest);
}

/* Returns the entries of all cells, with this one's replaced. */
static json_t *template_cells(kube_operator *op, const json_t *is, json_t *entry)
{
    CLEANUP(json_decrefp) json_t *cells = json_deep_copy(json_object_get(is, "cells"));

    if (!json_is_object(cells)) {
        json_decref(cells);
        cells = json_object();
    }
    if (entry)
        json_object_set(cells, op->cell, entry);
    else
        json_object_del(cells, op->cell);
    return TAKE_PTR(cells);
}

/* Returns the member's value in the first cell, by name, that has one; NULL if none has. */
static const char *first_of_cells(const json_t *cells, const char *member)
{
    const char *cell, *first = NULL, *found = NULL;
    json_t *entry;

    json_object_foreach((json_t *)cells, cell, entry)
    {
        const char *v = json_str(entry, member);
        if (v && (!first || strcmp(cell, first) < 0)) {
            first = cell;
            found = v;
        }
    }
    return found;
}

static json_int_t sum_of_cells(const json_t *cells)
{
    const char *cell;
    json_t *entry;
    json_int_t n = 0;

    json_object_foreach((json_t *)cells, cell, entry) n += json_int(entry, "pools", 0);
    return n;
}

/* Makes the status from the entries of all cells alone, so that two cells which
 * see the same entries agree. If no cell has a pool of the template, the first
 * cell to reconcile writes the hash. */
static json_t *template_status(kube_operator *op, const seen *s, const char *own, json_t *entry)
{
    const crd_template *t = &s->template;
    CLEANUP(json_decrefp) json_t *cells = template_cells(op, t->status_json, entry);
    bool fresh =
        json_int(t->status_json, "observedGeneration", 0) == (json_int_t)t->meta.generation;
    bool listed = json_object_size(cells) || json_object_get(t->status_json, "cells");
    const char *hash = first_of_cells(cells, "hash");
    const char *digest = first_of_cells(cells, "imageDigest");
    const char *before = json_str(t->status_json, "hash");

    if (!hash && !s->error)
        hash = fresh && before ? before : *own ? own : NULL;
    const wanted_condition want[] = {
        {"Accepted", !s->error, s->error ? "InvalidSpec" : "Valid", s->error},
        {"ImageResolved", digest != NULL, digest ? "Resolved" : "NotSeen", NULL},
    };
    return json_pack("{s:I, s:I, s:o, s:s*, s:s*, s:o*}", "observedGeneration",
                     (json_int_t)t->meta.generation, "pools", sum_of_cells(cells), "conditions",
                     status_conditions(t->status.conditions, t->status.nconditions, want,
                                       ARRAY_LEN(want), t->meta.generation, op_real(op)),
                     "hash", hash, "imageDigest", digest, "cells",
                     listed ? json_incref(cells) : NULL);
}

/* Makes a patch without the entries of other cells, which only they write. */
static json_t *template_patch(kube_operator *op, const json_t *is, const json_t *status,
                              const json_t *entry)
{
    json_t *patch = status_patch(is, status), *all = json_object_get(patch, "status");
    const json_t *before = json_object_get(json_object_get(is, "cells"), op->cell);

    json_object_del(all, "cells");
    if (entry || before) {
        json_t *own = json_object();
        json_object_set_new(own, op->cell, entry ? status_members(before, entry) : json_null());
        json_object_set_new(all, "cells", own);
    }
    return patch;
}

/* Returns when the status may be written. If that is now, counts it as written. */
static uint64_t template_due(kube_operator *op, const char *uid)
{
    LOCK_SCOPE(&op->lock);
    uint64_t now = op_now(op), *at = map_get_str(&op->templates, uid);

    if (at && now < *at + TEMPLATE_STATUS_NS)
        return *at + TEMPLATE_STATUS_NS;
    if (!at) {
        at = xcalloc(1, sizeof *at);
        map_put_str(&op->templates, uid, at);
    }
    *at = now;
    return now;
}

static err *write_template(kube_operator *op, const seen *s, uint64_t *again)
{
    const json_t *is = s->template.status_json;
    char hash[HASH_TEXT_LEN + 1] = "";

    if (!s->error)
        template_hash(&s->template, false, &op->manifest, hash);
    CLEANUP(json_decrefp) json_t *entry = template_entry(op, s, hash);
    CLEANUP(json_decrefp) json_t *status = template_status(op, s, hash, entry);
    if (!status_differs(is, status))
        return NULL;
    uint64_t due = template_due(op, s->uid);
    if (due > op_now(op)) {
        *again = due;
        return NULL;
    }
    CLEANUP(json_decrefp) json_t *patch = template_patch(op, is, status, entry);
    CLEANUP(freep) char *path = op_path(op, API_OURS, "sandboxtemplates", s->name, "status");
    return op_merge(op, path, patch);
}

err *reconcile_template(kube_operator *op, const char *uid, uint64_t *again)
{
    seen *s = op_find(op, OPERATOR_TEMPLATE, uid);
    err *e = s ? write_template(op, s, again) : NULL;

    seen_unref(op, s);
    return e;
}
