/* A process's events as a Connect stream: a form of door/shared/follow.
 *
 * The stream ends with its last envelope: {} after an `end` event, or an error. A client that sees
 * neither knows that the connection was lost, and connects again. */
#include <errno.h>

#include "base/clock.h"
#include "door/e2b/process_call.h"
#include "door/shared/follow.h"
#include "wire/connect.h"

#define PARTIAL_NS (100 * NS_PER_MS) /* old SDKs decode each message on its own */

typedef struct stream {
    bool is_pty;
    char *cwd, *user;
} stream;

static void stream_free(void *arg)
{
    stream *s = arg;

    free(s->cwd);
    free(s->user);
    free(s);
}

static void end_with(buf *body, const char *code, const err *e)
{
    CLEANUP(buf_done) buf text = {0};

    e2b_message(&text, e);
    connect_end(body, code ? code : err_info_of(e->code)->connect, buf_cstr(&text));
}

/* Returns why the process never ran, in envd's own words where clients compare them. */
static err *start_error(const stream *s, const exec_state *st, const err *why)
{
    bool missing = st && st->end.errnum == ENOENT;

    if (why->code == ERR_CWD_NOT_FOUND && missing && s->cwd)
        return err_new(ERR_CWD_NOT_FOUND, "cwd '%s' does not exist", s->cwd);
    if (why->code == ERR_USER_NOT_FOUND)
        return err_remedy(
            err_new(ERR_UNAUTHENTICATED, "invalid username: '%s'", str_or(s->user, "")), "%s",
            err_remedy_of(why));
    if (why->code == ERR_EXEC_FAILED && missing)
        return err_remedy(err_copy(why),
                          "SDKs run commands with /bin/bash -l -c: use an image that "
                          "has bash, and check the program's path.");
    return err_copy(why);
}

static void process_stream_refuse(follow *f, relay_io *io, const exec_state *st, const err *why)
{
    CLEANUP(err_freep) err *e = start_error(f->o.arg, st, why);

    http_error_answer_as(io->out, &E2B_FORM_STREAM, e, io->keep_alive, f->request_id);
}

static void put_head(follow *f, relay_io *io, const exec_state *st)
{
    CLEANUP(buf_done) buf start = {0};

    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "application/connect+json",
                                          .length = -1,
                                          .chunked = io->http11,
                                          .keep_alive = io->keep_alive && io->http11,
                                          .request_id = f->request_id,
                                          .extra = "Cache-Control: no-store\r\n"});
    process_event_start(&start, st->id);
    stream_put(io, start.p, start.len);
}

static void put_bytes(follow *f, buf *body, int s, uint64_t offset, const char *p, size_t n)
{
    const stream *x = f->o.arg;

    (void)offset;
    process_event_data(body, x->is_pty ? "pty" : s == 1 ? "stdout" : "stderr", p, n);
}

/* Ends the stream at a gap: it has no form for one, so clients would take the next bytes for
 * adjacent ones. */
static bool put_gap(follow *f, buf *body, int s, uint64_t from)
{
    CLEANUP(freep)
    char *text = str_printf("%s: the bytes %lu to %lu are no longer kept. Connect to the process "
                            "again: the stream goes on behind them.",
                            s == 1 ? "stdout" : "stderr", from, f->at[s]);

    connect_end(body, "data_loss", text);
    return false;
}

static void put_keepalive(follow *f, buf *body)
{
    (void)f;
    process_event_keepalive(body);
}

static void put_end(follow *f, buf *body, const exec_state *st)
{
    CLEANUP(err_freep) err *e = follow_start_error(st);

    if (st->end.how == EXEC_UNKNOWN) {
        e = err_remedy(err_new(ERR_UNAVAILABLE, "the sandbox has ended, and with it the process"),
                       "Create a new sandbox.");
        if (follow_cause(f))
            e = err_because(e, "%s", follow_cause(f));
    }
    if (e) {
        end_with(body, NULL, e);
        return;
    }
    process_event_end(body, &st->end);
    connect_end(body, NULL, NULL);
}

static void put_broken(follow *f, buf *body, const err *why)
{
    exec_state st;

    if (why->code != ERR_NOT_FOUND) {
        end_with(body, NULL, why);
        return;
    }
    /* Its bytes were removed, but its end is known: the next stream reports it. */
    exec_get(f->x, &st);
    f->at[1] = st.length[0];
    f->at[2] = st.length[1];
    follow_skipped(f);
    end_with(body, "data_loss", why);
}

static const follow_form FORM = {.refuse = process_stream_refuse,
                                 .head = put_head,
                                 .bytes = put_bytes,
                                 .gap = put_gap,
                                 .ping = put_keepalive,
                                 .end = put_end,
                                 .broken = put_broken,
                                 .free = stream_free,
                                 .partial_ns = PARTIAL_NS,
                                 .hold = true,
                                 .text = true};

void process_stream_start(request *rq, response *rs, sandbox *sb, exec *x, const process_stream *o)
{
    stream *s = xcalloc(1, sizeof *s);
    exec_state st;

    exec_get(x, &st);
    *s = (stream){.is_pty = st.stdio == STDIO_PTY,
                  .cwd = o->cwd ? xstrdup(o->cwd) : NULL,
                  .user = o->user ? xstrdup(o->user) : NULL};
    follow_start(rq, rs, sb, x,
                 &(follow_options){.form = &FORM,
                                   .arg = s,
                                   .until = UNTIL_END,
                                   .streams = 1u << 1 | 1u << 2,
                                   .resume = true,
                                   .is_exec = o->is_new,
                                   .ping_ns = o->keepalive_ns,
                                   .deadline_ns = o->deadline_ns});
}
