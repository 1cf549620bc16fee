/* What a handler sees: a request, a response, and the relay it may hand the connection to.
 *
 * A request has a thread and is straight-line code. A handler either fills the response, returns an
 * error (the server writes it as {"error":{...}}), or calls response_relay(): then it returns at
 * once, the thread is free, and the relay drives the connection. */
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

/* What bytes are, in metrics. */
enum stream_kind {
    STREAM_ANSWER, /* ordinary answers and request bodies */
    STREAM_WAIT,   /* answers that wait for one thing: a create, a pull */
    STREAM_OUTPUT, /* what commands write, and their results */
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
const char *request_id(const request *rq);     /* ours, or the caller's valid X-Request-Id */
const char *request_param(const request *rq, size_t i); /* of the route's pattern, decoded */
const char *request_header(const request *rq, const char *name); /* case-insensitive, or NULL */
/* Calls back for every header, in order. */
void request_header_each(const request *rq,
                         void (*each)(void *arg, const char *name, const char *value), void *arg);
/* The query is a form's from here on: "+" is a space. For doors whose clients write it so. */
err *request_query_as_form(request *rq) ERR_MUST;
/* A query parameter, percent-decoded ("+" stays), or NULL. Twice the same name: the first. */
const char *request_query(const request *rq, const char *name);
/* Calls back for every query parameter, in order. */
void request_query_each(const request *rq,
                        void (*each)(void *arg, const char *name, const char *value), void *arg);
bool request_is_unix(const request *rq);
/* HTTP/1.1 GET with "Connection: upgrade" to this protocol (any case). The answer is a relay that
 * writes a 101 and ends with RELAY_CLOSE. */
bool request_upgrades(const request *rq, const char *protocol);
int request_socket(const request *rq); /* for peer credentials of a unix connection */
void *request_door(const request *rq); /* the server's dispatch argument, or what was set */
void request_set_door(request *rq, void *door);
void *request_user(const request *rq); /* what dispatch put there: the caller */
void request_set_user(request *rq, void *user, void (*release)(void *));
/* Returns true when the caller may not be served any longer. Asked about once a second, by one thread
 * at a time, while a body is read and while the relay drives the answer, which is then cut. Takes arg
 * and releases it when the answer has ended. */
void request_set_lapse(request *rq, void *arg, bool (*lapsed)(void *arg),
                       void (*release)(void *arg));
/* Something that stays with the request when it is served again (relay_ops.again). */
void *request_kept(const request *rq);
void request_keep(request *rq, void *kept, void (*release)(void *));
/* Whose it is: what one party may hold of threads and memory is limited. NULL: one that is not
 * limited. Until it is said, a request belongs to the party of all who have not said who they are.
 * ERR_QUOTA_EXCEEDED when it has too many threads, and none came free for a
 * second. */
err *request_set_party(request *rq, const char *name) ERR_MUST;
/* Memory that stays with the server for this request after the handler has returned; free it when
 * it goes. ERR_QUOTA_EXCEEDED when the party holds too much already. */
typedef struct request_hold request_hold;
err *request_hold_new(request *rq, size_t n, request_hold **ret_hold) ERR_MUST;
err *request_hold_more(request_hold *h, size_t n) ERR_MUST; /* so many beyond what it has */
void request_hold_free(request_hold *h);
/* The whole body, at most max bytes (ERR_TOO_LARGE). Sends 100-continue when asked for. */
err *request_body(request *rq, size_t max, buf *ret_body) ERR_MUST;
/* The next piece of the body; *ret_n is 0 at its end. */
err *request_body_read(request *rq, void *p, size_t max, size_t *ret_n) ERR_MUST;
/* The body is for the job of response_relay() to read: `input` gets it as it was sent, and
 * http1_body() decodes it. *ret_expects: nothing comes before a "100 Continue". */
struct http1_framing;
void request_body_take(request *rq, struct http1_framing *ret_framing, bool *ret_expects);
/* For a handler that streams a body to somebody who has enough of it: waits at most so long, or
 * until fd can be read. Its thread counts as one that waits for its body, so that who does not read
 * keeps no more of them than who does not write. ERR_QUOTA_EXCEEDED, ERR_UNAVAILABLE: give up. */
err *request_wait(request *rq, int fd, int ms) ERR_MUST;

/* Which door and operation serve it (indices into the server's lists), for metrics and logs. */
void request_set_operation(request *rq, size_t door, size_t operation);
/* What its body is, for metrics: before it is read. */
void request_set_kind(request *rq, enum stream_kind kind);

/* ---- the response ---- */
void response_status(response *rs, int status);
void response_header(response *rs, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void response_bytes(response *rs, const char *type, const void *p, size_t n);
void response_json(response *rs, int status, json_t *owned);
/* Writes the error's status, Retry-After, Allow and body. */
void response_error(response *rs, const err *e);
/* How errors are told: {"error":{...}} unless a door says otherwise. Lives for ever. */
typedef struct error_form {
    /* Appends the body and returns its type; *status is the table's, and may be changed. */
    const char *(*write)(buf *body, const err *e, const char *request_id, int *status);
} error_form;
void response_set_form(response *rs, const error_form *form);
const error_form *response_form(const response *rs); /* NULL: the native one */

/* ---- the relay ---- */
typedef struct relay_job relay_job; /* one connection in the hands of the relay */

enum relay_next {
    RELAY_MORE,  /* call again as soon as the peer takes bytes */
    RELAY_WAIT,  /* call again after relay_wake() or at io->wake_at */
    RELAY_DONE,  /* the answer is complete; the connection serves its next request */
    RELAY_CLOSE, /* the answer is complete or broken; close */
    RELAY_AGAIN, /* of jobs with `again`: nothing was written, the request is served again */
};
typedef struct relay_io {
    buf *out;         /* append here; the relay sends it. Append at most ~64 KiB a step */
    uint64_t now;     /* monotonic ns */
    uint64_t wake_at; /* set for a timer; 0: none. One that is over comes after others had a turn */
    bool keep_alive;  /* the peer allows it */
    bool http11;      /* chunks may be used; without them the answer ends with the connection */
    /* The peer has not taken a byte for 60 s while there were some. RELAY_CLOSE cuts it off; with
     * anything else it gets another 60 s. Not told of an answer that was complete: that is cut. */
    bool stalled;
    /* Set it: what the peer has sent cannot be taken yet. Nothing more is read from it until a step
     * leaves this unset; only its leaving is noticed. */
    bool full;
    /* Of jobs with `both_ways`. The peer has ended its side: told as soon as it is known, bytes may
     * still wait before the end (`ending`); all of them were given to input (`ended`); it has gone
     * altogether and reads no more (`gone`). */
    bool ending, ended, gone;
} relay_io;
typedef struct relay_ops {
    /* Called once, before the first step; the place to register watchers that relay_wake(job). */
    void (*start)(void *ctx, relay_job *job);
    /* Produces output: a pure function of what ctx's source holds. Writes the head itself
     * (http_head). Never blocks. */
    enum relay_next (*step)(void *ctx, relay_io *io);
    /* Bytes from the peer (an upgraded connection), also while it does not take ours; a step
     * follows when it does. False: enough, as io->full says it. NULL: they wait for the next
     * request. The end of them is a disconnect, and ends the job, with or without input. */
    bool (*input)(void *ctx, const void *p, size_t n);
    /* Something happened to the second descriptor (relay_watch); a step follows when the peer takes
     * our bytes. What needs no output is done here. False: enough, as io->full says it. */
    bool (*second)(void *ctx);
    /* The end of the peer's bytes is not a disconnect: io tells of it. Only with input. */
    bool both_ways;
    /* The job waits for what the handler needs before it can begin, and writes nothing: the request
     * stays with it, its body unread, and is dispatched anew after RELAY_AGAIN. What request_keep()
     * has outlives the job. */
    bool again;
    enum stream_kind kind;
    /* The job is over, whatever the reason (also before start, when the server stops); after it
     * relay_wake must not be called any more. start, step, input and free of one job are called by
     * one thread; no lock is held. */
    void (*free)(void *ctx);
} relay_ops;
/* The response is whatever the job writes. ctx belongs to the relay from here on. */
void response_relay(response *rs, const relay_ops *ops, void *ctx);
/* From any thread; cheap; may be called between start and free. */
void relay_wake(relay_job *job);
/* The rest is for start, step, input and second of the job itself.
 * A second descriptor (non-blocking, the job's own) to be watched beside the peer's. Events are
 * edges: read and write it until EAGAIN, or try again in a later step. It is to be unwatched before
 * it is closed, at the latest in free. False: the kernel has no room. */
bool relay_watch(relay_job *job, int fd);
void relay_unwatch(relay_job *job);
/* What input brought beyond the end of this request: the beginning of the next one. */
void relay_unread(relay_job *job, const void *p, size_t n);
/* Ends our side of the connection; everything must have been sent (a step's out was empty). */
void relay_shut(relay_job *job);
/* Bytes of its output that the peer's kernel has not acknowledged, as far as this one knows: what
 * it has not taken, and what is on the way. On a unix socket: what is not read, or somewhat more.
 * Also for free of a job that was started. */
size_t relay_unacked(const relay_job *job);

/* Appends a response head. length < 0: chunked is not used; the end is the end of the connection
 * (Connection: close) unless `chunked`. */
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
/* A whole JSON answer, head and body. */
void http_json_answer(buf *out, int status, const json_t *body, bool keep_alive,
                      const char *request_id, const char *extra);
void http_error_answer(buf *out, const err *e, bool keep_alive, const char *request_id);
/* The same in a form; NULL is the native one. */
void http_error_answer_as(buf *out, const error_form *form, const err *e, bool keep_alive,
                          const char *request_id);
