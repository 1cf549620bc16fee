/* Sessions of shells: create_session, run_in_session, close_session, close. */
#include <ctype.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "door/swerex/internal.h"
#include "door/swerex/text.h"

#define PREFIX        "rex-"
#define NAME_MAX_LEN  (JOURNAL_NAME_MAX - 1 - strlen(PREFIX))
#define CLOSE_NS      (10 * NS_PER_S)
#define CLOSE_LOOK_NS (5 * NS_PER_MS)

static bool is_plain(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_.-", name[i]))
            return false;
    return n > 0 && n <= NAME_MAX_LEN;
}

char *rex_session_name(const char *name)
{
    uint8_t digest[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];

    if (is_plain(name))
        return str_printf(PREFIX "%s", name);
    sha256(name, strlen(name), digest);
    hex_encode(digest, sizeof digest, hex);
    return str_printf(PREFIX "+%.24s", hex);
}

static bool is_live(session *s)
{
    CLEANUP(session_state_done) session_state st;

    session_get(s, &st);
    return st.life != SESSION_ENDED;
}

static err *find_live(sandbox *sb, const char *name, session **ret_session)
{
    CLEANUP(freep) char *ours = rex_session_name(name);
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(err_freep) err *e = engine_session_find(sb, ours, &s);

    *ret_session = NULL;
    if (e && e->code != ERR_NOT_FOUND)
        return TAKE_PTR(e);
    if (s && is_live(s))
        *ret_session = TAKE_PTR(s);
    return NULL;
}

/* Returns an error with the cause if the sandbox has ended: a client needs that more than "the
 * session does not exist". */
static err *check_running(sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v = {0};

    if (sandbox_state(sb) != LIFE_GONE)
        return engine_awake(sb);
    sandbox_get(sb, &v);
    return err_remedy(
        err_because(err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", v.id), "sandbox"),
                    "%s", str_or(v.cause, "{}")),
        "Use the token of another sandbox, or another n in a token that makes one.");
}

err *rex_session_find(sandbox *sb, const char *name, session **ret_session)
{
    TRY(check_running(sb));
    TRY(find_live(sb, name, ret_session));
    if (*ret_session)
        return NULL;
    CLEANUP(buf_done) buf shown = {0};
    rex_repr(&shown, name, strlen(name));
    return rex_raise(REX_E("SessionDoesNotExistError"), "session %s does not exist",
                     buf_cstr(&shown));
}

/* Requests with the same X-Request-ID are executed once. */
static idempotency idempotency_of(const request *rq, const buf *body)
{
    const char *key = request_header(rq, "X-Request-ID");

    if (!key || !ascii_visible(key) || strlen(key) > 255)
        key = NULL;
    return (idempotency){.key = key, .body = body->p, .nbody = body->len};
}

err *rex_create_session(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    CLEANUP(rex_opening_done) rex_opening o = {0};
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(body_wipe) buf body = {0};
    bool replay = false;

    (void)w;
    TRY(request_body(rq, REX_BODY_MAX, &body));
    TRY(rex_opening_decode(body.p, body.len, &o));
    TRY(check_running(sb));
    CLEANUP(freep) char *name = rex_session_name(o.session);
    idempotency idem = idempotency_of(rq, &body);
    session_spec spec = {.name = name, .shell = "auto", .merge = true, .mode = SESSION_AUTO};
    CLEANUP(err_freep)
    err *e = engine_session_new(rex_engine(rq), rex_caller(rq), sb, &spec, &idem, &s, &replay);
    if (e && e->code == ERR_CONFLICT && str_eq(e->kind, "session"))
        return rex_raise(REX_E("SessionExistsError"), "session %s already exists", o.session);
    if (e)
        return TAKE_PTR(e);
    exec_key key;
    bool has_key = engine_session_key(rex_caller(rq), sb, s, &idem, &key);
    return rex_opening_start(rq, rs, sb, s, &o, has_key ? &key : NULL);
}

err *rex_run_in_session(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    CLEANUP(rex_action_done) rex_action a = {0};
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(body_wipe) buf body = {0};
    exec_key key;

    (void)w;
    TRY(request_body(rq, REX_BODY_MAX, &body));
    TRY(rex_action_decode(body.p, body.len, &a));
    TRY(rex_session_find(sb, a.session, &s));
    if (a.interrupt)
        return rex_terminal_interrupt(rq, rs, sb, s, &a);
    if (a.interactive || a.quit || a.expect)
        return rex_terminal_start(rq, rs, sb, s, &a);
    idempotency idem = idempotency_of(rq, &body);
    bool has_key = engine_session_key(rex_caller(rq), sb, s, &idem, &key);
    return rex_run_start(rq, rs, sb, s, &a, has_key ? &key : NULL);
}

/* ---- closing sessions ---- */

static err *close_one(request *rq, sandbox *sb, session *s)
{
    rex_terminal_close(rex_of(rq)->terminals, sb, s);
    return session_close(s);
}

/* Answers when the sessions have ended, because only then their names are free; after CLOSE_NS at
 * the latest. */
typedef struct closing {
    rex_ground g;
    const char *answer;
    session **list;
    size_t n;
    uint64_t until;
} closing;

static void closing_free(void *ctx)
{
    closing *c = ctx;

    for (size_t i = 0; i < c->n; i++)
        session_unref(c->list[i]);
    free(c->list);
    rex_ground_done(&c->g);
    free(c);
}

static void closing_start(void *ctx, relay_job *job)
{
    (void)ctx, (void)job;
}

static enum relay_next closing_step(void *ctx, relay_io *io)
{
    closing *c = ctx;
    CLEANUP(buf_done) buf body = {0};

    if (!c->until)
        c->until = io->now + CLOSE_NS;
    for (size_t i = 0; i < c->n; i++)
        if (is_live(c->list[i]) && io->now < c->until) {
            io->wake_at = io->now + CLOSE_LOOK_NS;
            return RELAY_WAIT;
        }
    buf_str(&body, c->answer);
    return rex_answer(io, 200, &body, c->g.request_id);
}

static const relay_ops CLOSING_OPS = {
    .kind = STREAM_WAIT, .start = closing_start, .step = closing_step, .free = closing_free};

/* Takes the list. */
static err *await_end(request *rq, response *rs, sandbox *sb, session **list, size_t n,
                      const char *answer)
{
    closing *c = xcalloc(1, sizeof *c);

    c->list = list;
    c->n = n;
    c->answer = answer;
    err *e = rex_ground_take(rq, sb, NULL, 0, &c->g);
    if (e)
        closing_free(c);
    else
        response_relay(rs, &CLOSING_OPS, c);
    return e;
}

err *rex_close_session(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    CLEANUP(session_unrefp) session *s = NULL;
    CLEANUP(freep) char *name = NULL;
    CLEANUP(body_wipe) buf body = {0};

    (void)w;
    TRY(request_body(rq, REX_BODY_MAX, &body));
    TRY(rex_session_decode(body.p, body.len, &name));
    TRY(rex_session_find(sb, name, &s));
    TRY(close_one(rq, sb, s));
    session **list = xcalloc(1, sizeof(session *));
    list[0] = TAKE_PTR(s);
    return await_end(rq, rs, sb, list, 1, "{\"session_type\":\"bash\"}");
}

static bool is_ours(session *s)
{
    CLEANUP(session_state_done) session_state st;

    session_get(s, &st);
    return st.life != SESSION_ENDED && str_starts(st.name, PREFIX);
}

static err *close_all(request *rq, response *rs, sandbox *sb)
{
    session **list = NULL;
    size_t n = 0, kept = 0;

    TRY(engine_session_list(sb, &list, &n));
    for (size_t i = 0; i < n; i++)
        if (is_ours(list[i])) {
            err_drop(close_one(rq, sb, list[i]), "swerex");
            list[kept++] = list[i];
        } else {
            session_unref(list[i]);
        }
    return await_end(rq, rs, sb, list, kept, "{}");
}

/* Ends a sandbox that was made for the token. In other sandboxes only closes this door's
 * sessions. */
err *rex_close(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    if (sb && sandbox_state(sb) != LIFE_GONE) {
        if (w->token.sandbox)
            return close_all(rq, rs, sb);
        TRY(rex_unmake(rq, w, sb));
    }
    response_json(rs, 200, json_object());
    return NULL;
}
