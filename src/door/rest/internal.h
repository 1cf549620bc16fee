/* Internals of the REST door: what its files share. Private to this folder. */
#pragma once

#include "base/cleanup.h"
#include "base/str.h"
#include "door/rest/rest.h"
#include "door/shared/follow.h"
#include "door/shared/port.h"
#include "door/shared/stream.h"
#include "door/shared/wait.h"
#include "wire/gateway.h"

struct rest {
    rest_options o;
    const char **operations;
};

static inline rest *rest_of(request *rq)
{
    return request_door(rq);
}
static inline engine *rest_engine(request *rq)
{
    return rest_of(rq)->o.engine;
}
static inline const caller *rest_caller(request *rq)
{
    return request_user(rq);
}

/* view.c: values as JSON, each a new reference */
json_t *view_sandbox(const sandbox_view *v);
json_t *view_sandbox_now(sandbox *sb);
json_t *view_walls(const sandbox_view *v); /* the receipt; null: the sandbox never ran */
/* which state a pause keeps and loses; null: it is not paused */
json_t *view_pause(const sandbox_view *v);
json_t *view_end(uint64_t exec_id, const exec_end *end, const char *cause_json);
json_t *view_process(const exec_state *st, const char *cause_json);
json_t *view_session(const session_state *s, const char *cause_json);
json_t *view_command(const command_state *c);
json_t *view_image(const image *i);
json_t *view_key(const key_row *k, const char *secret);
json_t *view_event(const event_row *r);
json_t *view_strings(char *const *v);
json_t *view_time(uint64_t real_ns); /* null for 0 */

/* usage.c: null if unknown */
json_t *view_box_usage(const box_usage *u);

/* pools.c: the backend's pool, null if it has none or does not answer */
json_t *view_pool_of(backend *b);

/* follow.c: forms for an exec's streams. RESULT answers once at the end, EVENTS and RAW as output
 * comes, STARTED when the command runs. */
extern const follow_form FOLLOW_RESULT, FOLLOW_EVENTS, FOLLOW_RAW, FOLLOW_STARTED;
/* Answers a session's command in the request's thread if it ends within 2 ms, which saves two
 * switches between threads. Returns false if it does not, or if too many threads wait like this. */
bool follow_brief(response *rs, sandbox *sb, const follow_options *o);

/* attach.c: a WebSocket to a command */
typedef struct attach_options {
    uint64_t from[3]; /* start offset, by stream */
    bool is_new;      /* just started: a failed start is answered as an error */
} attach_options;
/* Checks the handshake, before a command is started for it. ERR_INVALID_REQUEST. */
err *attach_check(request *rq, response *rs, buf *ret_lines) ERR_MUST;
/* Hands the connection to the relay. Takes its own references, and ownership of the lines. */
err *attach_start(request *rq, response *rs, sandbox *sb, exec *x, const attach_options *o,
                  buf *lines) ERR_MUST;

/* ports.c: the host form, which has no routes */
enum gateway_host ports_host(request *rq, char ret_id[SANDBOX_ID_LEN + 1], uint16_t *ret_port);
err *ports_by_host(request *rq, response *rs, const char *id, uint16_t port) ERR_MUST;

/* Reads Idempotency-Key. ERR_INVALID_REQUEST if it is malformed. */
err *rest_idempotency(request *rq, const buf *body, idempotency *ret_idem) ERR_MUST;
bool rest_wants_events(const request *rq);
/* Parses "<out>.<err>" or one number; an offset that is missing keeps its value. */
err *rest_parse_offsets(const char *text, uint64_t *ret_out, uint64_t *ret_err) ERR_MUST;
/* Parses "TERM", "SIGTERM", "15"; -1: not a signal. */
int rest_signal_number(const char *text);
/* Finds the sandbox and the exec that a route's two parameters name. */
err *rest_find_exec(request *rq, sandbox **ret_sandbox, exec **ret_exec) ERR_MUST;
