/* The backend `kubernetes` by its contract, against a real cluster: pods that are made, claimed,
 * used, lost and found again. Run with an image that has bothy-init and bothy-kit in its root. */
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/kubernetes/internal.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"
#include "base/thread.h"
#include "tests/k8s/client/client.h"

#define UNHEARD_BYTES 2800 /* more than a connection and a renewed lease, less than a pod */

typedef struct rig {
    world w;
    kubernetes_options o;
    uint8_t key[BACKEND_KEY_LEN];
    backend *b;
} rig;

/* ---- one sandbox, as the engine would see it ---- */

typedef struct guest {
    rig *rig;
    char id[SANDBOX_ID_LEN + 1];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    box *x;
    err *failure;
    bool answered, attached, claimed, gone, exited;
    unsigned attaches;
    box_timing timing;
    char *why;
    uint64_t exec; /* the last one */
    int status, started;
    buf out;
    uint64_t out_at;
    uint64_t queue_ms, memory; /* 0: a second; as of the defaults */
} guest;

static void on_attached(void *arg, const struct sp_hello *hello, const struct sp_rec *recs)
{
    guest *g = arg;
    uint64_t exec, at;

    (void)recs;
    {
        LOCK_SCOPE(&g->lock);
        g->attached = true;
        g->attaches++;
        g->claimed = hello->flags & SP_HELLO_CLAIMED;
        exec = g->attaches > 1 && !g->exited ? g->exec : 0;
        at = g->out_at;
        pthread_cond_broadcast(&g->changed);
    }
    if (!exec)
        return;
    /* As the exec layer does: from where we are. */
    g->rig->b->ops->received(g->x, exec, 1, at);
    err_drop(g->rig->b->ops->fetch(g->x, exec), "fetch");
}

static void on_started(void *arg, uint64_t exec, int errnum, const struct sp_started *st,
                       int fd[SP_FDS_MAX])
{
    guest *g = arg;
    LOCK_SCOPE(&g->lock);

    (void)exec, (void)st, (void)fd;
    g->started = errnum ? errnum : -1;
    g->exited |= errnum != 0;
    pthread_cond_broadcast(&g->changed);
}

static void on_frame(void *arg, uint64_t exec, int stream, uint64_t offset, const void *p, size_t n)
{
    guest *g = arg;
    uint64_t at;

    {
        LOCK_SCOPE(&g->lock);
        if (exec != g->exec || stream != 1 || offset > g->out_at)
            return;
        uint64_t have = g->out_at - offset;
        if (have < n) {
            buf_append(&g->out, (const char *)p + have, n - have);
            g->out_at += n - have;
        }
        at = g->out_at;
    }
    g->rig->b->ops->received(g->x, exec, stream, at);
}

static void on_exited(void *arg, const struct sp_rec *rec)
{
    guest *g = arg;
    LOCK_SCOPE(&g->lock);

    if (rec->id != g->exec)
        return;
    g->status = rec->status;
    g->exited = true;
    pthread_cond_broadcast(&g->changed);
}

static void on_taken(void *arg, uint64_t exec, uint64_t offset)
{
    (void)arg, (void)exec, (void)offset;
}

static void on_signalled(void *arg, uint64_t exec, uint64_t cookie, int errnum)
{
    (void)arg, (void)exec, (void)cookie, (void)errnum;
}

static void on_gone(void *arg, const char *why)
{
    guest *g = arg;
    LOCK_SCOPE(&g->lock);

    g->gone = true;
    g->why = xstrdup(why);
    pthread_cond_broadcast(&g->changed);
}

static const box_events EVENTS = {.attached = on_attached,
                                  .started = on_started,
                                  .frame = on_frame,
                                  .exited = on_exited,
                                  .stdin_taken = on_taken,
                                  .signalled = on_signalled,
                                  .gone = on_gone};

static void on_made(void *arg, err *failure, box *made, const box_timing *timing)
{
    guest *g = arg;
    LOCK_SCOPE(&g->lock);

    g->failure = failure;
    g->x = made;
    if (timing)
        g->timing = *timing;
    g->answered = true;
    pthread_cond_broadcast(&g->changed);
}

static guest *guest_new(rig *r)
{
    guest *g = xcalloc(1, sizeof *g);

    g->rig = r;
    id_sandbox("test", g->id);
    pthread_mutex_init(&g->lock, NULL);
    cond_init(&g->changed);
    return g;
}

/* Waits for one of its flags. */
static bool wait_flag(guest *g, const bool *flag, unsigned ms)
{
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;

    LOCK_SCOPE(&g->lock);
    while (!*flag && now_mono_ns() < until)
        cond_wait_until(&g->changed, &g->lock, until);
    return *flag;
}

static err *guest_create(guest *g, const char *image)
{
    sandbox_spec s = {.limits = LIMITS_DEFAULT};
    char *env[] = {"GREETING=hello", NULL};
    box_spec spec = {.image_name = image,
                     .spec = &s,
                     .env = env,
                     .user = "",
                     .cwd = "/",
                     .umask = 022,
                     .queue_ms = g->queue_ms ? g->queue_ms : 1000};

    s.limits.disk = 0;
    if (g->memory)
        s.limits.memory = g->memory;
    str_copy(spec.id, sizeof spec.id, g->id);
    g->rig->b->ops->create(g->rig->b, &spec, &EVENTS, g, on_made);
    if (!wait_flag(g, &g->answered, 150000))
        FAIL("the create was not answered");
    TRY(TAKE_PTR(g->failure));
    if (!wait_flag(g, &g->attached, 10000))
        FAIL("it was made and is not attached");
    return NULL;
}

static err *guest_run(guest *g, const char *script, const char *want)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    exec_spec s = {.argv = argv, .exec_fd = -1};

    {
        LOCK_SCOPE(&g->lock);
        g->exec++;
        g->exited = false;
        g->started = 0;
        g->out_at = 0;
        buf_clear(&g->out);
    }
    TRY(g->rig->b->ops->exec(g->x, g->exec, &s, -1));
    if (!wait_flag(g, &g->exited, 60000))
        FAIL("'%s' did not end", script);
    if (g->started > 0)
        FAIL("'%s' was not started: %s", script, strerror(g->started));
    g->rig->b->ops->ack(g->x, g->exec, 15);
    if (want && !str_eq(buf_cstr(&g->out), want))
        FAIL("'%s' wrote '%s', not '%s'", script, g->out.p, want);
    return NULL;
}

static err *guest_destroy(guest *g)
{
    TRY(g->rig->b->ops->destroy(g->rig->b, g->id));
    if (!wait_flag(g, &g->gone, 30000))
        FAIL("it was destroyed and is not gone");
    return NULL;
}

static void guest_free(guest *g)
{
    if (!g)
        return;
    if (g->x)
        g->rig->b->ops->box_unref(g->x);
    err_free(g->failure);
    free(g->why);
    buf_done(&g->out);
    free(g); /* its last event has come, or its backend is gone */
}

static unsigned ms_since(uint64_t began)
{
    return (unsigned)((now_mono_ns() - began) / NS_PER_MS);
}

/* ---- the backend ---- */

static err *rig_start(rig *r)
{
    box_status *list = NULL;
    size_t n = 0;

    TRY(backend_kubernetes_new(&r->o, &r->b));
    TRY(r->b->ops->list(r->b, &list, &n));
    free(list);
    return NULL;
}

static void rig_stop(rig *r)
{
    if (r->b)
        r->b->ops->free(r->b);
    r->b = NULL;
}

static err *wait_ready(rig *r, unsigned n)
{
    pool_status s = {0};

    for (int i = 0; i < 600; i++) {
        TRY(r->b->ops->pool(r->b, NULL, &s));
        if (s.ready >= n)
            return NULL;
        nap_ms(100);
    }
    FAIL("%u pods are warm after a minute, not %u (%s)", s.ready, n, s.last_error);
}

/* ---- cases ---- */

static err *case_cold(rig *r)
{
    guest *g = guest_new(r);
    uint64_t began = now_mono_ns();

    TRY(guest_create(g, r->w.image));
    MUST(str_eq(g->timing.klass, BOX_COLD));
    printf("           cold: %u ms to the claim\n", ms_since(began));
    TRY(guest_run(g, "echo $GREETING; cat /version", NULL));
    MUST(str_starts(buf_cstr(&g->out), "hello\n"));
    TRY(guest_run(g, "seq 1 200000 | tail -n 1", "200000\n"));
    TRY(guest_run(g, "seq 1 200000", NULL));
    MUST(g->out.len == 1288895);
    TRY(guest_run(g, "/.bothy/bothy-kit; exit 7", NULL));
    MUST(g->status == 7 << 8);
    began = now_mono_ns();
    TRY(guest_destroy(g));
    printf("           gone %u ms after the destroy: %s\n", ms_since(began), g->why);
    guest_free(g);
    return NULL;
}

static err *case_exact(rig *r)
{
    guest *first = guest_new(r), *second = guest_new(r);

    r->b->ops->pool(r->b, &(pool_marks){2, 2}, &(pool_status){0});
    TRY(guest_create(first, r->w.image));
    TRY(wait_ready(r, 2));
    uint64_t began = now_mono_ns();
    TRY(guest_create(second, r->w.image));
    printf("           exact: %u us for the claim\n", (unsigned)(second->timing.claim_ns / 1000));
    TRY(guest_run(second, "echo $HOSTNAME", NULL));
    printf("           %u ms to the first result\n", ms_since(began));
    MUST(str_eq(second->timing.klass, BOX_EXACT));
    MUST(str_starts(buf_cstr(&second->out), second->id));
    TRY(guest_destroy(first));
    TRY(guest_destroy(second));
    guest_free(first);
    guest_free(second);
    return NULL;
}

static err *attach_again(rig *r, const guest *was, guest *g)
{
    str_copy(g->id, sizeof g->id, was->id);
    TRY(r->b->ops->attach(r->b, g->id, &EVENTS, g, &g->x));
    if (!wait_flag(g, &g->attached, 20000))
        FAIL("it is not attached again");
    MUST(g->claimed);
    g->exec = was->exec + 10;
    return NULL;
}

/* The record of the claim is not written: HELLO tells whose it is. */
static err *case_restart(rig *r)
{
    guest *g = guest_new(r), *again = guest_new(r);
    box_status *list = NULL;
    size_t n = 0;

    TRY(wait_ready(r, 1));
    TRY(guest_create(g, r->w.image));
    TRY(guest_run(g, "echo kept > /tmp/file; echo done", "done\n"));
    rig_stop(r);
    TRY(backend_kubernetes_new(&r->o, &r->b));
    TRY(r->b->ops->list(r->b, &list, &n));
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found |= str_eq(list[i].id, g->id) && !list[i].dead;
    free(list);
    MUST(found);
    TRY(attach_again(r, g, again));
    TRY(guest_run(again, "cat /tmp/file", "kept\n"));
    TRY(guest_destroy(again));
    guest_free(again);
    return NULL;
}

/* A create whose answer was lost is asked for again, by the next bothyd: it gets what the first has
 * made. While somebody has the box there is no second one of it. */
static err *case_existing(rig *r)
{
    guest *g = guest_new(r), *second = guest_new(r), *again = guest_new(r);

    TRY(guest_create(g, r->w.image));
    TRY(guest_run(g, "echo kept > /tmp/file; echo done", "done\n"));
    str_copy(second->id, sizeof second->id, g->id);
    str_copy(again->id, sizeof again->id, g->id);
    err *e = guest_create(second, r->w.image);
    MUST(e && e->code == ERR_CONFLICT);
    err_free(e);
    rig_stop(r);
    TRY(rig_start(r));
    TRY(guest_create(again, r->w.image));
    MUST(again->claimed);
    again->exec = g->exec + 10;
    TRY(guest_run(again, "cat /tmp/file", "kept\n"));
    TRY(guest_destroy(again));
    guest_free(second);
    guest_free(again);
    return NULL;
}

static err *delete_pod_of(rig *r, const char *id)
{
    kubernetes *b = kubernetes_of(r->b);
    CLEANUP(freep) char *name = NULL;

    {
        LOCK_SCOPE(&b->lock);
        const pod *p = pods_by_id(b, id);
        name = p ? xstrdup(p->f.name) : NULL;
    }
    MUST(name);
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, r->w.ns, name, NULL);
    return kube_delete(r->w.k, path, NULL, 1, NULL);
}

static void on_fate(void *arg, err *failure, const box_fate *fate)
{
    guest *g = arg;
    LOCK_SCOPE(&g->lock);

    g->failure = failure;
    g->status = fate ? fate->status : -1;
    g->started = fate && fate->oom_kills;
    g->answered = true;
    pthread_cond_broadcast(&g->changed);
}

static err *case_deleted_outside(rig *r)
{
    guest *g = guest_new(r);

    TRY(guest_create(g, r->w.image));
    TRY(delete_pod_of(r, g->id));
    if (!wait_flag(g, &g->gone, 30000))
        FAIL("its pod was deleted and it is not gone");
    printf("           %s\n", g->why);
    g->answered = false;
    r->b->ops->fate(r->b, g->id, 500, on_fate, g);
    MUST(wait_flag(g, &g->answered, 1000));
    TRY(TAKE_PTR(g->failure));
    guest_free(g);
    return NULL;
}

static err *case_no_image(rig *r)
{
    guest *g = guest_new(r);
    err *e = guest_create(g, "localhost/none:1");

    MUST(e && e->code == ERR_IMAGE_PULL_FAILED);
    printf("           %s\n", e->cause);
    err_free(e);
    guest_free(g);
    return NULL;
}

static err *case_burst(rig *r)
{
    enum {
        N = 6
    };
    guest *g[N];

    r->b->ops->pool(r->b, &(pool_marks){N, N}, &(pool_status){0});
    TRY(wait_ready(r, N));
    uint64_t began = now_mono_ns();
    for (int i = 0; i < N; i++) {
        g[i] = guest_new(r);
        TRY(guest_create(g[i], r->w.image));
        MUST(str_eq(g[i]->timing.klass, BOX_EXACT));
    }
    printf("           %d exact claims in %u ms\n", N, ms_since(began));
    r->b->ops->pool(r->b, &(pool_marks){1, 1}, &(pool_status){0});
    for (int i = 0; i < N; i++)
        TRY(r->b->ops->destroy(r->b, g[i]->id));
    for (int i = 0; i < N; i++) {
        if (!wait_flag(g[i], &g[i]->gone, 60000))
            FAIL("one is not gone");
        guest_free(g[i]);
    }
    return NULL;
}

/* ---- an API server that is away now and then ---- */

static err *proxied(const rig *r, const proxy *p, const char *cell, char *file, rig *ret)
{
    const char *host = strstr(r->w.config.server, "://") + 3;
    FILE *f = fopen(file, "we");

    MUST(f && r->w.config.ca_file && r->w.config.cert_file);
    fprintf(f,
            "clusters: [{name: c, cluster: {server: \"https://127.0.0.1:%d\", tls-server-name: "
            "\"%.*s\", certificate-authority: \"%s\"}}]\n"
            "users: [{name: u, user: {client-certificate: \"%s\", client-key: \"%s\"}}]\n"
            "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
            proxy_port(p), (int)strcspn(host, ":/"), host, r->w.config.ca_file,
            r->w.config.cert_file, r->w.config.key_file);
    fclose(f);
    *ret = *r;
    ret->o.kubeconfig = file;
    ret->o.cell = cell;
    ret->b = NULL;
    err *e = rig_start(ret);
    unlink(file);
    return e;
}

/* The connection breaks under a command, again and again: not a byte is lost or comes twice. */
static err *case_cut(rig *r)
{
    proxy *p = proxy_new(r->w.config.server);
    CLEANUP(freep) char *file = str_printf("%s/kubeconfig.%d", r->w.dir, (int)getpid());
    rig cut;
    guest *g = guest_new(&cut);

    TRY(proxied(r, p, "cut1", file, &cut));
    TRY(guest_create(g, r->w.image));
    char *argv[] = {"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do seq 1 100000; sleep 0.3; done",
                    NULL};
    exec_spec s = {.argv = argv, .exec_fd = -1};
    g->exec = 1;
    TRY(cut.b->ops->exec(g->x, 1, &s, -1));
    unsigned cuts = 0, attaches = 0;
    while (!wait_flag(g, &g->exited, 100) && cuts < 100) {
        if (g->attaches == attaches)
            continue; /* it is not back yet */
        attaches = g->attaches;
        proxy_cut_now(p);
        cuts++;
    }
    MUST(wait_flag(g, &g->exited, 60000));
    nap_ms(1500);
    printf("           %u cuts, %u attaches, %zu bytes\n", cuts, g->attaches, g->out.len);
    MUST(g->out.len == 10 * 588895);
    MUST(g->attaches > 3);
    TRY(guest_destroy(g));
    guest_free(g);
    rig_stop(&cut);
    proxy_free(p);
    return NULL;
}

/* While it is away a create fails so that it can be tried again, and what runs goes on. */
static err *case_away(rig *r)
{
    proxy *p = proxy_new(r->w.config.server);
    CLEANUP(freep) char *file = str_printf("%s/kubeconfig.%d", r->w.dir, (int)getpid());
    rig cut;
    guest *g = guest_new(&cut), *late = guest_new(&cut);

    TRY(proxied(r, p, "away", file, &cut));
    TRY(guest_create(g, r->w.image));
    char *argv[] = {"sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 1; done", NULL};
    exec_spec s = {.argv = argv, .exec_fd = -1};
    g->exec = 1;
    TRY(cut.b->ops->exec(g->x, 1, &s, -1));
    nap_ms(500);
    proxy_refuse(p, true);
    uint64_t began = now_mono_ns();
    err *e = guest_create(late, "localhost/busybox:b");
    MUST(e && e->code == ERR_UNAVAILABLE && e->retryable);
    printf("           away: refused after %u ms: %s\n", ms_since(began), e->message);
    err_free(e);
    nap_ms(2000);
    proxy_refuse(p, false);
    MUST(wait_flag(g, &g->exited, 60000));
    nap_ms(500);
    MUST(str_eq(buf_cstr(&g->out), "1\n2\n3\n4\n5\n6\n"));
    TRY(guest_destroy(g));
    guest_free(g);
    guest_free(late);
    rig_stop(&cut);
    proxy_free(p);
    return NULL;
}

/* What another client sees of one pod. */
typedef struct sighting {
    atomic_uint there, gone;
} sighting;

static void on_seen(void *arg, const char *uid, const json_t *object)
{
    sighting *s = arg;

    (void)uid, (void)object;
    s->there++;
}

static void on_seen_gone(void *arg, const char *uid, const json_t *object)
{
    sighting *s = arg;

    (void)uid, (void)object;
    s->gone++;
}

static const kube_watch_events SIGHTING = {on_seen, on_seen_gone, NULL};

static bool wait_count(atomic_uint *n, unsigned ms)
{
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;

    while (!*n && now_mono_ns() < until)
        nap_ms(20);
    return *n;
}

/* Its pod is made and nobody hears of it: the create fails, and the pod does not stay. */
static err *case_unheard(rig *r)
{
    proxy *p = proxy_new(r->w.config.server);
    CLEANUP(freep) char *file = str_printf("%s/kubeconfig.%d", r->w.dir, (int)getpid());
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, r->w.ns, NULL, NULL);
    sighting s = {0};
    rig cut;
    guest *g = guest_new(&cut);

    TRY(proxied(r, p, "unheard", file, &cut));
    CLEANUP(freep) char *fields = str_printf("metadata.name=bothy-%s", g->id);
    kube_watcher *watcher = kube_watcher_new(
        r->w.k,
        &(kube_watch_options){.path = path, .fields = fields, .events = &SIGHTING, .arg = &s});
    proxy_lose_after(p, UNHEARD_BYTES);
    proxy_cut_now(p); /* what is sent on a kept connection is sent again, and the pod is found */
    err *e = guest_create(g, r->w.image);
    proxy_lose_after(p, 0);
    printf("           unheard: %s\n", e ? str_or(e->cause, e->message) : "it was heard");
    bool made = wait_count(&s.there, 30000), gone = made && wait_count(&s.gone, 60000);
    kube_watcher_free(watcher);
    bool retryable = e && e->code == ERR_UNAVAILABLE && e->retryable;
    err_free(e);
    MUST(retryable && made && gone);
    guest_free(g);
    rig_stop(&cut);
    proxy_free(p);
    return NULL;
}

/* ---- pools that take any image ---- */

static err *any_wish(void *arg, const box_spec *spec, kubernetes_wish *wish)
{
    (void)arg, (void)spec;
    json_decref(TAKE_PTR(wish->spec));
    wish->pool = xstrdup("any");
    wish->any_image = true;
    return NULL;
}

static err *make_any(rig *r, const char *name)
{
    sandbox_spec s = {.limits = LIMITS_DEFAULT};
    box_spec spec = {.image_name = "localhost/busybox:a", .spec = &s};
    const pod_world *w = kubernetes_world(r->b);
    pod_name who = {.name = name, .pool = "any", .network = "none", .hash = "any"};
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, r->w.ns, NULL, NULL);
    json_t *pod_spec = NULL;

    s.limits.disk = 0;
    TRY(pod_spec_of(w, &spec, &pod_spec));
    json_object_set_new(pod_spec, "restartPolicy", json_string("Always"));
    link_nonce_new(who.nonce);
    CLEANUP(json_decrefp) json_t *o = pod_make(w, &who, pod_spec);
    return kube_create(r->w.k, path, o, NULL);
}

static unsigned ready_any(kubernetes *b)
{
    map_iter it = {0};
    unsigned n = 0;
    LOCK_SCOPE(&b->lock);

    while (map_next(&b->pods, &it)) {
        const pod *p = it.entry->value;
        n += p->ready && str_eq(p->f.pool, "any");
    }
    return n;
}

/* Warm pods of the cases before go in their own time: only the pool's own are counted. */
static err *wait_any(rig *r, unsigned n)
{
    for (int i = 0; i < 600; i++) {
        if (ready_any(kubernetes_of(r->b)) >= n)
            return NULL;
        nap_ms(100);
    }
    FAIL("%u pods of the pool are warm after a minute, not %u", ready_any(kubernetes_of(r->b)), n);
}

static err *claims_of_any(guest *same, guest *other)
{
    uint64_t began = now_mono_ns();
    TRY(guest_create(other, "localhost/busybox:b"));
    printf("           kubelet: %u ms to the claim\n", ms_since(began));
    MUST(str_eq(other->timing.klass, BOX_KUBELET));
    TRY(guest_run(other, "cat /version", "b\n"));
    TRY(guest_create(same, "localhost/busybox:a"));
    MUST(str_eq(same->timing.klass, BOX_EXACT));
    TRY(guest_run(same, "cat /version", "a\n"));
    TRY(guest_destroy(same));
    return guest_destroy(other);
}

static err *case_kubelet(rig *r)
{
    static const kubernetes_hooks HOOKS = {.wish = any_wish};

    r->b->ops->pool(r->b, &(pool_marks){0, 0}, &(pool_status){0});
    TRY(make_any(r, "any-1"));
    TRY(make_any(r, "any-2"));
    TRY(wait_any(r, 2));
    guest *same = guest_new(r), *other = guest_new(r);
    kubernetes_set_hooks(r->b, &HOOKS, NULL);
    err *e = claims_of_any(same, other);
    kubernetes_set_hooks(r->b, NULL, NULL); /* the cases behind this one have others */
    TRY(e);
    guest_free(same);
    guest_free(other);
    return NULL;
}

/* Retiring and claiming are decided in one place: one of them wins. */
static err *case_retire(rig *r)
{
    guest *g = guest_new(r);
    kubernetes *b = kubernetes_of(r->b);
    char uid[POD_UID_MAX + 1] = "";

    TRY(guest_create(g, r->w.image));
    {
        LOCK_SCOPE(&b->lock);
        str_copy(uid, sizeof uid, pods_by_id(b, g->id)->f.uid);
    }
    MUST(!kubernetes_retire(r->b, uid));
    MUST(kubernetes_init_of(r->b, uid) == KUBERNETES_CLAIMED);
    MUST(kubernetes_retire(r->b, "no-such-uid"));
    TRY(guest_destroy(g));
    guest_free(g);
    return NULL;
}

/* What the cases before have left is warm or gone: no stream is dialled, and none breaks by itself.
 */
static err *wait_settled(rig *r)
{
    pool_status s = {0};

    for (int i = 0; i < 600; i++) {
        TRY(r->b->ops->pool(r->b, NULL, &s));
        if (s.ready && !s.making && !s.dying)
            return NULL;
        nap_ms(100);
    }
    FAIL("%u pods are warm, %u are made and %u go after a minute", s.ready, s.making, s.dying);
}

/* A second bothyd of the cell: it makes nothing, and takes no stream from the first. */
static err *case_fence(rig *r)
{
    rig other = *r;
    guest *g = guest_new(&other);
    link_stats before = {0}, after = {0};

    TRY(wait_settled(r));
    link_host_stats(kubernetes_of(r->b)->links, &before);
    TRY(backend_kubernetes_new(&other.o, &other.b));
    nap_ms(3000);
    err *e = guest_create(g, r->w.image);
    MUST(e && e->code == ERR_UNAVAILABLE && e->retryable);
    printf("           %s: %s\n", e->message, e->cause);
    err_free(e);
    link_host_stats(kubernetes_of(r->b)->links, &after);
    rig_stop(&other);
    guest_free(g);
    MUST(after.lost == before.lost && after.ready >= 1);
    return NULL;
}

static void *destroy_later(void *arg)
{
    guest *g = arg;

    nap_ms(700);
    err_drop(g->rig->b->ops->destroy(g->rig->b, g->id), "destroy");
    return NULL;
}

/* Destroyed while it is made: the create fails, and no pod is left of it. */
static err *case_cancelled(rig *r)
{
    guest *g = guest_new(r);
    pthread_t t = thread_start("destroy", destroy_later, g);
    err *e = guest_create(g, "localhost/none:2");

    pthread_join(t, NULL);
    MUST(e && (e->code == ERR_SANDBOX_GONE || e->code == ERR_IMAGE_PULL_FAILED));
    err_free(e);
    for (int i = 0; i < 100; i++) {
        kubernetes *b = kubernetes_of(r->b);
        {
            LOCK_SCOPE(&b->lock);
            if (!pods_by_id(b, g->id))
                break;
        }
        nap_ms(100);
    }
    MUST(kubernetes_of(r->b)->nrequests == 0);
    guest_free(g);
    return NULL;
}

/* Cases before this one may have left some. */
static uint32_t live(kubernetes *b)
{
    map_iter it = {0};
    uint32_t n = 0;
    LOCK_SCOPE(&b->lock);

    while (map_next(&b->ids, &it)) {
        const pod *p = it.entry->value;
        n += !p->going && !p->f.deleting && p->f.phase != POD_ENDED;
    }
    return n;
}

/* As many as may be: the next waits, and gets its turn when one goes. */
static err *case_max(rig *r)
{
    guest *first = guest_new(r), *second = guest_new(r);
    kubernetes *b = kubernetes_of(r->b);

    TRY(guest_create(first, r->w.image));
    b->max = live(b);
    err *e = guest_create(second, r->w.image); /* it may wait for a second */
    MUST(e && e->code == ERR_POOL_EXHAUSTED && e->retryable);
    err_free(e);
    guest_free(second);
    second = guest_new(r);
    second->queue_ms = 30000;
    pthread_t t = thread_start("destroy", destroy_later, first);
    e = guest_create(second, r->w.image);
    pthread_join(t, NULL);
    b->max = 0;
    TRY(e);
    MUST(wait_flag(first, &first->gone, 10000));
    TRY(guest_destroy(second));
    guest_free(first);
    guest_free(second);
    return NULL;
}

/* The memory of a pod's pid 1 and all below it: who dies of it is told. */
static err *case_oom(rig *r)
{
    guest *g = guest_new(r);

    g->memory = 32 << 20;
    TRY(guest_create(g, r->w.image));
    TRY(guest_run(g, "head -c 200m /dev/zero | tail | wc -c; echo $?", NULL));
    TRY(guest_run(g, "echo alive", "alive\n"));
    TRY(guest_destroy(g));
    guest_free(g);
    return NULL;
}

static const struct {
    const char *name;
    err *(*run)(rig *r);
} CASES[] = {
    {"cold", case_cold},
    {"exact", case_exact},
    {"burst", case_burst},
    {"fence", case_fence},
    {"restart", case_restart},
    {"existing", case_existing},
    {"no_image", case_no_image},
    {"deleted_outside", case_deleted_outside},
    {"cut", case_cut},
    {"kubelet", case_kubelet},
    {"cancelled", case_cancelled},
    {"retire", case_retire},
    {"max", case_max},
    {"oom", case_oom},
    {"away", case_away},
    {"unheard", case_unheard},
};

static err *make_ns(rig *r)
{
    CLEANUP(freep) char *list = kube_path(&NAMESPACES, NULL, NULL, NULL);
    CLEANUP(json_decrefp)
    json_t *o =
        json_pack("{s:s, s:s, s:{s:s, s:{s:s}}}", "apiVersion", "v1", "kind", "Namespace",
                  "metadata", "name", r->w.ns, "labels", "pod-security.kubernetes.io/enforce",
                  r->o.baseline ? "baseline" : "restricted");
    err *e = kube_create(r->w.k, list, o, NULL);

    if (!kube_is(e, KUBE_EXISTS))
        TRY(e);
    else
        err_free(e);
    CLEANUP(freep) char *account = in_ns(&r->w, &SERVICE_ACCOUNTS, "default");
    for (int i = 0; i < 200; i++) {
        e = kube_get(r->w.k, account, NULL);
        if (!e)
            return NULL;
        err_free(e);
        nap_ms(100);
    }
    FAIL("no service account");
}

static int run(rig *r, char **names)
{
    unsigned counts[2] = {0};
    err *e = make_ns(r);

    if (!e)
        e = rig_start(r);
    if (e) {
        printf("  FAILED   start: %s: %s\n", e->message, str_or(e->cause, "-"));
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        uint64_t began = now_mono_ns();
        if (*names && !strstr(*names, CASES[i].name))
            continue;
        e = CASES[i].run(r);
        printf("  %s %s (%u ms)%s%s%s%s\n", e ? "FAILED  " : "ok      ", CASES[i].name,
               ms_since(began), e ? ": " : "", e ? e->message : "", e && e->cause ? ": " : "",
               e && e->cause ? e->cause : "");
        fflush(stdout);
        counts[e != NULL]++;
        err_free(e);
    }
    rig_stop(r);
    CLEANUP(freep) char *path = kube_path(&NAMESPACES, NULL, r->w.ns, NULL);
    err_drop(kube_delete(r->w.k, path, NULL, -1, NULL), "namespace");
    printf("%u passed, %u failed, 0 skipped\n", counts[0], counts[1]);
    return counts[1] ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {{"kubeconfig", 1, NULL, 'k'},
                                            {"image", 1, NULL, 'i'},
                                            {"bothy", 1, NULL, 'b'},
                                            {"dir", 1, NULL, 'd'},
                                            {"baseline", 0, NULL, 'B'},
                                            {"verbose", 0, NULL, 'v'},
                                            {0}};
    rig r = {.w = {.image = "localhost/busybox:a", .dir = "/tmp"}};
    char random[7], ns[32];

    signal(SIGPIPE, SIG_IGN);
    log_init("kube-box", LOG_ERROR);
    id_random(random, 6);
    snprintf(ns, sizeof ns, "kube-box-%s", random);
    r.w.ns = ns;
    r.o = (kubernetes_options){.cell = "test", .namespace = ns, .key = r.key, .vouched = true};
    random_bytes(r.key, sizeof r.key);
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        switch (c) {
        case 'k':
            r.o.kubeconfig = r.w.kubeconfig = optarg;
            break;
        case 'i':
            r.w.image = optarg;
            break;
        case 'b':
            r.o.bothy_image = optarg;
            break;
        case 'd':
            r.w.dir = optarg;
            break;
        case 'B':
            r.o.baseline = true;
            break;
        case 'v':
            log_init("kube-box", LOG_DEBUG);
            break;
        default:
            return 2;
        }
    }
    if (!r.w.kubeconfig || !r.o.bothy_image) {
        fputs(
            "usage: kube-box --kubeconfig FILE --bothy IMAGE [--image NAME] [--baseline] [CASES]\n",
            stderr);
        return 2;
    }
    err *e = kube_config_load(r.w.kubeconfig, NULL, &r.w.config);
    if (!e)
        e = kube_new(&r.w.config, &r.w.k);
    if (e) {
        fprintf(stderr, "%s\n", e->message);
        return 2;
    }
    int status = run(&r, argv + optind);
    kube_free(r.w.k);
    kube_config_done(&r.w.config);
    return status;
}
