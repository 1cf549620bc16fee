/* Creates: a warm pod that fits is claimed at once (exact); one of a pool that takes any image gets
 * the image first (kubelet); otherwise a pod is made (cold). After EALREADY from init another pod
 * is taken. */
#include <errno.h>
#include <string.h>

#include "backend/kubernetes/internal.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

void kubernetes_wish_done(kubernetes_wish *w)
{
    free(w->pool);
    json_decref(w->spec);
    *w = (kubernetes_wish){0};
}

/* ---- requests ---- */

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

/* Copies what a claim needs from the spec; the wish contains what a pod needs. */
static request *request_new(kubernetes *b, const box_spec *s)
{
    request *r = xcalloc(1, sizeof *r);

    r->b = b;
    r->spec = *s;
    r->spec.hostname = dup_or_null(s->hostname);
    r->spec.image_name = dup_or_null(s->image_name);
    r->spec.user = dup_or_null(s->user);
    r->spec.cwd = dup_or_null(s->cwd);
    r->spec.env = s->env ? strv_copy(s->env) : NULL;
    r->sandbox = (sandbox_spec){.setuid = s->spec->setuid, .limits = s->spec->limits};
    r->spec.spec = &r->sandbox;
    r->network = s->spec->network == NETWORK_OPEN ? "open" : "none";
    r->began_ns = now_mono_ns();
    r->queue_ns = r->began_ns + s->queue_ms * NS_PER_MS;
    r->until_ns = r->queue_ns + START_MS * NS_PER_MS;
    return r;
}

static void request_free(request *r)
{
    for (size_t i = 0; r->spec.env && r->spec.env[i]; i++)
        secret_wipe(r->spec.env[i], strlen(r->spec.env[i]));
    strv_free(r->spec.env);
    free((char *)r->spec.hostname);
    free((char *)r->spec.image_name);
    free((char *)r->spec.user);
    free((char *)r->spec.cwd);
    kubernetes_wish_done(&r->wish);
    free(r);
}

/* Appends a request to the list. Lock held. */
static void create_list(kubernetes *b, request *r)
{
    request **at = &b->requests;

    while (*at)
        at = &(*at)->next;
    *at = r;
    b->nrequests++;
}

/* Removes a request from the list. Lock held. */
static void create_unlist(kubernetes *b, const request *r)
{
    request **at = &b->requests;

    while (*at && *at != r)
        at = &(*at)->next;
    if (*at) {
        *at = r->next;
        b->nrequests--;
    }
}

static void run_fail(kubernetes *b, work *w)
{
    (void)b;
    w->r->done(w->r->arg, TAKE_PTR(w->failure), NULL, NULL);
    request_free(w->r);
    work_free(w);
}

/* Fails a request; a worker calls done. Takes ownership of both. Lock held. */
static void create_fail(kubernetes *b, request *r, err *why)
{
    work *w = work_new(run_fail);

    create_unlist(b, r);
    w->r = r;
    w->failure = why;
    work_add(b, w);
}

static err *was_cancelled(const request *r)
{
    return err_new(ERR_SANDBOX_GONE, "sandbox %s was destroyed while it was made", r->spec.id);
}

/* ---- which pod ---- */

/* Returns whether a warm pod serves the request. Compares the image too: a template's hash is that
 * of its own image, also for a pod with another one. */
static bool create_fits(const pod *p, const request *r)
{
    const kubernetes_wish *w = &r->wish;

    if (!pods_is_warm(p) || !p->ready || p->r || !p->warm)
        return false;
    if (w->pool)
        return str_eq(p->f.pool, w->pool);
    return !*p->f.pool && str_eq(p->f.hash, w->hash) && str_eq(p->f.image, r->spec.image_name);
}

static bool needs_swap(const pod *p, const request *r)
{
    return r->wish.any_image && !str_eq(p->f.image, r->spec.image_name);
}

/* Returns the oldest warm pod that fits, preferring one that has the image. Lock held. */
static pod *create_pick(kubernetes *b, const request *r)
{
    map_iter it = {0};
    pod *best = NULL;

    while (map_next(&b->pods, &it)) {
        pod *p = it.entry->value;
        if (!create_fits(p, r))
            continue;
        int order = best ? (int)needs_swap(p, r) - (int)needs_swap(best, r) : -1;
        if (order < 0 || (order == 0 && p->seen_ns < best->seen_ns))
            best = p;
    }
    return best;
}

/* ---- claims ---- */

static void tell_claim(kubernetes *b, const request *r, const pod_facts *f, const char *klass)
{
    hooks_claimed(b, &(kubernetes_claim){.id = r->spec.id,
                                         .pod = f->name,
                                         .uid = f->uid,
                                         .node = f->node,
                                         .pool = f->pool,
                                         .klass = klass,
                                         .image = f->image});
}

static void create_claimed(kubernetes *b, request *r, box *made, const box_timing *timing)
{
    box_timing t = *timing;
    pod_facts f = {0};

    t.klass = BOX_EXACT;
    t.queue_ns = now_mono_ns() - r->began_ns - timing->claim_ns;
    if (r->made_ns) {
        t.build_ns = t.queue_ns;
        t.queue_ns = 0;
    }
    FAULT_KILL("kubernetes.claimed");
    {
        LOCK_SCOPE(&b->lock);
        pod *p = pods_by_id(b, r->spec.id);
        create_unlist(b, r);
        refill_used(b, r);
        if (p) {
            t.klass = p->klass;
            p->greeted = p->was_ready = true;
            if (!p->marked)
                work_mark(b, p);
            f = p->f;
            f.image = dup_or_null(p->f.image);
            f.node = dup_or_null(p->f.node);
            f.image_id = f.message = NULL;
        }
    }
    r->done(r->arg, NULL, made, &t);
    FAULT_KILL("kubernetes.told");
    if (*f.uid)
        tell_claim(b, r, &f, t.klass);
    pod_facts_done(&f);
    request_free(r);
}

/* Returns whether another pod may be tried. Losing a pod to another claim (EALREADY) does not count
 * as a try. */
static bool may_try_again(const request *r, const err *why)
{
    if (r->cancelled || now_mono_ns() >= r->until_ns)
        return false;
    return why->errnum == EALREADY ||
           (r->tries < TRIES_MAX &&
            (why->code == ERR_SANDBOX_GONE || why->code == ERR_TIMEOUT ||
             why->code == ERR_CREATE_FAILED || why->code == ERR_WALL_FAILED));
}

static void on_claimed(void *arg, err *failure, box *made, const box_timing *timing)
{
    request *r = arg;
    kubernetes *b = r->b;

    if (!failure) {
        create_claimed(b, r, made, timing);
        return;
    }
    LOCK_SCOPE(&b->lock);
    pod *p = pods_by_id(b, r->spec.id);
    if (p) {
        pods_set_id(b, p, "");
        p->greeted = p->retired = true;
        if (failure->errnum != EALREADY)
            pods_remove(b, p, failure->message);
    }
    requests_pod_failed(b, r, failure);
}

void requests_pod_failed(kubernetes *b, request *r, err *why)
{
    if (b->stop || !may_try_again(r, why)) {
        create_fail(b, r, why);
        return;
    }
    log_info("kubernetes", "sandbox %s: %s: another pod is tried", r->spec.id, why->message);
    err_free(why);
    r->state = REQUEST_WAITS;
    requests_offer(b);
}

void requests_claim(kubernetes *b, request *r, pod *p)
{
    uint64_t now = now_mono_ns();
    uint64_t left = now < r->until_ns ? (r->until_ns - now) / NS_PER_MS : 1;

    r->state = REQUEST_CLAIMS;
    pods_set_id(b, p, r->spec.id);
    if (!p->klass)
        p->klass = BOX_EXACT;
    FAULT_KILL("kubernetes.picked");
    err *e = link_claim(p->warm, &r->spec, left < CLAIM_MS || p->ready ? CLAIM_MS : (unsigned)left,
                        r->ev, r->arg, on_claimed, r);
    if (e) { /* the pod stays warm */
        pods_set_id(b, p, "");
        if (p->f.claimed)
            pods_remove(b, p, e->message);
        create_fail(b, r, e);
        return;
    }
    p->warm = NULL; /* the link's, until on_claimed */
    p->ready = false;
}

/* ---- making a pod ---- */

/* The name is derived from the sandbox's id, so a repeated create finds the pod of the first. */
static char *name_of(const request *r)
{
    return r->tries > 1 ? str_printf("bothy-%s-%u", r->spec.id, r->tries)
                        : str_printf("bothy-%s", r->spec.id);
}

static err *find_made(kubernetes *b, const request *r, const char *name, json_t **ret_object)
{
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, b->ns, name, NULL);
    CLEANUP(json_decrefp) json_t *o = NULL;

    TRY(kube_get(b->k, path, &o));
    const json_t *labels = json_object_get(json_object_get(o, "metadata"), "labels");
    if (!str_eq(json_str(labels, POD_SANDBOX), r->spec.id) ||
        !str_eq(json_str(labels, POD_CELL), b->cell))
        return err_new(ERR_CONFLICT, "the pod %s is another's", name);
    *ret_object = TAKE_PTR(o);
    return NULL;
}

static err *create_make(kubernetes *b, const request *r, json_t **ret_object)
{
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, b->ns, NULL, NULL);
    CLEANUP(freep) char *name = name_of(r);
    pod_name who = {.name = name,
                    .pool = r->wish.pool,
                    .sandbox = r->spec.id,
                    .network = r->network,
                    .hash = r->wish.hash};
    err *fenced = NULL;

    if (kubernetes_fenced(b, &fenced))
        return fenced;
    link_nonce_new(who.nonce);
    CLEANUP(json_decrefp) json_t *body = pod_make(&b->world, &who, json_deep_copy(r->wish.spec));
    err *e = kube_create(b->k, path, body, ret_object);
    FAULT_KILL("kubernetes.made");
    if (!kube_is(e, KUBE_EXISTS))
        return e;
    err_free(e);
    return find_made(b, r, name, ret_object);
}

/* Remembers a create that failed without an answer: its pod may exist, or appear later. Lock
 * held. */
static void note_unmade(kubernetes *b, const request *r)
{
    pod *p = pods_by_id(b, r->spec.id);
    map_iter it = {0};

    /* any entry: most pods appear at once */
    if (b->unmade.count >= UNMADE_MAX && map_next(&b->unmade, &it))
        map_take(&b->unmade, it.entry->key, it.entry->len);
    map_put_str(&b->unmade, r->spec.id, b);
    if (p)
        requests_look_unmade(b, p);
}

void requests_look_unmade(kubernetes *b, pod *p)
{
    if (p->r || p->going || !map_get_str(&b->unmade, p->f.sandbox))
        return;
    pods_set_id(b, p, "");
    p->retired = true;
    pods_remove(b, p, "its create has failed");
}

static void run_make(kubernetes *b, work *w)
{
    CLEANUP(json_decrefp) json_t *object = NULL;
    request *r = w->r;
    err *e = create_make(b, r, &object);

    work_free(w);
    LOCK_SCOPE(&b->lock);
    b->nmaking--;
    if (e && e->retryable)
        note_unmade(b, r);
    pod *p = e ? NULL : pods_put(b, object);
    if (!p) {
        create_fail(b, r, e ? e : err_new(ERR_INTERNAL, "the API server made no pod"));
        return;
    }
    r->state = REQUEST_STARTS;
    r->made_ns = now_mono_ns();
    pods_set_id(b, p, r->spec.id);
    p->klass = BOX_COLD;
    p->marked = true;
    if (r->cancelled) {
        pods_remove(b, p, "it was asked for");
        create_fail(b, r, was_cancelled(r));
        return;
    }
    p->r = r;
    pods_look(b, p);
}

/* ---- changing a pod's image ---- */

static json_t *swap_patch(const work *w, const request *r)
{
    json_t *ops = json_array();

    kube_op(ops, "test", "/metadata/uid", json_string(w->uid));
    kube_op(ops, "test", "/metadata/labels/bothy.dev~1state", json_string(POD_WARM));
    kube_op(ops, "test", "/spec/containers/0/name", json_string(POD_CONTAINER));
    kube_op(ops, "replace", "/spec/containers/0/image", json_string(r->spec.image_name));
    kube_op(ops, "replace", "/metadata/labels/bothy.dev~1state", json_string(POD_CLAIMED));
    kube_op(ops, "add", "/metadata/labels/bothy.dev~1sandbox", json_string(r->spec.id));
    return ops;
}

static void run_swap(kubernetes *b, work *w)
{
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, b->ns, w->name, NULL);
    CLEANUP(json_decrefp) json_t *patch = swap_patch(w, w->r);
    request *r = w->r;
    err *e = NULL;

    if (!kubernetes_fenced(b, &e))
        e = kube_patch(b->k, path, KUBE_PATCH_JSON, patch, NULL);
    FAULT_KILL("kubernetes.swapped");
    LOCK_SCOPE(&b->lock);
    pod *p = pods_by_uid(b, w->uid);
    work_free(w);
    if (!e && p) {
        r->state = REQUEST_STARTS;
        p->marked = true;
        if (r->cancelled) {
            pods_remove(b, p, "it was asked for");
            create_fail(b, r, was_cancelled(r));
            return;
        }
        p->r = r;
        pods_look(b, p);
        return;
    }
    if (p) {
        pods_set_id(b, p, "");
        p->retired = true;
        pods_remove(b, p, "its image was not changed");
    }
    if (e && e->code != ERR_CONFLICT) {
        create_fail(b, r, e);
        return;
    }
    err_free(e);
    requests_pod_failed(b, r, err_new(ERR_CREATE_FAILED, "the pod was not there to be changed"));
}

/* Changes the image of a warm pod. Drops its stream first: it leads to the container that ends.
 * Lock held. */
static void create_swap(kubernetes *b, request *r, pod *p)
{
    work *w = work_new(run_swap);

    link_warm_drop(p->warm);
    p->warm = NULL;
    p->ready = p->greeted = p->was_ready = false;
    p->swapped = p->f.restarts + 1;
    p->same_ns = 0;
    free(p->id_before);
    p->id_before = xstrdup(str_or(p->f.image_id, ""));
    p->klass = BOX_KUBELET;
    pods_set_id(b, p, r->spec.id);
    r->state = REQUEST_MAKES;
    r->made_ns = now_mono_ns();
    w->r = r;
    w->name = xstrdup(p->f.name);
    w->uid = xstrdup(p->f.uid);
    work_add(b, w);
}

/* ---- starting a create ---- */

/* Takes a warm pod. Returns false if none fits. Lock held. */
static bool create_take(kubernetes *b, request *r)
{
    pod *p = create_pick(b, r);

    if (!p)
        return false;
    r->tries++;
    if (needs_swap(p, r))
        create_swap(b, r, p);
    else
        requests_claim(b, r, p);
    return true;
}

/* Returns whether a pod counts as used. Ending pods do not, although their objects stay for
 * seconds. */
static bool create_counts(const pod *p)
{
    return !p->going && !p->f.deleting && p->f.phase != POD_ENDED;
}

/* Returns whether the cell has room for one more. Existing pods are counted by their id, coming
 * ones by nmaking. Lock held. */
static bool has_room(const kubernetes *b)
{
    map_iter it = {0};
    size_t n = b->nmaking;

    if (!b->max || b->ids.count + b->nmaking < b->max)
        return true;
    while (map_next(&b->ids, &it))
        n += create_counts(it.entry->value);
    return n < b->max;
}

/* Returns whether the pool may have one more sandbox, or one more pod (another). Lock held. */
static bool pool_has_room(kubernetes *b, const request *r, bool another)
{
    const kubernetes_wish *w = &r->wish;
    map_iter it = {0};
    size_t n = 0;

    if (!w->most)
        return true;
    while (map_next(&b->pods, &it)) {
        const pod *p = it.entry->value;
        n += create_counts(p) && str_eq(p->f.pool, w->pool) && (another || *p->id || p->f.claimed);
    }
    for (const request *o = b->requests; o; o = o->next) /* being made, not seen yet */
        n += o->state == REQUEST_MAKES && str_eq(o->wish.pool, w->pool) &&
             !pods_by_id(b, o->spec.id);
    return n < w->most;
}

/* Takes a warm pod or makes one, if there is room. Lock held. */
static void create_begin(kubernetes *b, request *r)
{
    r->state = REQUEST_WAITS;
    if (!has_room(b) || !pool_has_room(b, r, false) || create_take(b, r))
        return;
    if (!r->wish.spec || !pool_has_room(b, r, true))
        return;
    work *w = work_new(run_make);
    r->state = REQUEST_MAKES;
    r->tries++;
    b->nmaking++;
    w->r = r;
    work_add(b, w);
}

/* Serves waiting creates in order of arrival. If one finds no pod, later ones of its pool find
 * none. */
void requests_offer(kubernetes *b)
{
    const request *in_vain = NULL;

    for (request *r = b->requests, *next; r; r = next) {
        next = r->next;
        if (r->state != REQUEST_WAITS ||
            (in_vain && r->wish.pool && str_eq(r->wish.pool, in_vain->wish.pool)))
            continue;
        if (!has_room(b))
            return;
        create_begin(b, r);
        if (r->state == REQUEST_WAITS)
            in_vain = r;
    }
}

static err *no_pod_in_time(kubernetes *b, const request *r)
{
    const pod *p = pods_by_id(b, r->spec.id);

    if (r->state == REQUEST_WAITS && !has_room(b))
        return err_remedy(
            err_retry_after(err_new(ERR_POOL_EXHAUSTED,
                                    "%u sandboxes are as many as this cell may have", b->max),
                            5),
            "Wait as long as Retry-After says, or raise backend.max in bothyd's configuration.");
    if (r->state == REQUEST_WAITS && !pool_has_room(b, r, false))
        return err_remedy(err_retry_after(err_new(ERR_POOL_EXHAUSTED,
                                                  "%u sandboxes are as many as pool %s may have",
                                                  r->wish.most, r->wish.pool),
                                          5),
                          "Wait as long as Retry-After says, or raise the pool's maxSandboxes.");
    if (r->state == REQUEST_WAITS)
        return err_retry_after(err_because(err_new(ERR_POOL_EXHAUSTED,
                                                   "no pod of pool %s was free "
                                                   "in time",
                                                   str_or(r->wish.pool, "-")),
                                           "%s", *b->last_error ? b->last_error : "all are in use"),
                               5);
    return err_because(
        err_new(ERR_TIMEOUT, "the pod of sandbox %s did not start in time", r->spec.id), "%s",
        p && p->f.message ? p->f.message : "the cluster does not say why");
}

/* Checks a pod whose image was changed: the watch does not report that nothing happens. Lock
 * held. */
static void look_swapped(kubernetes *b, const request *r)
{
    pod *p = r->state == REQUEST_STARTS ? pods_by_id(b, r->spec.id) : NULL;

    if (p && p->r == r && p->same_ns)
        pods_look(b, p);
}

void requests_expire(kubernetes *b, uint64_t now)
{
    for (request *r = b->requests, *next; r; r = next) {
        next = r->next;
        uint64_t until = r->state == REQUEST_WAITS ? r->queue_ns : r->until_ns;
        if (now < until || (r->state != REQUEST_WAITS && r->state != REQUEST_STARTS)) {
            look_swapped(b, r);
            continue;
        }
        err *why = no_pod_in_time(b, r);
        pod *p = pods_by_id(b, r->spec.id);
        if (p && p->r == r) {
            p->r = NULL;
            pods_remove(b, p, "it did not start in time");
        }
        create_fail(b, r, why);
    }
}

void requests_cancel(kubernetes *b, const char *id)
{
    request *r = b->requests;
    pod *p = pods_by_id(b, id);

    while (r && !str_eq(r->spec.id, id))
        r = r->next;
    if (!r)
        return;
    r->cancelled = true; /* the worker or link that has it checks this */
    if (r->state != REQUEST_WAITS && r->state != REQUEST_STARTS)
        return;
    if (p && p->r == r)
        p->r = NULL;
    create_fail(b, r, was_cancelled(r));
}

void requests_end_all(kubernetes *b)
{
    map_iter it = {0};

    while (map_next(&b->pods, &it))
        ((pod *)it.entry->value)->r = NULL;
    while (b->requests)
        create_fail(b, b->requests, err_new(ERR_DRAINING, "bothyd is going down"));
}

static err *make_wish(kubernetes *b, const box_spec *s, request *r)
{
    TRY(pod_spec_of(&b->world, s, &r->wish.spec));
    pod_hash_of(r->wish.spec, r->network, r->wish.hash);
    return hooks_wish(b, s, &r->wish);
}

/* Returns the error if no create may begin now. Lock held. */
static err *may_begin(const kubernetes *b)
{
    if (b->stop)
        return err_new(ERR_DRAINING, "bothyd is going down");
    if (!b->synced)
        return err_new(ERR_UNAVAILABLE, "the cluster's pods are not known yet");
    return NULL;
}

/* Returns whether the sandbox is in use here: it is being made, or its box is attached. Lock
 * held. */
static bool in_use(kubernetes *b, const char *id, const pod *p)
{
    const request *r = b->requests;
    CLEANUP(freep) char *handle = link_handle_of(b->links, id);

    while (r && !str_eq(r->spec.id, id))
        r = r->next;
    return r || handle || (p && p->r);
}

/* Takes over a pod that already bears the sandbox's name, from a create whose answer was lost:
 * claims it, or finds that it is claimed. Lock held. */
static err *create_adopt(kubernetes *b, request *r, pod *p)
{
    if (p->going || p->f.deleting || p->tainted || p->f.phase == POD_ENDED)
        return err_new(ERR_SANDBOX_GONE, "the pod of sandbox %s is at its end", r->spec.id);
    if (p->f.restarts) /* a tenant may have run in it, and the new init has no claim */
        return err_new(ERR_SANDBOX_GONE, "the pod of sandbox %s was started again", r->spec.id);
    r->state = REQUEST_STARTS;
    r->tries++;
    p->klass = p->klass ? p->klass : *p->f.pool ? BOX_EXACT : BOX_COLD;
    p->greeted = false;
    p->orphan_ns = 0;
    p->r = r;
    pods_look(b, p);
    return NULL;
}

/* Begins a listed request. Earlier requests go first: a pod they wait for may just have become
 * free. Lock held. */
static err *begin_known(kubernetes *b, request *r)
{
    pod *p = pods_by_id(b, r->spec.id);

    map_take_str(&b->unmade, r->spec.id);
    if (p)
        return create_adopt(b, r, p);
    requests_offer(b);
    return NULL;
}

void requests_begin(backend *base, const box_spec *spec, const box_events *ev, void *arg,
                    create_done *done)
{
    kubernetes *b = kubernetes_of(base);
    request *r = request_new(b, spec);
    err *e = NULL;

    r->ev = ev;
    r->arg = arg;
    r->done = done;
    if (!kubernetes_fenced(b, &e))
        e = make_wish(b, spec, r);
    LOCK_SCOPE(&b->lock);
    if (!e)
        e = may_begin(b);
    if (!e && in_use(b, spec->id, pods_by_id(b, spec->id)))
        e = err_new(ERR_CONFLICT, "sandbox %s is attached already", spec->id);
    create_list(b, r);
    if (!e)
        e = begin_known(b, r);
    if (e)
        create_fail(b, r, e);
}
