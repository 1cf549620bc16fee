/* The pods of the cell as the watch reports them, and a link to each unclaimed one. */
#include <errno.h>
#include <string.h>

#include "backend/kubernetes/internal.h"
#include "backend/kubernetes/kube_exec.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

/* ---- the table ---- */

pod *pods_by_uid(kubernetes *b, const char *uid)
{
    return map_get_str(&b->pods, uid);
}

pod *pods_by_id(kubernetes *b, const char *id)
{
    return map_get_str(&b->ids, id);
}

void pods_set_id(kubernetes *b, pod *p, const char *id)
{
    if (*p->id && pods_by_id(b, p->id) == p)
        map_take_str(&b->ids, p->id);
    str_copy(p->id, sizeof p->id, id);
    if (*p->id)
        map_put_str(&b->ids, p->id, p);
}

bool pods_is_warm(const pod *p)
{
    return !*p->id && !p->f.claimed && !p->f.deleting && !p->going && !p->retired && !p->tainted &&
           p->f.phase != POD_ENDED;
}

static void set_handle(kubernetes *b, pod *p)
{
    char *handle = pod_handle(b->ns, &p->f);

    if (str_eq(handle, p->handle)) {
        free(handle);
        return;
    }
    if (p->handle)
        map_take_str(&b->handles, p->handle);
    free(p->handle);
    p->handle = handle;
    map_put_str(&b->handles, handle, p);
}

static void drop_warm(pod *p)
{
    if (p->warm)
        link_warm_drop(p->warm);
    p->warm = NULL;
    p->ready = false;
}

/* Returns whether something other than this bothyd deleted it, and the cluster gave no reason. */
static bool deleted_outside(const pod *p)
{
    return p->f.deleting && !p->going && !p->f.evicted && !p->f.node_lost && !p->f.oom;
}

/* Returns why it ended, for people. A deletion from outside comes before the way it died of it. */
static char *why_of(const pod *p)
{
    return deleted_outside(p) ? xstrdup("its pod was deleted by somebody else") : pod_why(&p->f);
}

void pods_fate(const pod *p, box_fate *ret_fate)
{
    pod_fate(&p->f, ret_fate);
    if (deleted_outside(p))
        str_copy(ret_fate->by, sizeof ret_fate->by, "somebody in the cluster");
}

static void remember_fate(kubernetes *b, const pod *p)
{
    map_iter it = {0};
    box_fate *fate = xcalloc(1, sizeof *fate);

    if (b->ended.count >= ENDED_MAX &&
        map_next(&b->ended, &it)) /* any entry: they are read soon after the end */
        free(map_take(&b->ended, it.entry->key, it.entry->len));
    pods_fate(p, fate);
    fate->dead = true;
    free(map_put_str(&b->ended, p->id, fate));
}

static void pods_forget(kubernetes *b, pod *p)
{
    if (*p->id)
        remember_fate(b, p);
    drop_warm(p);
    pods_set_id(b, p, "");
    if (p->handle)
        map_take_str(&b->handles, p->handle);
    map_take_str(&b->pods, p->f.uid);
    free(p->handle);
    free(p->id_before);
    pod_facts_done(&p->f);
    free(p);
}

/* ---- links ---- */

static void open_link(kubernetes *b, pod *p)
{
    link_container c = {.handle = p->handle};

    memcpy(c.nonce, p->f.nonce, sizeof c.nonce);
    err *e = link_warm_new(b->links, &c, &PODS_LINK, b, &p->warm);
    if (!e)
        return;
    p->warm = NULL;
    p->greeted = true;
    if (p->r)
        requests_pod_failed(b, TAKE_PTR(p->r), e);
    else
        err_drop(e, "a pod cannot be linked");
}

static pod *pod_of(kubernetes *b, link_warm *w)
{
    pod *p = map_get_str(&b->handles, link_warm_handle(w));

    return p && p->warm == w ? p : NULL;
}

static void on_ready(void *arg, link_warm *w)
{
    kubernetes *b = arg;
    LOCK_SCOPE(&b->lock);
    pod *p = pod_of(b, w);

    if (!p)
        return;
    p->ready = p->was_ready = p->greeted = true;
    requests_offer(b);
    pthread_cond_broadcast(&b->changed);
}

static void on_lost(void *arg, link_warm *w)
{
    kubernetes *b = arg;
    LOCK_SCOPE(&b->lock);
    pod *p = pod_of(b, w);

    if (p)
        p->ready = false;
}

/* Handles a warm pod that turns out to be claimed: by a bothyd that was killed between claim and
 * record or, without a lease, by another live one. A recorded claim is not an orphan. */
static void was_claimed(kubernetes *b, pod *p, const char *whose)
{
    pods_set_id(b, p, whose);
    p->klass = BOX_EXACT;
    if (!p->f.claimed)
        p->orphan_ns = now_mono_ns() + ORPHAN_NS;
    log_info("kubernetes", "pod %s was claimed by %s before", p->f.name, whose);
}

/* The warm pod died, is tainted, or was claimed. */
static void on_ended(void *arg, link_warm *w, const char *why)
{
    kubernetes *b = arg;
    const char *whose = link_warm_whose(w);
    LOCK_SCOPE(&b->lock);
    pod *p = pod_of(b, w);

    if (!p)
        return;
    p->warm = NULL;
    p->ready = false;
    p->greeted = true;
    const pod *has = *whose ? pods_by_id(b, whose) : NULL;
    if (*whose && (!has || has == p)) {
        was_claimed(b, p, whose);
    } else if (!p->f.deleting && !p->going && p->f.phase != POD_ENDED) {
        p->tainted = true;
        log_warn("kubernetes", "pod %s: %s", p->f.name, why);
        pods_remove(b, p, why);
    }
    if (p->r)
        requests_pod_failed(b, TAKE_PTR(p->r), err_new(ERR_CREATE_FAILED, "%s", why));
    link_warm_drop(w);
    pthread_cond_broadcast(&b->changed);
}

const link_warm_events PODS_LINK = {on_ready, on_lost, on_ended};

/* ---- handling a pod's state ---- */

static enum pod_swap swap_of(const pod *p)
{
    return pod_swap_of(&p->f, p->swapped, p->id_before,
                       p->same_ns ? now_mono_ns() - p->same_ns : 0);
}

static err *trouble_of(const pod *p)
{
    if (p->r && p->id_before && swap_of(p) == POD_SWAP_LOST)
        return err_new(ERR_CREATE_FAILED, "pod %s was started again while its image was changed",
                       p->f.name);
    if (p->f.image_trouble)
        return err_because(err_new(ERR_IMAGE_PULL_FAILED,
                                   "an image of pod %s (%s) cannot be pulled", p->f.name,
                                   str_or(p->f.image, "")),
                           "%s", str_or(p->f.message, "-"));
    if (p->f.config_trouble || p->f.phase == POD_ENDED) {
        CLEANUP(freep) char *why = pod_why(&p->f);
        return err_because(err_new(ERR_CREATE_FAILED, "pod %s did not start", p->f.name), "%s",
                           str_or(p->f.message, why));
    }
    return NULL;
}

/* Returns whether the container has ended, or was replaced by another one. */
static bool has_died(const pod *p)
{
    /* its object may stay for ever: only that node's kubelet removes it */
    if (p->f.deleting && p->f.node_lost)
        return true;
    /* its image is being changed: one container ends, another starts */
    if (p->f.restarts < p->swapped)
        return p->f.phase == POD_ENDED;
    return p->f.phase == POD_ENDED || (p->f.exit_code >= 0 && p->f.phase != POD_RUNS) ||
           (p->was_ready && p->f.restarts != p->swapped);
}

static void look_dead(kubernetes *b, pod *p)
{
    CLEANUP(freep) char *why = why_of(p);

    if (!p->lost_told) {
        p->lost_told = true;
        link_died(b->links, p->handle, why);
    }
    if (*p->id)
        remember_fate(b, p);
    else
        pods_remove(b, p, why);
}

static void look_trouble(kubernetes *b, pod *p, err *why)
{
    request *r = TAKE_PTR(p->r);

    if (r || !p->f.claimed || !p->marked) {
        str_copy(b->last_error, sizeof b->last_error, str_or(p->f.message, "a pod did not start"));
        if (!*p->id)
            b->refills_failed++;
        pods_remove(b, p, "it does not start");
    }
    if (!r) {
        err_free(why);
        return;
    }
    /* The pod's label may still name this sandbox; detach it so that another pod can take the
     * id. */
    pods_set_id(b, p, "");
    p->retired = true;
    requests_pod_failed(b, r, why);
}

/* Returns whether the container is the expected one. After a change of its image it must have the
 * expected restart count and run the new image. */
static bool is_current(const pod *p)
{
    if (p->r && p->id_before)
        return swap_of(p) == POD_SWAP_DONE;
    return p->f.phase == POD_RUNS && p->f.restarts == p->swapped;
}

/* Returns whether to link it: unclaimed as far as is known, or made for a waiting create. */
static bool may_link(const pod *p)
{
    return is_current(p) && !p->warm && !p->greeted && !p->going && p->f.has_nonce &&
           (p->r || (!*p->id && !p->f.claimed && !p->f.deleting && !p->retired));
}

/* Links the pods once the lease is held: only its holder may own the streams. */
void pods_on_lease(void *arg, bool held, uint64_t epoch)
{
    kubernetes *b = arg;
    map_iter it = {0};

    (void)epoch;
    LOCK_SCOPE(&b->lock);
    while (held && !b->stop && map_next(&b->pods, &it))
        pods_look(b, it.entry->value);
}

void pods_look(kubernetes *b, pod *p)
{
    err *why = trouble_of(p);

    if (p->id_before && !p->same_ns && p->f.phase == POD_RUNS && p->f.restarts == p->swapped)
        p->same_ns = now_mono_ns();
    if (!p->swapped || p->f.restarts >= p->swapped)
        set_handle(b, p);
    if (why && !p->was_ready && !*p->id)
        look_trouble(b, p, why);
    else if (why && p->r)
        look_trouble(b, p, why);
    else
        err_free(why);
    /* Drop the link if another claim is recorded, since its stream belongs to that claim. Also if
     * the pod is going: if its node is lost, each dial would block a dialler for its whole
     * timeout. */
    if (p->warm && !p->r && (p->f.claimed || p->going || p->f.deleting)) {
        drop_warm(p);
        p->greeted = true;
    }
    if (has_died(p))
        look_dead(b, p);
    else if (may_link(p) && !kubernetes_fenced(b, NULL))
        open_link(b, p);
    if (p->warm && p->r)
        requests_claim(b, TAKE_PTR(p->r), p);
}

/* ---- the watch ---- */

static pod *kubernetes_pods_put(kubernetes *b, pod_facts *f)
{
    pod *p = pods_by_uid(b, f->uid);

    if (!p) {
        p = xcalloc(1, sizeof *p);
        p->seen_ns = now_mono_ns();
        p->swapped = f->restarts;
        p->f = *f;
        map_put_str(&b->pods, p->f.uid, p);
    } else {
        pod_facts_done(&p->f);
        p->f = *f;
    }
    *f = (pod_facts){0};
    if (!*p->id && *p->f.sandbox && !p->going && !pods_by_id(b, p->f.sandbox)) {
        pods_set_id(b, p, p->f.sandbox);
        p->marked = true;
    }
    if (p->f.claimed && str_eq(p->f.sandbox, p->id))
        p->orphan_ns = 0;
    return p;
}

pod *pods_put(kubernetes *b, const json_t *object)
{
    pod_facts f;
    err *e = pod_facts_read(object, &f);

    if (e) {
        err_drop(e, "a pod");
        return NULL;
    }
    pod *known = pods_by_uid(b, f.uid); /* the watch is newer than this object */
    if (known) {
        pod_facts_done(&f);
        return known;
    }
    return kubernetes_pods_put(b, &f);
}

static void on_there(void *arg, const char *uid, const json_t *object)
{
    kubernetes *b = arg;
    pod_facts f;
    err *e = pod_facts_read(object, &f);

    (void)uid;
    if (e) {
        err_drop(e, "a pod");
        return;
    }
    LOCK_SCOPE(&b->lock);
    pod *p = kubernetes_pods_put(b, &f);
    requests_look_unmade(b, p);
    pods_look(b, p);
    pthread_cond_broadcast(&b->changed);
}

/* Takes the last state, which says how it ended. If a new list just lacks the pod there is none. */
static void take_last(pod *p, const json_t *object)
{
    pod_facts last;
    err *e = object ? pod_facts_read(object, &last) : NULL;

    if (e) {
        err_drop(e, "a pod's last state");
    } else if (object) {
        pod_facts_done(&p->f);
        p->f = last;
    }
    p->f.deleting = true;
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    kubernetes *b = arg;
    char id[SANDBOX_ID_LEN + 1];
    CLEANUP(freep) char *why = NULL;

    {
        LOCK_SCOPE(&b->lock);
        pod *p = pods_by_uid(b, uid);
        if (!p)
            return;
        take_last(p, object);
        why = why_of(p);
        str_copy(id, sizeof id, p->id);
        link_died(b->links, p->handle, why);
        if (p->r)
            requests_pod_failed(b, TAKE_PTR(p->r), err_new(ERR_CREATE_FAILED, "%s", why));
        pods_forget(b, p);
        requests_offer(b);
        pthread_cond_broadcast(&b->changed);
    }
    if (*id)
        hooks_ended(b, id, why);
}

static void on_synced(void *arg)
{
    kubernetes *b = arg;
    LOCK_SCOPE(&b->lock);

    b->synced = true;
    pthread_cond_broadcast(&b->changed);
}

const kube_watch_events PODS_WATCH = {on_there, on_gone, on_synced};

/* ---- streams ---- */

static ssize_t stream_read(void *s, void *p, size_t n)
{
    return kube_exec_read(s, p, n);
}

static ssize_t stream_write(void *s, const void *p, size_t n)
{
    return kube_exec_write(s, p, n);
}

static bool stream_wants_out(void *s)
{
    return kube_exec_wants_out(s);
}

static int stream_fd(void *s)
{
    return kube_exec_fd(s);
}

static char *stream_why(void *s)
{
    return kube_exec_why(s);
}

static void stream_close(void *s)
{
    kube_exec_free(s);
}

static const link_stream_ops STREAM = {
    .read = stream_read,
    .write = stream_write,
    .wants_out = stream_wants_out,
    .fd = stream_fd,
    .why = stream_why,
    .close = stream_close,
};

static bool is_alive(kubernetes *b, const char *handle)
{
    LOCK_SCOPE(&b->lock);
    const pod *p = map_get_str(&b->handles, handle);

    return p && p->f.phase != POD_ENDED && !p->f.deleting && !p->going;
}

/* Turns "not found" for a live pod into a retryable error: a restarted kubelet says so until it has
 * read its pods. The end of a pod is reported by the watch, which notifies the link. */
static err *not_yet(kubernetes *b, const char *handle, err *e)
{
    if (!e || (e->code != ERR_NOT_FOUND && e->code != ERR_SANDBOX_GONE) || !is_alive(b, handle))
        return e;
    err *later = err_because(err_new(ERR_UNAVAILABLE, "the pod cannot be reached yet"), "%s",
                             str_or(e->cause, e->message));
    err_free(e);
    return later;
}

/* The handle contains the pod's name after the namespace. bothy chooses the names and never reuses
 * one. */
err *pods_dial(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream)
{
    static const char *const ATTACH[] = {POD_DIR "/bothy-init", "attach", NULL};
    kubernetes *b = arg;
    const char *from = strchr(handle, '/') + 1;
    CLEANUP(freep) char *name = xstrndup(from, strcspn(from, "/"));
    kube_exec *x = NULL;

    TRY(not_yet(b, handle,
                kube_exec_open(b->k,
                               &(kube_exec_spec){.ns = b->ns,
                                                 .pod = name,
                                                 .container = POD_CONTAINER,
                                                 .argv = ATTACH,
                                                 .in = true,
                                                 .err = true,
                                                 .timeout_ms = timeout_ms},
                               &x)));
    *ret_stream = (link_stream){&STREAM, x};
    return NULL;
}

void pods_condemned(void *arg, const char *handle, const char *why)
{
    kubernetes *b = arg;
    LOCK_SCOPE(&b->lock);
    pod *p = map_get_str(&b->handles, handle);

    if (!p)
        return;
    log_error("kubernetes", "pod %s is ended: %s", p->f.name, why);
    p->tainted = true;
    pods_remove(b, p, why);
}
