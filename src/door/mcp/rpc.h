/* JSON-RPC 2.0 as MCP uses it: one message in, messages out. Pure.
 *
 * Two eras of the protocol are spoken. In the older one (2024-11-05 to 2025-11-25) a client
 * initializes and may have a session; in the newer one (2026-07-28) every request says its version
 * in `_meta`, and there is no session. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define RPC_PARSE     (-32700)
#define RPC_INVALID   (-32600)
#define RPC_NO_METHOD (-32601)
#define RPC_PARAMS    (-32602)
#define RPC_INTERNAL  (-32603)
#define RPC_VERSION   (-32022)
#define RPC_CANCELLED (-32800)

#define RPC_MODERN "2026-07-28"
#define RPC_NEWEST "2025-11-25" /* of those with a handshake */

enum rpc_kind {
    RPC_REQUEST,
    RPC_NOTIFICATION,
    RPC_RESPONSE, /* to what we never ask: taken and forgotten */
};
typedef struct rpc_message {
    enum rpc_kind kind;
    json_t *root;         /* owns what follows */
    const json_t *id;     /* of a request: a string or an integer */
    const char *method;   /* NULL: a response */
    const json_t *params; /* an object, or NULL */
    const char *version;  /* of its _meta: the newer era; NULL: the older one */
    const json_t *token;  /* of progress: a string or an integer, or NULL: not wanted */
} rpc_message;
void rpc_message_done(rpc_message *m);

/* An error says which JSON-RPC code it has by rpc_code(). On an error ret_message may still have
 * the id that the answer is for. */
err *rpc_parse(const void *p, size_t n, rpc_message *ret_message) ERR_MUST;
int rpc_code(const err *e);
/* A version with a handshake that we know; any other one is answered with the newest. */
const char *rpc_agree(const char *asked);
bool rpc_knows(const char *version);

/* Each appends one message without a line end; result, data and params are taken. id NULL: null. */
void rpc_result(buf *out, const json_t *id, json_t *result);
void rpc_error(buf *out, const json_t *id, int code, const char *message, json_t *data);
void rpc_notify(buf *out, const char *method, json_t *params);
/* One of our errors, with all that it says as data. */
void rpc_failure(buf *out, const json_t *id, const err *e, const char *request_id);
