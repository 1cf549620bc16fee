/* Plans one Sandbox object (plan_sandbox.h). */
#include "operator/plan_sandbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "operator/names.h"
#include "operator/status.h"
#include "operator/text.h"

const char *const SANDBOX_ACT_NAMES[SANDBOX_ACTS] = {
    [SANDBOX_NOTHING] = "nothing",
    [SANDBOX_ADD_FINALIZER] = "add finalizer",
    [SANDBOX_CLAIM] = "claim",
    [SANDBOX_HIBERNATE] = "hibernate",
    [SANDBOX_RESUME] = "resume",
    [SANDBOX_TIME] = "time",
    [SANDBOX_END] = "end",
    [SANDBOX_DELETE_POD] = "delete pod",
    [SANDBOX_DELETE_VOLUME] = "delete volume",
    [SANDBOX_DROP_FINALIZER] = "drop finalizer",
    [SANDBOX_FORGET] = "forget",
};

/* The result of the plan, before the status is made from it. */
typedef struct verdict {
    enum sandbox_act act;
    const char *end, *why;
    uint64_t ends_ns;
    bool want_running;
    uint64_t again_ns;
    enum sandbox_phase phase;
    const char *ready_reason, *ready_message;
    const char *asleep_reason; /* of the condition Hibernated */
    const char *disk;          /* the PersistentVolumeClaim that outlives it; NULL: none */
    sandbox_end over;          /* phase Terminated */
    bool silent;               /* the status stays as it is */
} verdict;

static void plan_sandbox_sooner(uint64_t *at, uint64_t then)
{
    if (then && (!*at || then < *at))
        *at = then;
}

/* Returns the latest end that the template allows; 0: no limit. */
static uint64_t latest_end(const crd_sandbox *s, const crd_template *t)
{
    uint64_t born = s->meta.created_ns, max = t ? t->spec.max_ms * NS_PER_MS : 0;

    return born && max ? born + max : 0;
}

uint64_t sandbox_expiry(const crd_sandbox *s, const crd_template *t)
{
    uint64_t latest = latest_end(s, t);

    if (!s->spec.expires_ns)
        return latest ? latest : s->status.expires_ns;
    return latest && latest < s->spec.expires_ns ? latest : s->spec.expires_ns;
}

/* Returns when a live sandbox should end: the engine's time, unless its object's spec changed since
 * or its template allows less. 0: never. */
static uint64_t wanted_end(const sandbox_world *w)
{
    uint64_t latest = latest_end(w->sandbox, w->template), ends = w->ends_ns;

    if (w->retimed)
        ends = w->sandbox->spec.expires_ns ? w->sandbox->spec.expires_ns : latest ? latest : ends;
    return latest && (!ends || ends > latest + SANDBOX_SLACK_NS) ? latest : ends;
}

/* Orders a new end time for the engine. Returns false if the engine has the right one. */
static bool plan_sandbox_retime(const sandbox_world *w, verdict *v)
{
    uint64_t ends = wanted_end(w);

    if (!ends || (ends == w->ends_ns && !w->retimed))
        return false;
    v->act = SANDBOX_TIME;
    v->ends_ns = ends;
    return true;
}

uint64_t sandbox_idle_ms(const crd_sandbox *s, const crd_template *t)
{
    if (s->spec.has_idle)
        return s->spec.idle_s * 1000ull;
    return t ? t->spec.idle_ms : 0;
}

static bool has_workspace(const sandbox_world *w)
{
    return w->volume || w->sandbox->status.volume ||
           (w->template && w->template->spec.workspace.path);
}

static const char *condition_reason(const crd_sandbox *s, const char *type)
{
    for (size_t i = 0; i < s->status.nconditions; i++)
        if (str_eq(s->status.conditions[i].type, type))
            return s->status.conditions[i].reason;
    return NULL;
}

/* ---- the end ---- */

static bool keeps_volume(const sandbox_world *w)
{
    /* Without its template the reclaim policy is unknown, so the volume stays. */
    return !w->template || w->template->spec.workspace.reclaim == RECLAIM_RETAIN;
}

/* Returns whether a user or a rule decided the end, as opposed to an accident. */
static bool is_decided(const char *code)
{
    static const char *const DECIDED[] = {"requested", "ttl", "idle", "budget", "policy"};

    for (size_t i = 0; code && i < ARRAY_LEN(DECIDED); i++)
        if (!strcmp(code, DECIDED[i]))
            return true;
    return false;
}

/* Returns whether the disk outlives the sandbox. After an accident it stays as long as the sandbox
 * would have had it, or until a user deletes the object. */
static bool plan_sandbox_outlives(const sandbox_world *w, const char *code)
{
    return w->volume_there && !keeps_volume(w) && !is_decided(code);
}

/* Returns the next act to clean up after an ended sandbox; SANDBOX_NOTHING if nothing is left or
 * the pod is still going (*ret_wait). */
static enum sandbox_act plan_sandbox_sweep(const sandbox_world *w, bool keep, bool *ret_wait)
{
    *ret_wait = w->pod_there && w->pod_going;
    if (w->pod_there)
        return w->pod_going ? SANDBOX_NOTHING : SANDBOX_DELETE_POD;
    return w->volume_there && !keep ? SANDBOX_DELETE_VOLUME : SANDBOX_NOTHING;
}

static bool is_alive(const sandbox_world *w)
{
    return w->has_id &&
           (w->life == LIFE_BEING_MADE || w->life == LIFE_LIVE || w->life == LIFE_ASLEEP);
}

static verdict plan_sandbox_deleting(const sandbox_world *w)
{
    verdict v = {.silent = true, .phase = w->sandbox->status.phase};
    bool wait;

    if (w->claiming)
        return v; /* wait until the create is answered, then end the sandbox */
    if (is_alive(w)) {
        v.act = SANDBOX_END;
        v.end = "requested";
        v.why = "its Sandbox object was deleted";
        return v;
    }
    v.act = plan_sandbox_sweep(w, keeps_volume(w), &wait);
    if (!v.act && !wait && object_has_finalizer(&w->sandbox->meta, FINALIZER_SANDBOX))
        v.act = SANDBOX_DROP_FINALIZER;
    return v;
}

static verdict plan_sandbox_terminated(const sandbox_world *w)
{
    const crd_sandbox *s = w->sandbox;
    verdict v = {.silent = true, .phase = PHASE_TERMINATED};
    uint64_t forget = s->status.cause.at_ns + (w->crowded ? SANDBOX_CROWD_NS : SANDBOX_KEEP_NS);
    uint64_t expiry = sandbox_expiry(s, w->template);
    bool outlived = plan_sandbox_outlives(w, s->status.cause.code), wait;

    v.act = plan_sandbox_sweep(w, outlived || keeps_volume(w), &wait);
    if (v.act || wait || (outlived && !expiry))
        return v;
    if (outlived && expiry > forget)
        forget = expiry;
    if (w->now >= forget) {
        v.act = SANDBOX_FORGET;
        return v;
    }
    v.again_ns = forget;
    /* Nothing is left, so its deletion need not wait for the operator. */
    if (!w->volume_there && object_has_finalizer(&s->meta, FINALIZER_SANDBOX))
        v.act = SANDBOX_DROP_FINALIZER;
    return v;
}

static verdict plan_sandbox_over(const sandbox_world *w, sandbox_end end)
{
    return (verdict){.phase = PHASE_TERMINATED,
                     .over = end,
                     .ready_reason = "Finished",
                     .disk = plan_sandbox_outlives(w, str_or(end.code, "unknown"))
                                 ? str_or(w->volume, w->sandbox->status.volume)
                                 : NULL};
}

/* ---- before the claim ---- */

static verdict plan_sandbox_pending(const char *reason, const char *message)
{
    return (verdict){.phase = PHASE_PENDING, .ready_reason = reason, .ready_message = message};
}

static verdict plan_sandbox_unclaimed(const sandbox_world *w)
{
    const crd_sandbox *s = w->sandbox;
    uint64_t expiry = sandbox_expiry(s, w->template);
    verdict v;

    if (w->claiming)
        return (verdict){.phase = PHASE_ARMING, .ready_reason = "Claiming"};
    if (w->invalid)
        return plan_sandbox_pending("InvalidSpec", w->invalid);
    if (!object_has_finalizer(&s->meta, FINALIZER_SANDBOX))
        return (verdict){.act = SANDBOX_ADD_FINALIZER, .silent = true, .phase = s->status.phase};
    if (expiry && expiry <= w->now)
        return plan_sandbox_over(
            w, (sandbox_end){"ttl", "its time was over before it could be claimed", 0});
    if (w->pool_missing)
        v = plan_sandbox_pending("PoolMissing", "there is no SandboxPool of that name here");
    else if (w->template_missing)
        v = plan_sandbox_pending("TemplateMissing", "there is no SandboxTemplate of that name");
    else if (w->forbidden)
        v = plan_sandbox_pending(w->forbidden_reason, w->forbidden);
    else if (s->spec.desired == DESIRED_HIBERNATED)
        v = plan_sandbox_pending("Hibernated", "it is claimed when Running is desired");
    else if (w->refused)
        v = plan_sandbox_pending("NoCapacity", w->refused);
    else
        v = (verdict){.phase = PHASE_PENDING, .ready_reason = "Claiming"};
    plan_sandbox_sooner(&v.again_ns, expiry);
    if (strcmp(v.ready_reason, "NoCapacity") != 0 && strcmp(v.ready_reason, "Claiming") != 0)
        return v;
    if (w->now >= w->retry_ns)
        v.act = SANDBOX_CLAIM;
    else
        plan_sandbox_sooner(&v.again_ns, w->retry_ns);
    return v;
}

/* ---- alive ---- */

static verdict plan_sandbox_live(const sandbox_world *w)
{
    const crd_sandbox *s = w->sandbox;
    uint64_t idle = sandbox_idle_ms(s, w->template) * NS_PER_MS;
    uint64_t quiet = w->active_ns > w->claimed_ns ? w->active_ns : w->claimed_ns;
    verdict v = {.phase = PHASE_RUNNING, .ready_reason = "Running"};

    if (plan_sandbox_retime(w, &v))
        return v;
    /* At that time it ends, or the API has extended it, which the status then shows. */
    if (w->ends_ns)
        plan_sandbox_sooner(&v.again_ns,
                            w->ends_ns > w->now ? w->ends_ns : w->now + SANDBOX_LATE_NS);
    bool wanted = s->spec.desired == DESIRED_HIBERNATED || w->node_draining;
    if (wanted && has_workspace(w) && !w->wanted_now) {
        v.act = SANDBOX_HIBERNATE;
        v.phase = PHASE_HIBERNATING;
        v.asleep_reason = w->node_draining && s->spec.desired == DESIRED_RUNNING ? "Drained" : NULL;
        return v;
    }
    if (s->spec.desired == DESIRED_HIBERNATED && !has_workspace(w))
        v.asleep_reason = "NoWorkspace";
    if (!idle || w->busy || !quiet)
        return v;
    if (w->now < quiet + idle) {
        /* The engine measures idleness in steps: a reconcile between two
         * of them would see nothing new. */
        uint64_t then = w->now + SANDBOX_SLACK_NS;
        plan_sandbox_sooner(&v.again_ns, quiet + idle > then ? quiet + idle : then);
        return v;
    }
    v.act = has_workspace(w) ? SANDBOX_HIBERNATE : SANDBOX_END;
    v.end = "idle";
    v.phase = v.act == SANDBOX_HIBERNATE ? PHASE_HIBERNATING : PHASE_RUNNING;
    v.asleep_reason = v.act == SANDBOX_HIBERNATE ? "Idle" : NULL;
    return v;
}

/* Returns whether to resume. A sandbox hibernated for idleness is not resumed only because its spec
 * says Running: the spec must have changed, or a request must want it. */
static bool should_wake(const sandbox_world *w)
{
    const crd_sandbox *s = w->sandbox;
    bool idle = str_eq(condition_reason(s, "Hibernated"), "Idle");
    bool changed = s->meta.generation > s->status.observed;

    return w->wanted_now || (s->spec.desired == DESIRED_RUNNING && (!idle || changed));
}

static verdict plan_sandbox_asleep(const sandbox_world *w)
{
    const crd_sandbox *s = w->sandbox;
    verdict v = {.phase = PHASE_HIBERNATED, .ready_reason = "Hibernated"};

    /* Two pods must not mount its disk: the old one is deleted first, before any resume. */
    if (w->pod_there) {
        v.act = w->pod_going ? SANDBOX_NOTHING : SANDBOX_DELETE_POD;
        v.phase = PHASE_HIBERNATING;
        return v;
    }
    if (plan_sandbox_retime(w, &v)) {
        /* the status must not hide that the spec changed: that may be a reason to wake it */
        v.silent = true;
        return v;
    }
    if (w->ends_ns && w->ends_ns <= w->now) { /* the engine ends only running ones */
        v.act = SANDBOX_END;
        v.end = "ttl";
        return v;
    }
    plan_sandbox_sooner(&v.again_ns, w->ends_ns);
    if (!should_wake(w))
        return v;
    if (w->now < w->retry_ns) {
        plan_sandbox_sooner(&v.again_ns, w->retry_ns);
        v.ready_message = w->refused;
        return v;
    }
    v.act = SANDBOX_RESUME;
    v.phase = PHASE_RESUMING;
    v.want_running = s->spec.desired == DESIRED_HIBERNATED;
    return v;
}

static verdict being_made(const sandbox_world *w)
{
    bool again =
        w->sandbox->status.phase == PHASE_HIBERNATED || w->sandbox->status.phase == PHASE_RESUMING;

    return (verdict){.phase = again ? PHASE_RESUMING : PHASE_ARMING, .ready_reason = "Claiming"};
}

static verdict plan_sandbox_decide(const sandbox_world *w)
{
    const crd_sandbox *s = w->sandbox;

    if (s->meta.deleting_ns)
        return plan_sandbox_deleting(w);
    if (s->status.phase == PHASE_TERMINATED)
        return plan_sandbox_terminated(w);
    if (!w->has_id)
        return plan_sandbox_unclaimed(w);
    if (!object_has_finalizer(&s->meta, FINALIZER_SANDBOX))
        return (verdict){.act = SANDBOX_ADD_FINALIZER, .silent = true, .phase = s->status.phase};
    switch (w->life) {
    case LIFE_BEING_MADE:
        return being_made(w);
    case LIFE_LIVE:
        return plan_sandbox_live(w);
    case LIFE_ASLEEP:
        return plan_sandbox_asleep(w);
    case LIFE_ENDED:
        return plan_sandbox_over(w, w->end);
    default:
        return plan_sandbox_over(w,
                                 (sandbox_end){"node_lost", "bothyd does not know it any more", 0});
    }
}

/* ---- the status ---- */

static void set_text(json_t *o, const char *name, const char *now, const char *before)
{
    const char *s = now ? now : before;

    if (s && *s)
        json_object_set_new(o, name, status_text(s, STATUS_MESSAGE_MAX));
}

static void set_time(json_t *o, const char *name, uint64_t ns)
{
    char text[TIME_TEXT_MAX];

    time_to_text(ns, text);
    if (*text)
        json_object_set_new(o, name, json_string(text));
}

static json_t *plan_sandbox_conditions(const sandbox_world *w, const verdict *v)
{
    const crd_sandbox *s = w->sandbox;
    bool finished = v->phase == PHASE_TERMINATED;
    bool asleep = v->phase == PHASE_HIBERNATED || v->phase == PHASE_HIBERNATING;
    const char *before = condition_reason(s, "Hibernated");
    const char *why = v->asleep_reason;

    if (asleep && !why)
        why = str_eq(before, "Idle") || str_eq(before, "Drained") ? before : "DiskKept";
    if (!asleep && !why)
        why = v->disk ? "DiskKept" : "NotHibernated";
    CLEANUP(freep)
    char *kept = v->disk ? str_printf("the disk is kept as the PersistentVolumeClaim %s: it goes "
                                      "with this object",
                                      v->disk)
                         : NULL;
    const wanted_condition want[] = {
        {"Ready", v->phase == PHASE_RUNNING, v->ready_reason, v->ready_message},
        {"Hibernated", v->phase == PHASE_HIBERNATED, why,
         asleep                       ? "the disk is kept, memory and processes are lost"
         : str_eq(why, "NoWorkspace") ? "its template has no workspace to keep"
                                      : kept},
        {"Finished", finished, finished ? str_or(v->over.code, "unknown") : "NotFinished",
         finished ? v->over.message : NULL},
    };
    return status_conditions(s->status.conditions, s->status.nconditions, want, ARRAY_LEN(want),
                             s->meta.generation, w->now);
}

static void write_cause(json_t *o, const sandbox_world *w, const verdict *v)
{
    char at[TIME_TEXT_MAX];

    time_to_text(w->now, at);
    json_t *why = json_pack("{s:s, s:s}", "code", str_or(v->over.code, "unknown"), "at", at);
    set_text(why, "message", v->over.message, NULL);
    if (v->over.exit_code)
        json_object_set_new(why, "exitCode", json_integer(v->over.exit_code));
    json_object_set_new(o, "cause", why);
}

static uint64_t shown_end(const sandbox_world *w)
{
    const crd_sandbox *s = w->sandbox;

    if (is_alive(w))
        return wanted_end(w);
    return w->has_id && s->status.expires_ns ? s->status.expires_ns
                                             : sandbox_expiry(s, w->template);
}

static void write_where(json_t *o, const sandbox_world *w, const verdict *v)
{
    const crd_sandbox *s = w->sandbox;
    bool here = v->phase != PHASE_HIBERNATED && v->phase != PHASE_PENDING;

    set_text(o, "id", w->id, s->status.id);
    if (here) {
        set_text(o, "podName", w->pod, s->status.pod);
        set_text(o, "podUID", w->pod_uid, s->status.pod_uid);
        set_text(o, "node", w->node, s->status.node);
    }
    set_text(o, "claimClass", w->class, s->status.class);
    set_text(o, "workspaceClaim", w->volume, s->status.volume);
    set_time(o, "claimedAt", s->status.claimed_ns ? s->status.claimed_ns : w->claimed_ns);
    bool moved = w->active_ns > s->status.active_ns + SANDBOX_REFRESH_NS;
    set_time(o, "lastActiveAt", moved ? w->active_ns : s->status.active_ns);
    set_time(o, "expiresAt", shown_end(w));
}

static json_t *status_of(const sandbox_world *w, const verdict *v)
{
    const crd_sandbox *s = w->sandbox;
    bool resumed = v->phase == PHASE_RESUMING && s->status.phase != PHASE_RESUMING;
    json_t *o =
        json_pack("{s:I, s:I, s:s, s:o}", "observedGeneration", (json_int_t)s->meta.generation,
                  "epoch", (json_int_t)(s->status.epoch + resumed), "phase", PHASE_NAMES[v->phase],
                  "conditions", plan_sandbox_conditions(w, v));

    write_where(o, w, v);
    if (v->phase == PHASE_TERMINATED)
        write_cause(o, w, v);
    return o;
}

sandbox_orders plan_sandbox(const sandbox_world *w)
{
    verdict v = plan_sandbox_decide(w);

    return (sandbox_orders){.act = v.act,
                            .end = v.end,
                            .why = v.why,
                            .ends_ns = v.ends_ns,
                            .want_running = v.want_running,
                            .again_ns = v.again_ns,
                            .phase = v.phase,
                            .status = v.silent ? NULL : status_of(w, &v)};
}

void sandbox_orders_done(sandbox_orders *o)
{
    json_decref(o->status);
    *o = (sandbox_orders){0};
}
