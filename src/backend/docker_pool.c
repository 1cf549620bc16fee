/* Containers kept warm for recently used shapes. They run init, and their streams are
 * authenticated: a claim sends one record and needs no call to the engine. */
#include <string.h>

#include "backend/docker.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define RECIPES_MAX 16
#define WARM_MAX    64               /* in total */
#define MAKING_MAX  2                /* at a time: a create that waits goes first */
#define LATELY_NS   (600 * NS_PER_S) /* how long an unused shape is kept */
#define BACK_OFF_NS (60 * NS_PER_S)  /* at most, between failed refills */
#define SWEEP_MS    30000
#define REFILL_MS   100 /* after a claim: a refill must not slow down the sandbox's first command */

typedef struct warm {
    struct warm *next;
    link_warm *link;
    docker_made made;
    bool ready;
} warm;

typedef struct recipe {
    char key[DOCKER_KEY_LEN + 1]; /* "": unused entry */
    docker_shape shape;
    limits limits; /* those of the last create */
    warm *all;
    unsigned n, making;
    uint64_t used_ns, next_try_ns;
    unsigned failures; /* in a row */
} recipe;

struct docker_pool {
    docker *d;
    pthread_mutex_t lock;
    recipe recipe[RECIPES_MAX];
    uint32_t want; /* per recipe */
    unsigned total, making;
    uint32_t refills_failed;
    uint64_t refill_ns; /* of the last refill */
    bool stopping;
    bool sweeping; /* a sweep is queued */
    char last_error[POOL_ERROR_MAX];
};

static void docker_pool_refill(void *arg);

static bool limits_equal(const limits *a, const limits *b)
{
    return a->memory == b->memory && a->cpu_milli == b->cpu_milli && a->pids == b->pids;
}

static recipe *docker_pool_find(docker_pool *p, const char *key)
{
    for (size_t i = 0; i < RECIPES_MAX; i++)
        if (!strcmp(p->recipe[i].key, key))
            return &p->recipe[i];
    return NULL;
}

/* ---- removing ---- */

static warm *unlink_warm(docker_pool *p, recipe *r, warm **at)
{
    warm *w = *at;

    *at = w->next;
    r->n--;
    p->total--;
    return w;
}

static void docker_pool_discard(docker_pool *p, warm *w)
{
    link_warm_drop(w->link);
    docker_remove_soon(p->d, w->made.handle);
    free(w);
}

static void docker_pool_empty(docker_pool *p, recipe *r)
{
    while (r->all)
        docker_pool_discard(p, unlink_warm(p, r, &r->all));
}

static void docker_pool_forget(docker_pool *p, recipe *r)
{
    docker_pool_empty(p, r);
    docker_shape_done(&r->shape);
    *r = (recipe){0};
}

/* ---- events of links ---- */

/* Their arg is the pool: a warm container may have been taken meanwhile. */

static warm **place_of(docker_pool *p, const link_warm *link, recipe **ret_recipe)
{
    for (size_t i = 0; i < RECIPES_MAX; i++)
        for (warm **at = &p->recipe[i].all; *at; at = &(*at)->next)
            if ((*at)->link == link) {
                *ret_recipe = &p->recipe[i];
                return at;
            }
    return NULL;
}

static void set_ready(docker_pool *p, const link_warm *link, bool ready)
{
    LOCK_SCOPE(&p->lock);
    recipe *r;
    warm **at = place_of(p, link, &r);

    if (at)
        (*at)->ready = ready;
}

static void on_ready(void *arg, link_warm *link)
{
    set_ready(arg, link, true);
}

static void on_lost(void *arg, link_warm *link)
{
    set_ready(arg, link, false);
}

static void on_ended(void *arg, link_warm *link, const char *why)
{
    docker_pool *p = arg;
    LOCK_SCOPE(&p->lock);
    recipe *r;
    warm **at = place_of(p, link, &r);

    if (!at)
        return;
    log_warn("pool", "a warm container has ended: %s", why);
    docker_pool_discard(p, unlink_warm(p, r, at));
    r->next_try_ns = now_mono_ns() + NS_PER_S;
    if (!p->stopping)
        docker_work_post(p->d->work, 1000, docker_pool_refill, p);
}

static const link_warm_events EVENTS = {.ready = on_ready, .lost = on_lost, .ended = on_ended};

/* ---- adding ---- */

/* Adds a container. The lock is held while the link is made, so that its first event finds the
 * entry. */
static err *docker_pool_keep(docker_pool *p, const char *key, const docker_made *m)
{
    LOCK_SCOPE(&p->lock);
    recipe *r = docker_pool_find(p, key);
    link_container c = {.handle = m->handle};
    warm *w;

    if (p->stopping || !r) /* not needed any more */
        return err_new(ERR_CONFLICT, "the pool has changed");
    memcpy(c.nonce, m->nonce, sizeof c.nonce);
    w = xcalloc(1, sizeof *w);
    w->made = *m;
    err *e = link_warm_new(p->d->links, &c, &EVENTS, p, &w->link);
    if (e) {
        free(w);
        return e;
    }
    w->next = r->all;
    r->all = w;
    r->n++;
    p->total++;
    r->failures = 0;
    return NULL;
}

static void docker_pool_failed(docker_pool *p, const char *key, const err *e)
{
    LOCK_SCOPE(&p->lock);
    recipe *r = docker_pool_find(p, key);

    p->refills_failed++;
    str_copy(p->last_error, sizeof p->last_error, str_or(e->cause, e->message));
    if (!r)
        return;
    unsigned shift = r->failures < 6 ? r->failures : 6;
    uint64_t wait = NS_PER_S << shift;
    r->failures++;
    r->next_try_ns = now_mono_ns() + (wait < BACK_OFF_NS ? wait : BACK_OFF_NS);
    log_warn("pool", "a container cannot be kept warm: %s (%s)", e->message, str_or(e->cause, "-"));
}

/* Returns a recipe that lacks a container and may be tried now, or NULL. */
static recipe *next_lack(docker_pool *p)
{
    uint64_t now = now_mono_ns();

    if (p->making >= MAKING_MAX || p->total + p->making >= WARM_MAX)
        return NULL;
    for (size_t i = 0; i < RECIPES_MAX; i++) {
        recipe *r = &p->recipe[i];
        if (*r->key && r->n + r->making < p->want && r->next_try_ns <= now)
            return r;
    }
    return NULL;
}

static bool docker_pool_begin(docker_pool *p, char ret_key[DOCKER_KEY_LEN + 1],
                              docker_shape *ret_shape, limits *ret_limits)
{
    LOCK_SCOPE(&p->lock);
    recipe *r = p->stopping ? NULL : next_lack(p);

    if (!r)
        return false;
    r->making++;
    p->making++;
    memcpy(ret_key, r->key, sizeof r->key);
    docker_shape_copy(ret_shape, &r->shape);
    *ret_limits = r->limits;
    return true;
}

static void docker_pool_end(docker_pool *p, const char *key, uint64_t took_ns)
{
    LOCK_SCOPE(&p->lock);
    recipe *r = docker_pool_find(p, key);

    p->making--;
    p->refill_ns = took_ns;
    if (r && r->making)
        r->making--;
}

/* Forgets shapes that were not used lately, then refills the others. */
static void docker_pool_sweep(void *arg)
{
    docker_pool *p = arg;
    uint64_t now = now_mono_ns();
    bool any = false;

    {
        LOCK_SCOPE(&p->lock);
        for (size_t i = 0; i < RECIPES_MAX; i++) {
            recipe *r = &p->recipe[i];
            if (*r->key && !r->making && now - r->used_ns > LATELY_NS)
                docker_pool_forget(p, r);
            any |= *r->key != 0;
        }
        p->sweeping = any && !p->stopping;
        if (p->sweeping)
            docker_work_post(p->d->work, SWEEP_MS, docker_pool_sweep, p);
    }
    docker_pool_refill(p);
}

/* Makes containers until no recipe lacks one. */
static void docker_pool_refill(void *arg)
{
    docker_pool *p = arg;
    char key[DOCKER_KEY_LEN + 1];
    docker_shape shape;
    limits l;

    while (docker_pool_begin(p, key, &shape, &l)) {
        docker_made made = {0};
        uint64_t began = now_mono_ns();
        err *e = docker_make(p->d, &shape, &l, NULL, NULL, &made);
        if (!e)
            e = docker_pool_keep(p, key, &made);
        if (e && *made.handle)
            docker_remove_soon(p->d, made.handle);
        if (e && !(e->code == ERR_CONFLICT && *made.handle))
            docker_pool_failed(p, key, e);
        err_free(e);
        docker_pool_end(p, key, now_mono_ns() - began);
        docker_shape_done(&shape);
    }
}

/* ---- taking ---- */

/* Returns the recipe of this key. A new one replaces the least recently used recipe, whose warm
 * containers are removed. NULL if every recipe has containers that are being made. */
static recipe *recipe_for(docker_pool *p, const char *key, const docker_shape *s)
{
    recipe *r = docker_pool_find(p, key), *oldest = NULL;

    if (r)
        return r;
    for (size_t i = 0; i < RECIPES_MAX; i++)
        if (!p->recipe[i].making && (!oldest || p->recipe[i].used_ns < oldest->used_ns))
            oldest = &p->recipe[i];
    if (!oldest)
        return NULL;
    docker_pool_forget(p, oldest);
    memcpy(oldest->key, key, sizeof oldest->key);
    docker_shape_copy(&oldest->shape, s);
    return oldest;
}

static warm **docker_pool_choose(docker_pool *p, recipe *r, const limits *l)
{
    warm **other = NULL;

    for (warm **at = &r->all; *at; at = &(*at)->next) {
        if (!(*at)->ready || !link_warm_ready((*at)->link))
            continue;
        if (limits_equal(&(*at)->made.limits, l))
            return at;
        other = at;
    }
    return docker_can_update(p->d) ? other : NULL;
}

static void docker_pool_use(docker_pool *p, recipe *r, const limits *l)
{
    r->used_ns = now_mono_ns();
    r->limits = *l;
    docker_work_post(p->d->work, REFILL_MS, docker_pool_refill, p);
    if (!p->sweeping)
        docker_work_post(p->d->work, SWEEP_MS, docker_pool_sweep, p);
    p->sweeping = true;
}

bool docker_pool_take(docker_pool *p, const docker_shape *s, const limits *l, docker_warm *ret)
{
    char key[DOCKER_KEY_LEN + 1];
    LOCK_SCOPE(&p->lock);

    if (!p->want || p->stopping)
        return false;
    docker_shape_key(s, key);
    recipe *r = recipe_for(p, key, s);
    if (!r)
        return false;
    warm **at = docker_pool_choose(p, r, l);
    if (at) {
        warm *w = unlink_warm(p, r, at);
        *ret = (docker_warm){w->link, w->made};
        free(w);
    }
    docker_pool_use(p, r, l);
    return at != NULL;
}

/* ---- status, and the end ---- */

bool docker_pool_has(docker_pool *p, const char *handle)
{
    LOCK_SCOPE(&p->lock);
    for (size_t i = 0; i < RECIPES_MAX; i++)
        for (const warm *w = p->recipe[i].all; w; w = w->next)
            if (!strcmp(w->made.handle, handle))
                return true;
    return false;
}

void docker_pool_status(docker_pool *p, const pool_marks *set, pool_status *ret)
{
    LOCK_SCOPE(&p->lock);
    if (set) {
        p->want = set->high < WARM_MAX ? set->high : WARM_MAX;
        for (size_t i = 0; i < RECIPES_MAX; i++)
            while (p->recipe[i].n > p->want)
                docker_pool_discard(p, unlink_warm(p, &p->recipe[i], &p->recipe[i].all));
        docker_work_post(p->d->work, 0, docker_pool_refill, p);
    }
    *ret = (pool_status){
        .making = p->making, .refills_failed = p->refills_failed, .refill_ns = p->refill_ns};
    for (size_t i = 0; i < RECIPES_MAX; i++) {
        for (warm *w = p->recipe[i].all; w; w = w->next)
            ret->ready += w->ready;
        ret->high += *p->recipe[i].key ? p->want : 0; /* all shapes together */
        if (p->recipe[i].failures > ret->failures)
            ret->failures = p->recipe[i].failures;
    }
    ret->high = ret->high < WARM_MAX ? ret->high : WARM_MAX;
    ret->low = ret->high;
    ret->state = !p->want        ? "each is made when it is asked for"
                 : ret->failures ? "refills fail"
                 : p->making     ? "being filled"
                 : !p->total     ? "nothing was used lately"
                                 : "full";
    str_copy(ret->last_error, sizeof ret->last_error, p->last_error);
}

docker_pool *docker_pool_new(docker *d, uint32_t want)
{
    docker_pool *p = xcalloc(1, sizeof *p);

    p->d = d;
    p->want = want < WARM_MAX ? want : WARM_MAX;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

void docker_pool_stop(docker_pool *p)
{
    if (!p)
        return;
    LOCK_SCOPE(&p->lock);
    p->stopping = true;
    for (size_t i = 0; i < RECIPES_MAX; i++)
        docker_pool_empty(p, &p->recipe[i]);
}

void docker_pool_free(docker_pool *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < RECIPES_MAX; i++)
        docker_shape_done(&p->recipe[i].shape);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
