/* The table of tools, and the tools create and delete. */
#include "api/mcp.h"
#include "door/mcp/internal.h"

#define ARGS(t)                                      \
    static err *decode_##t(const json_t *j, void *v) \
    {                                                \
        return mcp_##t##_from_json(j, v);            \
    }                                                \
    static void done_##t(void *v)                    \
    {                                                \
        mcp_##t##_done(v);                           \
    }
ARGS(create)
ARGS(run)
ARGS(session_run)
ARGS(output)
ARGS(read)
ARGS(write)
ARGS(edit)
ARGS(list)
ARGS(search)
ARGS(delete)
ARGS(code_run)

#define TOOL(t, verb)                                                                 \
    .name = #t, .args_size = sizeof(mcp_##t), .decode = decode_##t, .done = done_##t, \
    .sandbox_at = offsetof(mcp_##t, sandbox), .begin = tool_##verb##_begin

const mcp_tool MCP_TOOLS[] = {
    {.name = "create",
     .args_size = sizeof(mcp_create),
     .decode = decode_create,
     .done = done_create,
     .sandbox_at = SIZE_MAX,
     .prepare = tool_create_prepare,
     .begin = tool_create_begin,
     .poll = tool_done_poll},
    {TOOL(run, run), .poll = tool_run_poll, .stop = tool_run_stop, .say = tool_run_say},
    {TOOL(session_run, session), .poll = tool_session_poll, .stop = tool_session_stop},
    {TOOL(output, output), .finds = true, .poll = tool_output_poll},
    {TOOL(read, read), .poll = tool_read_poll},
    {TOOL(write, write), .poll = tool_write_poll},
    {TOOL(edit, edit), .poll = tool_edit_poll},
    {TOOL(list, list), .poll = tool_list_poll},
    {TOOL(search, search), .poll = tool_search_poll},
    {.name = "code_run",
     .args_size = sizeof(mcp_code_run),
     .decode = decode_code_run,
     .done = done_code_run,
     .sandbox_at = SIZE_MAX,
     .prepare = tool_code_prepare,
     .begin = tool_code_begin,
     .poll = tool_code_poll,
     .stop = tool_code_stop},
    {TOOL(delete, delete), .finds = true, .prepare = tool_delete_prepare, .poll = tool_done_poll},
};
const size_t MCP_NTOOLS = ARRAY_LEN(MCP_TOOLS);

/* ---- specs ---- */

static err *take_network(const char *network, sandbox_spec *spec)
{
    if (!network)
        return NULL;
    if (!str_eq(network, "none") && !str_eq(network, "open"))
        return err_new(ERR_INVALID_REQUEST, "network: must be none or open");
    spec->has_network = true;
    spec->network = network_grant_by_name(network);
    return NULL;
}

err *mcp_spec_of_url(request *rq, sandbox_spec *ret_spec)
{
    const char *named = request_query(rq, "image"), *template = request_query(rq, "template");
    const char *memory = request_query(rq, "memory");

    if (memory && !str_to_bytes(memory, &ret_spec->limits.memory))
        return err_new(ERR_INVALID_REQUEST, "memory: '%.32s' is no size such as 512m", memory);
    TRY(take_network(request_query(rq, "network"), ret_spec));
    ret_spec->image = named ? xstrdup(named) : NULL;
    ret_spec->template = template ? xstrdup(template) : NULL;
    return NULL;
}

/* Returns the ttl of this door's sandboxes, or the key's limit if that is less. */
static uint64_t ttl_of(const mcp *d, const caller *c)
{
    uint64_t max = c->quota.ttl_ms || c->role == CALLER_ADMIN ? c->quota.ttl_ms : d->o.max_ttl_ms;

    return max && max < d->o.ttl_ms ? max : d->o.ttl_ms;
}

void mcp_spec_defaults(const mcp *d, const caller *c, const mcp_session *s, sandbox_spec *spec)
{
    char *label = mcp_session_label(s);

    if (!spec->image && !spec->template)
        spec->image = xstrdup(d->o.image);
    if (label)
        strv_push(&spec->labels, label);
    if (!spec->idle_ms)
        spec->idle_ms = d->o.idle_ms;
    if (!spec->ttl_ms)
        spec->ttl_ms = ttl_of(d, c);
}

/* ---- create ---- */

err *tool_create_prepare(mcp_call *c)
{
    mcp_create *in = c->args;
    CLEANUP(sandbox_spec_done)
    sandbox_spec spec = {.image = TAKE_PTR(in->image),
                         .template = TAKE_PTR(in->template),
                         .name = TAKE_PTR(in->name),
                         .env = TAKE_PTR(in->env),
                         .has_network = in->network != MCP_CREATE_NETWORK_UNSET,
                         .network =
                             in->network == MCP_CREATE_NETWORK_OPEN ? NETWORK_OPEN : NETWORK_NONE,
                         .ttl_ms = in->has_ttl_seconds ? in->ttl_seconds * 1000 : 0};

    if (in->has_memory_mib)
        spec.limits.memory = in->memory_mib << 20;
    mcp_spec_defaults(c->door, &c->who, c->s, &spec);
    c->seat = making_new(c->door->o.engine, &c->who, &spec, NULL);
    return NULL;
}

err *tool_create_begin(mcp_call *c)
{
    CLEANUP(sandbox_view_done) sandbox_view v;

    sandbox_get(c->sb, &v);
    buf_printf(&c->text, "Sandbox %s from %s is running. ", v.id, v.image_name);
    if (!c->s)
        buf_str(&c->text, "Pass this id as `sandbox` in every call.");
    else if (mcp_session_adopt(c->s, c->seat, v.name))
        buf_str(&c->text, "Calls without `sandbox` go to it from now on.");
    else
        buf_printf(&c->text, "Pass this id as `sandbox`: calls without it go on to '%s'.",
                   mcp_session_id(c->s));
    c->data = json_pack("{s:s}", "image", v.image_name);
    if (v.name)
        json_object_set_new(c->data, "name", json_string(v.name));
    return NULL;
}

/* ---- delete ---- */

/* Deletes the sandbox in the request's thread, because a delete waits for a commit. */
err *tool_delete_prepare(mcp_call *c)
{
    err *failure = NULL;

    if (!c->sb && !making_look(c->seat, &c->sb, &failure))
        return err_new(ERR_UNAVAILABLE, "the sandbox is still being made");
    if (failure)
        return failure;
    return engine_delete(c->door->o.engine, &c->who, c->sb, CAUSE_REQUESTED, NULL);
}

err *tool_delete_begin(mcp_call *c)
{
    if (c->s)
        mcp_session_stand_up(c->s, c->sb);
    buf_printf(&c->text, "Sandbox %s is deleted.", sandbox_id(c->sb));
    c->data = json_object();
    return NULL;
}

err *tool_done_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    (void)c, (void)now;
    *ret_done = true;
    return NULL;
}
