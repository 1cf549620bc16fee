/* What the files of the MCP door share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/str.h"
#include "base/thread.h"
#include "door/mcp/mcp.h"
#include "door/mcp/rpc.h"
#include "door/shared/code.h"
#include "door/shared/making.h"
#include "engine/files.h"

#define MCP_SESSION_LABEL "mcp-session"
#define MCP_ID_LEN        32 /* of ids of ours */
#define MCP_NOT_KNOWN     "it is not known how it ended: do not take it for a success"

struct mcp {
    mcp_options o;
    pthread_mutex_t lock; /* of the map; before a session's */
    map sessions;         /* owner and name -> mcp_session, one reference */
    map owners;           /* owner -> how many of them are its own, as uintptr_t */
};

typedef struct mcp_call mcp_call;

/* ---- session.c ---- */
typedef struct mcp_session mcp_session; /* refcounted */
enum mcp_session_kind {
    MCP_ISSUED, /* Mcp-Session-Id: begun by initialize, ended by DELETE */
    MCP_OWN,    /* Bothy-Mcp-Session: named by the client, which ends with its connections */
    MCP_NAMED,  /* ?sandbox=NAME: the sandbox outlives it */
};
/* A new one, with an id of ours. */
mcp_session *mcp_session_issue(mcp *d, const caller *c);
/* The one that the request names; *ret is NULL if it names none. ERR_NOT_FOUND (kind "session") for
 * an issued one that is not known. */
err *mcp_session_find(mcp *d, request *rq, const caller *c, mcp_session **ret) ERR_MUST;
const char *mcp_session_id(const mcp_session *s);
/* Whose calls they are that a request makes, cancels or ends: clients that name the same sandbox
 * share its session, and each has calls of its own. NULL: one that has not said. Lives with the
 * request. */
const char *mcp_client(const request *rq);
/* The same if it is an id of ours: when its client has ended nobody else has it. */
const char *mcp_issued(const request *rq);
/* Its sandbox, which is begun if there is none: fill() says how; without it *ret_making is NULL
 * then. */
err *mcp_session_seat(mcp_session *s, const caller *c,
                      err *(*fill)(request *rq, sandbox_spec *ret_spec), request *rq,
                      making **ret_making) ERR_MUST;
/* What a create of this session has made is its sandbox from here on. False: the one that its URL
 * names stays it, because others who name it share it, unless this one has that name now. */
bool mcp_session_adopt(mcp_session *s, making *m, const char *name);
/* From here on that one is its own; NULL: none, if it still was `was`. */
void mcp_session_take_seat(mcp_session *s, making *was, making *m);
/* Who has deleted it, by whatever name, is not told so by its next call. */
void mcp_session_stand_up(mcp_session *s, sandbox *sb);
/* A label for sandboxes of this session; NULL: they are nobody's. */
char *mcp_session_label(const mcp_session *s);
/* Calls under way. The call's cancel is called with the session's lock held, and must not wait. One
 * that joins a session that has ended, or that its client has left, is cancelled. */
void mcp_session_join(mcp_session *s, mcp_call *c);
void mcp_session_part(mcp_session *s, mcp_call *c);
/* Of this client; NULL: all of its calls. */
void mcp_session_cancel(mcp_session *s, const char *client, const json_t *id);
/* The calls of the request's client are cancelled, its sandboxes deleted, and nobody finds it any
 * more; what has a name stays, and so do its other clients. */
err *mcp_session_end(mcp_session *s, const caller *c, const request *rq) ERR_MUST;
bool mcp_session_has_ended(mcp_session *s);
void mcp_session_unref(mcp_session *s);
static inline void mcp_session_unrefp(mcp_session **s)
{
    mcp_session_unref(*s);
}

/* ---- call.c: one tools/call, a job of the relay ---- */
typedef struct mcp_tool {
    const char *name;
    size_t args_size;
    err *(*decode)(const json_t *j, void *args);
    void (*done)(void *args);
    size_t sandbox_at; /* of `sandbox` in the arguments; SIZE_MAX: it needs none */
    bool finds;        /* none is made for it */
    /* In the request's thread, which may wait: what needs a commit. c->sb or c->seat is there, or
     * it makes c->seat itself (sandbox_at). NULL: nothing. */
    err *(*prepare)(mcp_call *c);
    /* In the relay's thread, once, with c->sb; must not wait. */
    err *(*begin)(mcp_call *c);
    /* After news: sets *ret_done when c->text and c->data are the answer. May set c->wake_at. */
    err *(*poll)(mcp_call *c, uint64_t now, bool *ret_done);
    /* Cancelled, or nobody reads the answer any more; or NULL. */
    void (*stop)(mcp_call *c);
    /* What goes on, for people; or NULL. */
    void (*say)(mcp_call *c, buf *out);
} mcp_tool;
extern const mcp_tool MCP_TOOLS[];
extern const size_t MCP_NTOOLS;

struct mcp_call {
    mcp *door;
    mcp_session *s; /* or NULL */
    char *client;   /* of the session's, or NULL */
    bool announced; /* the client has an id of ours, by which it cancels */
    caller who;
    rpc_message msg; /* its id and token */
    char *request_id;
    request_hold *hold;
    bool modern;
    bool events; /* the peer takes a stream */
    const mcp_tool *tool;
    void *args;
    making *seat; /* where the sandbox comes from, or NULL: it was named */
    making_waiter waiter;

    relay_job *job;
    sandbox *sb;
    bool begun, head_sent, finished;
    atomic_bool cancelled;
    uint64_t began, last_sent, last_told, wake_at;
    uint64_t told; /* bytes at the last progress */

    /* the tool's: */
    exec *x;
    session *sh;
    uint64_t seq;
    uint64_t since; /* when what it waits out was first seen: a fork, a shell that starts */
    exec_watch watch;
    kit_call *k;
    void *own;
    void (*own_free)(void *own);

    buf text;                     /* of the answer */
    json_t *data;                 /* its structuredContent, an object */
    struct mcp_call *prev, *next; /* of the session */
};
/* Hands the connection to the relay; takes the message and the session, unless it fails. */
err *mcp_call_start(mcp *d, request *rq, response *rs, mcp_session **s, rpc_message *m,
                    size_t body) ERR_MUST;
/* From any thread. */
void mcp_call_cancel(mcp_call *c);

/* ---- for tools ---- */
void mcp_call_wake(void *call); /* for watches */
err *mcp_call_kit(mcp_call *c, const kit_request *rq, const char *user) ERR_MUST;
/* How a create without words is filled: from the URL and the configuration. */
err *mcp_spec_of_url(request *rq, sandbox_spec *ret_spec) ERR_MUST;
void mcp_spec_defaults(const mcp *d, const caller *c, const mcp_session *s, sandbox_spec *spec);
static inline mcp *mcp_of(request *rq)
{
    return request_door(rq);
}

/* tool_run.c, tool_files.c, tool_sandbox.c */
err *tool_run_begin(mcp_call *c);
err *tool_run_poll(mcp_call *c, uint64_t now, bool *ret_done);
void tool_run_stop(mcp_call *c);
void tool_run_say(mcp_call *c, buf *out);
err *tool_session_begin(mcp_call *c);
err *tool_session_poll(mcp_call *c, uint64_t now, bool *ret_done);
void tool_session_stop(mcp_call *c);
err *tool_output_begin(mcp_call *c);
err *tool_output_poll(mcp_call *c, uint64_t now, bool *ret_done);
err *tool_read_begin(mcp_call *c);
err *tool_read_poll(mcp_call *c, uint64_t now, bool *ret_done);
err *tool_write_begin(mcp_call *c);
err *tool_write_poll(mcp_call *c, uint64_t now, bool *ret_done);
err *tool_edit_begin(mcp_call *c);
err *tool_edit_poll(mcp_call *c, uint64_t now, bool *ret_done);
err *tool_list_begin(mcp_call *c);
err *tool_list_poll(mcp_call *c, uint64_t now, bool *ret_done);
err *tool_search_begin(mcp_call *c);
err *tool_search_poll(mcp_call *c, uint64_t now, bool *ret_done);
err *tool_create_prepare(mcp_call *c);
err *tool_delete_prepare(mcp_call *c);
err *tool_code_prepare(mcp_call *c);
err *tool_code_begin(mcp_call *c);
err *tool_code_poll(mcp_call *c, uint64_t now, bool *ret_done);
void tool_code_stop(mcp_call *c);
err *tool_create_begin(mcp_call *c);
err *tool_delete_begin(mcp_call *c);
err *tool_done_poll(mcp_call *c, uint64_t now, bool *ret_done);
