#include "base/metric.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"

#define TABLES_MAX 64
#define LOOKS_MAX  16

static const uint64_t BOUND_US[METRIC_BUCKETS + 1] = {
    100,   250,    500,    1000,    2500,    5000,     10000,    25000,
    50000, 100000, 250000, 1000000, 5000000, 10000000, 30000000, 60000000};
const uint64_t METRIC_LONG[] = {1000,     5000,      10000,     50000,      100000,
                                250000,   500000,    1000000,   5000000,    15000000,
                                60000000, 300000000, 900000000, 3600000000, 0};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    metric *table;
    size_t n;
} tables[TABLES_MAX];
static size_t ntables;
static struct {
    void (*look)(void *arg);
    void *arg;
} looks[LOOKS_MAX];
static size_t nlooks;

static size_t values_of(const char *label, const char *const *values)
{
    size_t n = 0;

    if (!label)
        return 1;
    while (values[n])
        n++;
    return n;
}

static size_t label_count(const metric *m)
{
    size_t n = values_of(m->label, m->label_values) * values_of(m->label2, m->label2_values);

    assert(n && n <= METRIC_LABELS_MAX);
    return n;
}

void metric_register(metric *table, size_t n)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ntables; i++)
        if (tables[i].table == table) {
            pthread_mutex_unlock(&lock);
            return;
        }
    assert(ntables < TABLES_MAX);
    for (size_t i = 0; i < n; i++)
        table[i].cells = xcalloc(label_count(&table[i]), sizeof *table[i].cells);
    tables[ntables].table = table;
    tables[ntables++].n = n;
    pthread_mutex_unlock(&lock);
}

void metric_add(metric *m, size_t label, int64_t by)
{
    if (m->cells)
        atomic_fetch_add_explicit(&m->cells[label].value, by, memory_order_relaxed);
}

void metric_set(metric *m, size_t label, int64_t value)
{
    if (m->cells)
        atomic_store_explicit(&m->cells[label].value, value, memory_order_relaxed);
}

int64_t metric_get(const metric *m, size_t label)
{
    return m->cells ? atomic_load_explicit(&m->cells[label].value, memory_order_relaxed) : 0;
}

static const uint64_t *bounds_of(const metric *m)
{
    return m->bounds ? m->bounds : BOUND_US;
}

static double unit_of(const metric *m)
{
    return m->unit != 0 ? m->unit : m->kind == METRIC_IS_HISTOGRAM ? 1e-6 : 1;
}

void metric_observe_ns(metric *m, size_t label, uint64_t ns)
{
    uint64_t us = ns / 1000;

    if (!m->cells)
        return;
    metric_cell *c = &m->cells[label];
    const uint64_t *bounds = bounds_of(m);
    for (size_t i = 0; bounds[i]; i++)
        if (us <= bounds[i]) {
            atomic_fetch_add_explicit(&c->bucket[i], 1, memory_order_relaxed);
            break;
        }
    atomic_fetch_add_explicit(&c->sum, us, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->value, 1, memory_order_relaxed);
}

static void write_label(buf *out, const metric *m, size_t i, const char *le)
{
    if (!m->label && !le)
        return;
    buf_char(out, '{');
    size_t n2 = values_of(m->label2, m->label2_values);
    if (m->label)
        buf_printf(out, "%s=\"%s\"%s", m->label, m->label_values[i / n2],
                   m->label2 || le ? "," : "");
    if (m->label2)
        buf_printf(out, "%s=\"%s\"%s", m->label2, m->label2_values[i % n2], le ? "," : "");
    if (le)
        buf_printf(out, "le=\"%s\"", le);
    buf_char(out, '}');
}

static void write_histogram(buf *out, const metric *m, size_t i)
{
    metric_cell *c = &m->cells[i];
    uint64_t seen = 0;

    for (size_t k = 0; bounds_of(m)[k]; k++) {
        CLEANUP(freep) char *le = str_printf("%g", (double)bounds_of(m)[k] * unit_of(m));
        seen += atomic_load_explicit(&c->bucket[k], memory_order_relaxed);
        buf_printf(out, "%s_bucket", m->name);
        write_label(out, m, i, le);
        buf_printf(out, " %lu\n", seen);
    }
    int64_t count = atomic_load_explicit(&c->value, memory_order_relaxed);
    buf_printf(out, "%s_bucket", m->name);
    write_label(out, m, i, "+Inf");
    buf_printf(out, " %ld\n%s_sum", count, m->name);
    write_label(out, m, i, NULL);
    buf_printf(out, " %.6f\n%s_count",
               (double)atomic_load_explicit(&c->sum, memory_order_relaxed) * unit_of(m), m->name);
    write_label(out, m, i, NULL);
    buf_printf(out, " %ld\n", count);
}

static void write_metric(buf *out, const metric *m)
{
    static const char *const TYPES[] = {"counter", "gauge", "histogram"};

    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, TYPES[m->kind]);
    for (size_t i = 0; i < label_count(m); i++) {
        if (m->sparse && !metric_get(m, i))
            continue;
        if (m->kind == METRIC_IS_HISTOGRAM) {
            write_histogram(out, m, i);
            continue;
        }
        buf_str(out, m->name);
        write_label(out, m, i, NULL);
        if (m->unit != 0)
            buf_printf(out, " %.6f\n", (double)metric_get(m, i) * m->unit);
        else
            buf_printf(out, " %ld\n", metric_get(m, i));
    }
}

void metric_look(void (*look)(void *arg), void *arg)
{
    LOCK_SCOPE(&lock);

    for (size_t i = 0; i < nlooks; i++)
        if (looks[i].look == look) {
            looks[i].arg = arg;
            return;
        }
    assert(nlooks < LOOKS_MAX);
    looks[nlooks].look = look;
    looks[nlooks++].arg = arg;
}

size_t metric_cut(buf *text, size_t max)
{
    static const char FAMILY[] = "\n# HELP ";
    size_t had = text->len, fits = 0;

    if (had <= max)
        return 0;
    for (char *at = text->p, *next;
         (next = memmem(at, had - (size_t)(at - text->p), FAMILY, sizeof FAMILY - 1));
         at = next + 1) {
        if ((size_t)(next + 1 - text->p) > max)
            break;
        fits = (size_t)(next + 1 - text->p);
    }
    text->len = fits;
    return had - fits;
}

void metric_write(buf *out)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < nlooks; i++)
        looks[i].look(looks[i].arg);
    for (size_t t = 0; t < ntables; t++)
        for (size_t i = 0; i < tables[t].n; i++)
            write_metric(out, &tables[t].table[i]);
    pthread_mutex_unlock(&lock);
}
