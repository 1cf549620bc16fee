/* The exec layer's metrics. */
#pragma once

#include "base/metric.h"

enum exec_metric {
    M_PHASE,
    M_ENDS,
    M_OOM,
    M_LIVE,
    M_SPOOLED,
    M_DROPPED,
    M_NO_ROOM,
    M_EXEC_COUNT
};
enum exec_phase {
    PHASE_START, /* from the request to init's report that it runs */
    PHASE_RUN,
    PHASE_SPOOL /* from its exit to the end record: what it wrote is in the spool */
};
enum exec_live {
    LIVE_COMMAND,
    LIVE_VERB, /* file verbs: runs of the kit */
    LIVE_TUNNEL
};
extern metric EXEC_METRICS[M_EXEC_COUNT];

struct exec;
struct exec_hub;
void count_init(struct exec_hub *h);
void count_live(const struct exec *x, int by);
void count_started(const struct exec *x);
/* Counts an exec whose END is in the journal. */
void count_ended(const struct exec *x);
static inline void count_spooled(size_t n)
{
    metric_add(&EXEC_METRICS[M_SPOOLED], 0, (int64_t)n);
}
