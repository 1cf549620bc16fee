/* Metrics: tables of counters, gauges and histograms beside the modules that own them.
 *
 *     static metric METRICS[] = {
 *         [M_CREATES] = METRIC_COUNTER("bothy_creates_total", "Sandboxes asked for."),
 *         [M_CLAIM] = METRIC_HISTOGRAM("bothy_claim_seconds", "Time of a claim."),
 *     };
 *     metric_register(METRICS, ARRAY_LEN(METRICS));
 *     metric_add(&METRICS[M_CREATES], 0, 1);
 *
 * A metric may have one label with a fixed list of values; the index into that list is the second
 * argument (0 without a label). With two labels it is the index of the first times the number of
 * the second's values, plus the index of the second. Updating is lock-free, from any thread. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum metric_kind {
    METRIC_IS_COUNTER,
    METRIC_IS_GAUGE,
    METRIC_IS_HISTOGRAM
};

#define METRIC_BUCKETS    16 /* upper bounds in metric.c, 0.1 ms to 60 s */
#define METRIC_LABELS_MAX 64

typedef struct metric_cell {
    _Atomic int64_t value; /* counter, gauge; histogram: count */
    _Atomic uint64_t sum_us;
    _Atomic uint64_t bucket[METRIC_BUCKETS];
} metric_cell;

typedef struct metric {
    const char *name;
    const char *help;
    enum metric_kind kind;
    const char *label;               /* NULL: none */
    const char *const *label_values; /* NULL-terminated */
    const char *label2;              /* NULL: none */
    const char *const *label2_values;
    metric_cell *cells; /* made by metric_register() */
} metric;

#define METRIC_COUNTER(n, h)                                \
    {                                                       \
        .name = (n), .help = (h), .kind = METRIC_IS_COUNTER \
    }
#define METRIC_GAUGE(n, h)                                \
    {                                                     \
        .name = (n), .help = (h), .kind = METRIC_IS_GAUGE \
    }
#define METRIC_HISTOGRAM(n, h)                                \
    {                                                         \
        .name = (n), .help = (h), .kind = METRIC_IS_HISTOGRAM \
    }
#define METRIC_COUNTER_BY(n, h, l, v)                                                          \
    {                                                                                          \
        .name = (n), .help = (h), .kind = METRIC_IS_COUNTER, .label = (l), .label_values = (v) \
    }
#define METRIC_COUNTER_BY2(n, h, l, v, l2, v2)                                                  \
    {                                                                                           \
        .name = (n), .help = (h), .kind = METRIC_IS_COUNTER, .label = (l), .label_values = (v), \
        .label2 = (l2), .label2_values = (v2)                                                   \
    }
#define METRIC_GAUGE_BY(n, h, l, v)                                                          \
    {                                                                                        \
        .name = (n), .help = (h), .kind = METRIC_IS_GAUGE, .label = (l), .label_values = (v) \
    }
#define METRIC_HISTOGRAM_BY(n, h, l, v)                                                          \
    {                                                                                            \
        .name = (n), .help = (h), .kind = METRIC_IS_HISTOGRAM, .label = (l), .label_values = (v) \
    }

/* The table must live for ever. Call before other threads use it; twice is harmless. */
void metric_register(metric *table, size_t n);
void metric_add(metric *m, size_t label, int64_t by);
void metric_set(metric *m, size_t label, int64_t value);
void metric_observe_ns(metric *m, size_t label, uint64_t ns);
int64_t metric_get(const metric *m, size_t label);
/* Everything registered, in the Prometheus text format. */
void metric_write(buf *out);
