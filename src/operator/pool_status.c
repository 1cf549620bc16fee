/* Makes the status of a SandboxPool. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "operator/plan_pool_internal.h"
#include "operator/status.h"
#include "operator/text.h"

static wanted_condition pool_status_available(const pool_orders *o, const pool_world *w)
{
    wanted_condition c = {"Available", o->counts.ready > 0, "PodsReady", NULL};

    if (!c.is) {
        bool wanted = o->target || w->pending;
        c.reason = wanted ? "NoPodsReady" : "ScaledToZero";
        c.message = wanted ? "no unclaimed pod is ready: a claim waits for one"
                           : "no unclaimed pods are wanted now";
    }
    return c;
}

static wanted_condition pool_status_progressing(const pool_orders *o, const pool_world *w,
                                                uint32_t have)
{
    bool rolling = w->pool->spec.update.strategy == UPDATE_ROLLING && w->hash &&
                   o->counts.updated < o->counts.ready + o->counts.starting;

    if (w->pool->meta.deleting_ns)
        return (wanted_condition){"Progressing", true, "Draining",
                                  "claimed pods are waited for; annotate " NOTE_FORCE
                                  "=true to end them"};
    if (rolling)
        return (wanted_condition){"Progressing", true, "Rolling",
                                  "unclaimed pods of an older template are replaced"};
    if (have < o->target || o->counts.starting)
        return (wanted_condition){"Progressing", true, "ScalingUp", NULL};
    if (have > o->target)
        return (wanted_condition){"Progressing", true, "ScalingDown", NULL};
    return (wanted_condition){"Progressing", false, "Stable", NULL};
}

static json_t *pool_status_conditions(const pool_world *w, const pool_orders *o, uint32_t have)
{
    const crd_pool *p = w->pool;
    CLEANUP(freep)
    char *conflict = o->scaling_conflict
                         ? str_printf("replicas is set by '%s' through the scale subresource: "
                                      "autoscale is ignored. Stop scaling it, then give replicas "
                                      "another value with kubectl patch or edit; or remove "
                                      "autoscale",
                                      p->spec.scaled_by)
                         : NULL;
    const wanted_condition want[] = {
        pool_status_available(o, w),
        pool_status_progressing(o, w, have),
        {"Degraded", o->trouble != TROUBLE_NONE, pool_trouble_reason(o->trouble),
         o->trouble_message},
        {"ScalingConflict", o->scaling_conflict,
         o->scaling_conflict ? "ReplicasOwnedByAnother" : "NoConflict", conflict},
    };

    return status_conditions(p->status.conditions, p->status.nconditions, want, ARRAY_LEN(want),
                             p->meta.generation, w->now_real);
}

static void set_time(json_t *o, const char *name, uint64_t ns)
{
    char text[TIME_TEXT_MAX];

    time_to_text(ns, text);
    if (*text)
        json_object_set_new(o, name, json_string(text));
}

json_t *pool_status_json(const pool_world *w, const pool_memory *m, const pool_orders *o)
{
    const pool_counts *c = &o->counts;
    uint32_t have = c->ready + c->starting + w->coming;
    char pool[KUBE_LABEL_MAX + 1];

    label_of_name(w->pool->meta.name, pool);
    CLEANUP(freep)
    char *selector = str_printf(LABEL_POOL "=%s," LABEL_STATE "=" STATE_WARM, pool);
    json_t *s = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o}",
                          "observedGeneration", (json_int_t)w->pool->meta.generation, "replicas",
                          (json_int_t)have, "readyReplicas", (json_int_t)c->ready,
                          "startingReplicas", (json_int_t)(c->starting + w->coming),
                          "claimedReplicas", (json_int_t)c->claimed, "failedReplicas",
                          (json_int_t)c->failed, "updatedReplicas", (json_int_t)c->updated,
                          "pendingClaims", (json_int_t)w->pending, "target", (json_int_t)o->target,
                          "selector", selector, "conditions", pool_status_conditions(w, o, have));
    if (o->trouble)
        json_object_set_new(s, "trouble", json_string(pool_trouble_reason(o->trouble)));
    if (w->hash)
        json_object_set_new(s, "templateHash", json_string(w->hash));
    set_time(s, "lastScaleTime", m->scaled_ns);
    return s;
}
