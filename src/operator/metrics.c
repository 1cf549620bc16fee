#include "operator/metrics.h"

#include "base/cleanup.h"
#include "base/metric.h"
#include "operator/operator.h"

static const char *const WORK_NAMES[] = {"template", "pool",  "pod", "sandbox",
                                         "record",   "sweep", NULL};
static const char *const RESULTS[] = {"ok", "failed", NULL};
static const char *const KINDS[] = {"template", "pool", "sandbox", "pod", "node", NULL};
static const char *const POD_STATES[] = {"ready", "starting", "claimed", "failed", "going", NULL};

enum {
    M_LOOKS,
    M_LOOK_SECONDS,
    M_WRITES,
    M_LEADING,
    M_WAITING,
    M_OBJECTS,
    M_PODS,
    M_PENDING,
    M_COUNT
};

static metric METRICS[M_COUNT] = {
    [M_LOOKS] = METRIC_COUNTER_BY2("bothy_operator_reconciles_total",
                                   "Kubernetes: reconciles, by what of and how they went.", "kind",
                                   WORK_NAMES, "result", RESULTS),
    [M_LOOK_SECONDS] = METRIC_HISTOGRAM_BY("bothy_operator_reconcile_seconds",
                                           "Kubernetes: time of a reconcile, with its API calls.",
                                           "kind", WORK_NAMES, .sparse = true),
    [M_WRITES] = METRIC_COUNTER_BY("bothy_operator_writes_total",
                                   "Kubernetes: writes of the operator to the API server.",
                                   "result", RESULTS),
    [M_LEADING] = METRIC_GAUGE("bothy_operator_leading",
                               "Kubernetes: 1 if this bothyd held its cell's Lease at the "
                               "operator's last step, else 0."),
    [M_WAITING] =
        METRIC_GAUGE("bothy_operator_queue", "Kubernetes: keys that wait for a reconcile, "
                                             "those of a later time included."),
    [M_OBJECTS] =
        METRIC_GAUGE_BY("bothy_operator_objects",
                        "Kubernetes: objects as the watches have shown them.", "kind", KINDS),
    [M_PODS] = METRIC_GAUGE_BY("bothy_pool_pods", "Kubernetes: pods of SandboxPools, by state.",
                               "state", POD_STATES),
    [M_PENDING] = METRIC_GAUGE("bothy_pool_pending_claims",
                               "Kubernetes: creates that wait for a pod of a SandboxPool."),
};

void operator_metrics_init(void)
{
    metric_register(METRICS, ARRAY_LEN(METRICS));
}

void count_look(enum operator_work work, const err *failure, uint64_t ns)
{
    metric_add(&METRICS[M_LOOKS], work * 2 + (failure != NULL), 1);
    metric_observe_ns(&METRICS[M_LOOK_SECONDS], work, ns);
}

void count_write(const err *failure)
{
    metric_add(&METRICS[M_WRITES], failure != NULL, 1);
}

void count_leading(bool is)
{
    metric_set(&METRICS[M_LEADING], 0, is);
}

void count_waiting(size_t keys)
{
    metric_set(&METRICS[M_WAITING], 0, (int64_t)keys);
}

void count_objects(int kind, size_t n)
{
    metric_set(&METRICS[M_OBJECTS], (size_t)kind, (int64_t)n);
}

void count_pool(const pool_counts *now, uint32_t pending, const pool_counts *before,
                uint32_t pending_before)
{
    const int64_t more[] = {
        (int64_t)now->ready - before->ready, (int64_t)now->starting - before->starting,
        (int64_t)now->claimed - before->claimed, (int64_t)now->failed - before->failed,
        (int64_t)now->going - before->going};

    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        metric_add(&METRICS[M_PODS], i, more[i]);
    metric_add(&METRICS[M_PENDING], 0, (int64_t)pending - pending_before);
}
