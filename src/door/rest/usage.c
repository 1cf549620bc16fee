/* The resource usage of sandboxes: in lists, and as metrics of each sandbox. */
#include <string.h>

#include "api/openapi.h"
#include "base/clock.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define SANDBOXES_MAX 1000 /* in one answer: Prometheus keeps a series for each */

json_t *view_box_usage(const box_usage *u)
{
    if (!u->known)
        return json_null();
    return json_pack(
        "{s:o,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "at",
        view_time(now_real_ns()), "cpu_seconds", (double)u->cpu_us / 1e6, "cpu_throttled_seconds",
        (double)u->cpu_throttled_us / 1e6, "memory", (json_int_t)u->memory, "memory_peak",
        (json_int_t)u->memory_peak, "memory_limit", (json_int_t)u->memory_limit, "oom_kills",
        (json_int_t)u->oom_kills, "pids", (json_int_t)u->pids, "io_read", (json_int_t)u->io_read,
        "io_written", (json_int_t)u->io_written, "net_rx", (json_int_t)u->net_rx, "net_tx",
        (json_int_t)u->net_tx, "net_dropped", (json_int_t)u->net_dropped, "disk",
        (json_int_t)u->disk, "inodes", (json_int_t)u->inodes);
}

/* ---- for Prometheus ---- */

#define SANDBOX_COUNTER(n, member, u, h)           \
    {                                              \
        n, h, true, offsetof(box_usage, member), u \
    }
#define SANDBOX_GAUGE(n, member, u, h)              \
    {                                               \
        n, h, false, offsetof(box_usage, member), u \
    }
static const struct {
    const char *name, *help;
    bool counts;
    size_t at;   /* offset of a uint64_t in box_usage */
    double unit; /* the value of 1 in the metric's unit */
} ROWS[] = {
    SANDBOX_COUNTER("bothy_sandbox_cpu_seconds_total", cpu_us, 1e-6, "Processor time."),
    SANDBOX_COUNTER("bothy_sandbox_cpu_throttled_seconds_total", cpu_throttled_us, 1e-6,
                    "Time its threads were held back by its processor limit."),
    SANDBOX_GAUGE("bothy_sandbox_memory_bytes", memory, 1, "Memory, with caches."),
    SANDBOX_GAUGE("bothy_sandbox_memory_peak_bytes", memory_peak, 1, "The most it was."),
    SANDBOX_GAUGE("bothy_sandbox_memory_limit_bytes", memory_limit, 1, "Its limit."),
    SANDBOX_COUNTER("bothy_sandbox_oom_kills_total", oom_kills, 1,
                    "Processes killed for its memory limit."),
    SANDBOX_COUNTER("bothy_sandbox_io_read_bytes_total", io_read, 1,
                    "Bytes read from block devices; 0 where the kernel does not count."),
    SANDBOX_COUNTER("bothy_sandbox_io_written_bytes_total", io_written, 1,
                    "Bytes written to block devices; 0 where the kernel does not count."),
    SANDBOX_COUNTER("bothy_sandbox_network_received_bytes_total", net_rx, 1,
                    "Bytes received from the network; 0 without one."),
    SANDBOX_COUNTER("bothy_sandbox_network_sent_bytes_total", net_tx, 1,
                    "Bytes sent to the network; 0 without one."),
    SANDBOX_COUNTER("bothy_sandbox_network_dropped_packets_total", net_dropped, 1,
                    "Packets that the node's rules dropped."),
    SANDBOX_GAUGE("bothy_sandbox_disk_bytes", disk, 1,
                  "Disk space of its own files; 0 where the store has no quotas."),
};

typedef struct crowd {
    sandbox_view *views;
    box_usage *usage;
    size_t n;
} crowd;

static void crowd_done(crowd *c)
{
    for (size_t i = 0; i < c->n; i++)
        sandbox_view_done(&c->views[i]);
    free(c->views);
    free(c->usage);
}

/* Writes a label. Quotes, backslashes and line breaks in its value are escaped. */
static void write_label(buf *out, const char *name, const char *value)
{
    buf_printf(out, "%s=\"", name);
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\')
            buf_char(out, '\\');
        buf_str(out, *c == '\n' ? "\\n" : (char[]){*c, 0});
    }
    buf_char(out, '"');
}

static void write_value(buf *out, const char *name, const sandbox_view *v, double value)
{
    buf_printf(out, "%s{", name);
    write_label(out, "sandbox", v->id);
    buf_char(out, ',');
    write_label(out, "owner", v->owner);
    buf_printf(out, "} %.15g\n", value);
}

static void write_head(buf *out, const char *name, const char *help, bool counts)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, counts ? "counter" : "gauge");
}

static void write_row(buf *out, size_t row, const crowd *c)
{
    write_head(out, ROWS[row].name, ROWS[row].help, ROWS[row].counts);
    for (size_t i = 0; i < c->n; i++) {
        uint64_t value;
        if (!c->usage[i].known)
            continue;
        memcpy(&value, (const char *)&c->usage[i] + ROWS[row].at, sizeof value);
        write_value(out, ROWS[row].name, &c->views[i], (double)value * ROWS[row].unit);
    }
}

static void write_counts(buf *out, const crowd *c)
{
    write_head(out, "bothy_sandbox_processes", "Processes and threads.", false);
    for (size_t i = 0; i < c->n; i++)
        if (c->usage[i].known)
            write_value(out, "bothy_sandbox_processes", &c->views[i], c->usage[i].pids);
    write_head(out, "bothy_sandbox_execs", "Commands that run.", false);
    for (size_t i = 0; i < c->n; i++)
        write_value(out, "bothy_sandbox_execs", &c->views[i], (double)c->views[i].live_execs);
}

err *rest_metrics_sandboxes(request *rq, response *rs)
{
    CLEANUP(crowd_done) crowd c = {0};
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(freep) char *next = NULL;

    TRY(engine_list(rest_engine(rq), rest_caller(rq), &(sandbox_filter){.max = SANDBOXES_MAX},
                    &c.views, &c.n, &next));
    c.usage = engine_usage(rest_engine(rq), c.views, c.n);
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        write_row(&text, i, &c);
    write_counts(&text, &c);
    response_bytes(rs, "text/plain; version=0.0.4; charset=utf-8", text.p, text.len);
    return NULL;
}
