/* The backend `kubernetes`: sandboxes are pods, reached through the API server's exec (link.h). */
#include "backend/kubernetes/kubernetes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/kubernetes/internal.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define SYNC_NS      (60 * NS_PER_S)  /* at start: until the API server has listed the pods */
#define GREET_NS     (15 * NS_PER_S)  /* until the next init has said whether it is claimed */
#define GREET_ALL_NS (300 * NS_PER_S) /* until all of them have */
#define HOST_MAX     64

/* ---- after a restart ---- */

static err *not_here(const char *id)
{
    return err_kind(err_new(ERR_NOT_FOUND, "there is no pod of sandbox %s", id), "sandbox");
}

static err *kubernetes_attach(backend *base, const char *id, const box_events *ev, void *arg,
                              box **ret_box)
{
    kubernetes *b = kubernetes_of(base);
    LOCK_SCOPE(&b->lock);
    pod *p = pods_by_id(b, id);

    if (!p || !p->handle)
        return not_here(id);
    link_container c = {.handle = p->handle};
    memcpy(c.nonce, p->f.nonce, sizeof c.nonce);
    TRY(link_attach(b->links, id, &c, ev, arg, ret_box));
    p->greeted = p->was_ready = true;
    p->orphan_ns = 0;
    if (!p->marked)
        work_mark(b, p);
    return NULL;
}

/* Counts the pods that might be claimed and have not said so yet. Lock held. */
static size_t kubernetes_ungreeted(kubernetes *b)
{
    map_iter it = {0};
    size_t n = 0;

    while (map_next(&b->pods, &it)) {
        const pod *p = it.entry->value;
        n += pods_is_warm(p) && p->f.phase == POD_RUNS && p->warm && !p->greeted;
    }
    return n;
}

/* Waits until all have answered, as long as one after the other does: a sandbox whose pod has not
 * answered would be taken for lost. Lock held. */
static void wait_greeted(kubernetes *b)
{
    uint64_t all_by = now_mono_ns() + GREET_ALL_NS, next_by = now_mono_ns() + GREET_NS;

    for (size_t left = kubernetes_ungreeted(b), before; left && !b->stop;) {
        uint64_t until = next_by < all_by ? next_by : all_by;
        if (now_mono_ns() >= until)
            return;
        cond_wait_until(&b->changed, &b->lock, until);
        before = left;
        left = kubernetes_ungreeted(b);
        if (left < before)
            next_by = now_mono_ns() + GREET_NS;
    }
}

static err *wait_known(kubernetes *b)
{
    uint64_t sync_by = now_mono_ns() + SYNC_NS;

    while (!b->synced && now_mono_ns() < sync_by && !b->stop)
        cond_wait_until(&b->changed, &b->lock, sync_by);
    if (!b->synced) {
        err *why = kube_watcher_trouble(b->watcher);
        return why ? err_wrap(why, "the cluster's pods")
                   : err_new(ERR_UNAVAILABLE, "the API server at %s does not tell of its pods",
                             kube_server(b->k));
    }
    wait_greeted(b);
    return NULL;
}

/* Waits for the lease, which another bothyd may still hold. */
static err *wait_lease(kubernetes *b)
{
    uint64_t until = now_mono_ns() + SYNC_NS;
    err *why = NULL;

    while (kubernetes_fenced(b, &why) && now_mono_ns() < until) {
        err_free(TAKE_PTR(why));
        usleep(50000);
    }
    return why;
}

static err *kubernetes_list(backend *base, box_status **ret_list, size_t *ret_n)
{
    kubernetes *b = kubernetes_of(base);
    map_iter it = {0};
    size_t n = 0;

    TRY(wait_lease(b));
    LOCK_SCOPE(&b->lock);
    TRY(wait_known(b));
    box_status *all = xcalloc(b->ids.count + 1, sizeof *all);
    while (map_next(&b->ids, &it)) {
        const pod *p = it.entry->value;
        box_status *s = &all[n++];
        str_copy(s->id, sizeof s->id, p->id);
        s->dead = p->f.phase == POD_ENDED || p->f.deleting || p->going;
    }
    *ret_list = all;
    *ret_n = n;
    return NULL;
}

/* ---- ends ---- */

static void destroy_soon(backend *base, const char *id)
{
    kubernetes *b = kubernetes_of(base);
    LOCK_SCOPE(&b->lock);
    pod *p = pods_by_id(b, id);

    requests_cancel(b, id);
    if (p)
        pods_remove(b, p, "it was asked for");
    free(map_take_str(&b->ended, id));
}

/* Returns at once: a worker requests the deletion until it succeeds. */
static err *kubernetes_destroy(backend *base, const char *id)
{
    destroy_soon(base, id);
    return NULL;
}

typedef struct fate_ask {
    box_fate fate;
    fate_done *done;
    void *arg;
} fate_ask;

/* The pod's object only reports an OOM kill of pid 1; init reports those of other processes. */
static void on_ooms(void *arg, uint64_t count)
{
    CLEANUP(freep) fate_ask *q = arg;

    if (q->fate.oom_kills < count)
        q->fate.oom_kills = count;
    q->done(q->arg, NULL, &q->fate);
}

static void kubernetes_fate(backend *base, const char *id, unsigned wait_ms, fate_done *done,
                            void *arg)
{
    kubernetes *b = kubernetes_of(base);
    box_fate fate = {0};
    bool known, going;

    (void)wait_ms;
    {
        LOCK_SCOPE(&b->lock);
        const pod *p = pods_by_id(b, id);
        const box_fate *old = map_get_str(&b->ended, id);
        known = p || old;
        going = p && (p->going || p->f.deleting);
        if (p)
            pods_fate(p, &fate);
        else if (old)
            fate = *old;
    }
    if (!known || fate.dead || going) { /* its init does not answer any more */
        done(arg, known ? NULL : not_here(id), known ? &fate : NULL);
        return;
    }
    fate_ask *q = xcalloc(1, sizeof *q);
    *q = (fate_ask){fate, done, arg};
    link_ooms(b->links, id, on_ooms, q);
}

/* ---- capabilities and counts ---- */

static err *no_statistics(void)
{
    return err_new(ERR_UNSUPPORTED, "a pod's own counters are read from inside");
}

static err *kubernetes_usage(backend *b, const char *id, box_usage *ret_usage)
{
    (void)b, (void)id, (void)ret_usage;
    return no_statistics();
}

static err *kubernetes_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n,
                                  box_usage *ret)
{
    (void)b, (void)ids, (void)n, (void)ret;
    return no_statistics();
}

/* NetworkPolicies decide by the pods' label. */
static enum cap_level kubernetes_network(backend *b)
{
    (void)b;
    return CAP_EMULATED;
}

static void count_pods(kubernetes *b, pool_status *s)
{
    map_iter it = {0};

    while (map_next(&b->pods, &it)) {
        const pod *p = it.entry->value;
        if (p->f.deleting || p->going || p->f.phase == POD_ENDED)
            s->dying++;
        else if (*p->id || p->f.claimed)
            s->claimed++;
        else if (p->ready)
            s->ready++;
        else
            s->making++;
    }
    for (const request *r = b->requests; r; r = r->next)
        s->waiting += r->state == REQUEST_WAITS;
}

static err *kubernetes_pool(backend *base, const pool_marks *set, pool_status *ret_status)
{
    kubernetes *b = kubernetes_of(base);
    LOCK_SCOPE(&b->lock);
    pool_status s = {.state = "as many warm pods as were asked for"};

    if (set)
        b->warm = set->low;
    s.low = s.high = b->warm;
    s.max = b->max;
    count_pods(b, &s);
    s.refills_failed = (uint32_t)b->refills_failed;
    str_copy(s.last_error, sizeof s.last_error, b->last_error);
    if (kubernetes_fenced(b, NULL))
        s.state = "another bothyd holds the cell's lease";
    *ret_status = s;
    return NULL;
}

/* ---- for the operator (kubernetes.h) ---- */

kube *kubernetes_kube(backend *b)
{
    return kubernetes_of(b)->k;
}

const char *kubernetes_namespace(const backend *b)
{
    return ((const kubernetes *)b)->ns;
}

kube_lease *kubernetes_lease(backend *b)
{
    return kubernetes_of(b)->lease;
}

const pod_world *kubernetes_world(const backend *b)
{
    return &((const kubernetes *)b)->world;
}

bool kubernetes_retire(backend *base, const char *uid)
{
    kubernetes *b = kubernetes_of(base);
    LOCK_SCOPE(&b->lock);
    pod *p = pods_by_uid(b, uid);

    if (!p)
        return true;
    if (*p->id || p->r)
        return false;
    p->retired = true;
    p->ready = false;
    if (p->warm)
        link_warm_drop(TAKE_PTR(p->warm));
    return true;
}

enum kubernetes_init kubernetes_init_of(backend *base, const char *uid)
{
    kubernetes *b = kubernetes_of(base);
    LOCK_SCOPE(&b->lock);
    const pod *p = pods_by_uid(b, uid);

    if (!p)
        return KUBERNETES_UNKNOWN;
    if (p->tainted)
        return KUBERNETES_TAINTED;
    if (*p->id && !p->r)
        return KUBERNETES_CLAIMED;
    if (p->retired)
        return KUBERNETES_RETIRED;
    return p->ready ? KUBERNETES_READY : p->was_ready ? KUBERNETES_LOST : KUBERNETES_UNKNOWN;
}

unsigned kubernetes_pending(backend *base, const char *pool)
{
    kubernetes *b = kubernetes_of(base);
    LOCK_SCOPE(&b->lock);
    unsigned n = 0;

    for (const request *r = b->requests; r; r = r->next)
        n += r->state == REQUEST_WAITS && str_eq(r->wish.pool, pool);
    return n;
}

void kubernetes_set_hooks(backend *base, const kubernetes_hooks *h, void *arg)
{
    kubernetes *b = kubernetes_of(base);

    pthread_rwlock_wrlock(&b->hooks_lock);
    b->hooks_arg = arg;
    b->hooks = h;
    pthread_rwlock_unlock(&b->hooks_lock);
}

void hooks_claimed(kubernetes *b, const kubernetes_claim *c)
{
    pthread_rwlock_rdlock(&b->hooks_lock);
    if (b->hooks && b->hooks->claimed)
        b->hooks->claimed(b->hooks_arg, c);
    pthread_rwlock_unlock(&b->hooks_lock);
}

void hooks_ended(kubernetes *b, const char *id, const char *why)
{
    pthread_rwlock_rdlock(&b->hooks_lock);
    if (b->hooks && b->hooks->ended)
        b->hooks->ended(b->hooks_arg, id, why);
    pthread_rwlock_unlock(&b->hooks_lock);
}

/* Without the operator no NetworkPolicy is generated or known to be enforced. */
static err *no_wall(void)
{
    err *e = err_new(ERR_WALL_FAILED, "nobody keeps the sandbox from the network");

    e->retryable = false;
    return err_remedy(e, "Let the operator do it (kubernetes.operator), ask for network 'open', or "
                         "let the administrator say that something else does: "
                         "kubernetes.policies: vouched.");
}

err *hooks_wish(kubernetes *b, const box_spec *spec, kubernetes_wish *wish)
{
    err *e = NULL;

    pthread_rwlock_rdlock(&b->hooks_lock);
    if (b->hooks && b->hooks->wish)
        e = b->hooks->wish(b->hooks_arg, spec, wish);
    else if (!b->vouched && spec->spec->network != NETWORK_OPEN)
        e = no_wall();
    pthread_rwlock_unlock(&b->hooks_lock);
    return e;
}

/* ---- start and end ---- */

static void free_pods(kubernetes *b)
{
    map_iter it = {0}, ended = {0};

    while (map_next(&b->pods, &it)) {
        pod *p = it.entry->value;
        free(p->handle);
        free(p->id_before);
        pod_facts_done(&p->f);
        free(p);
    }
    while (map_next(&b->ended, &ended))
        free(ended.entry->value);
    map_done(&b->pods);
    map_done(&b->ids);
    map_done(&b->handles);
    map_done(&b->ended);
    map_done(&b->unmade);
}

static void run_rest(kubernetes *b)
{
    while (b->queue) { /* callers are notified; calls to the API server are dropped */
        work *w = b->queue;
        b->queue = w->next;
        if (w->failure)
            w->run(b, w);
        else if (w->r)
            w->r = NULL, work_free(w);
        else
            work_free(w);
    }
}

static void kubernetes_free(backend *base)
{
    kubernetes *b = kubernetes_of(base);

    if (!b)
        return;
    kube_watcher_free(b->watcher);
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; i < WORKERS && b->workers[0]; i++)
        pthread_join(b->workers[i], NULL);
    link_host_free(b->links); /* claims under way have failed */
    pthread_mutex_lock(&b->lock);
    requests_end_all(b);
    pthread_mutex_unlock(&b->lock);
    run_rest(b);
    kube_lease_free(b->lease);
    kube_free(b->k);
    free_pods(b);
    for (size_t i = 0; i < b->nrecipes; i++)
        json_decref(b->recipes[i].spec);
    free(b->ns);
    free(b->cell);
    free(b->bothy_image);
    free(b->runtime_class);
    free(b->identity);
    pthread_cond_destroy(&b->changed);
    pthread_rwlock_destroy(&b->hooks_lock);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static void kubernetes_leave(backend *base)
{
    kubernetes *b = kubernetes_of(base);

    if (b->lease)
        kube_lease_leave(b->lease);
}

static const backend_ops OPS = {
    LINK_BOX_OPS,
    .network = kubernetes_network,
    .create = requests_begin,
    .attach = kubernetes_attach,
    .destroy = kubernetes_destroy,
    .destroy_soon = destroy_soon,
    .list = kubernetes_list,
    .usage = kubernetes_usage,
    .usage_many = kubernetes_usage_many,
    .pool = kubernetes_pool,
    .fate = kubernetes_fate,
    .leave = kubernetes_leave,
    .free = kubernetes_free,
};

static backend_caps caps_of(const pod_world *w)
{
    return (backend_caps){
        .name = "kubernetes",
        .images = CAP_ABSENT, /* the kubelet has or pulls them */
        .user = w->baseline ? CAP_NATIVE : CAP_ABSENT,
        /* stats, socket: not by this backend; the engine provides them through the kit */
        .disk_limit = CAP_EMULATED, /* the kubelet evicts */
        .memory_limit = CAP_NATIVE,
        .cpu_limit = CAP_NATIVE,
        .pids_limit = CAP_ABSENT, /* the kubelet sets one limit for all pods of a node */
        .read_only = CAP_NATIVE,
        .tmpfs = CAP_EMULATED, /* the kubelet decides about exec */
        .setuid = w->baseline ? CAP_NATIVE : CAP_ABSENT,
        .hostname = CAP_EMULATED,
        .files = CAP_NATIVE,
        .frames = true,
        .removes_strays = true,
    };
}

static err *load_config(const kubernetes_options *o, kube_config *ret_config)
{
    if (o->kubeconfig)
        return kube_config_load(o->kubeconfig, NULL, ret_config);
    const char *host = getenv("KUBERNETES_SERVICE_HOST"); /* NOLINT(concurrency-mt-unsafe) */
    const char *port = getenv("KUBERNETES_SERVICE_PORT"); /* NOLINT: nothing here changes them */
    return kube_config_in_cluster(host, port, NULL, ret_config);
}

static err *check_options(const kubernetes_options *o)
{
    if (!o->cell || !pod_label_ok(o->cell))
        return err_new(ERR_INVALID_REQUEST, "the cell's name must be one of Kubernetes' labels");
    if (!o->bothy_image || !*o->bothy_image)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "kubernetes.image is needed"),
                          "Name the image that brings bothy-init and bothy-kit into a pod.");
    return NULL;
}

static char *identity_of(const kubernetes_options *o)
{
    char host[HOST_MAX + 1] = "", random[9];

    if (o->identity)
        return xstrdup(o->identity);
    if (gethostname(host, HOST_MAX))
        str_copy(host, sizeof host, "bothyd");
    id_random(random, 8);
    return str_printf("%s_%s", host, random);
}

static void set_texts(kubernetes *b, const kubernetes_options *o)
{
    b->ns = xstrdup(o->namespace && *o->namespace ? o->namespace : kube_namespace(b->k));
    b->cell = xstrdup(o->cell);
    b->bothy_image = xstrdup(o->bothy_image);
    b->runtime_class = o->runtime_class ? xstrdup(o->runtime_class) : NULL;
    b->identity = identity_of(o);
    b->warm = o->warm;
    b->max = o->max;
    b->vouched = o->vouched;
    b->world = (pod_world){.ns = b->ns,
                           .cell = b->cell,
                           .bothy_image = b->bothy_image,
                           .runtime_class = b->runtime_class,
                           .baseline = o->baseline,
                           .image_volume = o->image_volume};
}

static err *kubernetes_start(kubernetes *b, const kubernetes_options *o)
{
    link_options links = {.name = "kubernetes",
                          .dial = pods_dial,
                          .condemned = pods_condemned,
                          .arg = b,
                          .kit = POD_DIR "/bothy-kit",
                          .dialers = 8};
    CLEANUP(freep) char *lease = str_printf("bothy-%s", b->cell);
    CLEANUP(freep) char *labels = str_printf(POD_CELL "=%s", b->cell);
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, b->ns, NULL, NULL);

    memcpy(links.key, o->key, sizeof links.key);
    err *e = link_host_new(&links, &b->links);
    secret_wipe(links.key, sizeof links.key);
    TRY(e);
    pthread_mutex_lock(&b->lock); /* the first callback may come before kube_lease_new returns */
    if (!o->unfenced)
        b->lease = kube_lease_new(b->k, &(kube_lease_options){.ns = b->ns,
                                                              .name = lease,
                                                              .identity = b->identity,
                                                              .changed = pods_on_lease,
                                                              .arg = b});
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; i < WORKERS; i++)
        b->workers[i] = thread_start("kube-work", work_thread, b);
    b->watcher = kube_watcher_new(
        b->k,
        &(kube_watch_options){.path = path, .labels = labels, .events = &PODS_WATCH, .arg = b});
    return NULL;
}

static void freep_kubernetes(kubernetes **b)
{
    kubernetes_free((backend *)*b);
}

err *backend_kubernetes_new(const kubernetes_options *o, backend **ret_backend)
{
    CLEANUP(kube_config_done) kube_config c = {0};

    TRY(check_options(o));
    TRY(load_config(o, &c));
    CLEANUP(freep_kubernetes) kubernetes *b = xcalloc(1, sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    pthread_rwlock_init(&b->hooks_lock, NULL);
    cond_init(&b->changed);
    TRY(kube_new(&c, &b->k));
    set_texts(b, o);
    b->base.ops = &OPS;
    b->base.caps = caps_of(&b->world);
    TRY(kubernetes_start(b, o));
    *ret_backend = &TAKE_PTR(b)->base;
    return NULL;
}
