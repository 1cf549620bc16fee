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
 * the second's values, plus the index of the second. Updating is lock-free, from any thread.
 *
 * What only a look tells (threads, free space) is set by a function that runs before each writing:
 * metric_look(). docs/reference/metrics.md is made from these tables by tools/gen-metrics, which
 * reads the macros below in the sources. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum metric_kind {
    METRIC_IS_COUNTER,
    METRIC_IS_GAUGE,
    METRIC_IS_HISTOGRAM
};

#define METRIC_BUCKETS    16 /* at most; without bounds of their own those of metric.c */
#define METRIC_LABELS_MAX 1024

typedef struct metric_cell {
    _Atomic int64_t value; /* counter, gauge; histogram: count */
    _Atomic uint64_t sum;  /* histogram: microseconds, or its own unit */
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
    double unit; /* what a value of 1 is in the metric's unit; 0: 1, in histograms 1e-6 */
    bool sparse; /* cells that were never touched are not written */
    const uint64_t *bounds; /* upper, ascending, in microseconds or its own unit; 0 ends them */
    metric_cell *cells;     /* made by metric_register() */
} metric;

/* name, help; BY: label, its values; BY2: a second label, its values. Further members may follow:
 * METRIC_GAUGE("…", "…", .unit = 1e-6). */
#define METRIC_ROW(k, n, h, ...)                             \
    {                                                        \
        .name = (n), .help = (h), .kind = (k), ##__VA_ARGS__ \
    }
#define METRIC_ROW_BY(k, n, h, l, v, ...) \
    METRIC_ROW(k, n, h, .label = (l), .label_values = (v), ##__VA_ARGS__)
#define METRIC_ROW_BY2(k, n, h, l, v, l2, v2, ...) \
    METRIC_ROW_BY(k, n, h, l, v, .label2 = (l2), .label2_values = (v2), ##__VA_ARGS__)
#define METRIC_COUNTER(...)      METRIC_ROW(METRIC_IS_COUNTER, __VA_ARGS__)
#define METRIC_GAUGE(...)        METRIC_ROW(METRIC_IS_GAUGE, __VA_ARGS__)
#define METRIC_HISTOGRAM(...)    METRIC_ROW(METRIC_IS_HISTOGRAM, __VA_ARGS__)
#define METRIC_COUNTER_BY(...)   METRIC_ROW_BY(METRIC_IS_COUNTER, __VA_ARGS__)
#define METRIC_GAUGE_BY(...)     METRIC_ROW_BY(METRIC_IS_GAUGE, __VA_ARGS__)
#define METRIC_HISTOGRAM_BY(...) METRIC_ROW_BY(METRIC_IS_HISTOGRAM, __VA_ARGS__)
#define METRIC_COUNTER_BY2(...)  METRIC_ROW_BY2(METRIC_IS_COUNTER, __VA_ARGS__)

/* Buckets for what lasts from a millisecond to hours: commands, streams. */
extern const uint64_t METRIC_LONG[];

/* The table must live for ever. Call before other threads use it; twice is harmless. */
void metric_register(metric *table, size_t n);
void metric_add(metric *m, size_t label, int64_t by);
void metric_set(metric *m, size_t label, int64_t value);
void metric_observe_ns(metric *m, size_t label, uint64_t ns);
/* Called before everything is written, in the order of registration, by the thread that writes. */
void metric_look(void (*look)(void *arg), void *arg);
int64_t metric_get(const metric *m, size_t label);
/* Everything registered, in the Prometheus text format. */
void metric_write(buf *out);
/* Takes whole families off the end of what was written until it has at most max bytes; how many
 * bytes that were. */
size_t metric_cut(buf *text, size_t max);
