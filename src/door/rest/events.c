/* /v1/events: a page, or a continuing stream.
 *
 * A stream holds only a sequence number; each step reads the events committed after it. Steps woken
 * by commits are at least a moment apart, and the moment grows with the number of streams: all
 * streams together read a busy node's store a few thousand times a second at most. */
#include <stdio.h>
#include <string.h>

#include "api/openapi.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "door/rest/internal.h"
#include "wire/sse.h"

#define STEP_EVENTS 64
#define MOMENT_NS   (20 * NS_PER_MS)
#define SHARE_NS    (NS_PER_MS / 5) /* the moment is at least so long for each stream */
#define PING_NS     (15 * NS_PER_S)

typedef struct events_ask {
    event_filter filter;
    uint64_t gap; /* the last forgotten number; 0: none of the requested ones is forgotten */
} events_ask;

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

static void collect_type(void *arg, const char *name, const char *value)
{
    for (unsigned i = 0; !strcmp(name, "type") && EVENT_TYPES[i]; i++)
        if (!strcmp(value, EVENT_TYPES[i]))
            *(unsigned *)arg |= 1u << i;
}

/* Checks every `type`: the decoder sees only the first. */
static void check_type(void *arg, const char *name, const char *value)
{
    unsigned known = 0;

    collect_type(&known, name, value);
    if (!strcmp(name, "type") && !known)
        *(const char **)arg = value;
}

static err *read_after(request *rq, const char *after, uint64_t *ret_after)
{
    const char *last = request_header(rq, "Last-Event-ID");

    *ret_after = 0;
    if (last) /* the last event that the client has precedes `after` */
        after = last;
    if (str_eq(after, "now"))
        *ret_after = engine_event_last(rest_engine(rq));
    else if (after && !str_to_u64(after, INT64_MAX, ret_after))
        return err_new(ERR_INVALID_REQUEST, "Last-Event-ID: '%.32s' is not a number", after);
    return NULL;
}

static err *read_ask(request *rq, const event_list_query *q, events_ask *ret)
{
    const char *bad = NULL;

    *ret = (events_ask){.filter = {.max = q->limit, .sandbox = q->sandbox}};
    request_query_each(rq, check_type, &bad);
    if (bad)
        return err_new(ERR_INVALID_REQUEST, "type: '%.32s' is none", bad);
    request_query_each(rq, collect_type, &ret->filter.types);
    TRY(read_after(rq, q->after, &ret->filter.after));
    return engine_event_check(rest_engine(rq), ret->filter.after, &ret->gap);
}

/* ---- a page ---- */

static json_t *number_text(uint64_t n)
{
    char text[24];

    snprintf(text, sizeof text, "%lu", n);
    return json_string(text);
}

static err *answer_page(request *rq, response *rs, const events_ask *a)
{
    CLEANUP(freep) event_row *rows = NULL;
    size_t n = 0;
    uint64_t next = 0;
    bool more = false;

    TRY(engine_event_list(rest_engine(rq), rest_caller(rq), &a->filter, &rows, &n, &next, &more));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, view_event(&rows[i]));
        event_row_done(&rows[i]);
    }
    response_json(rs, 200,
                  json_pack("{s:o,s:o,s:b,s:b}", "events", list, "next", number_text(next), "more",
                            more, "gap", a->gap != 0));
    return NULL;
}

/* ---- a stream ---- */

typedef struct stream {
    engine *engine;
    caller who;
    event_filter filter; /* sandbox is owned */
    uint64_t gap;
    event_watch watch;
    relay_job *job;
    char *request_id;
    uint64_t looked_ns, sent_ns;
    bool head_sent;
} stream;

static void on_commit(void *arg)
{
    relay_wake(arg);
}

static void on_start(void *ctx, relay_job *job)
{
    stream *s = ctx;

    s->watch = (event_watch){.notify = on_commit, .arg = job};
    s->job = job;
    engine_event_watch(s->engine, &s->watch);
}

static void on_free(void *ctx)
{
    stream *s = ctx;

    if (s->job)
        engine_event_unwatch(s->engine, &s->watch);
    free((char *)s->filter.sandbox);
    free(s->who.owner);
    free(s->request_id);
    free(s);
}

static void put_json(buf *out, const char *event, const char *id, json_t *owned)
{
    CLEANUP(json_decrefp) json_t *data = owned;
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, data);
    sse_write(out, event, id, text.p, text.len);
}

static void put_head(stream *s, relay_io *io, buf *out)
{
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "text/event-stream",
                                          .length = -1,
                                          .chunked = io->http11,
                                          .keep_alive = io->keep_alive && io->http11,
                                          .request_id = s->request_id});
    s->head_sent = true;
    s->sent_ns = io->now;
    if (s->gap) {
        CLEANUP(json_decrefp) json_t *to = number_text(s->gap);
        put_json(out, "gap", json_string_value(to),
                 json_pack("{s:o,s:O}", "from", number_text(s->filter.after), "to", to));
    }
    sse_write_comment(out, "events"); /* sends the head at once, before the first event */
}

/* Appends a few of the events committed after the stream's number. */
static err *put_events(stream *s, buf *out, bool *ret_more)
{
    CLEANUP(freep) event_row *rows = NULL;
    size_t n = 0;

    TRY(engine_event_list(s->engine, &s->who, &s->filter, &rows, &n, &s->filter.after, ret_more));
    for (size_t i = 0; i < n; i++) {
        CLEANUP(json_decrefp) json_t *id = number_text(rows[i].seq);
        put_json(out, rows[i].type, json_string_value(id), view_event(&rows[i]));
        event_row_done(&rows[i]);
    }
    return NULL;
}

static uint64_t next_look(const stream *s)
{
    uint64_t shares = engine_event_watchers(s->engine) * SHARE_NS;

    return s->looked_ns + (shares > MOMENT_NS ? shares : MOMENT_NS);
}

static enum relay_next wait_for_more(stream *s, relay_io *io, bool soon)
{
    io->wake_at = soon ? next_look(s) : s->sent_ns + PING_NS;
    return RELAY_WAIT;
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    stream *s = ctx;
    CLEANUP(buf_done) buf out = {0};
    bool more = false, news = engine_event_last(s->engine) > s->filter.after;

    if (!s->head_sent)
        put_head(s, io, &out);
    bool soon = news && s->looked_ns && io->now < next_look(s);
    if (news && !soon) {
        s->looked_ns = io->now;
        err *failure = put_events(s, &out, &more);
        if (failure) { /* the stream ends silently; the client continues it by its number */
            err_drop(failure, "events");
            return RELAY_CLOSE;
        }
        if (more)
            s->looked_ns = 0;
    }
    if (!out.len && io->now >= s->sent_ns + PING_NS)
        put_json(&out, "ping", NULL, json_object());
    if (out.len) {
        s->sent_ns = io->now;
        stream_put(io, out.p, out.len);
    }
    return more ? RELAY_MORE : wait_for_more(s, io, soon);
}

static const relay_ops STREAM_OPS = {.start = on_start, .step = on_step, .free = on_free};

static void start_stream(request *rq, response *rs, const events_ask *a)
{
    const caller *c = rest_caller(rq);
    stream *s = xcalloc(1, sizeof *s);

    *s = (stream){.engine = rest_engine(rq),
                  .who = *c,
                  .filter = a->filter,
                  .gap = a->gap,
                  .request_id = xstrdup(request_id(rq))};
    s->who.owner = xstrdup(c->owner);
    s->filter.max = STEP_EVENTS;
    s->filter.sandbox = a->filter.sandbox ? xstrdup(a->filter.sandbox) : NULL;
    response_relay(rs, &STREAM_OPS, s);
}

err *rest_event_list(request *rq, response *rs)
{
    CLEANUP(event_list_query_done) event_list_query q = {0};
    events_ask a;

    TRY(event_list_query_decode(query_find, rq, &q));
    TRY(read_ask(rq, &q, &a));
    if (!rest_wants_events(rq))
        return answer_page(rq, rs, &a);
    start_stream(rq, rs, &a);
    return NULL;
}
