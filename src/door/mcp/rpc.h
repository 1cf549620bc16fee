/* JSON-RPC 2.0 as MCP uses it: parses one message, writes messages. Pure.
 *
 * The door supports two eras of the protocol. In the older one (2024-11-05 to 2025-11-25) a client
 * initializes and may have a session. In the newer one (2026-07-28) every request names its version
 * in `_meta`, and there are no sessions. */
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
#define RPC_NEWEST "2025-11-25" /* the newest version with a handshake */

enum rpc_kind {
    RPC_REQUEST,
    RPC_NOTIFICATION,
    RPC_RESPONSE, /* to a request of the server, which sends none: ignored */
};
typedef struct rpc_message {
    enum rpc_kind kind;
    json_t *root;         /* owns all members below */
    const json_t *id;     /* of a request: a string or an integer */
    const char *method;   /* NULL: a response */
    const json_t *params; /* an object, or NULL */
    const char *version;  /* from its _meta: the newer era; NULL: the older one */
    const json_t *token;  /* for progress: a string or an integer; NULL: not wanted */
} rpc_message;
void rpc_message_done(rpc_message *m);

/* Parses a message. rpc_code() gives the JSON-RPC code of an error. On an error ret_message may
 * still have the id that the answer needs. */
err *rpc_parse(const void *p, size_t n, rpc_message *ret_message) ERR_MUST;
int rpc_code(const err *e);
/* Returns the requested version if it is a supported one with a
 * handshake, else the newest of these. */
const char *rpc_agree(const char *asked);
bool rpc_knows(const char *version);

/* Each appends one message without a line end, and takes ownership of result,
 * data and params. id NULL: null. */
void rpc_result(buf *out, const json_t *id, json_t *result);
void rpc_error(buf *out, const json_t *id, int code, const char *message, json_t *data);
void rpc_notify(buf *out, const char *method, json_t *params);
/* Appends a bothy error, with all its members as data. */
void rpc_failure(buf *out, const json_t *id, const err *e, const char *request_id);
