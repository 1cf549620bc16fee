/* The view of a handler: a request, a response, and the relay that can take over the connection.
 *
 * A request has a thread, and its handler is straight-line code. A handler either fills the
 * response; returns an error, which the server writes as {"error":{...}}; or calls response_relay()
 * and returns at once: the thread is free then, and the relay drives the connection. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define HTTP_PARAMS_MAX 6
#define HTTP_HEAD_MAX   (64 * 1024)

/* Kinds of transferred bytes, for metrics. */
enum stream_kind {
    STREAM_ANSWER, /* ordinary answers and request bodies */
    STREAM_WAIT,   /* answers that wait for one thing: a create, a pull */
    STREAM_OUTPUT, /* output and results of commands */
    STREAM_INPUT,
    STREAM_FILES,
    STREAM_TERMINAL,
    STREAM_PORT,
    STREAM_KINDS
};

typedef struct request request;
typedef struct response response;

/* ---- the request; everything belongs to it and lives as long as the handler runs ---- */
const char *request_method(const request *rq);
const char *request_path(const request *rq);   /* decoded, without the query */
const char *request_target(const request *rq); /* path and query as sent */
const char *request_id(const request *rq);     /* ours, or the caller's X-Request-Id if valid */
const char *request_param(const request *rq, size_t i); /* of the route's pattern, decoded */
const char *request_header(const request *rq, const char *name); /* case-insensitive, or NULL */
/* Calls back for every header, in order. */
void request_header_each(const request *rq,
                         void (*each)(void *arg, const char *name, const char *value), void *arg);
/* Reads the query as a form from here on: "+" is a space. For doors whose clients encode it so. */
err *request_query_as_form(request *rq) ERR_MUST;
/* Returns a query parameter, percent-decoded ("+" stays), or NULL. If a name occurs twice: the
 * first. */
const char *request_query(const request *rq, const char *name);
/* Calls back for every query parameter, in order. */
void request_query_each(const request *rq,
                        void (*each)(void *arg, const char *name, const char *value), void *arg);
bool request_is_unix(const request *rq);
/* Returns true for an HTTP/1.1 GET with "Connection: upgrade" to this protocol (any case). The
 * handler must answer with a relay that writes a 101 and ends with RELAY_CLOSE. */
bool request_upgrades(const request *rq, const char *protocol);
int request_socket(const request *rq); /* for peer credentials of a unix connection */
void *request_door(const request *rq); /* the server's dispatch argument, or the value set below */
void request_set_door(request *rq, void *door);
void *request_user(const request *rq); /* the caller, as set by dispatch */
void request_set_user(request *rq, void *user, void (*release)(void *));
/* Sets a check that returns true once the caller may no longer be served. It runs twice a
 * second, on one thread at a time, while a body is read and while the relay drives the answer,
 * which is then cut. Takes ownership of arg and releases it when the answer has ended. */
void request_set_lapse(request *rq, void *arg, bool (*lapsed)(void *arg),
                       void (*release)(void *arg));
/* Data that stays with the request when it is dispatched again (relay_ops.again). */
void *request_kept(const request *rq);
void request_keep(request *rq, void *kept, void (*release)(void *));
/* Assigns the request to a tenant, whose threads and memory are limited. NULL: not limited. Before
 * this call a request counts for one account shared by all callers not identified yet.
 * ERR_QUOTA_EXCEEDED if the tenant has too many threads and none came free within a second. */
err *request_set_party(request *rq, const char *name) ERR_MUST;
/* Reserves memory that stays in use after the handler has returned; free the hold with the memory.
 * ERR_QUOTA_EXCEEDED if the tenant holds too much already. */
typedef struct request_hold request_hold;
err *request_hold_new(request *rq, size_t n, request_hold **ret_hold) ERR_MUST;
err *request_hold_more(request_hold *h, size_t n) ERR_MUST; /* adds to its size */
void request_hold_free(request_hold *h);
/* Reads the whole body, at most max bytes (ERR_TOO_LARGE). Sends 100-continue if the client expects
 * it. */
err *request_body(request *rq, size_t max, buf *ret_body) ERR_MUST;
/* Reads the next piece of the body; *ret_n is 0 at its end. */
err *request_body_read(request *rq, void *p, size_t max, size_t *ret_n) ERR_MUST;
/* Leaves the body to the job of response_relay(): its `input` gets the bytes as sent, and
 * http1_body() decodes them. *ret_expects: the client sends nothing before a "100 Continue". */
struct http1_framing;
void request_body_take(request *rq, struct http1_framing *ret_framing, bool *ret_expects);
/* Waits at most ms, or until fd is readable: for a handler that streams a body to a receiver that
 * is full. The thread counts as one that waits for its body, so that slow receivers hold no more
 * threads than slow senders. On an error (ERR_QUOTA_EXCEEDED, ERR_UNAVAILABLE and others) the
 * handler must give up. */
err *request_wait(request *rq, int fd, int ms) ERR_MUST;

/* Sets door and operation (indices into the server's lists), for metrics and logs. */
void request_set_operation(request *rq, size_t door, size_t operation);
/* Sets the kind of its body, for metrics; call it before the body is read. */
void request_set_kind(request *rq, enum stream_kind kind);

/* ---- the response ---- */
void response_status(response *rs, int status);
void response_header(response *rs, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void response_bytes(response *rs, const char *type, const void *p, size_t n);
void response_json(response *rs, int status, json_t *owned);
/* Writes the error's status, Retry-After, Allow and body. */
void response_error(response *rs, const err *e);
/* The form of errors: {"error":{...}} unless a door sets another. Must never be freed. */
typedef struct error_form {
    /* Appends the body and returns its Content-Type. *status is that of the error table, and may
     * be changed. */
    const char *(*write)(buf *body, const err *e, const char *request_id, int *status);
} error_form;
void response_set_form(response *rs, const error_form *form);
const error_form *response_form(const response *rs); /* NULL: bothy's own JSON */

/* ---- the relay ---- */
typedef struct relay_job relay_job; /* one connection driven by the relay */

enum relay_next {
    RELAY_MORE,  /* call again as soon as the peer takes bytes */
    RELAY_WAIT,  /* call again after relay_wake() or at io->wake_at */
    RELAY_DONE,  /* the answer is complete; the connection serves its next request */
    RELAY_CLOSE, /* the answer is complete or broken; close */
    RELAY_AGAIN, /* for jobs with `again`: nothing was written, dispatch the request again */
};
typedef struct relay_io {
    buf *out;         /* append here; the relay sends it. Append at most ~64 KiB a step */
    uint64_t now;     /* monotonic ns */
    uint64_t wake_at; /* set for a timer; 0: none. A past time is due after others had a turn */
    bool keep_alive;  /* the peer allows keep-alive */
    bool http11;      /* chunks may be used; without them the answer ends with the connection */
    /* The peer took no byte for 60 s while some waited. RELAY_CLOSE cuts it off; any other result
     * grants another 60 s. Not set if the answer was complete: that connection is cut. */
    bool stalled;
    /* Set by the step: no more input can be taken now. Nothing is read from the peer until a step
     * leaves this unset; only a disconnect is noticed. */
    bool full;
    /* For jobs with `both_ways`. ending: the peer has ended its side, but bytes before the end may
     * still wait. ended: all of them were given to input. gone: the peer has closed the connection
     * and reads no more. */
    bool ending, ended, gone;
} relay_io;
typedef struct relay_ops {
    /* Called once, before the first step: registers watchers that call relay_wake(job). */
    void (*start)(void *ctx, relay_job *job);
    /* Produces output, as a pure function of the state of ctx's source. Writes the head itself
     * (http_head). Never blocks. */
    enum relay_next (*step)(void *ctx, relay_io *io);
    /* Takes bytes from the peer (an upgraded connection), also while the peer takes no output; a
     * step follows when it does. Returns false to pause reading, like io->full. NULL: the bytes
     * wait for the next request. Their end is a disconnect and ends the job, with or without
     * input. */
    bool (*input)(void *ctx, const void *p, size_t n);
    /* Handles events of the second descriptor (relay_watch); a step follows when the peer takes
     * output. Do everything here that needs no output. Returns false to pause reading the peer,
     * like io->full. */
    bool (*second)(void *ctx);
    /* The end of the peer's bytes is not a disconnect but reported in io. Only with input. */
    bool both_ways;
    /* The job waits for something that the handler needs before it can begin, and writes nothing.
     * The request stays with the job, its body unread, and is dispatched anew after RELAY_AGAIN.
     * Data of request_keep() outlives the job. */
    bool again;
    enum stream_kind kind;
    /* Called at the end of the job, for any reason (also before start, when the server stops);
     * relay_wake must not be called after it. One thread calls start, step, input and free of a
     * job, with no lock held. */
    void (*free)(void *ctx);
} relay_ops;
/* Makes the job's output the response. The relay takes ownership of ctx. */
void response_relay(response *rs, const relay_ops *ops, void *ctx);
/* Wakes a job. From any thread, between start and free; cheap. */
void relay_wake(relay_job *job);
/* The following functions are for start, step, input and second of the job itself.
 *
 * Watches a second descriptor (non-blocking, the job's own) beside the peer's. Events are
 * edge-triggered: read and write until EAGAIN, or try again in a later step. Unwatch it before
 * closing it, at the latest in free. Returns false if the kernel has no room. */
bool relay_watch(relay_job *job, int fd);
void relay_unwatch(relay_job *job);
/* Gives back input that lies beyond the end of this request: the beginning of the next one. */
void relay_unread(relay_job *job, const void *p, size_t n);
/* Ends sending on the connection. Everything must have been sent (a step's out was empty). */
void relay_shut(relay_job *job);
/* Returns how many bytes of the output the peer's kernel has not acknowledged, as far as this
 * kernel knows: those not sent and those in transit. On a unix socket: the unread ones, or somewhat
 * more. May also be called in free of a job that was started. */
size_t relay_unacked(const relay_job *job);

/* A response head. Without `chunked`, a length below 0 means that the end of the connection ends
 * the body (Connection: close). */
typedef struct http_head {
    int status;
    const char *type;
    int64_t length; /* -1: not known */
    bool chunked;
    bool keep_alive;
    const char *request_id;
    const char *extra; /* further lines, each with CRLF; or NULL */
} http_head;
void http_head_write(buf *out, const http_head *h);
void http_chunk(buf *out, const void *p, size_t n); /* n 0: the last chunk */
/* Appends a whole JSON answer, head and body. */
void http_json_answer(buf *out, int status, const json_t *body, bool keep_alive,
                      const char *request_id, const char *extra);
void http_error_answer(buf *out, const err *e, bool keep_alive, const char *request_id);
/* Appends an error answer in a form; NULL is the native one. */
void http_error_answer_as(buf *out, const error_form *form, const err *e, bool keep_alive,
                          const char *request_id);
