/* Internals of the MCP door: what its files share. Private to this folder. */
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
#define MCP_ID_LEN        32 /* of ids that this door issues */
#define MCP_NOT_KNOWN     "it is not known how it ended: do not take it for a success"

struct mcp {
    mcp_options o;
    pthread_mutex_t lock; /* of the map; before a session's */
    map sessions;         /* owner and name -> mcp_session, one reference */
    map owners;           /* owner -> the number of its sessions, as uintptr_t */
};

typedef struct mcp_call mcp_call;

/* ---- session.c ---- */
typedef struct mcp_session mcp_session; /* refcounted */
enum mcp_session_kind {
    MCP_ISSUED, /* Mcp-Session-Id: issued by initialize, ended by DELETE */
    MCP_OWN,    /* Bothy-Mcp-Session: named by the client, ends with the client's connections */
    MCP_NAMED,  /* ?sandbox=NAME: the sandbox outlives it */
};
/* Makes a session with an id that this door issues. */
mcp_session *mcp_session_issue(mcp *d, const caller *c);
/* Finds the session that the request names; *ret is NULL if it names none. ERR_NOT_FOUND (kind
 * "session") for an issued id that is unknown. */
err *mcp_session_find(mcp *d, request *rq, const caller *c, mcp_session **ret) ERR_MUST;
const char *mcp_session_id(const mcp_session *s);
/* Returns the client of a request. Clients that name the same sandbox share its session, but a
 * client can only cancel or end its own calls. NULL: it sent no id. Lives with the request. */
const char *mcp_client(const request *rq);
/* Returns the same if this door issued the id. After its client has
 * ended, no other client has that id. */
const char *mcp_issued(const request *rq);
/* Returns the session's sandbox, called its seat in this folder. If there is none, starts a create
 * as fill() says; without fill(), sets *ret_making to NULL. */
err *mcp_session_seat(mcp_session *s, const caller *c,
                      err *(*fill)(request *rq, sandbox_spec *ret_spec), request *rq,
                      making **ret_making) ERR_MUST;
/* Makes the sandbox of a create call the session's. Returns false for a session that its URL names,
 * unless the new sandbox has that name: other clients share the named one. */
bool mcp_session_adopt(mcp_session *s, making *m, const char *name);
/* Sets the session's sandbox to m; takes ownership. m NULL: forgets it, if it is still `was`. */
void mcp_session_take_seat(mcp_session *s, making *was, making *m);
/* Forgets the session's sandbox after the client deleted it, so that the next call
 * makes a new one instead of failing. */
void mcp_session_stand_up(mcp_session *s, sandbox *sb);
/* Returns the label for sandboxes of this session; NULL if the session does not own them. */
char *mcp_session_label(const mcp_session *s);
/* Adds or removes a running call. mcp_call_cancel() is called with the session's lock held and must
 * not wait. A call is cancelled at once if its session has ended, or its client has left it. */
void mcp_session_join(mcp_session *s, mcp_call *c);
void mcp_session_part(mcp_session *s, mcp_call *c);
/* Cancels this client's call with the id; id NULL: all of its calls. */
void mcp_session_cancel(mcp_session *s, const char *client, const json_t *id);
/* Ends a session: cancels the calls of the request's client, deletes the session's sandboxes, and
 * forgets the session. A named sandbox stays, and so do its session and its other clients. */
err *mcp_session_end(mcp_session *s, const caller *c, const request *rq) ERR_MUST;
bool mcp_session_has_ended(mcp_session *s);
void mcp_session_unref(mcp_session *s);
static inline void mcp_session_unrefp(mcp_session **s)
{
    mcp_session_unref(*s);
}

/* ---- call.c: a tools/call as a job of the relay ---- */
typedef struct mcp_tool {
    const char *name;
    size_t args_size;
    err *(*decode)(const json_t *j, void *args);
    void (*done)(void *args);
    size_t sandbox_at; /* offset of `sandbox` in the arguments; SIZE_MAX: it needs none */
    bool finds;        /* it uses an existing sandbox, and never makes one */
    /* Request thread; may wait, for example for a commit. c->sb or c->seat is set; with sandbox_at
     * SIZE_MAX it may set c->seat itself. NULL: none. */
    err *(*prepare)(mcp_call *c);
    /* Relay thread; called once, with c->sb; must not wait. */
    err *(*begin)(mcp_call *c);
    /* Called after news: sets *ret_done when c->text and c->data are
     * the answer. May set c->wake_at. */
    err *(*poll)(mcp_call *c, uint64_t now, bool *ret_done);
    /* Called when the call is cancelled, or its client no longer waits for the answer; or NULL. */
    void (*stop)(mcp_call *c);
    /* Appends the progress, for people; or NULL. */
    void (*say)(mcp_call *c, buf *out);
} mcp_tool;
extern const mcp_tool MCP_TOOLS[];
extern const size_t MCP_NTOOLS;

struct mcp_call {
    mcp *door;
    mcp_session *s; /* or NULL */
    char *client;   /* the client's id in the session, or NULL */
    bool announced; /* the client has an id that this door issued, and cancels by it */
    caller who;
    rpc_message msg; /* owns its id and token */
    char *request_id;
    request_hold *hold;
    bool modern;
    bool events; /* the peer accepts an event stream */
    const mcp_tool *tool;
    void *args;
    making *seat; /* the sandbox as it is being made; NULL: the call named one */
    making_waiter waiter;

    relay_job *job;
    sandbox *sb;
    bool begun, head_sent, finished;
    atomic_bool cancelled;
    uint64_t began, last_sent, last_told, wake_at;
    uint64_t told; /* bytes at the last progress */

    /* the tool's own: */
    exec *x;
    session *sh;
    uint64_t seq;
    uint64_t since; /* since when it waits for a fork, or for a shell to start */
    exec_watch watch;
    kit_call *k;
    void *own;
    void (*own_free)(void *own);

    buf text;                     /* of the answer */
    json_t *data;                 /* its structuredContent, an object */
    struct mcp_call *prev, *next; /* in the session's list */
};
/* Starts a call and hands the connection to the relay. Takes ownership of the message
 * and the session, unless it fails. */
err *mcp_call_start(mcp *d, request *rq, response *rs, mcp_session **s, rpc_message *m,
                    size_t body) ERR_MUST;
/* Cancels the call. Any thread. */
void mcp_call_cancel(mcp_call *c);

/* ---- for tools ---- */
void mcp_call_wake(void *call); /* for watches */
err *mcp_call_kit(mcp_call *c, const kit_request *rq, const char *user) ERR_MUST;
/* Fills in a create without arguments: from the URL, and from the configuration. */
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
