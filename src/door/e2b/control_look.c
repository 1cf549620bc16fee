/* Reading one sandbox: its details, usage and events. */
#include <string.h>

#include "base/clock.h"
#include "door/e2b/control.h"

err *control_info(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(control_find(rq, &sb));
    response_json(rs, 200, view_detail(e2b_of(rq), e2b_caller(rq), sb));
    return NULL;
}

#define METRICS_MAX 100

/* ---- metrics: one sample, taken now; its CPU share is the mean since the create ---- */

bool look_usage(engine *e, sandbox *sb, usage_look *ret)
{
    CLEANUP(sandbox_view_done) sandbox_view v;

    sandbox_get(sb, &v);
    CLEANUP(freep) box_usage *u = engine_usage(e, &v, 1);
    uint64_t now = now_real_ns(), life_us = (now - v.created_ns) / 1000;
    *ret = (usage_look){.at_ns = now,
                        .cores = (v.limits.cpu_milli + 999) / 1000,
                        .cpu_pct = life_us ? 100.0 * (double)u->cpu_us / (double)life_us : 0,
                        .memory = u->memory,
                        .memory_max = v.limits.memory,
                        .disk = u->disk,
                        .disk_max = v.limits.disk};
    return u->known;
}

static json_t *metrics_of(const usage_look *u)
{
    return json_pack("{s:o,s:I,s:i,s:f,s:I,s:I,s:I,s:I,s:I}", "timestamp", view_when(u->at_ns),
                     "timestampUnix", (json_int_t)(u->at_ns / NS_PER_S), "cpuCount", (int)u->cores,
                     "cpuUsedPct", u->cpu_pct, "memUsed", (json_int_t)u->memory, "memTotal",
                     (json_int_t)u->memory_max, "memCache", (json_int_t)0, "diskUsed",
                     (json_int_t)u->disk, "diskTotal", (json_int_t)u->disk_max);
}

err *control_metrics(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    usage_look u;

    TRY(control_find(rq, &sb));
    json_t *list = json_array();
    if (look_usage(e2b_engine(rq), sb, &u))
        json_array_append_new(list, metrics_of(&u));
    response_json(rs, 200, list);
    return NULL;
}

static err *add_metrics(request *rq, const char *id, json_t *all)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    usage_look u;
    err *e = control_find_id(rq, id, &sb);

    if (e && e->code != ERR_NOT_FOUND)
        return e;
    if (!e && look_usage(e2b_engine(rq), sb, &u))
        json_object_set_new(all, id, metrics_of(&u));
    err_free(e);
    return NULL;
}

/* Returns the metrics of the live sandboxes among ?sandbox_ids=a,b that belong to the caller. */
err *control_metrics_many(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *all = json_object();
    const char *p = str_or(request_query(rq, "sandbox_ids"), "");

    for (size_t i = 0; *p; i++) {
        CLEANUP(freep) char *id = xstrndup(p, strcspn(p, ","));
        if (i == METRICS_MAX)
            return err_remedy(
                err_new(ERR_INVALID_REQUEST, "sandbox_ids: more than %d", METRICS_MAX),
                "Ask for so many at once.");
        TRY(add_metrics(rq, id, all));
        p += strlen(id);
        p += *p == ',';
    }
    response_json(rs, 200, json_pack("{s:O}", "sandboxes", all));
    return NULL;
}

/* ---- logs: the sandbox's events ---- */

#define LOGS_MAX 1000

static json_t *log_entry(const event_row *r)
{
    return json_pack("{s:o,s:s,s:s,s:{s:s?}}", "timestamp", view_when(r->time_ns), "level", "info",
                     "message", r->type, "fields", "cause", r->detail);
}

static json_t *log_line(const event_row *r)
{
    CLEANUP(freep)
    char *line = str_printf("%s%s%s", r->type, r->detail ? " " : "", str_or(r->detail, ""));

    return json_pack("{s:o,s:s}", "timestamp", view_when(r->time_ns), "line", line);
}

static err *control_look_collect(request *rq, const char *id, json_t *entries, json_t *lines)
{
    event_filter f = {.max = 256, .sandbox = id};
    bool more = true;

    while (more && json_array_size(entries) < LOGS_MAX) {
        event_row *rows = NULL;
        size_t n = 0;
        TRY(engine_event_list(e2b_engine(rq), e2b_caller(rq), &f, &rows, &n, &f.after, &more));
        for (size_t i = 0; i < n; i++) {
            json_array_append_new(entries, log_entry(&rows[i]));
            json_array_append_new(lines, log_line(&rows[i]));
            event_row_done(&rows[i]);
        }
        free(rows);
    }
    return NULL;
}

static err *control_look_logs(request *rq, response *rs, bool v2)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(json_decrefp) json_t *entries = json_array(), *lines = json_array();

    TRY(control_find(rq, &sb));
    TRY(control_look_collect(rq, sandbox_id(sb), entries, lines));
    response_json(rs, 200,
                  v2 ? json_pack("{s:O}", "logs", entries)
                     : json_pack("{s:O,s:O}", "logs", lines, "logEntries", entries));
    return NULL;
}

err *control_logs(request *rq, response *rs)
{
    return control_look_logs(rq, rs, false);
}

err *control_logs_v2(request *rq, response *rs)
{
    return control_look_logs(rq, rs, true);
}
