/* /v1/code-run: runs a snippet in a sandbox of its own, and answers with its output. */
#include "door/shared/code.h"

#include "api/openapi.h"
#include "door/rest/internal.h"

#define BODY_MAX (8 << 20) /* a snippet of 1 MiB, escaped */

typedef struct code_job {
    code_run *run;
    char *request_id;
    request_hold *hold;
} code_job;

static void on_start(void *ctx, relay_job *job)
{
    code_run_attach(((code_job *)ctx)->run, job);
}

static void on_free(void *ctx)
{
    code_job *j = ctx;

    code_run_free(j->run);
    request_hold_free(j->hold);
    free(j->request_id);
    free(j);
}

/* Reads the first part of a stream; the rest is discarded. */
static err *read_stream(code_run *r, int stream, uint64_t length, buf *out)
{
    while (out->len < length && out->len < CODE_OUTPUT_MAX) {
        uint64_t gap = 0;
        size_t n = 0;
        buf_reserve(out, 65536);
        TRY(code_run_read(r, stream, out->len, out->p + out->len, 65536, &n, &gap));
        if (!n)
            break;
        out->len += n;
    }
    return NULL;
}

static json_t *view_stream(const buf *b, uint64_t length, bool whole)
{
    json_t *o = json_bytes(b->p ? b->p : "", b->len);

    json_object_set_new(o, "length", json_integer((json_int_t)length));
    json_object_set_new(o, "truncated", json_boolean(!whole));
    return o;
}

static err *result_of(code_run *r, json_t **ret)
{
    const code_end end = code_run_end(r);
    CLEANUP(buf_done) buf out = {0}, errors = {0};

    TRY(read_stream(r, 1, end.length[0], &out));
    TRY(read_stream(r, 2, end.length[1], &errors));
    bool whole[] = {out.len >= end.length[0], errors.len >= end.length[1]};
    if (end.timed_out)
        code_put_late(&errors);
    *ret = json_pack("{s:i,s:s,s:b,s:b,s:f,s:o,s:o}", "exit_code", end.exit_code, "how", end.how,
                     "timed_out", end.timed_out, "out_of_memory", end.oom, "seconds", end.seconds,
                     "out", view_stream(&out, end.length[0], whole[0]), "err",
                     view_stream(&errors, end.length[1], whole[1]));
    return NULL;
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    code_job *j = ctx;
    bool done = false;

    err *e = code_run_poll(j->run, &done);
    if (!e && !done)
        return RELAY_WAIT;
    if (!e)
        e = result_of(j->run, &body);
    code_run_release(j->run);
    if (e)
        http_error_answer(io->out, e, io->keep_alive, j->request_id);
    else
        http_json_answer(io->out, 200, body, io->keep_alive, j->request_id, NULL);
    err_free(e);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static const relay_ops CODE_OPS = {
    .kind = STREAM_OUTPUT, .start = on_start, .step = on_step, .free = on_free};

static const char *language_name(enum code_snippet_request_language l)
{
    static const char *const NAMES[] = {[CODE_SNIPPET_REQUEST_LANGUAGE_PYTHON] = "python",
                                        [CODE_SNIPPET_REQUEST_LANGUAGE_JAVASCRIPT] = "javascript",
                                        [CODE_SNIPPET_REQUEST_LANGUAGE_TYPESCRIPT] = "typescript",
                                        [CODE_SNIPPET_REQUEST_LANGUAGE_BASH] = "bash"};
    return NAMES[l];
}

err *rest_code_run(request *rq, response *rs)
{
    CLEANUP(code_snippet_request_done) code_snippet_request in = {0};
    CLEANUP(body_wipe) buf body = {0};
    request_hold *hold = NULL;
    code_run *r = NULL;

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(code_snippet_request_decode(body.p, body.len, &in));
    TRY(request_hold_new(rq, body.len, &hold));
    err *e = code_run_new(rest_engine(rq), rest_caller(rq),
                          &(code_snippet){.image = str_or(rest_of(rq)->o.code_image, ""),
                                          .language = language_name(in.language),
                                          .text = in.code,
                                          .timeout_ms = in.timeout_ms},
                          &r);
    if (e) {
        request_hold_free(hold);
        return e;
    }
    code_job *j = xcalloc(1, sizeof *j);
    *j = (code_job){.run = r, .request_id = xstrdup(request_id(rq)), .hold = hold};
    response_relay(rs, &CODE_OPS, j);
    return NULL;
}
