/* …/sessions: create, run, list, interrupt, end. */
#include <string.h>

#include "api/openapi.h"
#include "base/clock.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define BODY_MAX (4 << 20) /* a command of 2 MiB, escaped */
#define LIST_MAX 1000
#define START_NS (10 * NS_PER_S) /* a session that still starts is then reported as it is */
#define ONLY_OUT (1u << 1)
#define BOTH     (1u << 1 | 1u << 2)

static err *find_sandbox(request *rq, sandbox **ret)
{
    return engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), ret);
}

static err *find_session(request *rq, sandbox **ret_sandbox, session **ret_session)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(find_sandbox(rq, &sb));
    TRY(engine_session_find(sb, request_param(rq, 1), ret_session));
    *ret_sandbox = TAKE_PTR(sb);
    return NULL;
}

static err *find_command(request *rq, sandbox **ret_sandbox, session **ret_session,
                         uint64_t *ret_seq)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(command_state_done) command_state st = {0};

    TRY(find_session(rq, &sb, &s));
    if (!str_to_u64(request_param(rq, 2), UINT64_MAX, ret_seq))
        return err_kind(err_new(ERR_NOT_FOUND, "there is no command '%s'", request_param(rq, 2)),
                        "command");
    TRY(session_command(s, *ret_seq, &st));
    *ret_sandbox = TAKE_PTR(sb);
    *ret_session = TAKE_PTR(s);
    return NULL;
}

static json_t *session_json(sandbox *sb, session *s)
{
    CLEANUP(sandbox_view_done) sandbox_view v;
    CLEANUP(session_state_done) session_state st;

    sandbox_get(sb, &v);
    session_get(s, &st);
    return view_session(&st, v.cause);
}

/* ---- open ---- */

/* A new session whose answer waits until its shell is ready, or has failed. */
typedef struct opening {
    sandbox *sb;
    session *s;
    exec_watch watch;
    uint64_t began;
    bool replay;
    char *request_id;
} opening;

static void on_news(void *arg)
{
    relay_wake(arg);
}

static void opening_start(void *ctx, relay_job *job)
{
    opening *o = ctx;

    o->watch = (exec_watch){.notify = on_news, .arg = job};
    session_watch_add(o->s, &o->watch);
}

static void opening_free(void *ctx)
{
    opening *o = ctx;

    session_unwatch(o->s, &o->watch);
    session_unref(o->s);
    sandbox_unref(o->sb);
    free(o->request_id);
    free(o);
}

static enum relay_next sessions_answer(relay_io *io, err *failure, int status, json_t *body,
                                       const char *request_id, const char *extra)
{
    CLEANUP(err_freep) err *owned_failure = failure;
    CLEANUP(json_decrefp) json_t *owned = body;

    if (owned_failure)
        http_error_answer(io->out, owned_failure, io->keep_alive, request_id);
    else
        http_json_answer(io->out, status, owned, io->keep_alive, request_id, extra);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

/* Returns an error if the shell could not be started or ended without running a command, else
 * NULL. */
static err *no_shell(const session_state *st)
{
    err *e = exec_end_error(&st->shell.end);

    if (e)
        return err_wrap(e, "the shell '%s'", st->program);
    if (st->life != SESSION_ENDED || st->commands)
        return NULL;
    return err_remedy(err_new(ERR_EXEC_FAILED, "the shell '%s' ended at once", st->program),
                      "Name a shell that the image has: bash, dash or busybox ash.");
}

static enum relay_next opening_step(void *ctx, relay_io *io)
{
    opening *o = ctx;
    CLEANUP(session_state_done) session_state st;

    if (!o->began)
        o->began = io->now;
    session_get(o->s, &st);
    io->wake_at = o->began + START_NS;
    if (st.life == SESSION_STARTING && io->now < io->wake_at)
        return RELAY_WAIT;
    err *failure = no_shell(&st);
    return sessions_answer(io, failure, 201, failure ? NULL : session_json(o->sb, o->s),
                           o->request_id, o->replay ? "Idempotent-Replay: true\r\n" : NULL);
}

static const relay_ops OPENING = {
    .kind = STREAM_WAIT, .start = opening_start, .step = opening_step, .free = opening_free};

static enum session_mode mode_of(enum create_session_mode m)
{
    return m == CREATE_SESSION_MODE_DETACHED   ? SESSION_DETACHED
           : m == CREATE_SESSION_MODE_ATTACHED ? SESSION_ATTACHED
                                               : SESSION_AUTO;
}

err *rest_session_create(request *rq, response *rs)
{
    CLEANUP(create_session_done) create_session in = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(body_wipe) buf body = {0};
    idempotency idem;
    bool replay = false;

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(rest_idempotency(rq, &body, &idem));
    TRY(create_session_decode(body.p, body.len, &in));
    TRY(find_sandbox(rq, &sb));
    session_spec spec = {.name = in.name,
                         .shell = in.shell,
                         .user = in.user,
                         .cwd = in.cwd,
                         .env = in.env,
                         .merge = in.merge,
                         .mode = mode_of(in.mode)};
    TRY(engine_session_new(rest_engine(rq), rest_caller(rq), sb, &spec, &idem, &s, &replay));
    opening *o = xcalloc(1, sizeof *o);
    *o = (opening){.sb = TAKE_PTR(sb),
                   .s = TAKE_PTR(s),
                   .replay = replay,
                   .request_id = xstrdup(request_id(rq))};
    response_relay(rs, &OPENING, o);
    return NULL;
}

/* ---- list, get, end ---- */

err *rest_session_list(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(freep) session **list = NULL;
    size_t n = 0;

    TRY(find_sandbox(rq, &sb));
    TRY(engine_session_list(sb, &list, &n));
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(all, session_json(sb, list[i]));
        session_unref(list[i]);
    }
    response_json(rs, 200, json_pack("{s:o}", "sessions", all));
    return NULL;
}

err *rest_session_get(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;

    TRY(find_session(rq, &sb, &s));
    response_json(rs, 200, session_json(sb, s));
    return NULL;
}

static err *sessions_act(request *rq, response *rs, err *(*verb)(session *s))
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;

    TRY(find_session(rq, &sb, &s));
    TRY(engine_awake(sb));
    TRY(verb(s));
    response_json(rs, 200, session_json(sb, s));
    return NULL;
}

err *rest_session_delete(request *rq, response *rs)
{
    return sessions_act(rq, rs, session_close);
}

err *rest_session_interrupt(request *rq, response *rs)
{
    return sessions_act(rq, rs, session_interrupt);
}

/* ---- run ---- */

static err *run_options(request *rq, bool wait, follow_options *o)
{
    const char *last = request_header(rq, "Last-Event-ID");

    *o = (follow_options){.form = !wait                   ? &FOLLOW_STARTED
                                  : rest_wants_events(rq) ? &FOLLOW_EVENTS
                                                          : &FOLLOW_RESULT,
                          .until = UNTIL_END,
                          .streams = BOTH};
    return last ? rest_parse_offsets(last, &o->from[1], &o->from[2]) : NULL;
}

/* A command that waits until its session is free. */
typedef struct command_turn {
    sandbox *sb;
    session *s;
    char *text; /* may hold secrets */
    command_spec spec;
    exec_key key;
    bool has_key;
    request_hold *hold;
} command_turn;

static err *turn_try(void *turn, uint64_t *ret_seq, bool *ret_replay)
{
    command_turn *t = turn;

    return engine_session_run(t->sb, t->s, &t->spec, t->has_key ? &t->key : NULL, ret_seq,
                              ret_replay);
}

static void turn_free(void *turn)
{
    command_turn *t = turn;

    secret_wipe(t->text, t->spec.n);
    free(t->text);
    request_hold_free(t->hold);
    session_unref(t->s);
    sandbox_unref(t->sb);
    free(t);
}

static err *turn_new(request *rq, sandbox *sb, session *s, run_command *in, const exec_key *key,
                     command_turn **ret)
{
    request_hold *hold = NULL;

    TRY(request_hold_new(rq, in->command.n, &hold));
    command_turn *t = xcalloc(1, sizeof *t);
    *t = (command_turn){.sb = sandbox_ref(sb),
                        .s = session_ref(s),
                        .text = TAKE_PTR(in->command.p),
                        .hold = hold,
                        .has_key = key != NULL};
    t->spec = (command_spec){.text = t->text,
                             .n = in->command.n,
                             .timeout_ms = in->timeout_ms,
                             .merge = in->has_merge ? in->merge : session_merges(s)};
    if (key)
        t->key = *key;
    *ret = t;
    return NULL;
}

/* POST …/commands: runs a command, and answers at the end, as events, or at once. If it
 * cannot begin now, it waits without a thread: always for a shell that starts, for
 * another command only with `queue`. */
err *rest_command_run(request *rq, response *rs)
{
    CLEANUP(run_command_done) run_command in = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(body_wipe) buf body = {0};
    CLEANUP(err_freep) err *busy = NULL;
    command_turn *turn = NULL;
    follow_options o;
    idempotency idem;
    exec_key key;

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(rest_idempotency(rq, &body, &idem));
    TRY(run_command_decode(body.p, body.len, &in));
    TRY(run_options(rq, in.wait, &o));
    TRY(find_session(rq, &sb, &s));
    bool has_key = engine_session_key(rest_caller(rq), sb, s, &idem, &key);
    TRY(turn_new(rq, sb, s, &in, has_key ? &key : NULL, &turn));
    busy = turn_try(turn, &o.seq, &o.replay);
    if (session_is_busy(busy) && (in.queue || busy->code == ERR_UNAVAILABLE)) {
        o.turn = turn;
        o.turn_try = turn_try;
        o.turn_free = turn_free;
    } else {
        turn_free(turn);
        if (busy)
            return TAKE_PTR(busy);
    }
    o.session = s;
    if (o.turn || o.form != &FOLLOW_RESULT || !follow_brief(rs, sb, &o))
        follow_start(rq, rs, sb, NULL, &o);
    return NULL;
}

/* ---- commands ---- */

err *rest_command_list(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(session_state_done) session_state st = {0};

    TRY(find_session(rq, &sb, &s));
    session_get(s, &st);
    CLEANUP(json_decrefp) json_t *all = json_array();
    for (uint64_t seq = st.commands > LIST_MAX ? st.commands - LIST_MAX + 1 : 1; seq <= st.commands;
         seq++) {
        CLEANUP(command_state_done) command_state c = {0};
        TRY(session_command(s, seq, &c));
        json_array_append_new(all, view_command(&c));
    }
    response_json(rs, 200, json_pack("{s:O}", "commands", all));
    return NULL;
}

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

err *rest_command_get(request *rq, response *rs)
{
    CLEANUP(command_get_query_done) command_get_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;
    follow_options o = {.form = &FOLLOW_RESULT, .until = UNTIL_END, .streams = BOTH};

    TRY(command_get_query_decode(query_find, rq, &q));
    TRY(find_command(rq, &sb, &s, &o.seq));
    o.session = s;
    o.wait_ns = q.wait_ms * NS_PER_MS;
    o.look = !q.wait_ms;
    follow_start(rq, rs, sb, NULL, &o);
    return NULL;
}

static err *output_range(request *rq, const command_output_query *q, bool events, follow_options *o)
{
    const char *last = request_header(rq, "Last-Event-ID");
    uint64_t first = 0, second = 0;
    bool both = q->stream == COMMAND_OUTPUT_QUERY_STREAM_BOTH ||
                (events && q->stream == COMMAND_OUTPUT_QUERY_STREAM_UNSET);
    int one = q->stream == COMMAND_OUTPUT_QUERY_STREAM_ERR ? 2 : 1;

    if (both && !events)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "stream: raw bytes are of one stream"),
                          "Ask for stream=out or stream=err, or for text/event-stream.");
    TRY(rest_parse_offsets(last ? last : q->offset, &first, &second));
    o->streams = both ? BOTH : 1u << one;
    if (both || last || strchr(q->offset, '.')) {
        o->from[1] = first;
        o->from[2] = second;
    } else {
        o->from[one] = first;
    }
    return NULL;
}

/* Answers with the bytes that exist now. */
static err *output_now(response *rs, session *s, const follow_options *o, size_t max)
{
    int stream = o->streams & ONLY_OUT ? 1 : 2;
    uint64_t at = o->from[stream], gap = 0;
    CLEANUP(command_state_done) command_state st = {0};
    CLEANUP(buf_done) buf b = {0};
    size_t n = 0;

    TRY(session_command(s, o->seq, &st));
    buf_reserve(&b, max);
    TRY(session_read(s, o->seq, stream, at, b.p, max, &n, &gap));
    if (gap > at) {
        at = gap;
        TRY(session_read(s, o->seq, stream, at, b.p, max, &n, &gap));
    }
    response_status(rs, 200);
    response_header(rs, "Bothy-Offset", "%lu", at);
    response_header(rs, "Bothy-Length", "%lu", st.length[stream - 1]);
    response_header(rs, "Bothy-Ended", "%s", st.kind == COMMAND_RUNNING ? "false" : "true");
    response_bytes(rs, "application/octet-stream", b.p, n);
    return NULL;
}

err *rest_command_output(request *rq, response *rs)
{
    CLEANUP(command_output_query_done) command_output_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(session_unrefp) session *s = NULL;
    bool events = rest_wants_events(rq);
    follow_options o = {.form = events ? &FOLLOW_EVENTS : &FOLLOW_RAW};

    TRY(command_output_query_decode(query_find, rq, &q));
    TRY(output_range(rq, &q, events, &o));
    TRY(find_command(rq, &sb, &s, &o.seq));
    if (q.follow == COMMAND_OUTPUT_QUERY_FOLLOW_NO && !events)
        return output_now(rs, s, &o, q.max);
    o.until = q.follow == COMMAND_OUTPUT_QUERY_FOLLOW_END ? UNTIL_END : UNTIL_NOW;
    o.session = s;
    follow_start(rq, rs, sb, NULL, &o);
    return NULL;
}
