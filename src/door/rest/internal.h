/* What the files of the REST door share. */
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
json_t *view_walls(const sandbox_view *v); /* the receipt; null: nobody tried any */
json_t *view_pause(const sandbox_view *v); /* what is kept and lost; null: it is not paused */
json_t *view_end(uint64_t exec_id, const exec_end *end, const char *cause_json);
json_t *view_process(const exec_state *st, const char *cause_json);
json_t *view_session(const session_state *s, const char *cause_json);
json_t *view_command(const command_state *c);
json_t *view_image(const image *i);
json_t *view_key(const key_row *k, const char *secret);
json_t *view_event(const event_row *r);
json_t *view_strings(char *const *v);
json_t *view_time(uint64_t real_ns); /* null for 0 */

/* usage.c: null if it is not known */
json_t *view_box_usage(const box_usage *u);

/* pools.c: the backend's pool, null if it has none or does not answer */
json_t *view_pool_of(backend *b);

/* follow.c: answers that come from an exec's streams. Once at its end, as events, as they are; when
 * it runs. */
extern const follow_form FOLLOW_RESULT, FOLLOW_EVENTS, FOLLOW_RAW, FOLLOW_STARTED;
/* A session's command that ends within 2 ms is answered at once by the thread that is there: two
 * ways between threads less. False: it does not, or too many wait like this. */
bool follow_brief(response *rs, sandbox *sb, const follow_options *o);

/* attach.c: a WebSocket to a command */
typedef struct attach_options {
    uint64_t from[3]; /* by stream */
    bool is_new;      /* just started: if that failed, the answer is an error */
} attach_options;
/* Checks the handshake; ERR_INVALID_REQUEST. Before anything is started for it. */
err *attach_check(request *rq, response *rs, buf *ret_lines) ERR_MUST;
/* Hands the connection to the relay. Takes references of its own, and the lines. */
err *attach_start(request *rq, response *rs, sandbox *sb, exec *x, const attach_options *o,
                  buf *lines) ERR_MUST;

/* ports.c: the host form, which has no routes */
enum gateway_host ports_host(request *rq, char ret_id[SANDBOX_ID_LEN + 1], uint16_t *ret_port);
err *ports_by_host(request *rq, response *rs, const char *id, uint16_t port) ERR_MUST;

/* Reads Idempotency-Key; ERR_INVALID_REQUEST on a bad one. */
err *rest_idempotency(request *rq, const buf *body, idempotency *ret_idem) ERR_MUST;
bool rest_wants_events(const request *rq);
/* "<out>.<err>" or one number; what is left out stays as it is. */
err *rest_parse_offsets(const char *text, uint64_t *ret_out, uint64_t *ret_err) ERR_MUST;
/* "TERM", "SIGTERM", "15"; -1: none. */
int rest_signal_number(const char *text);
/* The sandbox and the exec that a route's two parameters name. */
err *rest_find_exec(request *rq, sandbox **ret_sandbox, exec **ret_exec) ERR_MUST;
