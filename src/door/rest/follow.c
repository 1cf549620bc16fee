/* The native API's forms for an exec's streams: run-to-end results, event streams, raw bytes.
 * door/shared/follow.c has the part that all doors share. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "door/rest/internal.h"
#include "door/shared/brief.h"
#include "wire/sse.h"

#define CHUNK (16 * 1024)
#define HALF  (512 * 1024) /* bytes of a run-to-end answer's head, and of its tail */

static void follow_refuse(follow *f, relay_io *io, const exec_state *st, const err *why)
{
    (void)st;
    http_error_answer(io->out, why, io->keep_alive, f->request_id);
}

/* ---- run to the end, answer once ---- */

/* Reads [from, to) into b, skipping holes at the front. Sets *ret_first
 * to the offset of the first byte. */
static err *read_span(const follow *f, int stream, uint64_t from, uint64_t to, buf *b,
                      uint64_t *ret_first)
{
    uint64_t at = from;

    *ret_first = from;
    while (at < to) {
        uint64_t gap = 0;
        size_t n = 0;
        buf_reserve(b, CHUNK);
        size_t want = to - at < CHUNK ? (size_t)(to - at) : CHUNK;
        TRY(follow_read(f, stream, at, b->p + b->len, want, &n, &gap));
        if (gap > at) {
            if (b->len)
                return NULL; /* the part before the hole is the head */
            at = *ret_first = gap;
            continue;
        }
        if (!n)
            return NULL;
        b->len += n;
        at += n;
    }
    return NULL;
}

static void set_bytes(json_t *o, const buf *b)
{
    CLEANUP(json_decrefp) json_t *bytes = json_bytes(b->p ? b->p : "", b->len);

    json_object_update(o, bytes);
}

static err *result_stream(const follow *f, int stream, uint64_t length, uint64_t dropped,
                          json_t **ret)
{
    bool whole = length <= 2 * HALF;
    uint64_t first = 0, tail_first = 0;
    CLEANUP(buf_done) buf head = {0};
    CLEANUP(buf_done) buf tail = {0};

    TRY(read_span(f, stream, 0, whole ? length : HALF, &head, &first));
    if (!whole)
        TRY(read_span(f, stream, length - HALF, length, &tail, &tail_first));
    json_t *o = json_object();
    set_bytes(o, &head);
    json_object_set_new(o, "offset", json_integer((json_int_t)first));
    json_object_set_new(o, "length", json_integer((json_int_t)length));
    json_object_set_new(o, "dropped", json_integer((json_int_t)dropped));
    json_object_set_new(o, "truncated", json_boolean(!whole));
    if (!whole) {
        json_t *t = json_object();
        set_bytes(t, &tail);
        json_object_set_new(t, "offset", json_integer((json_int_t)tail_first));
        json_object_set_new(o, "next", json_integer((json_int_t)(first + head.len)));
        json_object_set_new(o, "tail", t);
    }
    *ret = o;
    return NULL;
}

static char *head_extra(const follow *f, uint64_t id)
{
    return str_printf("%s: %lu\r\n%s", f->s ? "Bothy-Seq" : "Bothy-Exec", id,
                      f->o.replay ? "Idempotent-Replay: true\r\n" : "");
}

static json_t *end_json(follow *f, const exec_state *st)
{
    CLEANUP(command_state_done) command_state c = {0};

    if (!f->s)
        return view_end(st->id, &st->end, follow_cause(f));
    err_drop(session_command(f->s, f->o.seq, &c), "follow");
    return view_command(&c);
}

static err *result_json(follow *f, const exec_state *st, json_t **ret)
{
    CLEANUP(json_decrefp) json_t *out = NULL;
    CLEANUP(json_decrefp) json_t *errors = NULL;
    const exec_end *end = &st->end;
    bool running = end->how == EXEC_RUNNING;
    char id[24];

    if (!running) {
        TRY(result_stream(f, 1, end->out_bytes, end->out_dropped, &out));
        TRY(result_stream(f, 2, end->err_bytes, end->err_dropped, &errors));
    }
    if (f->s) {
        *ret = end_json(f, st);
        json_object_set(*ret, "out", running ? json_null() : out);
        json_object_set(*ret, "err", running ? json_null() : errors);
        return NULL;
    }
    snprintf(id, sizeof id, "%lu", st->id);
    *ret = json_pack("{s:s,s:o,s:O,s:O}", "exec", id, "end", view_end(st->id, end, follow_cause(f)),
                     "out", out, "err", errors);
    return NULL;
}

/* Returns whether the request's own time to wait is over. */
static bool is_late(const follow *f, relay_io *io)
{
    if (!f->o.wait_ns)
        return f->o.look;
    io->wake_at = f->began + f->o.wait_ns;
    return io->now >= io->wake_at;
}

static enum relay_next step_result(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(json_decrefp) json_t *body = NULL;

    if (st->end.how == EXEC_RUNNING && !is_late(f, io))
        return RELAY_WAIT;
    CLEANUP(freep) char *extra = head_extra(f, st->id);
    CLEANUP(err_freep) err *failure = follow_start_error(st);
    if (!failure)
        failure = result_json(f, st, &body);
    if (failure)
        http_error_answer(io->out, failure, io->keep_alive, f->request_id);
    else
        http_json_answer(io->out, 200, body, io->keep_alive, f->request_id, extra);
    return follow_finish(io);
}

const follow_form FOLLOW_RESULT = {.step = step_result, .refuse = follow_refuse};

/* ---- start, answer when the command runs ---- */

static enum relay_next step_started(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(err_freep) err *failure = NULL;

    if (!follow_head_due(f, io, st, &failure))
        return RELAY_WAIT;
    CLEANUP(json_decrefp) json_t *body = f->s ? end_json(f, st) : view_process(st, follow_cause(f));
    CLEANUP(freep) char *extra = head_extra(f, st->id);
    if (failure)
        http_error_answer(io->out, failure, io->keep_alive, f->request_id);
    else
        http_json_answer(io->out, f->s ? 202 : 201, body, io->keep_alive, f->request_id, extra);
    return follow_finish(io);
}

const follow_form FOLLOW_STARTED = {.step = step_started, .refuse = follow_refuse};

/* ---- streams ---- */

static void put_event(follow *f, buf *events, const char *name, json_t *data)
{
    CLEANUP(json_decrefp) json_t *owned = data;
    CLEANUP(buf_done) buf text = {0};
    char id[48];

    snprintf(id, sizeof id, "%lu.%lu", f->at[1], f->at[2]);
    json_write(&text, owned);
    sse_write(events, name, id, text.p, text.len);
}

static void put_bytes(follow *f, buf *body, int stream, uint64_t offset, const char *p, size_t n)
{
    json_t *data = json_bytes(p, n);

    json_object_set_new(data, "offset", json_integer((json_int_t)offset));
    put_event(f, body, stream == 1 ? "out" : "err", data);
}

static bool put_gap(follow *f, buf *body, int stream, uint64_t from)
{
    put_event(f, body, "gap",
              json_pack("{s:s,s:I,s:I}", "stream", stream == 1 ? "out" : "err", "from",
                        (json_int_t)from, "to", (json_int_t)f->at[stream]));
    return true;
}

static void put_end(follow *f, buf *body, const exec_state *st)
{
    put_event(f, body, "end", end_json(f, st));
}

static void put_ping(follow *f, buf *body)
{
    (void)f;
    sse_write(body, "ping", NULL, "{}", 2);
}

static void write_head(follow *f, relay_io *io, const char *type, const char *lines)
{
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = type,
                                          .length = -1,
                                          .chunked = io->http11,
                                          .keep_alive = io->keep_alive && io->http11,
                                          .request_id = f->request_id,
                                          .extra = lines});
}

static void head_events(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(freep) char *extra = head_extra(f, st->id);
    CLEANUP(freep) char *all = str_printf("%sCache-Control: no-store\r\n", extra);

    write_head(f, io, "text/event-stream", all);
}

const follow_form FOLLOW_EVENTS = {.refuse = follow_refuse,
                                   .head = head_events,
                                   .bytes = put_bytes,
                                   .gap = put_gap,
                                   .ping = put_ping,
                                   .end = put_end,
                                   .hold = true,
                                   .text = true};

/* Moves the start of raw bytes behind a gap. Raw bytes cannot express a gap, only the head can, by
 * its start offset; a client that asks again starts behind it. */
static void skip_gap(follow *f, int stream)
{
    uint64_t gap = 0;
    size_t n = 0;
    char one;

    err_drop(follow_read(f, stream, f->at[stream], &one, 1, &n, &gap), "follow");
    if (gap > f->at[stream])
        f->at[stream] = gap;
}

static void head_raw(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(freep) char *extra = head_extra(f, st->id);
    int stream = f->o.streams & 2 ? 1 : 2;

    skip_gap(f, stream);
    CLEANUP(freep)
    char *all = str_printf("%sBothy-Offset: %lu\r\nBothy-Length: %lu\r\nBothy-Ended: %s\r\n", extra,
                           f->at[stream], st->length[stream - 1],
                           st->end.how == EXEC_RUNNING ? "false" : "true");
    write_head(f, io, "application/octet-stream", all);
}

const follow_form FOLLOW_RAW = {.refuse = follow_refuse, .head = head_raw, .hold = true};

/* ---- commands that end at once ---- */

struct brief {
    follow *f;
    exec_state st;
};

static bool is_over(void *arg)
{
    struct brief *b = arg;

    follow_look(b->f, &b->st);
    return b->st.end.how != EXEC_RUNNING;
}

bool follow_brief(response *rs, sandbox *sb, const follow_options *o)
{
    follow f = {.s = o->session, .sb = sb, .o = *o};
    struct brief b = {.f = &f};
    CLEANUP(json_decrefp) json_t *body = NULL;

    if (!brief_wait(f.s, is_over, &b) || b.st.id != o->seq)
        return false;
    err *e = result_json(&f, &b.st, &body);
    if (e) {
        err_free(e);
        return false;
    }
    response_header(rs, "Bothy-Seq", "%lu", b.st.id);
    if (o->replay)
        response_header(rs, "Idempotent-Replay", "true");
    response_json(rs, 200, TAKE_PTR(body));
    return true;
}
