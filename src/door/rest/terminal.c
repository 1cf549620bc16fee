/* …/attach, …/resize, …/terminal: interactive commands. */
#include <string.h>

#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define BODY_MAX    4096
#define LINE_SEARCH 4096 /* how far to search for the start of a line */
#define ENV_MAX     1024 /* variables */
/* Runs bash if the image has it, else sh. $0 is the shell's option, -l or -i. */
#define SHELL_SCRIPT "command -v bash >/dev/null 2>&1 && exec bash $0; exec sh $0"

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

err *rest_process_resize(request *rq, response *rs)
{
    CLEANUP(resize_done) resize in = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(resize_decode(body.p, body.len, &in));
    TRY(rest_find_exec(rq, &sb, &x));
    TRY(engine_awake(sb));
    TRY(exec_resize(x, (uint16_t)in.rows, (uint16_t)in.cols));
    response_status(rs, 204);
    return NULL;
}

/* Finds where the last n bytes of a stream begin, at the start of a line: a screen must not begin
 * inside an escape sequence or a character. */
static err *terminal_scrollback(exec *x, int stream, uint64_t length, uint64_t n,
                                uint64_t *ret_from)
{
    char text[LINE_SEARCH];
    uint64_t from = length > n ? length - n : 0, gap = 0;
    size_t got = 0;

    *ret_from = from;
    if (!from || from == length)
        return NULL;
    TRY(exec_read(x, stream, from, text, sizeof text, &got, &gap));
    const char *line = got ? memchr(text, '\n', got) : NULL;
    if (line)
        *ret_from = from + (uint64_t)(line - text) + 1;
    return NULL;
}

static err *first_bytes(exec *x, const process_attach_query *q, attach_options *o)
{
    exec_state st;

    exec_get(x, &st);
    if (!q->offset) {
        for (int s = 1; s <= 2; s++)
            TRY(terminal_scrollback(x, s, st.length[s - 1], q->scrollback, &o->from[s]));
        return NULL;
    }
    TRY(rest_parse_offsets(q->offset, &o->from[1], &o->from[2]));
    for (int s = 1; s <= 2; s++)
        if (o->from[s] > st.length[s - 1])
            return err_because(
                err_kind(err_new(ERR_RANGE, "offset %lu is beyond the stream", o->from[s]),
                         "output"),
                "the length of %s is %lu", s == 1 ? "out" : "err", st.length[s - 1]);
    return NULL;
}

err *rest_process_attach(request *rq, response *rs)
{
    CLEANUP(process_attach_query_done) process_attach_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(buf_done) buf lines = {0};
    attach_options o = {0};

    TRY(rest_find_exec(rq, &sb, &x));
    TRY(attach_check(rq, rs, &lines));
    TRY(process_attach_query_decode(query_find, rq, &q));
    TRY(first_bytes(x, &q, &o));
    return attach_start(rq, rs, sb, x, &o, &lines);
}

/* ---- a shell ---- */

typedef struct env_list {
    char **v;
    bool bad;
} env_list;

static void take_env(void *arg, const char *name, const char *value)
{
    env_list *l = arg;
    const char *equals = strchr(value, '=');

    if (strcmp(name, "env") != 0)
        return;
    l->bad |= !equals || equals == value || strv_len(l->v) >= ENV_MAX;
    if (!l->bad)
        strv_push(&l->v, xstrdup(value));
}

static err *shell_spec(request *rq, sandbox_terminal_query *q, exec_spec *ret_spec)
{
    env_list env = {0};

    request_query_each(rq, take_env, &env);
    *ret_spec = (exec_spec){.env = env.v,
                            .user = TAKE_PTR(q->user),
                            .cwd = TAKE_PTR(q->cwd),
                            .stdio = STDIO_PTY,
                            .stdin_open = true,
                            .rows = (uint16_t)q->rows,
                            .cols = (uint16_t)q->cols,
                            .exec_fd = -1};
    if (env.bad)
        return err_new(ERR_INVALID_REQUEST, "env: at most %d, each NAME=value", ENV_MAX);
    strv_push(&ret_spec->argv, xstrdup("sh"));
    strv_push(&ret_spec->argv, xstrdup("-c"));
    strv_push(&ret_spec->argv, xstrdup(SHELL_SCRIPT));
    strv_push(&ret_spec->argv, xstrdup(q->login ? "-l" : "-i"));
    return NULL;
}

err *rest_sandbox_terminal(request *rq, response *rs)
{
    CLEANUP(sandbox_terminal_query_done) sandbox_terminal_query q = {0};
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(buf_done) buf lines = {0};
    idempotency none = {0};
    bool replay;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(attach_check(rq, rs, &lines));
    TRY(sandbox_terminal_query_decode(query_find, rq, &q));
    TRY(shell_spec(rq, &q, &spec));
    TRY(engine_exec(rest_engine(rq), rest_caller(rq), sb, &spec, &none, &x, &replay));
    return attach_start(rq, rs, sb, x, &(attach_options){.is_new = true}, &lines);
}
