#include "door/shared/follow.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "door/shared/acks.h"

#define CHUNK      (16 * 1024)
#define STEP_BYTES (64 * 1024)
/* The head of an answer waits for the first byte or a failed start, so that a missing command gets
 * an ordinary error. After EARLY_NS the box is probed repeatedly whether the command runs. */
#define EARLY_NS (20 * NS_PER_MS)
/* The head waits no longer than this: a process inside may have been
 * stopped between fork and exec. */
#define EARLY_LAST_NS (2 * NS_PER_S)
/* No event reports an acknowledgement: it is polled, at growing intervals. */
#define LOOK_FIRST_NS (5 * NS_PER_MS)
#define LOOK_LAST_NS  NS_PER_S

static const follow_form *form_of(const follow *f)
{
    return f->o.form;
}

static void wake_by(relay_io *io, uint64_t at)
{
    if (at && (!io->wake_at || at < io->wake_at))
        io->wake_at = at;
}

static void on_bytes(void *arg)
{
    relay_wake(arg);
}

static void hold_streams(follow *f)
{
    if (!form_of(f)->hold)
        return;
    for (int s = 1; s <= 2; s++)
        if (f->o.streams & 1u << s)
            f->hold[s] =
                f->s ? session_hold(f->s, f->o.seq, s, f->at[s]) : exec_hold_new(f->x, s, f->at[s]);
}

static void on_start(void *ctx, relay_job *job)
{
    follow *f = ctx;

    f->job = job;
    f->watch = (exec_watch){.notify = on_bytes, .arg = job};
    if (f->s)
        session_watch_add(f->s, &f->watch);
    else
        exec_watch_add(f->x, &f->watch);
    if (!f->o.turn)
        hold_streams(f);
}

/* ---- acknowledgements ---- */

static void look_at_acks(follow *f)
{
    uint64_t at[2];

    if (f->acks && f->job && follow_acks_take(f->acks, relay_unacked(f->job), at))
        exec_reader_move(f->x, f->acks->reader, at);
}

/* Notes the bytes that a step wrote, and schedules the next poll. */
static void note_acks(follow *f, relay_io *io, size_t bytes)
{
    follow_acks *a = f->acks;

    if (!a)
        return;
    if (bytes) {
        follow_acks_note(a, bytes, &f->at[1]);
        a->look_ns = LOOK_FIRST_NS;
    }
    if (!a->n)
        return;
    wake_by(io, io->now + a->look_ns);
    a->look_ns = a->look_ns < LOOK_LAST_NS / 2 ? 2 * a->look_ns : LOOK_LAST_NS;
}

static void on_free(void *ctx)
{
    follow *f = ctx;

    look_at_acks(f);
    if (f->acks)
        follow_acks_done(f->acks);
    free(f->acks);
    for (int s = 1; s <= 2; s++)
        exec_hold_free(f->hold[s]);
    if (f->s)
        session_unwatch(f->s, &f->watch);
    else
        exec_unwatch(f->x, &f->watch);
    exec_unref(f->x);
    session_unref(f->s);
    if (f->o.turn)
        f->o.turn_free(f->o.turn);
    if (f->uses)
        sandbox_stream_end(f->sb);
    sandbox_unref(f->sb);
    if (form_of(f)->free)
        form_of(f)->free(f->o.arg);
    free(f->request_id);
    free(f->cause);
    free(f);
}

/* ---- for forms ---- */

const char *follow_cause(follow *f)
{
    if (!f->cause) {
        sandbox_view v;
        sandbox_get(f->sb, &v);
        f->cause = TAKE_PTR(v.cause);
        sandbox_view_done(&v);
    }
    return f->cause;
}

enum relay_next follow_finish(const relay_io *io)
{
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

err *follow_read(const follow *f, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                 uint64_t *ret_gap_to)
{
    return f->s ? session_read(f->s, f->o.seq, stream, offset, p, max, ret_n, ret_gap_to)
                : exec_read(f->x, stream, offset, p, max, ret_n, ret_gap_to);
}

void follow_look(follow *f, exec_state *ret)
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

void follow_skipped(follow *f)
{
    if (f->acks)
        exec_reader_move(f->x, f->acks->reader, &f->at[1]);
}

err *follow_start_error(const exec_state *st)
{
    return err_wrap(exec_end_error(&st->end), "'%s'", st->command);
}

/* Returns true if the head need not wait for a probe any longer. */
static bool has_waited(follow *f, relay_io *io)
{
    uint64_t since = io->now - f->forked;

    if (since >= EARLY_LAST_NS)
        return true;
    if (since >= EARLY_NS && io->now >= f->probe_at) {
        CLEANUP(err_freep) err *away = exec_probe(f->x);
        if (away)
            return true;
        f->probe_at = io->now + EARLY_NS;
    }
    wake_by(io, since < EARLY_NS ? f->forked + EARLY_NS : f->probe_at);
    return false;
}

/* Decides on the head. init reports the fork, not whether the exec after it succeeds. */
bool follow_head_due(follow *f, relay_io *io, const exec_state *st, err **ret_failure)
{
    *ret_failure = NULL;
    if (!f->o.is_exec)
        return true;
    if (st->end.how != EXEC_RUNNING) {
        *ret_failure = follow_start_error(st);
        return true;
    }
    if (!st->started)
        return false;
    if (!f->forked)
        f->forked = io->now;
    return st->runs || st->length[0] || st->length[1] || has_waited(f, io);
}

/* ---- streams ---- */

/* Returns how many bytes at the end begin a UTF-8 character without its rest, so that
 * text stays valid across messages. */
static size_t follow_unfinished(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)p[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > back ? back : 0;
    }
    return 0;
}

enum pour {
    POUR_DRY,
    POUR_PARTIAL, /* like dry, but a split character waits for its rest */
    POUR_MORE,
    POUR_HOLD,  /* the peer must first have everything that was sent */
    POUR_GAP,   /* a gap that the form cannot render: cut the connection */
    POUR_ENDED, /* that ended the answer */
    POUR_FAILED
};

/* Returns how many of n bytes to send now; 0: wait for the rest of a split character. */
static size_t whole_text(uint64_t *since, relay_io *io, uint64_t patience, const char *p, size_t n)
{
    size_t whole = n - follow_unfinished(p, n);

    if (whole || !patience) {
        *since = 0;
        return whole ? whole : n;
    }
    if (!*since)
        *since = io->now;
    if (io->now - *since >= patience) {
        *since = 0;
        return n;
    }
    wake_by(io, *since + patience);
    return 0;
}

/* Returns how long to wait for the rest of a split UTF-8 character. Once the stream's
 * end is known, it does not wait. */
static uint64_t patience_of(const follow *f, uint64_t limit)
{
    return limit == UINT64_MAX ? form_of(f)->partial_ns : 0;
}

/* Renders a gap. If the gap ends the answer, it is held back until the peer has everything before
 * it, because the peer's next stream begins behind it. */
static enum pour pour_gap(follow *f, buf *body, int stream, uint64_t to)
{
    uint64_t from = f->at[stream];

    if (!form_of(f)->gap)
        return POUR_GAP;
    if (f->acks && (body->len || f->acks->n))
        return POUR_HOLD;
    f->at[stream] = to;
    if (form_of(f)->gap(f, body, stream, from))
        return POUR_MORE;
    follow_skipped(f);
    return POUR_ENDED;
}

static err *pour_chunk(follow *f, relay_io *io, buf *body, int stream, uint64_t limit,
                       enum pour *ret)
{
    const follow_form *form = form_of(f);
    uint64_t gap = 0, from = f->at[stream], left = limit - from;
    size_t n = 0, room = form->bytes ? CHUNK : STEP_BYTES - body->len;
    char chunk[CHUNK];

    if (!form->bytes)
        buf_reserve(body, room);
    char *to = form->bytes ? chunk : body->p + body->len;
    TRY(follow_read(f, stream, from, to, left < room ? (size_t)left : room, &n, &gap));
    if (gap > from) {
        *ret = pour_gap(f, body, stream, gap);
        return NULL;
    }
    *ret = n ? POUR_MORE : POUR_DRY;
    if (n && form->text && from + n < limit) {
        n = whole_text(&f->partial[stream], io, patience_of(f, limit), chunk, n);
        *ret = n ? POUR_MORE : POUR_PARTIAL;
    }
    f->at[stream] += n;
    if (n && form->bytes)
        form->bytes(f, body, stream, from, chunk, n);
    else
        body->len += n; /* the read put them into the body directly */
    return NULL;
}

/* Sends what one stream has, up to its limit, while the step has room. */
static enum pour follow_pour(follow *f, relay_io *io, buf *body, int stream, uint64_t limit,
                             err **ret_failure)
{
    while (f->at[stream] < limit) {
        enum pour got = POUR_FAILED;
        *ret_failure = pour_chunk(f, io, body, stream, limit, &got);
        if (got != POUR_MORE || body->len >= STEP_BYTES)
            return got;
    }
    return POUR_DRY;
}

static uint64_t limit_of(const follow *f, const exec_state *st, int stream)
{
    if (f->o.until == UNTIL_NOW)
        return f->now[stream];
    if (f->s)
        return st->length[stream - 1]; /* the bytes after that may be a trailer */
    if (f->o.until == UNTIL_EOF || st->end.how == EXEC_RUNNING)
        return UINT64_MAX;
    return stream == 1 ? st->end.out_bytes : st->end.err_bytes;
}

static bool follow_over(const follow *f, const exec_state *st)
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

static bool is_late(const follow *f, const relay_io *io)
{
    return f->o.deadline_ns && io->now >= f->o.deadline_ns;
}

/* Starts the answer. Returns false if it is too early. */
static bool follow_begin(follow *f, relay_io *io, const exec_state *st, err **ret_failure)
{
    if (!follow_head_due(f, io, st, ret_failure) && !is_late(f, io)) {
        wake_by(io, f->o.deadline_ns);
        return false;
    }
    if (*ret_failure) {
        form_of(f)->refuse(f, io, st, *ret_failure);
        return true;
    }
    form_of(f)->head(f, io, st);
    f->head_sent = true;
    return true;
}

static enum pour pour_all(follow *f, relay_io *io, buf *body, const exec_state *st,
                          err **ret_failure)
{
    enum pour got = POUR_DRY;

    for (int s = 1; s <= 2 && got <= POUR_PARTIAL; s++) {
        if (!(f->o.streams & 1u << s))
            continue;
        enum pour one = follow_pour(f, io, body, s, limit_of(f, st, s), ret_failure);
        got = one == POUR_DRY ? got : one; /* the result is dry only if both streams are */
    }
    for (int s = 1; s <= 2; s++)
        if (f->hold[s])
            move_hold(f, s);
    return got;
}

/* Appends the end of the answer, if it has come. Returns false if there is more to come. */
static bool last_word(follow *f, relay_io *io, buf *body, const exec_state *st, enum pour got,
                      const err *failure)
{
    const follow_form *form = form_of(f);

    if (got == POUR_DRY && follow_over(f, st)) {
        if (form->end && st->end.how != EXEC_RUNNING)
            form->end(f, body, st);
        return true;
    }
    if (got == POUR_ENDED)
        return true;
    if (!form->broken || !(failure || is_late(f, io)))
        return false;
    CLEANUP(err_freep) err *late = err_new(ERR_TIMEOUT, "the time limit of the request is over");
    form->broken(f, body, failure ? failure : late);
    return true;
}

static enum relay_next step_stream(follow *f, relay_io *io, const exec_state *st)
{
    uint64_t ping_ns = f->o.ping_ns ? f->o.ping_ns : FOLLOW_PING_NS;
    CLEANUP(buf_done) buf body = {0};
    CLEANUP(err_freep) err *refused = NULL;
    CLEANUP(err_freep) err *failure = NULL;

    if (!f->head_sent && !follow_begin(f, io, st, &refused))
        return RELAY_WAIT;
    if (refused)
        return follow_finish(io);
    enum pour got = pour_all(f, io, &body, st, &failure);
    bool done = last_word(f, io, &body, st, got, failure);
    if (!body.len && form_of(f)->ping && io->now - f->last_sent >= ping_ns)
        form_of(f)->ping(f, &body);
    if (body.len) {
        stream_put(io, body.p, body.len);
        f->last_sent = io->now;
    }
    if (io->stalled || (!done && (got == POUR_FAILED || got == POUR_GAP)))
        /* without the last chunk, so that the client sees that the body is incomplete */
        return RELAY_CLOSE;
    if (done) {
        stream_put(io, NULL, 0);
        return stream_done(io);
    }
    wake_by(io, f->last_sent + ping_ns);
    wake_by(io, f->o.deadline_ns);
    return got == POUR_MORE ? RELAY_MORE : RELAY_WAIT;
}

/* ---- the job ---- */

/* Tries to begin the session's command. Returns true if it began, or never will (*ret_failure). */
static bool take_turn(follow *f, err **ret_failure)
{
    err *e = f->o.turn_try(f->o.turn, &f->o.seq, &f->o.replay);

    if (session_is_busy(e)) {
        err_free(e);
        return false;
    }
    *ret_failure = e;
    if (e)
        return true;
    f->o.turn_free(TAKE_PTR(f->o.turn));
    hold_streams(f);
    return true;
}

static enum relay_next shared_follow_step(follow *f, relay_io *io)
{
    exec_state st;

    if (!f->last_sent)
        f->last_sent = io->now;
    if (f->o.turn) {
        CLEANUP(err_freep) err *failure = NULL;
        if (!take_turn(f, &failure))
            return RELAY_WAIT;
        if (failure) {
            form_of(f)->refuse(f, io, NULL, failure);
            return follow_finish(io);
        }
    }
    /* State before bytes: an end seen here means every byte of it can be read below. */
    follow_look(f, &st);
    if (!f->began)
        f->began = io->now;
    if (!f->now[0]) {
        f->now[0] = 1; /* the lengths are taken */
        f->now[1] = st.length[0];
        f->now[2] = st.length[1];
    }
    return form_of(f)->step ? form_of(f)->step(f, io, &st) : step_stream(f, io, &st);
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    follow *f = ctx;
    size_t before = io->out->len;

    look_at_acks(f);
    enum relay_next next = shared_follow_step(f, io);
    note_acks(f, io, io->out->len - before);
    return next;
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
    if (o->resume) {
        f->acks = xcalloc(1, sizeof *f->acks);
        f->acks->reader = exec_reader_new(x, &f->at[1]);
    }
    f->request_id = xstrdup(request_id(rq));
    f->uses = o->until != UNTIL_NOW && sandbox_stream_begin(sb);
    response_relay(rs, &FOLLOW_OPS, f);
}
