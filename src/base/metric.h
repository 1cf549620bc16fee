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
 * Values that have to be polled (threads, free space) are set by a function that runs before each
 * writing: metric_look(). tools/gen-metrics generates docs/reference/metrics.md from these tables;
 * it reads the macros below in the sources. */
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

#define METRIC_BUCKETS    16 /* at most; the default bounds are in metric.c */
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
    double unit;            /* value of 1 in the metric's unit; 0 means 1, in histograms 1e-6 */
    bool sparse;            /* cells that are 0 are not written */
    const uint64_t *bounds; /* upper, ascending, in microseconds or its own unit; 0 ends them */
    metric_cell *cells;     /* made by metric_register() */
} metric;

/* The arguments are name and help; BY adds a label and its values, BY2 a second label and its
 * values. Further members may follow: METRIC_GAUGE("…", "…", .unit = 1e-6). */
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

/* Buckets for durations from a millisecond to hours: commands, streams. */
extern const uint64_t METRIC_LONG[];

/* Registers a table, which must never be freed. Call it before other threads use the table; a
 * second call is harmless. */
void metric_register(metric *table, size_t n);
void metric_add(metric *m, size_t label, int64_t by);
void metric_set(metric *m, size_t label, int64_t value);
void metric_observe_ns(metric *m, size_t label, uint64_t ns);
/* Registers a function that runs before each metric_write(), in order of registration, on the
 * thread that writes. */
void metric_look(void (*look)(void *arg), void *arg);
int64_t metric_get(const metric *m, size_t label);
/* Appends all registered metrics in the Prometheus text format. */
void metric_write(buf *out);
/* Removes whole metric families from the end of written text until at most max bytes are left.
 * Returns how many bytes it removed. */
size_t metric_cut(buf *text, size_t max);
