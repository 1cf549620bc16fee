/* Pods kept warm without a pool, for each recently used recipe. The operator keeps the pods of its
 * pools warm. */
#include <string.h>

#include "backend/kubernetes/internal.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define PAUSE_NS     (2 * NS_PER_S)
#define PAUSE_MAX_NS (120 * NS_PER_S)
/* How long surplus pods stay. If the lease fails to keep a second bothyd of the cell away, its
 * claims are recorded by then. */
#define EXTRA_NS (20 * NS_PER_S)

static recipe *refill_find(kubernetes *b, const char *hash)
{
    for (size_t i = 0; i < b->nrecipes; i++)
        if (str_eq(b->recipes[i].hash, hash))
            return &b->recipes[i];
    return NULL;
}

/* Returns a place for a new recipe: a free one, or that of the least recently used one that makes
 * no pod now. NULL if there is none. */
static recipe *refill_place(kubernetes *b)
{
    recipe *oldest = NULL;

    if (b->nrecipes < RECIPES_MAX)
        return &b->recipes[b->nrecipes++];
    for (size_t i = 0; i < b->nrecipes; i++)
        if (!b->recipes[i].making && (!oldest || b->recipes[i].used_ns < oldest->used_ns))
            oldest = &b->recipes[i];
    if (oldest)
        json_decref(oldest->spec);
    return oldest;
}

void refill_used(kubernetes *b, const request *r)
{
    recipe *p = refill_find(b, r->wish.hash);

    if (!b->warm || r->wish.pool || !r->wish.spec)
        return;
    if (!p) {
        p = refill_place(b);
        if (!p)
            return;
        *p = (recipe){.spec = json_deep_copy(r->wish.spec), .network = r->network};
        str_copy(p->hash, sizeof p->hash, r->wish.hash);
    }
    p->used_ns = now_mono_ns();
    pthread_cond_broadcast(&b->changed);
}

static err *refill_make(kubernetes *b, const work *w, json_t **ret_object)
{
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, b->ns, NULL, NULL);
    char random[11];
    err *fenced = NULL;

    if (kubernetes_fenced(b, &fenced))
        return fenced;
    id_random(random, 10);
    CLEANUP(freep) char *name = str_printf("bothy-warm-%s", random);
    pod_name who = {.name = name, .network = w->text, .hash = w->id};
    link_nonce_new(who.nonce);
    CLEANUP(json_decrefp) json_t *body = pod_make(&b->world, &who, json_incref(w->json));
    err *e = kube_create(b->k, path, body, ret_object);
    FAULT_KILL("kubernetes.refilled");
    return e;
}

static void refill_failed(kubernetes *b, recipe *p, const err *e)
{
    uint64_t pause = PAUSE_NS << (p->failures < 6 ? p->failures : 6);

    p->failures++;
    p->not_before_ns = now_mono_ns() + (pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS);
    b->refills_failed++;
    str_copy(b->last_error, sizeof b->last_error, str_or(e->cause, e->message));
    log_warn("kubernetes", "no warm pod: %s: %s", e->message, str_or(e->cause, "-"));
}

static void run_refill(kubernetes *b, work *w)
{
    CLEANUP(json_decrefp) json_t *object = NULL;
    CLEANUP(err_freep) err *e = refill_make(b, w, &object);

    LOCK_SCOPE(&b->lock);
    recipe *p = refill_find(b, w->id);
    if (p)
        p->making--;
    if (p && e)
        refill_failed(b, p, e);
    if (!e) {
        pod *made = pods_put(b, object);
        if (made)
            pods_look(b, made);
        if (p)
            p->failures = 0;
    }
    work_free(w);
}

static void make_one(kubernetes *b, recipe *p)
{
    work *w = work_new(run_refill);

    w->id = xstrdup(p->hash);
    w->text = xstrdup(p->network);
    w->json = json_deep_copy(p->spec);
    p->making++;
    work_add(b, w);
}

static unsigned refill_count(kubernetes *b, const char *hash)
{
    map_iter it = {0};
    unsigned n = 0;

    while (map_next(&b->pods, &it)) {
        const pod *p = it.entry->value;
        n += pods_is_warm(p) && !p->r && !*p->f.pool && str_eq(p->f.hash, hash);
    }
    return n;
}

static void count_extra(kubernetes *b, uint64_t now)
{
    for (size_t i = 0; i < b->nrecipes; i++) {
        recipe *p = &b->recipes[i];
        if (refill_count(b, p->hash) <= b->warm)
            p->extra_ns = 0;
        else if (!p->extra_ns)
            p->extra_ns = now;
    }
}

/* Returns whether a pod is surplus, and has been for a while. */
static bool is_extra(kubernetes *b, const recipe *of, const pod *p, uint64_t now)
{
    uint64_t since = of ? of->extra_ns : p->seen_ns;

    return refill_count(b, p->f.hash) > b->warm && since && now - since >= EXTRA_NS;
}

/* Deletes warm pods of recipes not used lately, and surplus pods. */
static void refill_retire(kubernetes *b, uint64_t now)
{
    map_iter it = {0};

    count_extra(b, now);
    while (map_next(&b->pods, &it)) {
        pod *p = it.entry->value;
        const recipe *of = refill_find(b, p->f.hash);
        if (!pods_is_warm(p) || p->r || *p->f.pool)
            continue;
        bool lately = now - (of ? of->used_ns : p->seen_ns) < RECIPE_NS;
        if (!lately || is_extra(b, of, p, now)) {
            if (p->warm)
                link_warm_drop(p->warm);
            p->warm = NULL;
            p->ready = false;
            p->retired = true;
            pods_remove(b, p, "it is not needed any more");
        }
    }
}

void refill_look(kubernetes *b, uint64_t now)
{
    if (kubernetes_fenced(b, NULL))
        return;
    for (size_t i = 0; i < b->nrecipes; i++) {
        recipe *p = &b->recipes[i];
        if (now - p->used_ns >= RECIPE_NS || now < p->not_before_ns)
            continue;
        unsigned have = refill_count(b, p->hash) + p->making;
        for (; have < b->warm && b->pods.count + p->making < (b->max ? 2 * b->max : 4096); have++)
            make_one(b, p);
    }
    refill_retire(b, now);
}
