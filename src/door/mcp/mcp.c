/* Dispatches requests of the MCP door: caller, session, method. */
#include "door/mcp/mcp.h"

#include <assert.h>
#include <string.h>

#include "base/id.h"
#include "door/mcp/internal.h"
#include "door/mcp/tools.h"
#include "door/shared/admit.h"
#include "door/shared/stream.h"

#define BODY_MAX (4 << 20)

const char *const MCP_OPERATIONS[] = {"mcp_other", "mcp_list", "mcp_call", "mcp_end", NULL};
enum operation {
    OP_OTHER,
    OP_LIST,
    OP_CALL,
    OP_END
};

static const char INSTRUCTIONS[] =
    "Isolated Linux sandboxes. Commands (run, session_run) and files (read, write, edit, list, "
    "search) are those of a sandbox, not of the user's machine. Long output comes shortened, with "
    "the call that reads the rest. Errors say what to do about them.";

mcp *mcp_new(const mcp_options *o)
{
    mcp *d = xcalloc(1, sizeof *d);

    d->o = *o;
    pthread_mutex_init(&d->lock, NULL);
    tools_init();
    return d;
}

void mcp_free(mcp *d)
{
    map_iter it = {0};

    if (!d)
        return;
    while (map_next(&d->sessions, &it))
        mcp_session_unref(it.entry->value);
    map_done(&d->sessions);
    map_done(&d->owners);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

bool mcp_claims(const request *rq)
{
    return str_eq(request_path(rq), "/mcp");
}

/* ---- forms ---- */

static const char *write_error(buf *body, const err *e, const char *request_id, int *status)
{
    (void)status;
    rpc_failure(body, NULL, e, request_id);
    return "application/json";
}
static const error_form FORM = {write_error};

static void mcp_operate(const mcp *d, request *rq, enum operation op)
{
    request_set_operation(rq, d->o.door, d->o.operation + op);
}

static void mcp_answer(response *rs, const rpc_message *m, json_t *result)
{
    CLEANUP(buf_done) buf body = {0};

    if (m->version)
        json_object_set_new(result, "resultType", json_string("complete"));
    rpc_result(&body, m->id, result);
    response_status(rs, 200);
    response_bytes(rs, "application/json", body.p, body.len);
}

static void answer_error(response *rs, const rpc_message *m, int status, int code, const char *text,
                         json_t *data)
{
    CLEANUP(buf_done) buf body = {0};

    rpc_error(&body, m->id, code, text, data);
    response_status(rs, status);
    response_bytes(rs, "application/json", body.p, body.len);
}

/* ---- methods ---- */

static json_t *mcp_capabilities(void)
{
    return json_pack("{s:{}}", "tools");
}

static json_t *server_info(const mcp *d)
{
    return json_pack("{s:s,s:s,s:s}", "name", "bothy", "title", "bothy sandboxes", "version",
                     d->o.version);
}

static void mcp_initialize(mcp *d, request *rq, response *rs, mcp_session *s, const rpc_message *m)
{
    const char *asked = json_str(m->params, "protocolVersion");

    if (!s) {
        CLEANUP(mcp_session_unrefp) mcp_session *made = mcp_session_issue(d, request_user(rq));
        response_header(rs, "Mcp-Session-Id", "%s", mcp_session_id(made));
    } else if (!mcp_client(rq)) {
        char id[MCP_ID_LEN + 1];
        id_random(id, MCP_ID_LEN);
        response_header(rs, "Mcp-Session-Id", "%s", id);
    }
    mcp_answer(rs, m,
               json_pack("{s:s,s:o,s:o,s:s}", "protocolVersion", rpc_agree(asked), "capabilities",
                         mcp_capabilities(), "serverInfo", server_info(d), "instructions",
                         INSTRUCTIONS));
}

static void mcp_discover(const mcp *d, response *rs, const rpc_message *m)
{
    mcp_answer(rs, m,
               json_pack("{s:[s],s:o,s:s,s:i,s:s,s:{s:o}}", "supportedVersions", RPC_MODERN,
                         "capabilities", mcp_capabilities(), "instructions", INSTRUCTIONS, "ttlMs",
                         0, "cacheScope", "private", "_meta", "io.modelcontextprotocol/serverInfo",
                         server_info(d)));
}

static void list_tools(const mcp *d, request *rq, response *rs, const mcp_session *s,
                       const rpc_message *m)
{
    json_t *result = json_pack("{s:O}", "tools", tools_listed(!s));

    mcp_operate(d, rq, OP_LIST);
    if (m->version) {
        json_object_set_new(result, "ttlMs", json_integer(0));
        json_object_set_new(result, "cacheScope", json_string("private"));
    }
    mcp_answer(rs, m, result);
}

static err *serve_request(mcp *d, request *rq, response *rs, mcp_session **s, rpc_message *m,
                          size_t body)
{
    if (m->version && !str_eq(m->version, RPC_MODERN)) {
        answer_error(rs, m, 400, RPC_VERSION, "this version of the protocol is not spoken",
                     json_pack("{s:[s],s:s}", "supported", RPC_MODERN, "requested", m->version));
        return NULL;
    }
    if (str_eq(m->method, "tools/call")) {
        mcp_operate(d, rq, OP_CALL);
        return mcp_call_start(d, rq, rs, s, m, body);
    }
    if (str_eq(m->method, "initialize") && !m->version)
        mcp_initialize(d, rq, rs, *s, m);
    else if (str_eq(m->method, "server/discover") && m->version)
        mcp_discover(d, rs, m);
    else if (str_eq(m->method, "tools/list"))
        list_tools(d, rq, rs, *s, m);
    else if (str_eq(m->method, "ping"))
        mcp_answer(rs, m, json_object());
    else
        answer_error(rs, m, m->version ? 404 : 200, RPC_NO_METHOD, "there is no such method", NULL);
    return NULL;
}

static void take_notification(const request *rq, mcp_session *s, const rpc_message *m)
{
    const json_t *id = json_object_get(m->params, "requestId");

    if (s && id && str_eq(m->method, "notifications/cancelled"))
        mcp_session_cancel(s, mcp_client(rq), id);
}

/* ---- HTTP ---- */

/* Refuses requests of web pages from other sites: their host name may resolve to this machine. */
static err *check_origin(const request *rq)
{
    static const char *const HERE[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *origin = request_header(rq, "Origin"),
               *host = origin ? strstr(origin, "://") : NULL;

    if (!origin)
        return NULL;
    for (size_t i = 0; host && i < ARRAY_LEN(HERE); i++) {
        size_t n = strlen(HERE[i]);
        if (!strncmp(host + 3, HERE[i], n) && (!host[3 + n] || host[3 + n] == ':'))
            return NULL;
    }
    return err_remedy(err_new(ERR_FORBIDDEN, "Origin: '%.128s' is not of this machine", origin),
                      "Leave Origin out: programs need none.");
}

static err *check_version(const request *rq)
{
    const char *version = request_header(rq, "Mcp-Protocol-Version");

    if (!version || rpc_knows(version))
        return NULL;
    return err_new(ERR_INVALID_REQUEST, "MCP-Protocol-Version: '%.32s' is not spoken", version);
}

static err *mcp_post(mcp *d, request *rq, response *rs)
{
    CLEANUP(mcp_session_unrefp) mcp_session *s = NULL;
    CLEANUP(rpc_message_done) rpc_message m = {0};
    CLEANUP(body_wipe) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    err *e = rpc_parse(body.p, body.len, &m);
    if (!e && !(m.kind == RPC_REQUEST &&
                m.version)) /* in the newer era the answer reports a wrong version */
        e = check_version(rq);
    if (!e)
        e = mcp_session_find(d, rq, request_user(rq), &s);
    if (!e && m.kind == RPC_REQUEST)
        e = serve_request(d, rq, rs, &s, &m, body.len);
    if (e && m.id) {
        CLEANUP(err_freep) err *owned = e;
        int status = str_eq(e->kind, "params") ? 200 : err_info_of(e->code)->http;
        CLEANUP(buf_done) buf text = {0};
        rpc_failure(&text, m.id, owned, request_id(rq));
        response_status(rs, status);
        response_bytes(rs, "application/json", text.p, text.len);
        return NULL;
    }
    if (e || m.kind == RPC_REQUEST)
        return e;
    take_notification(rq, s, &m);
    response_status(rs, 202);
    return NULL;
}

static err *mcp_mcp_end(mcp *d, request *rq, response *rs)
{
    CLEANUP(mcp_session_unrefp) mcp_session *s = NULL;

    mcp_operate(d, rq, OP_END);
    TRY(mcp_session_find(d, rq, request_user(rq), &s));
    if (!mcp_client(rq))
        return err_new(ERR_INVALID_REQUEST, "Mcp-Session-Id: is missing");
    TRY(mcp_session_end(s, request_user(rq), rq));
    response_status(rs, 204);
    return NULL;
}

void mcp_form(response *rs)
{
    response_set_form(rs, &FORM);
}

err *mcp_dispatch(mcp *d, request *rq, response *rs)
{
    const char *method = request_method(rq);

    request_set_door(rq, d);
    mcp_form(rs);
    mcp_operate(d, rq, OP_OTHER);
    TRY(check_origin(rq));
    TRY(admit_caller(d->o.engine, d->o.group, rq, ROLE_USER));
    if (str_eq(method, "POST"))
        return mcp_post(d, rq, rs);
    if (str_eq(method, "DELETE"))
        return mcp_mcp_end(d, rq, rs);
    response_header(rs, "Allow", "POST, DELETE");
    return err_new(ERR_METHOD_NOT_ALLOWED, "%s is not served here", method);
}
