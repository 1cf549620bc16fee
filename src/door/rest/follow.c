/* Answers made of an exec's streams: run-to-end results, event streams, raw bytes.
 *
 * One job per connection, driven by the relay; the exec's watch wakes it. Everything is read by
 * offset from the spool, so a job holds no bytes of its own but what the peer has not taken yet. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "door/rest/internal.h"
#include "wire/sse.h"

#define CHUNK      (16 * 1024)
#define STEP_BYTES (64 * 1024)
#define HALF       (512 * 1024) /* of a run-to-end answer: head and tail */
#define PING_NS    (15 * UINT64_C(1000000000))
/* How long the head of an answer waits for the first byte or a failed start, so that a command that
 * does not exist is an ordinary error. */
#define EARLY_NS (20 * UINT64_C(1000000))

typedef struct follow {
    exec *x;    /* or: */
    session *s; /* whose command o.seq is followed */
    sandbox *sb;
    follow_options o;
    exec_watch watch;
    exec_hold *hold[3]; /* of the streams it sends as they come */
    char *request_id;
    char *cause; /* of the sandbox, for an unknown end; read once */
    uint64_t at[3];
    uint64_t now[3]; /* lengths when it began: where UNTIL_NOW stops */
    uint64_t last_sent;
    uint64_t began;  /* the first step */
    uint64_t forked; /* when we heard that it was; 0: not yet */
    bool head_sent;
    bool uses; /* it keeps the sandbox from being idle */
} follow;      /* thousands wait: no bytes in it */

static void on_bytes(void *arg)
{
    relay_wake(arg);
}

static void hold_streams(follow *f);

static void on_start(void *ctx, relay_job *job)
{
    follow *f = ctx;

    f->watch = (exec_watch){.notify = on_bytes, .arg = job};
    if (f->s)
        session_watch_add(f->s, &f->watch);
    else
        exec_watch_add(f->x, &f->watch);
    if (!f->o.turn)
        hold_streams(f);
}

static void hold_streams(follow *f)
{
    if (f->o.form != FOLLOW_RAW && f->o.form != FOLLOW_EVENTS)
        return; /* run-to-end takes head and tail */
    for (int s = 1; s <= 2; s++)
        if (f->o.streams & 1u << s)
            f->hold[s] =
                f->s ? session_hold(f->s, f->o.seq, s, f->at[s]) : exec_hold_new(f->x, s, f->at[s]);
}

static void on_free(void *ctx)
{
    follow *f = ctx;

    for (int s = 1; s <= 2; s++)
        exec_hold_free(f->hold[s]);
    if (f->s)
        session_unwatch(f->s, &f->watch);
    else
        exec_unwatch(f->x, &f->watch);
    exec_unref(f->x);
    session_unref(f->s);
    command_turn_free(f->o.turn);
    if (f->uses)
        sandbox_stream_end(f->sb);
    sandbox_unref(f->sb);
    free(f->request_id);
    free(f->cause);
    free(f);
}

static const char *cause_of(follow *f)
{
    if (!f->cause) {
        sandbox_view v;
        sandbox_get(f->sb, &v);
        f->cause = TAKE_PTR(v.cause);
        sandbox_view_done(&v);
    }
    return f->cause;
}

static enum relay_next finish(const relay_io *io)
{
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

/* ---- run to the end, answer once ---- */

static err *read_at(const follow *f, int stream, uint64_t offset, void *p, size_t max,
                    size_t *ret_n, uint64_t *ret_gap_to)
{
    return f->s ? session_read(f->s, f->o.seq, stream, offset, p, max, ret_n, ret_gap_to)
                : exec_read(f->x, stream, offset, p, max, ret_n, ret_gap_to);
}

/* Reads [from, to) into b, skipping holes; returns the offset of the first byte got. */
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
        TRY(read_at(f, stream, at, b->p + b->len, want, &n, &gap));
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
        return view_end(st->id, &st->end, cause_of(f));
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
    *ret = json_pack("{s:s,s:o,s:O,s:O}", "exec", id, "end", view_end(st->id, end, cause_of(f)),
                     "out", out, "err", errors);
    return NULL;
}

/* Why a command never ran, with the command; NULL for any other end. */
static err *start_error(const exec_state *st)
{
    return err_wrap(exec_end_error(&st->end), "'%s'", st->command);
}

/* Who waits for a command's end does not wait longer than it said. */
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
    CLEANUP(err_freep) err *failure = start_error(st);
    if (!failure)
        failure = result_json(f, st, &body);
    if (failure)
        http_error_answer(io->out, failure, io->keep_alive, f->request_id);
    else
        http_json_answer(io->out, 200, body, io->keep_alive, f->request_id, extra);
    return finish(io);
}

/* May the head go out? Sets *ret_failure when the answer is an error instead. init tells of the
 * fork, not of the exec behind it; one that fails does so at once. */
static bool head_due(follow *f, relay_io *io, const exec_state *st, err **ret_failure)
{
    *ret_failure = NULL;
    if (!f->o.is_exec)
        return true;
    if (st->end.how != EXEC_RUNNING) {
        *ret_failure = start_error(st);
        return true;
    }
    if (!st->started)
        return false;
    if (!f->forked)
        f->forked = io->now;
    if (st->length[0] || st->length[1] || io->now - f->forked >= EARLY_NS)
        return true;
    io->wake_at = f->forked + EARLY_NS;
    return false;
}

/* ---- start, answer when it runs ---- */

static enum relay_next step_started(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(err_freep) err *failure = NULL;

    if (!head_due(f, io, st, &failure))
        return RELAY_WAIT;
    CLEANUP(json_decrefp) json_t *body = f->s ? end_json(f, st) : view_process(st, cause_of(f));
    CLEANUP(freep) char *extra = head_extra(f, st->id);
    if (failure)
        http_error_answer(io->out, failure, io->keep_alive, f->request_id);
    else
        http_json_answer(io->out, f->s ? 202 : 201, body, io->keep_alive, f->request_id, extra);
    return finish(io);
}

/* ---- streams ---- */

/* Cuts an unfinished UTF-8 sequence off the end, so that text stays text across events. */
static size_t whole_characters(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back < n; back++) {
        unsigned char c = (unsigned char)p[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > back ? n - back : n;
    }
    return n;
}

static void put_event(follow *f, buf *events, const char *name, json_t *data)
{
    CLEANUP(json_decrefp) json_t *owned = data;
    CLEANUP(buf_done) buf text = {0};
    char id[48];

    snprintf(id, sizeof id, "%lu.%lu", f->at[1], f->at[2]);
    json_write(&text, owned);
    sse_write(events, name, id, text.p, text.len);
}

static void put_bytes(follow *f, buf *body, int stream, const char *p, size_t n)
{
    uint64_t offset = f->at[stream];

    f->at[stream] += n;
    if (f->o.form == FOLLOW_RAW) { /* they are there already */
        body->len += n;
        return;
    }
    json_t *data = json_bytes(p, n);
    json_object_set_new(data, "offset", json_integer((json_int_t)offset));
    put_event(f, body, stream == 1 ? "out" : "err", data);
}

static void put_gap(follow *f, buf *body, int stream, uint64_t to)
{
    uint64_t from = f->at[stream];

    f->at[stream] = to;
    put_event(f, body, "gap",
              json_pack("{s:s,s:I,s:I}", "stream", stream == 1 ? "out" : "err", "from",
                        (json_int_t)from, "to", (json_int_t)to));
}

enum pour {
    POUR_DRY,
    POUR_MORE,
    POUR_GAP_IN_RAW,
    POUR_FAILED
};

/* Takes what one stream has, up to its limit, while the step has room. */
static enum pour pour(follow *f, buf *body, int stream, uint64_t limit)
{
    bool raw = f->o.form == FOLLOW_RAW;
    char chunk[CHUNK];

    while (f->at[stream] < limit) {
        uint64_t gap = 0, left = limit - f->at[stream];
        size_t n = 0, room = raw ? STEP_BYTES - body->len : CHUNK;
        if (raw)
            buf_reserve(body, room);
        char *to = raw ? body->p + body->len : chunk;
        err *failure =
            read_at(f, stream, f->at[stream], to, left < room ? (size_t)left : room, &n, &gap);
        if (failure) {
            err_drop(failure, "follow");
            return POUR_FAILED;
        }
        if (gap > f->at[stream]) {
            if (raw)
                return POUR_GAP_IN_RAW; /* whoever asks again begins behind it */
            put_gap(f, body, stream, gap);
            continue;
        }
        if (!n)
            return POUR_DRY;
        if (f->o.form == FOLLOW_EVENTS && f->at[stream] + n < limit) {
            size_t k = whole_characters(chunk, n);
            n = k ? k : n;
        }
        put_bytes(f, body, stream, to, n);
        if (body->len >= STEP_BYTES)
            return POUR_MORE;
    }
    return POUR_DRY;
}

/* Raw bytes cannot say "gap" but in the head, by where they begin. */
static void skip_gap(follow *f, int stream)
{
    uint64_t gap = 0;
    size_t n = 0;
    char one;

    err_drop(read_at(f, stream, f->at[stream], &one, 1, &n, &gap), "follow");
    if (gap > f->at[stream])
        f->at[stream] = gap;
}

static void write_head(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(freep) char *extra = head_extra(f, st->id);
    bool raw = f->o.form == FOLLOW_RAW;
    int stream = f->o.streams & 2 ? 1 : 2;

    if (raw)
        skip_gap(f, stream);
    CLEANUP(freep)
    char *all = raw ? str_printf("%sBothy-Offset: %lu\r\nBothy-Length: %lu\r\nBothy-Ended: %s\r\n",
                                 extra, f->at[stream], st->length[stream - 1],
                                 st->end.how == EXEC_RUNNING ? "false" : "true")
                    : str_printf("%sCache-Control: no-store\r\n", extra);

    http_head_write(io->out,
                    &(http_head){.status = 200,
                                 .type = raw ? "application/octet-stream" : "text/event-stream",
                                 .length = -1,
                                 .chunked = io->http11,
                                 .keep_alive = io->keep_alive && io->http11,
                                 .request_id = f->request_id,
                                 .extra = all});
    f->head_sent = true;
}

static uint64_t limit_of(const follow *f, const exec_state *st, int stream)
{
    if (f->o.until == UNTIL_NOW)
        return f->now[stream];
    if (f->s)
        return st->length[stream - 1]; /* what follows may be a trailer */
    if (f->o.until == UNTIL_EOF || st->end.how == EXEC_RUNNING)
        return UINT64_MAX;
    return stream == 1 ? st->end.out_bytes : st->end.err_bytes;
}

static bool over(const follow *f, const exec_state *st)
{
    if (f->o.until == UNTIL_NOW)
        return true;
    return st->end.how != EXEC_RUNNING && (f->o.until == UNTIL_END || !st->lingering);
}

static void move_hold(follow *f, int s)
{
    if (f->s)
        session_hold_move(f->s, f->o.seq, f->hold[s], s, f->at[s]);
    else
        exec_hold_move(f->hold[s], f->at[s]);
}

static enum relay_next step_stream(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(buf_done) buf body = {0};
    CLEANUP(err_freep) err *failure = NULL;
    enum pour got = POUR_DRY;

    if (!f->head_sent) {
        if (!head_due(f, io, st, &failure))
            return RELAY_WAIT;
        if (failure) {
            http_error_answer(io->out, failure, io->keep_alive, f->request_id);
            return finish(io);
        }
        write_head(f, io, st);
    }
    for (int s = 1; s <= 2 && got == POUR_DRY; s++)
        if (f->o.streams & 1u << s)
            got = pour(f, &body, s, limit_of(f, st, s));
    for (int s = 1; s <= 2; s++)
        if (f->hold[s])
            move_hold(f, s);
    bool done = got == POUR_DRY && over(f, st);
    if (done && f->o.form == FOLLOW_EVENTS && st->end.how != EXEC_RUNNING)
        put_event(f, &body, "end", end_json(f, st));
    else if (!body.len && f->o.form == FOLLOW_EVENTS && io->now - f->last_sent >= PING_NS)
        sse_write(&body, "ping", NULL, "{}", 2);
    if (body.len) {
        stream_put(io, body.p, body.len);
        f->last_sent = io->now;
    }
    if (got == POUR_FAILED || got == POUR_GAP_IN_RAW || io->stalled)
        return RELAY_CLOSE; /* without the last chunk: the client sees that it is not whole */
    if (done) {
        stream_put(io, NULL, 0);
        return stream_done(io);
    }
    io->wake_at = f->last_sent + PING_NS;
    return got == POUR_MORE ? RELAY_MORE : RELAY_WAIT;
}

/* A command of a session looks like an exec: what follows them is the same. */
static void look(follow *f, exec_state *ret)
{
    CLEANUP(command_state_done) command_state c = {0};

    if (!f->s) {
        exec_get(f->x, ret);
        return;
    }
    err *e = session_command(f->s, f->o.seq, &c);
    if (e) {
        err_drop(e, "follow");
        c.kind = COMMAND_UNKNOWN;
    }
    *ret = (exec_state){.id = f->o.seq, .started = true};
    ret->end.how = c.kind == COMMAND_RUNNING ? EXEC_RUNNING : EXEC_EXITED;
    ret->length[0] = ret->end.out_bytes = c.length[0];
    ret->length[1] = ret->end.err_bytes = c.length[1];
    ret->end.out_dropped = c.dropped[0];
    ret->end.err_dropped = c.dropped[1];
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    follow *f = ctx;
    exec_state st;

    if (!f->last_sent)
        f->last_sent = io->now;
    if (f->o.turn) {
        CLEANUP(err_freep) err *e = command_turn_try(f->o.turn, &f->o.seq, &f->o.replay);
        if (session_is_busy(e))
            return RELAY_WAIT;
        if (e) {
            http_error_answer(io->out, e, io->keep_alive, f->request_id);
            return finish(io);
        }
        command_turn_free(TAKE_PTR(f->o.turn));
        hold_streams(f);
    }
    /* State before bytes: an end seen here means every byte of it can be read below. */
    look(f, &st);
    if (!f->began)
        f->began = io->now;
    if (!f->now[0]) {
        f->now[0] = 1; /* taken */
        f->now[1] = st.length[0];
        f->now[2] = st.length[1];
    }
    switch (f->o.form) {
    case FOLLOW_RESULT:
        return step_result(f, io, &st);
    case FOLLOW_STARTED:
        return step_started(f, io, &st);
    default:
        return step_stream(f, io, &st);
    }
}

static const relay_ops FOLLOW_OPS = {
    .kind = STREAM_OUTPUT, .start = on_start, .step = on_step, .free = on_free};

void follow_start(request *rq, response *rs, sandbox *sb, exec *x, const follow_options *o)
{
    follow *f = xcalloc(1, sizeof *f);

    f->x = x ? exec_ref(x) : NULL;
    f->s = o->session ? session_ref(o->session) : NULL;
    f->sb = sandbox_ref(sb);
    f->o = *o;
    f->at[1] = o->from[1];
    f->at[2] = o->from[2];
    f->request_id = xstrdup(request_id(rq));
    f->uses = o->until != UNTIL_NOW && sandbox_stream_begin(sb);
    response_relay(rs, &FOLLOW_OPS, f);
}

/* ---- the end of what takes no time ---- */

#define BRIEF_NS  (2 * UINT64_C(1000000))
#define BRIEF_MAX 8 /* threads that wait so at a time: they are everybody's */

struct brief {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool news;
};

static void on_brief(void *arg)
{
    struct brief *b = arg;

    LOCK_SCOPE(&b->lock);
    b->news = true;
    pthread_cond_signal(&b->cond);
}

/* True when it has ended by then. */
static bool wait_brief(follow *f, exec_state *st)
{
    struct brief b = {.lock = PTHREAD_MUTEX_INITIALIZER};
    exec_watch w = {.notify = on_brief, .arg = &b};
    uint64_t until = now_mono_ns() + BRIEF_NS;

    cond_init(&b.cond);
    session_watch_add(f->s, &w);
    for (;;) {
        look(f, st);
        if (st->end.how != EXEC_RUNNING || now_mono_ns() >= until)
            break;
        LOCK_SCOPE(&b.lock);
        while (!b.news && now_mono_ns() < until)
            cond_wait_until(&b.cond, &b.lock, until);
        b.news = false;
    }
    session_unwatch(f->s, &w);
    pthread_cond_destroy(&b.cond);
    return st->end.how != EXEC_RUNNING;
}

bool follow_brief(response *rs, sandbox *sb, const follow_options *o)
{
    static _Atomic int waiting;
    follow f = {.s = o->session, .sb = sb, .o = *o};
    CLEANUP(json_decrefp) json_t *body = NULL;
    exec_state st;

    bool over = atomic_fetch_add(&waiting, 1) < BRIEF_MAX && wait_brief(&f, &st) && st.id == o->seq;
    atomic_fetch_sub(&waiting, 1);
    if (!over)
        return false;
    err *e = result_json(&f, &st, &body);
    if (e) {
        err_free(e);
        return false;
    }
    response_header(rs, "Bothy-Seq", "%lu", st.id);
    if (o->replay)
        response_header(rs, "Idempotent-Replay", "true");
    response_json(rs, 200, TAKE_PTR(body));
    return true;
}
