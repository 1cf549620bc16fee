/* Messages of MCP's clients, and output on its way to a model: what is taken has an id and a method
 * of the form that is promised, arguments are within their limits or an error that names one, and
 * what is answered can be read again; text is UTF-8, no longer than its window, and what is left
 * out is told. */
#include "api/mcp.h"

#include "base/cleanup.h"
#include "door/mcp/fit.h"
#include "door/mcp/rpc.h"

#include "fuzz.h"

static void check_refused(err *e)
{
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(json_decrefp) json_t *back = NULL;

    MUST(e->message[0]);
    rpc_failure(&out, NULL, e, "r");
    MUST(!json_parse(out.p, out.len, &back) && json_object_get(back, "error"));
    err_free(e);
}

#define TRY_TOOL(t)                                                    \
    do {                                                               \
        CLEANUP(mcp_##t##_done) mcp_##t in = {0};                      \
        err *e = mcp_##t##_from_json(args, &in);                       \
        MUST(!e || (e->code == ERR_INVALID_REQUEST && e->message[0])); \
        if (e)                                                         \
            check_refused(e);                                          \
    } while (0)

static void try_tools(const json_t *args)
{
    if (!json_is_object(args))
        return;
    TRY_TOOL(create);
    TRY_TOOL(run);
    TRY_TOOL(session_run);
    TRY_TOOL(output);
    TRY_TOOL(read);
    TRY_TOOL(write);
    TRY_TOOL(edit);
    TRY_TOOL(list);
    TRY_TOOL(search);
    TRY_TOOL(delete);
    TRY_TOOL(code_run);
}

static void try_message(const char *p, size_t n)
{
    CLEANUP(rpc_message_done) rpc_message m = {0};
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(json_decrefp) json_t *back = NULL;
    err *e = rpc_parse(p, n, &m);

    if (e) {
        MUST(e->code == ERR_INVALID_REQUEST && rpc_code(e) <= RPC_INVALID);
        check_refused(e);
        return;
    }
    MUST((m.kind == RPC_REQUEST) == (m.id && m.method));
    MUST(m.kind != RPC_NOTIFICATION || (m.method && !m.id));
    rpc_result(&out, m.id, json_object());
    MUST(!json_parse(out.p, out.len, &back));
    MUST(!m.id || json_equal(json_object_get(back, "id"), m.id));
    try_tools(json_object_get(m.params, "arguments"));
}

/* ---- output ---- */

typedef struct spool {
    const char *p;
    size_t n, hole_from, hole_to;
} spool;

static err *read_spool(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                       uint64_t *ret_gap_to)
{
    const spool *s = arg;
    size_t end = offset < s->hole_from ? s->hole_from : s->n;

    *ret_n = 0;
    if (offset >= s->hole_from && offset < s->hole_to) {
        *ret_gap_to = s->hole_to;
        return NULL;
    }
    if (offset < end)
        *ret_n = end - offset < max ? end - offset : max;
    memcpy(p, s->p + offset, *ret_n);
    return NULL;
}

static void try_output(fuzz_in *in)
{
    size_t head = fuzz_byte(in) + 8, tail = fuzz_byte(in) + 8;
    size_t from = fuzz_byte(in), len = fuzz_byte(in);
    spool s = {.p = (const char *)in->p, .n = in->n};
    fit_source f = {.read = read_spool,
                    .arg = &s,
                    .length = in->n,
                    .head = head,
                    .tail = tail,
                    .rest = "output("};
    CLEANUP(buf_done) buf out = {0};
    bool cut = false;

    s.hole_from = from < s.n ? from : s.n;
    s.hole_to = s.hole_from + (len < s.n - s.hole_from ? len : s.n - s.hole_from);
    MUST(!fit_stream(&out, &f, &cut));
    MUST(utf8_valid(out.p ? out.p : "", out.len) && (!out.len || !memchr(out.p, 0, out.len)));
    MUST(out.len <= 3 * (head + tail + 4) + 128);
    MUST(cut || s.hole_from < s.hole_to || in->n <= head + tail);
    size_t shown = fit_head(s.p, s.n, head);
    MUST(shown <= head || shown == s.n);
    shown = fit_tail(s.p, s.n, tail);
    MUST(shown <= tail || shown == s.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};

    if (size && *data != '{' && *data != '[')
        try_output(&in);
    else
        try_message((const char *)data, size);
    return 0;
}
