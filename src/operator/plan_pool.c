/* Plans the creates, removals, target and status of a pool (plan_pool.h). */
#include "operator/plan_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "operator/names.h"
#include "operator/plan_pool_internal.h"

#define STARTUP_MS 120000 /* of a pool whose template does not exist */
#define REFILL_MS  5000   /* before one was measured */

static uint32_t plan_pool_minus(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static uint32_t plan_pool_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t plan_pool_most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint64_t plan_pool_since(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

/* ---- notes of outcomes ---- */

void pool_memory_done(pool_memory *m)
{
    free(m->message);
    *m = (pool_memory){0};
}

static void plan_pool_remember(pool_memory *m, enum pool_trouble why, const char *message)
{
    char *copy = message ? xstrdup(message) : NULL;

    free(m->message);
    m->message = copy;
    m->why = why;
}

void pool_note_created(pool_memory *m, uint32_t n)
{
    if (n)
        m->batch = plan_pool_least(plan_pool_most(m->batch, 1) * 2, POOL_BATCH_MAX);
    if (m->why == TROUBLE_QUOTA || m->why == TROUBLE_FORBIDDEN)
        plan_pool_remember(m, TROUBLE_NONE, NULL);
}

/* Pauses creates; the pause doubles with each consecutive failure. */
static void pause_creates(pool_memory *m, enum pool_trouble why, const char *message, uint64_t now)
{
    uint64_t pause = POOL_PAUSE_NS;

    for (uint32_t i = 0; i < m->failures && pause < POOL_PAUSE_MAX_NS; i++)
        pause *= 2;
    m->failures++;
    m->batch = 1;
    m->not_before_ns = now + (pause < POOL_PAUSE_MAX_NS ? pause : POOL_PAUSE_MAX_NS);
    plan_pool_remember(m, why, message);
}

void pool_note_refused(pool_memory *m, enum pool_trouble why, const char *message, uint64_t now)
{
    if (why != TROUBLE_QUOTA) {
        pause_creates(m, why, message, now);
        return;
    }
    /* A quota has room when other pods go, so the pause does not grow. */
    m->batch = 1;
    m->not_before_ns = now + POOL_QUOTA_NS;
    plan_pool_remember(m, why, message);
}

static void note_outcome(pool_memory *m, bool good, uint64_t now)
{
    m->outcome[m->noutcomes % POOL_OUTCOMES].at_ns = now;
    m->outcome[m->noutcomes++ % POOL_OUTCOMES].good = good;
}

void pool_note_warm(pool_memory *m, uint64_t now)
{
    note_outcome(m, true, now);
    m->warm_ns = now;
    m->failures = 0;
    if (m->why != TROUBLE_QUOTA && m->why != TROUBLE_FORBIDDEN) {
        m->not_before_ns = 0;
        plan_pool_remember(m, TROUBLE_NONE, NULL);
    }
}

/* Returns whether more than half of the starts in the last minutes failed. */
static bool is_failing(const pool_memory *m, uint64_t now)
{
    uint32_t n = plan_pool_least(m->noutcomes, POOL_OUTCOMES), bad = 0, all = 0;

    for (uint32_t i = 0; i < n; i++)
        if (plan_pool_since(m->outcome[i].at_ns, now) <= POOL_OUTCOMES_NS) {
            all++;
            bad += !m->outcome[i].good;
        }
    return bad * 2 > all;
}

/* ---- the state of a pod ---- */

static const char *const IMAGE_REASONS[] = {
    "ErrImagePull",      "ImagePullBackOff",    "InvalidImageName",         "ErrImageNeverPull",
    "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"};
static const char *const CONFIG_REASONS[] = {"CreateContainerConfigError", "CreateContainerError",
                                             "RunContainerError", "PreStartHookError",
                                             "CreatePodSandboxError"};

static bool is_one_of(const char *s, const char *const *all, size_t n)
{
    for (size_t i = 0; s && i < n; i++)
        if (!strcmp(s, all[i]))
            return true;
    return false;
}

enum pool_trouble pod_trouble(const pod_view *p)
{
    if (is_one_of(p->waiting, IMAGE_REASONS, ARRAY_LEN(IMAGE_REASONS)))
        return TROUBLE_IMAGE;
    if (is_one_of(p->waiting, CONFIG_REASONS, ARRAY_LEN(CONFIG_REASONS)))
        return TROUBLE_CONFIG;
    return p->waiting ? TROUBLE_CRASH : TROUBLE_NONE;
}

enum pod_kind pod_kind_of(const pool_pod *p)
{
    if (p->going || p->pod->meta.deleting_ns)
        return KIND_GOING;
    if (p->init == INIT_CLAIMED || pod_is_claimed(p->pod))
        return KIND_CLAIMED;
    if (p->pod->phase != POD_PENDING && p->pod->phase != POD_RUNNING)
        return KIND_ENDED;
    if (p->init == INIT_TAINTED)
        return KIND_TAINTED;
    if (p->init == INIT_RETIRED)
        return KIND_RETIRED;
    return p->init == INIT_WARM ? KIND_READY : KIND_STARTING;
}

static bool is_current(const pool_world *w, const pod_view *p)
{
    return !w->hash || str_eq(pod_label(p, LABEL_TEMPLATE_HASH), w->hash);
}

static uint64_t startup_ns(const pool_world *w)
{
    uint64_t ms =
        w->template && w->template->spec.startup_ms ? w->template->spec.startup_ms : STARTUP_MS;

    return ms * NS_PER_MS;
}

bool pod_is_placed(const pod_view *p)
{
    return !p->unschedulable && (p->node || p->phase != POD_PENDING || p->waiting);
}

static bool are_many_starting(const pool_world *w)
{
    uint32_t n = 0;

    for (size_t i = 0; i < w->npods && n < POOL_MANY; i++)
        n += pod_kind_of(&w->pods[i]) == KIND_STARTING;
    return n == POOL_MANY;
}

/* Returns when a pod's time to start is over. The time begins when it gets a node.
 * A node starts many pods one after the other, so the time begins again when
 * another pod comes up, up to a limit. */
static uint64_t startup_end(const pool_world *w, const pool_memory *m, const pool_pod *p, bool many)
{
    uint64_t all = startup_ns(w), began = p->placed_ns > p->seen_ns ? p->placed_ns : p->seen_ns;
    uint64_t latest = began + all * (POOL_TURNS - 1);

    if (many && m->warm_ns > began)
        began = m->warm_ns < latest ? m->warm_ns : latest;
    return began + all;
}

/* Returns whether a pod did not come up in time. A pod that was reached before is not
 * late: its stream broke, and plan_pod() handles that. A pod without a node waits: a
 * new one would not get one either. */
static bool is_stuck(const pool_world *w, const pool_memory *m, const pool_pod *p, bool many)
{
    return p->init == INIT_UNKNOWN && pod_is_placed(p->pod) && w->now > startup_end(w, m, p, many);
}

static void plan_pool_count(const pool_world *w, pool_counts *c)
{
    for (size_t i = 0; i < w->npods; i++) {
        enum pod_kind k = pod_kind_of(&w->pods[i]);
        c->going += k == KIND_GOING || k == KIND_RETIRED;
        c->claimed += k == KIND_CLAIMED;
        c->failed += k == KIND_ENDED || k == KIND_TAINTED;
        c->ready += k == KIND_READY;
        c->starting += k == KIND_STARTING;
        c->updated += (k == KIND_READY || k == KIND_STARTING) && is_current(w, w->pods[i].pod);
    }
}

/* ---- removals ---- */

static const char *const REMOVAL_TEXTS[REMOVALS] = {
    [REMOVE_EXCESS] = "more unclaimed pods than wanted",
    [REMOVE_STALE] = "made of an older template",
    [REMOVE_ENDED] = "it ended before it was claimed",
    [REMOVE_STUCK] = "it did not come up in its time",
    [REMOVE_TAINTED] = "its init is not the one that was started",
    [REMOVE_DRAINING] = "its pool is being deleted",
};

const char *removal_text(enum removal_why why)
{
    return REMOVAL_TEXTS[why < REMOVALS ? why : REMOVE_EXCESS];
}

typedef struct removals {
    pool_orders *o;
    bool *gone; /* by index of the pod */
} removals;

static void take_away(const pool_world *w, removals *r, size_t i, enum removal_why why)
{
    enum pod_kind k = pod_kind_of(&w->pods[i]);

    r->gone[i] = true;
    r->o->removals[r->o->nremovals++] =
        (pool_removal){w->pods[i].pod, why, k == KIND_READY || k == KIND_STARTING};
}

/* Removes retired pods, whatever the target is now: their deletion failed
 * before, and no claim gets them. */
static void remove_retired(const pool_world *w, removals *r)
{
    for (size_t i = 0; i < w->npods; i++)
        if (pod_kind_of(&w->pods[i]) == KIND_RETIRED)
            take_away(w, r, i, REMOVE_EXCESS);
}

/* Removes failed pods. Counts a failure for each pod, but pauses
 * creates at most once in a reconcile. */
static void remove_failed(const pool_world *w, pool_memory *m, removals *r)
{
    const pod_view *worst = NULL;
    enum pool_trouble why = TROUBLE_NONE;
    const char *how = NULL;
    bool many = are_many_starting(w);

    for (size_t i = 0; i < w->npods; i++) {
        const pool_pod *p = &w->pods[i];
        enum pod_kind k = pod_kind_of(p);
        bool stuck = k == KIND_STARTING && is_stuck(w, m, p, many);
        if (k != KIND_ENDED && k != KIND_TAINTED && !stuck)
            continue;
        take_away(w, r, i, stuck ? REMOVE_STUCK : k == KIND_ENDED ? REMOVE_ENDED : REMOVE_TAINTED);
        if (!is_current(w, p->pod))
            continue;
        note_outcome(m, false, w->now);
        worst = p->pod;
        why = pod_trouble(p->pod);
        how = stuck ? "it did not come up in its time (timeouts.startup)" : "it ended";
        if (why == TROUBLE_NONE)
            why = stuck ? TROUBLE_STARTUP : TROUBLE_CRASH;
    }
    if (!worst || !is_failing(m, w->now))
        return;
    const char *said = worst->waiting_message ? worst->waiting_message : worst->message;
    CLEANUP(freep)
    char *text = str_printf("pod %s: %s%s%s", worst->meta.name,
                            str_or(worst->waiting ? worst->waiting : worst->reason, how),
                            said ? ": " : "", str_or(said, ""));
    pause_creates(m, why, text, w->now);
}

typedef struct candidate {
    size_t at;
    int rank; /* lower ones are removed first */
    uint64_t seen_ns;
} candidate;

static int by_rank(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->seen_ns > y->seen_ns ? -1 : x->seen_ns < y->seen_ns;
}

/* Returns the unclaimed pods that stay, in the order of removal: not ready ones, then those of an
 * older template, then the newest. */
static candidate *plan_pool_unclaimed(const pool_world *w, const removals *r, size_t *ret_n)
{
    candidate *all = xcalloc(w->npods + 1, sizeof *all);
    size_t n = 0;

    for (size_t i = 0; i < w->npods; i++) {
        enum pod_kind k = pod_kind_of(&w->pods[i]);
        if (r->gone[i] || (k != KIND_READY && k != KIND_STARTING))
            continue;
        int rank = k == KIND_STARTING ? 0 : is_current(w, w->pods[i].pod) ? 2 : 1;
        all[n++] = (candidate){i, rank, w->pods[i].seen_ns};
    }
    qsort(all, n, sizeof *all, by_rank);
    *ret_n = n;
    return all;
}

static void remove_excess(const pool_world *w, uint32_t target, removals *r, enum removal_why why)
{
    size_t n;
    CLEANUP(freep) candidate *all = plan_pool_unclaimed(w, r, &n);

    for (size_t i = 0; i < n && n - i + w->coming > target; i++)
        take_away(w, r, all[i].at, why);
}

/* Removes all stale pods that are not ready. Of the ready ones it removes at most maxUnavailable,
 * and none while creates are failing. */
static void remove_stale(const pool_world *w, uint32_t target, bool ready_too, removals *r)
{
    size_t n;
    CLEANUP(freep) candidate *all = plan_pool_unclaimed(w, r, &n);
    uint32_t ready = 0;

    for (size_t i = 0; i < n; i++)
        ready += all[i].rank > 0;
    uint32_t may = plan_pool_minus(pool_max_unavailable(&w->pool->spec, target),
                                   plan_pool_minus(target, ready));
    if (!ready_too)
        may = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_current(w, w->pods[all[i].at].pod) || (all[i].rank && !may))
            continue;
        may -= all[i].rank > 0;
        take_away(w, r, all[i].at, REMOVE_STALE);
    }
}

static void remove_claimed(const pool_world *w, removals *r)
{
    for (size_t i = 0; i < w->npods; i++)
        if (pod_kind_of(&w->pods[i]) == KIND_CLAIMED)
            take_away(w, r, i, REMOVE_DRAINING);
}

/* ---- the target ---- */

/* Returns the target that demand asks for, independent of the last target. */
static uint32_t plan_pool_demanded(const pool_world *w, bool idle)
{
    const autoscale_spec *a = &w->pool->spec.autoscale;
    uint64_t seconds_milli = (w->refill_ms ? w->refill_ms : REFILL_MS) + a->headroom_s * 1000ull;
    uint64_t want = (w->rate * seconds_milli + 999999) / 1000000;

    /* A pool that was claimed lately keeps one pod, however rarely it is claimed. */
    if (!idle && !want)
        want = 1;
    if (idle)
        want = 0;
    if (want < w->pending)
        want = w->pending;
    return plan_pool_most(plan_pool_least(want < a->max ? (uint32_t)want : a->max, a->max), a->min);
}

static uint32_t plan_pool_autoscaled(const pool_world *w, pool_memory *m, uint32_t have)
{
    const autoscale_spec *a = &w->pool->spec.autoscale;
    bool idle = !w->pending && w->claimed_ago >= a->idle_after_ms * NS_PER_MS;
    uint32_t want = plan_pool_demanded(w, idle);

    /* Pods of a previous operator process are scaled down in steps, too. */
    uint32_t was =
        m->has_target ? m->target : plan_pool_least(plan_pool_most(have, a->min), a->max);
    if (want >= was || idle)
        return want;
    if (m->lowered_ns && plan_pool_since(m->lowered_ns, w->now) < POOL_DOWN_NS)
        return plan_pool_most(plan_pool_least(was, a->max), a->min);
    m->lowered_ns = w->now;
    return plan_pool_most(want, was - plan_pool_most(was * POOL_DOWN_PERCENT / 100, 1));
}

static uint32_t target_of(const pool_world *w, pool_memory *m, pool_orders *o)
{
    const pool_spec *s = &w->pool->spec;
    uint32_t have = o->counts.ready + o->counts.starting + w->coming;

    o->scaling_conflict = s->has_autoscale && s->scaled_by;
    uint32_t target =
        s->has_autoscale && !o->scaling_conflict ? plan_pool_autoscaled(w, m, have) : s->replicas;
    if (w->pool->meta.deleting_ns || o->trouble == TROUBLE_POLICY)
        target = 0;
    if (!m->has_target || m->target != target)
        m->scaled_ns = w->now_real;
    m->target = target;
    m->has_target = true;
    return target;
}

/* ---- trouble ---- */

static const char *const TROUBLE_REASONS[TROUBLES] = {
    [TROUBLE_NONE] = "Healthy",
    [TROUBLE_TEMPLATE_MISSING] = "TemplateMissing",
    [TROUBLE_TEMPLATE_INVALID] = "TemplateInvalid",
    [TROUBLE_NAMESPACE] = "NamespaceNotAllowed",
    [TROUBLE_POLICY] = "PolicyNotEnforced",
    [TROUBLE_QUOTA] = "QuotaExceeded",
    [TROUBLE_FORBIDDEN] = "Forbidden",
    [TROUBLE_IMAGE] = "ImagePull",
    [TROUBLE_CONFIG] = "ConfigError",
    [TROUBLE_CRASH] = "CrashLoop",
    [TROUBLE_UNSCHEDULABLE] = "Unschedulable",
    [TROUBLE_STARTUP] = "StartupTimeout",
};

const char *pool_trouble_reason(enum pool_trouble t)
{
    return TROUBLE_REASONS[t < TROUBLES ? t : TROUBLE_NONE];
}

static void plan_pool_say(pool_orders *o, enum pool_trouble t, char *message)
{
    free(o->trouble_message);
    o->trouble = t;
    o->trouble_message = message;
}

static bool template_trouble(const pool_world *w, pool_orders *o)
{
    const crd_pool *p = w->pool;

    if (!w->template)
        plan_pool_say(o, TROUBLE_TEMPLATE_MISSING,
                      str_printf("there is no SandboxTemplate '%s'", p->spec.template));
    else if (w->template_error)
        plan_pool_say(o, TROUBLE_TEMPLATE_INVALID, xstrdup(w->template_error));
    else if (!template_allows_namespace(&w->template->spec, p->meta.namespace))
        plan_pool_say(o, TROUBLE_NAMESPACE,
                      str_printf("the template '%s' is not for the namespace '%s'",
                                 p->spec.template, p->meta.namespace));
    else if (!policy_allows(&w->template->spec.network, w->policy))
        plan_pool_say(
            o, TROUBLE_POLICY,
            xstrdup("this cluster does not enforce NetworkPolicies: a pod reached what its policy "
                    "forbids. A template with egress All does without"));
    return o->trouble != TROUBLE_NONE;
}

/* Reports a pod of the current template that does not come up: more pods would not either. */
static void pods_trouble(const pool_world *w, pool_orders *o)
{
    for (size_t i = 0; i < w->npods && !o->trouble; i++) {
        const pool_pod *p = &w->pods[i];
        if (pod_kind_of(p) != KIND_STARTING || !is_current(w, p->pod))
            continue;
        enum pool_trouble t = pod_trouble(p->pod);
        if (t)
            plan_pool_say(o, t,
                          str_printf("pod %s: %s: %s", p->pod->meta.name, p->pod->waiting,
                                     str_or(p->pod->waiting_message, "")));
        else if (p->pod->unschedulable && plan_pool_since(p->seen_ns, w->now) > POOL_UNSCHEDULED_NS)
            plan_pool_say(o, TROUBLE_UNSCHEDULABLE,
                          str_printf("pod %s: %s", p->pod->meta.name,
                                     str_or(p->pod->unschedulable_why, "no node takes it")));
    }
}

static void find_trouble(const pool_world *w, const pool_memory *m, pool_orders *o)
{
    if (!template_trouble(w, o))
        pods_trouble(w, o);
    o->held = o->trouble != TROUBLE_NONE;
    if (!o->trouble && m->why)
        plan_pool_say(o, m->why, m->message ? xstrdup(m->message) : NULL);
}

/* ---- creates ---- */

static uint32_t plan_pool_creates(const pool_world *w, const pool_memory *m, const pool_orders *o,
                                  uint32_t staying)
{
    const pool_spec *s = &w->pool->spec;
    uint32_t all = staying + w->coming + o->counts.claimed;
    uint32_t room = s->max_sandboxes ? plan_pool_minus(s->max_sandboxes, all) : UINT32_MAX;

    if (o->held || w->now < m->not_before_ns || w->pool->meta.deleting_ns)
        return 0;
    uint32_t wanted = plan_pool_minus(o->target, staying + w->coming);
    return plan_pool_least(plan_pool_least(wanted, room), plan_pool_most(m->batch, 1));
}

static void plan_pool_sooner(uint64_t *at, uint64_t then)
{
    if (!*at || then < *at)
        *at = then;
}

/* Returns when the plan changes through time alone. */
static uint64_t next_look(const pool_world *w, const pool_memory *m, const pool_orders *o)
{
    const pool_spec *s = &w->pool->spec;
    uint64_t at = 0;
    bool many = are_many_starting(w);

    if (m->not_before_ns > w->now)
        plan_pool_sooner(&at, m->not_before_ns);
    for (size_t i = 0; i < w->npods; i++) {
        const pool_pod *p = &w->pods[i];
        if (pod_kind_of(p) != KIND_STARTING)
            continue;
        uint64_t then =
            pod_is_placed(p->pod) ? startup_end(w, m, p, many) : p->seen_ns + POOL_UNSCHEDULED_NS;
        if (then >= w->now)
            plan_pool_sooner(&at, then + 1);
    }
    if (s->has_autoscale && !o->scaling_conflict && o->target > s->autoscale.min)
        plan_pool_sooner(&at, w->now + POOL_DOWN_NS / 4);
    return at;
}

/* ---- the plan ---- */

static void begin_anew(const pool_world *w, pool_memory *m)
{
    if (!w->hash || !strcmp(m->hash, w->hash))
        return;
    str_copy(m->hash, sizeof m->hash, w->hash);
    m->failures = m->noutcomes = 0;
    if (m->why != TROUBLE_QUOTA && m->why != TROUBLE_FORBIDDEN) {
        m->not_before_ns = 0;
        plan_pool_remember(m, TROUBLE_NONE, NULL);
    }
}

static void plan_finalizer(const pool_world *w, pool_orders *o)
{
    bool has = object_has_finalizer(&w->pool->meta, FINALIZER_POOL);

    o->add_finalizer = !w->pool->meta.deleting_ns && !has;
    o->drop_finalizer = w->pool->meta.deleting_ns && has && !w->npods && !w->coming;
}

static void plan_removals(const pool_world *w, pool_memory *m, removals *r)
{
    pool_orders *o = r->o;
    bool draining = w->pool->meta.deleting_ns != 0;

    remove_excess(w, o->target, r, draining ? REMOVE_DRAINING : REMOVE_EXCESS);
    if (draining && str_eq(strv_env_get(w->pool->meta.annotations, NOTE_FORCE), "true"))
        remove_claimed(w, r);
    if (!draining && w->hash && w->pool->spec.update.strategy == UPDATE_ROLLING)
        remove_stale(w, o->target, !o->trouble && w->now >= m->not_before_ns, r);
}

void plan_pool(const pool_world *w, pool_memory *m, pool_orders *ret_orders)
{
    pool_orders *o = ret_orders;
    CLEANUP(freep) bool *gone = xcalloc(w->npods + 1, sizeof *gone);
    removals r = {o, gone};

    *o = (pool_orders){.removals = xcalloc(w->npods + 1, sizeof *o->removals)};
    begin_anew(w, m);
    plan_pool_count(w, &o->counts);
    remove_retired(w, &r);
    remove_failed(w, m, &r);
    find_trouble(w, m, o);
    o->target = target_of(w, m, o);
    plan_removals(w, m, &r);
    uint32_t staying = 0;
    for (size_t i = 0; i < w->npods; i++) {
        enum pod_kind k = pod_kind_of(&w->pods[i]);
        staying += !gone[i] && (k == KIND_READY || k == KIND_STARTING);
    }
    o->create = plan_pool_creates(w, m, o, staying);
    plan_finalizer(w, o);
    o->again_ns = next_look(w, m, o);
    o->status = pool_status_json(w, m, o);
}

void pool_orders_done(pool_orders *o)
{
    free(o->removals);
    free(o->trouble_message);
    json_decref(o->status);
    *o = (pool_orders){0};
}
