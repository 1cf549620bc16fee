/* The tool code_run. */
#include <string.h>

#include "api/mcp.h"
#include "door/mcp/fit.h"
#include "door/mcp/internal.h"

#define HEAD 8192
#define TAIL 16384

static void free_run(void *own)
{
    code_run_free(own);
}

err *tool_code_prepare(mcp_call *c)
{
    static const char *const NAMES[] = {[MCP_CODE_RUN_LANGUAGE_PYTHON] = "python",
                                        [MCP_CODE_RUN_LANGUAGE_JAVASCRIPT] = "javascript",
                                        [MCP_CODE_RUN_LANGUAGE_TYPESCRIPT] = "typescript",
                                        [MCP_CODE_RUN_LANGUAGE_BASH] = "bash"};
    const mcp_code_run *in = c->args;
    code_run *r = NULL;

    TRY(code_run_new(c->door->o.engine, &c->who,
                     &(code_snippet){.image = c->door->o.code_image,
                                     .language = NAMES[in->language],
                                     .text = in->code,
                                     .timeout_ms = in->timeout_ms},
                     &r));
    c->own = r;
    c->own_free = free_run;
    return NULL;
}

err *tool_code_begin(mcp_call *c)
{
    code_run_attach(c->own, c->job);
    return NULL;
}

typedef struct source {
    code_run *run;
    int stream;
} source;

static err *read_source(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                        uint64_t *ret_gap_to)
{
    source *s = arg;

    return code_run_read(s->run, s->stream, offset, p, max, ret_n, ret_gap_to);
}

static err *put_stream(mcp_call *c, int stream, uint64_t length, buf *out, bool *cut)
{
    source from = {c->own, stream};
    fit_source s = {
        .read = read_source, .arg = &from, .length = length, .head = HEAD, .tail = TAIL};
    bool one = false;

    TRY(fit_stream(out, &s, &one));
    *cut |= one;
    return NULL;
}

static void put_text(mcp_call *c, const code_end *end, const buf *out, const buf *errors)
{
    if (end->known)
        buf_printf(&c->text, "exit code %d", end->exit_code);
    else
        buf_str(&c->text, MCP_NOT_KNOWN);
    buf_printf(&c->text, "%s\n", end->oom ? "; out of memory" : "");
    buf_append(&c->text, out->p, out->len);
    if (!errors->len)
        return;
    if (out->len && out->p[out->len - 1] != '\n')
        buf_char(&c->text, '\n');
    buf_str(&c->text, "[stderr]\n");
    buf_append(&c->text, errors->p, errors->len);
}

static err *poll_run(mcp_call *c, bool *ret_done)
{
    CLEANUP(buf_done) buf out = {0}, errors = {0};
    bool cut = false;

    TRY(code_run_poll(c->own, ret_done));
    if (!*ret_done)
        return NULL;
    code_end end = code_run_end(c->own);
    TRY(put_stream(c, 1, end.length[0], &out, &cut));
    TRY(put_stream(c, 2, end.length[1], &errors, &cut));
    if (end.timed_out)
        code_put_late(&errors);
    put_text(c, &end, &out, &errors);
    c->data = json_pack("{s:i,s:s,s:s,s:s,s:b,s:b,s:b}", "exit_code", end.exit_code, "how", end.how,
                        "stdout", buf_cstr(&out), "stderr", buf_cstr(&errors), "timed_out",
                        end.timed_out, "out_of_memory", end.oom, "truncated", cut);
    return NULL;
}

void tool_code_stop(mcp_call *c)
{
    code_run_release(c->own);
}

err *tool_code_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    (void)now;
    err *failure = poll_run(c, ret_done);
    if (failure || *ret_done)
        code_run_release(c->own);
    return failure;
}
