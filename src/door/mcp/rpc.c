#include "door/mcp/rpc.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "door/mcp/fit.h"

#define META_VERSION "io.modelcontextprotocol/protocolVersion"
#define ID_MAX       256 /* bytes of an id that is a string */

static const char *const HANDSHAKES[] = {RPC_NEWEST, "2025-06-18", "2025-03-26", "2024-11-05"};

void rpc_message_done(rpc_message *m)
{
    json_decref(m->root);
    *m = (rpc_message){0};
}

bool rpc_knows(const char *version)
{
    for (size_t i = 0; i < ARRAY_LEN(HANDSHAKES); i++)
        if (str_eq(version, HANDSHAKES[i]))
            return true;
    return str_eq(version, RPC_MODERN);
}

const char *rpc_agree(const char *asked)
{
    for (size_t i = 0; i < ARRAY_LEN(HANDSHAKES); i++)
        if (str_eq(asked, HANDSHAKES[i]))
            return HANDSHAKES[i];
    return RPC_NEWEST;
}

/* ---- parsing ---- */

static err *rpc_invalid(const char *what)
{
    return err_kind(err_new(ERR_INVALID_REQUEST, "%s", what), "message");
}

int rpc_code(const err *e)
{
    if (e->code == ERR_INTERNAL)
        return RPC_INTERNAL;
    return str_eq(e->kind, "json")     ? RPC_PARSE
           : str_eq(e->kind, "params") ? RPC_PARAMS
                                       : RPC_INVALID;
}

static bool is_word(const json_t *v)
{
    return json_is_integer(v) || (json_is_string(v) && json_string_length(v) <= ID_MAX);
}

static err *take_params(rpc_message *m)
{
    const json_t *params = json_object_get(m->root, "params");

    if (params && !json_is_object(params))
        return err_kind(err_new(ERR_INVALID_REQUEST, "params: must be an object"), "params");
    m->params = params;
    const json_t *meta = json_object_get(params, "_meta");
    m->version = json_str(meta, META_VERSION);
    const json_t *token = json_object_get(meta, "progressToken");
    m->token = is_word(token) ? token : NULL;
    return NULL;
}

static err *rpc_take(rpc_message *m)
{
    if (json_is_array(m->root))
        return err_remedy(rpc_invalid("batches are not taken"), "Send one message at a time.");
    if (!json_is_object(m->root))
        return rpc_invalid("a message must be a JSON object");
    const json_t *id = json_object_get(m->root, "id");
    if (is_word(id))
        m->id = id;
    if (!str_eq(json_str(m->root, "jsonrpc"), "2.0"))
        return rpc_invalid("jsonrpc: must be \"2.0\"");
    m->method = json_str(m->root, "method");
    if (!m->method) {
        m->kind = RPC_RESPONSE;
        if (json_object_get(m->root, "result") || json_object_get(m->root, "error"))
            return NULL;
        return rpc_invalid("method: is missing");
    }
    if (id && !m->id)
        return rpc_invalid("id: must be a string or an integer");
    m->kind = id ? RPC_REQUEST : RPC_NOTIFICATION;
    return take_params(m);
}

err *rpc_parse(const void *p, size_t n, rpc_message *ret_message)
{
    *ret_message = (rpc_message){0};
    TRY(err_kind(json_parse(p, n, &ret_message->root), "json"));
    return rpc_take(ret_message);
}

/* ---- writing ---- */

static json_t *rpc_envelope(const json_t *id)
{
    json_t *o = json_object();

    json_object_set_new(o, "jsonrpc", json_string("2.0"));
    json_object_set_new(o, "id", id ? json_deep_copy(id) : json_null());
    return o;
}

static void rpc_put(buf *out, json_t *owned)
{
    CLEANUP(json_decrefp) json_t *o = owned;

    json_write(out, o);
}

void rpc_result(buf *out, const json_t *id, json_t *result)
{
    json_t *o = rpc_envelope(id);

    json_object_set_new(o, "result", result);
    rpc_put(out, o);
}

void rpc_error(buf *out, const json_t *id, int code, const char *message, json_t *data)
{
    json_t *o = rpc_envelope(id), *e = json_object();

    json_object_set_new(e, "code", json_integer(code));
    json_object_set_new(e, "message", fit_json(message, strlen(message)));
    if (data)
        json_object_set_new(e, "data", data);
    json_object_set_new(o, "error", e);
    rpc_put(out, o);
}

void rpc_notify(buf *out, const char *method, json_t *params)
{
    rpc_put(out, json_pack("{s:s,s:s,s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

void rpc_failure(buf *out, const json_t *id, const err *e, const char *request_id)
{
    CLEANUP(freep)
    char *text = str_printf("%s%s%s. %s", e->message, e->cause ? ": " : "", str_or(e->cause, ""),
                            err_remedy_of(e));

    rpc_error(out, id, rpc_code(e), text, json_of_err(e, request_id));
}
