/* Metrics that the engine computes when they are scraped (sandboxes by state, sessions), and
 * counters of file verbs and ports. */
#include "base/thread.h"
#include "engine/internal.h"

static const char *const OUTCOMES[] = {"ok", "failed", NULL};
static const char *state_names[LIFE_STATES + 1];
static const char *verb_names[KIT_FILE_VERBS + 1];

enum {
    M_STATES,
    M_SESSIONS,
    M_VERBS,
    M_VERB_SECONDS,
    M_PORTS,
    M_LOOKED
};
static metric METRICS[M_LOOKED] = {
    [M_STATES] = METRIC_GAUGE_BY("bothy_sandboxes", "Sandboxes that are not gone, by state.",
                                 "state", state_names),
    [M_SESSIONS] = METRIC_GAUGE("bothy_sessions_live", "Sessions whose shell lives."),
    [M_VERBS] = METRIC_COUNTER_BY2("bothy_file_verbs_total",
                                   "File verbs ended, by verb and outcome; one that its caller "
                                   "left has failed.",
                                   "verb", verb_names, "outcome", OUTCOMES),
    [M_VERB_SECONDS] = METRIC_HISTOGRAM_BY(
        "bothy_file_verb_seconds", "Time of a file verb, from its order to its end, by verb.",
        "verb", verb_names, .bounds = METRIC_LONG, .sparse = true),
    [M_PORTS] = METRIC_COUNTER_BY("bothy_port_sockets_total",
                                  "Sockets asked for to reach ports of sandboxes, by outcome.",
                                  "outcome", OUTCOMES),
};

static void look_at(sandbox *sb, int64_t states[LIFE_STATES], int64_t *sessions)
{
    session_table *t = NULL;

    {
        LOCK_SCOPE(&sb->lock);
        states[sb->state]++;
        if (sb->state == LIFE_RUNNING)
            t = sb->sessions; /* lives as long as the sandbox, which the caller holds */
    }
    if (t)
        *sessions += (int64_t)session_count_live(t);
}

static void engine_count_look(void *arg)
{
    engine *e = arg;
    int64_t states[LIFE_STATES] = {0}, sessions = 0;
    size_t n = 0;
    sandbox **all = engine_live_all(e, &n);

    for (size_t i = 0; i < n; i++) {
        look_at(all[i], states, &sessions);
        sandbox_unref(all[i]);
    }
    free(all);
    for (enum lifecycle s = 0; s < LIFE_GONE; s++)
        metric_set(&METRICS[M_STATES], s, states[s]);
    metric_set(&METRICS[M_SESSIONS], 0, sessions);
}

void engine_count_init(engine *e)
{
    for (enum lifecycle s = 0; s < LIFE_GONE; s++)
        state_names[s] = lifecycle_name(s);
    for (enum kit_verb v = 0; v < KIT_FILE_VERBS; v++)
        verb_names[v] = kit_verb_name(v);
    metric_register(METRICS, M_LOOKED);
    metric_look(engine_count_look, e);
}

void engine_count_verb(enum kit_verb verb, bool ok, uint64_t ns)
{
    metric_add(&METRICS[M_VERBS], verb * 2 + !ok, 1);
    metric_observe_ns(&METRICS[M_VERB_SECONDS], verb, ns);
}

void engine_count_port(bool ok)
{
    metric_add(&METRICS[M_PORTS], !ok, 1);
}
