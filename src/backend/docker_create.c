/* Creates: claims a warm container or makes one; and the queue of waiting creates. */
#include <stdlib.h>
#include <string.h>

#include "backend/docker.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/thread.h"

#define CLAIM_MS  30000 /* from a running container to a claimed sandbox */
#define TRIES     3     /* of a create that lost its warm container on the way */
#define RENAME_MS 300   /* delayed to keep off the claim; no caller waits for it */

/* Converts the error of an engine that could not make a container. */
static err *make_error(err *e)
{
    if (!e || e->code == ERR_UNAVAILABLE)
        return docker_away(e);
    if (e->code == ERR_NOT_FOUND)
        return err_kind(err_wrap(e, "cannot make the sandbox"), "image");
    bool full = e->cause && strstr(e->cause, "no space left");
    e->code = full ? ERR_DISK_FULL : ERR_CREATE_FAILED;
    e->retryable = true;
    return err_wrap(e, "cannot make the sandbox");
}

/* ---- create ---- */

struct creation {
    creation *next; /* in the queue of waiting creates */
    docker *d;
    box_spec spec; /* a copy: the caller's is gone when create returns */
    sandbox_spec inner;
    docker_shape shape;
    const box_events *ev;
    void *arg;
    create_done *done;
    link_warm *link;
    docker_made made;
    const char *klass;
    uint64_t asked_ns, until_ns, began_ns, built_ns;
    unsigned tries;
};

static void wipe_env(char **env)
{
    for (char **e = env; e && *e; e++)
        secret_freep(e);
    free(env);
}

static void creation_free(creation *c)
{
    wipe_env(c->spec.env);
    free((char *)c->spec.hostname);
    free((char *)c->spec.user);
    free((char *)c->spec.cwd);
    docker_shape_done(&c->shape);
    free(c);
}

static char *copy_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static creation *creation_new(docker *d, const box_spec *s, const box_events *ev, void *arg,
                              create_done *done)
{
    creation *c = xcalloc(1, sizeof *c);
    docker_shape shape = docker_shape_of(s);

    *c = (creation){.d = d, .spec = *s, .ev = ev, .arg = arg, .done = done};
    c->inner = (sandbox_spec){.limits = s->spec->limits, .setuid = s->spec->setuid};
    c->spec.spec = &c->inner;
    c->spec.env = s->env ? strv_copy(s->env) : NULL;
    c->spec.hostname = copy_or_null(s->hostname);
    c->spec.user = copy_or_null(s->user);
    c->spec.cwd = copy_or_null(s->cwd);
    c->spec.image_name = NULL;
    docker_shape_copy(&c->shape, &shape);
    c->asked_ns = now_mono_ns();
    c->until_ns = c->asked_ns + s->queue_ms * NS_PER_MS;
    return c;
}

/* Ends a create without a box. Its place goes to the next waiting create. */
static void docker_create_fail(creation *c, err *e)
{
    docker *d = c->d;

    {
        LOCK_SCOPE(&d->lock);
        docker_box_forget(d, c->spec.id);
    }
    c->done(c->arg, e, NULL, NULL);
    creation_free(c);
    docker_admit_next(d);
}

typedef struct refusal {
    creation *c;
    err *e;
} refusal;

static void fail_job(void *arg)
{
    refusal *r = arg;

    docker_create_fail(r->c, r->e);
    free(r);
}

/* Fails on a worker thread: `done` must not be called inside create. */
static void fail_soon(creation *c, err *e)
{
    refusal *r = xcalloc(1, sizeof *r);

    *r = (refusal){c, e};
    docker_work_post(c->d->work, 0, fail_job, r);
}

static void cold_job(void *arg);

/* Returns false if the box was destroyed meanwhile. */
static bool is_wanted(const creation *c)
{
    docker_box x;

    return docker_box_get(c->d, c->spec.id, &x);
}

static bool may_try_again(const creation *c, const err *e)
{
    return str_eq(c->klass, BOX_EXACT) && is_wanted(c) && c->tries < TRIES &&
           e->code != ERR_WALL_FAILED && !atomic_load(&c->d->closing);
}

/* Converts the error of a failed claim: a container that ended on the way is a failed create, not a
 * sandbox that ended. */
static err *claim_error(err *e)
{
    if (e->code == ERR_SANDBOX_GONE)
        e->code = ERR_CREATE_FAILED;
    if (e->code == ERR_TIMEOUT) /* the engine was away for that long */
        e->code = ERR_UNAVAILABLE;
    e->retryable = e->retryable || err_info_of(e->code)->retryable;
    return docker_away(e);
}

static void docker_create_claimed(void *arg, err *failure, box *made, const box_timing *timing)
{
    creation *c = arg;
    docker *d = c->d;

    if (failure) {
        docker_claim_erase(d, c->made.handle); /* the container will not be renamed either */
        docker_remove_soon(d, c->made.handle);
        if (!may_try_again(c, failure)) {
            docker_create_fail(c, claim_error(failure));
            return;
        }
        err_free(failure);
        docker_work_post(d->work, 0, cold_job, c);
        return;
    }
    box_timing t = *timing;
    t.klass = c->klass;
    t.queue_ns = c->began_ns - c->asked_ns;
    t.build_ns = c->built_ns - c->began_ns;
    {
        LOCK_SCOPE(&d->lock);
        docker_box *x = map_get_str(&d->boxes, c->spec.id);
        if (x)
            x->making = false;
    }
    FAULT_KILL("docker.claimed");
    c->done(c->arg, NULL, made, &t);
    creation_free(c);
}

/* Claims the container through its link. Does not wait. */
static void docker_create_claim(creation *c)
{
    docker *d = c->d;
    bool warm = str_eq(c->klass, BOX_EXACT);
    char handle[DOCKER_ID_LEN + 1];
    err *e = NULL;

    c->tries++;
    c->built_ns = now_mono_ns();
    memcpy(handle, c->made.handle, sizeof handle);
    {
        LOCK_SCOPE(&d->lock);
        docker_box *x = map_get_str(&d->boxes, c->spec.id);
        if (x)
            docker_box_contain(d, x, &c->made);
        else
            e = err_new(ERR_CREATE_FAILED, "sandbox %s was destroyed meanwhile", c->spec.id);
    }
    if (warm && !e)
        e = docker_claim_write(d, handle, c->spec.id);
    FAULT_KILL("docker.noted");
    if (warm && !e)
        docker_rename_soon(d, handle, c->spec.id, RENAME_MS);
    link_warm *link = c->link;
    if (!e)
        /* c may be freed by now */
        e = link_claim(link, &c->spec, CLAIM_MS, c->ev, c->arg, docker_create_claimed, c);
    if (!e)
        return;
    link_warm_drop(link);
    docker_remove_soon(d, handle);
    fail_soon(c, e);
}

/* Takes over the container of this name: an earlier request with the same id made it before bothyd
 * was killed. */
static err *take_existing(creation *c, const char *name)
{
    docker *d = c->d;
    CLEANUP(docker_container_done) docker_container x = {0};

    TRY(docker_inspect(d->api, name, &x));
    if (!str_eq(docker_label(x.labels, DOCKER_LABEL_CELL), d->cell) ||
        !docker_nonce_of(x.labels, c->made.nonce))
        return err_new(ERR_CONFLICT, "the engine has a container %s that is not ours", name);
    str_copy(c->made.handle, sizeof c->made.handle, x.id);
    c->made.limits = c->inner.limits;
    return docker_start(d->api, x.id);
}

static err *make_cold(creation *c)
{
    static const link_warm_events NONE = {0};
    char name[DOCKER_NAME_MAX];
    link_container to = {0};

    docker_name_of(c->spec.id, name);
    err *e = docker_make(c->d, &c->shape, &c->inner.limits, name,
                         str_or(c->spec.hostname, c->spec.id), &c->made);
    if (e && e->code == ERR_CONFLICT) {
        err_free(e);
        e = take_existing(c, name);
    }
    TRY(make_error(e));
    FAULT_KILL("docker.made");
    to.handle = c->made.handle;
    memcpy(to.nonce, c->made.nonce, sizeof to.nonce);
    e = link_warm_new(c->d->links, &to, &NONE, NULL, &c->link);
    if (e)
        docker_remove_soon(c->d, c->made.handle);
    return e;
}

static void cold_job(void *arg)
{
    creation *c = arg;
    err *e = NULL;

    c->klass = BOX_COLD;
    if (atomic_load(&c->d->closing))
        e = err_new(ERR_DRAINING, "bothyd ends");
    else
        e = make_cold(c);
    if (e)
        docker_create_fail(c, e);
    else
        docker_create_claim(c);
}

/* Changes the limits of a warm container, then claims it. */
static void update_job(void *arg)
{
    creation *c = arg;
    docker *d = c->d;
    CLEANUP(json_decrefp)
    json_t *body = docker_limits_json(docker_api_engine(d->api), &c->inner.limits);
    err *e = atomic_load(&d->closing) ? err_new(ERR_DRAINING, "bothyd ends")
                                      : docker_update(d->api, c->made.handle, body);

    docker_making_end(d, c->made.handle);
    if (!e) {
        c->made.limits = c->inner.limits;
        docker_create_claim(c);
        return;
    }
    err_drop(e, "docker");
    link_warm_drop(c->link);
    docker_remove_soon(d, c->made.handle);
    cold_job(c);
}

static bool limits_fit(const creation *c)
{
    const limits *a = &c->made.limits, *b = &c->inner.limits;

    return a->memory == b->memory && a->cpu_milli == b->cpu_milli && a->pids == b->pids;
}

/* Begins a create that has a place. Does not wait. */
static void docker_create_begin(creation *c)
{
    docker *d = c->d;
    docker_warm w;

    c->began_ns = now_mono_ns();
    if (!docker_pool_take(d->pool, &c->shape, &c->inner.limits, &w)) {
        docker_work_post(d->work, 0, cold_job, c);
        return;
    }
    c->klass = BOX_EXACT;
    c->link = w.link;
    c->made = w.made;
    if (limits_fit(c)) {
        docker_create_claim(c);
        return;
    }
    docker_making_begin(d, c->made.handle); /* it belongs to neither the pool nor a box meanwhile */
    docker_work_post(d->work, 0, update_job, c);
}

static void begin_job(void *arg)
{
    docker_create_begin(arg);
}

/* ---- room ---- */

static bool take_place(docker *d, creation *c)
{
    LOCK_SCOPE(&d->lock);

    if (d->live < d->max && !d->waiting) {
        docker_box_add(d, c->spec.id)->making = true;
        return true;
    }
    *d->last = c;
    d->last = &c->next;
    return false;
}

/* Takes the first waiting create if there is room for it; otherwise returns NULL. */
static creation *next_waiting(docker *d)
{
    LOCK_SCOPE(&d->lock);
    creation *c = d->waiting;

    if (!c || d->live >= d->max)
        return NULL;
    d->waiting = c->next;
    if (!d->waiting)
        d->last = &d->waiting;
    docker_box_add(d, c->spec.id)->making = true;
    return c;
}

void docker_admit_next(docker *d)
{
    for (creation *c; (c = next_waiting(d));)
        docker_work_post(d->work, 0, begin_job, c);
}

static creation *take_late(docker *d, bool all)
{
    LOCK_SCOPE(&d->lock);
    uint64_t now = now_mono_ns();
    creation *late = NULL, **at = &d->waiting;

    while (*at) {
        creation *c = *at;
        if (!all && c->until_ns > now) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = late;
        late = c;
    }
    d->last = at;
    return late;
}

void docker_create_expire(void *arg)
{
    docker *d = arg;
    bool closing = atomic_load(&d->closing);
    creation *c = take_late(d, closing), *next;

    for (; c; c = next) {
        next = c->next;
        err *e = closing ? err_new(ERR_DRAINING, "bothyd ends")
                         : err_retry_after(err_new(ERR_POOL_EXHAUSTED,
                                                   "%u sandboxes are as many as may be", d->max),
                                           DOCKER_RETRY_S);
        c->done(c->arg, e, NULL, NULL);
        creation_free(c);
    }
}

void docker_waiting(docker *d, pool_status *ret)
{
    LOCK_SCOPE(&d->lock);
    for (const creation *c = d->waiting; c; c = c->next) {
        uint64_t waits = now_mono_ns() - c->asked_ns;
        ret->waiting++;
        if (waits > ret->oldest_wait_ns)
            ret->oldest_wait_ns = waits;
    }
}

static err *check_spec(const docker *d, const box_spec *s)
{
    if (s->spec->network == NETWORK_OPEN && !d->network)
        return err_remedy(err_new(ERR_UNSUPPORTED, "this node gives no network"),
                          "Name a network of the engine in backend.network, or leave it out.");
    return NULL;
}

void docker_create_box(backend *b, const box_spec *s, const box_events *ev, void *arg,
                       create_done *done)
{
    docker *d = (docker *)b;
    creation *c = creation_new(d, s, ev, arg, done);
    err *e = check_spec(d, s);

    if (e)
        fail_soon(c, e);
    else if (take_place(d, c))
        docker_create_begin(c);
    else
        docker_work_post(d->work, (unsigned)s->queue_ms + 1, docker_create_expire, d);
}
