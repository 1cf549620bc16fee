/* The exec layer's metrics: their table, and the functions that count. */
#include "exec/count.h"

#include "base/clock.h"
#include "exec/internal.h"

static const char *const PHASES[] = {"start", "run", "spool", NULL};
static const char *const KINDS[] = {"command", "verb", "tunnel", NULL};
static const char *how_names[EXEC_UNKNOWN + 1]; /* of exec_how_name(), without `running` */

metric EXEC_METRICS[M_EXEC_COUNT] = {
    [M_PHASE] = METRIC_HISTOGRAM_BY(
        "bothy_exec_phase_seconds",
        "Parts of a command: start, from the order to its running; run; spool, from its exit to "
        "its end record, with everything it wrote in the spool.",
        "phase", PHASES, .bounds = METRIC_LONG),
    [M_ENDS] =
        METRIC_COUNTER_BY("bothy_execs_ended_total", "Commands ended, by how.", "how", how_names),
    [M_OOM] = METRIC_COUNTER("bothy_execs_oom_total",
                             "Commands that died of the sandbox's memory limit."),
    [M_LIVE] = METRIC_GAUGE_BY("bothy_execs_live",
                               "Commands, file verbs and connections to ports that run, or whose "
                               "descendants still hold their output.",
                               "kind", KINDS),
    [M_SPOOLED] = METRIC_COUNTER("bothy_spool_bytes_total",
                                 "Bytes of output of commands and file verbs moved into spools."),
    [M_DROPPED] = METRIC_COUNTER("bothy_spool_dropped_bytes_total",
                                 "Bytes of output that a ceiling took out of spools again."),
    [M_NO_ROOM] = METRIC_GAUGE("bothy_execs_waiting_for_disk",
                               "Commands whose output waits because the spools' disk is full."),
};

static void exec_count_look(void *arg)
{
    const exec_hub *h = arg;

    metric_set(&EXEC_METRICS[M_NO_ROOM], 0, atomic_load(&h->full));
}

void count_init(struct exec_hub *h)
{
    for (enum exec_how how = EXEC_EXITED; how <= EXEC_UNKNOWN; how++)
        how_names[how - 1] = exec_how_name(how);
    metric_register(EXEC_METRICS, M_EXEC_COUNT);
    metric_look(exec_count_look, h);
}

void count_live(const struct exec *x, int by)
{
    metric_add(&EXEC_METRICS[M_LIVE], exec_is_transient(x) ? LIVE_VERB : LIVE_COMMAND, by);
}

void count_started(const struct exec *x)
{
    if (!exec_is_transient(x) && x->asked_ns)
        metric_observe_ns(&EXEC_METRICS[M_PHASE], PHASE_START, now_mono_ns() - x->asked_ns);
}

void count_ended(const struct exec *x)
{
    const struct sp_rec *r = &x->rec;

    if (exec_is_transient(x))
        return;
    if (x->end.how != EXEC_RUNNING)
        metric_add(&EXEC_METRICS[M_ENDS], (size_t)x->end.how - 1, 1);
    if (x->end.oom)
        metric_add(&EXEC_METRICS[M_OOM], 0, 1);
    if (!x->exited)
        return;
    if (r->start_real && r->end_real > r->start_real)
        metric_observe_ns(&EXEC_METRICS[M_PHASE], PHASE_RUN, r->end_real - r->start_real);
    if (x->exited_ns)
        metric_observe_ns(&EXEC_METRICS[M_PHASE], PHASE_SPOOL, now_mono_ns() - x->exited_ns);
}
