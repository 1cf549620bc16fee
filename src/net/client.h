/* An HTTP client on libcurl for the command line and for backends: one call, one answer, or a
 * stream delivered to a callback. Unix sockets by path, TCP with a bearer key; no proxy. Any thread
 * may call; calls at the same time have connections of their own. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

typedef struct client client;

/* url: "unix:/run/bothy/bothyd.sock" or "http://127.0.0.1:7070". key may be NULL. */
err *client_new(const char *url, const char *key, client **ret_client) ERR_MUST;
void client_free(client *c);
static inline void client_freep(client **c)
{
    client_free(*c);
}

typedef struct client_call {
    const char *method;
    const char *path;   /* with query, already encoded */
    const json_t *json; /* body, or NULL */
    const void *bytes;  /* body when json is NULL */
    size_t nbytes;
    /* A body of unknown length, in pieces, when json and bytes are NULL: fills p with up to max
     * bytes; 0 at the end, -1 to give up (the call then fails). NULL: none. */
    ssize_t (*on_read)(void *arg, void *p, size_t max);
    const char *type; /* of bytes and on_read; NULL: application/octet-stream */
    /* Asked about every second and after every piece; false ends the call. NULL: nobody is. */
    bool (*on_tick)(void *arg);
    const char *idempotency_key;
    const char *last_event_id;
    /* Streaming: called for every piece of a 2xx body; return false to stop. NULL: collect. */
    bool (*on_bytes)(void *arg, const void *p, size_t n);
    void *arg;
    const char *accept;
    const char *line;    /* one more header, "Name: value", or NULL */
    uint64_t timeout_ms; /* 0: none */
    bool any_status;     /* every status is an answer; the caller looks at it */
} client_call;
typedef struct client_answer {
    long status;
    buf body;    /* collected */
    bool replay; /* Idempotent-Replay: true */
} client_answer;
void client_answer_done(client_answer *a);
/* A POST without a key is sent once, on a connection of its own.
 * Transport errors are ERR_UNAVAILABLE, with the errno of a connection that could not be made;
 * timeout_ms passed is ERR_TIMEOUT; an answer with {"error":{...}} comes back as that error. */
err *client_do(client *c, const client_call *call, client_answer *ret_answer) ERR_MUST;
/* The same for JSON answers. */
err *client_json(client *c, const client_call *call, json_t **ret_json) ERR_MUST;
char *client_escape(const char *s); /* percent-encoded for a path segment or query value */

/* ---- connections that become bytes ---- */
typedef struct client_stream client_stream;
/* GET with "Upgrade: protocol"; lines are further headers, each with CRLF, or NULL. Waits for the
 * 101; any other answer is an error, the one the server wrote if it did. */
err *client_upgrade(client *c, const char *path, const char *protocol, const char *lines,
                    client_stream **ret_stream) ERR_MUST;
/* POST of a JSON body whose answer is the beginning of bytes both ways: 101, or 200 from a server
 * that takes the connection over without saying so. timeout_ms for the answer. */
err *client_hijack(client *c, const char *path, const json_t *json, uint64_t timeout_ms,
                   client_stream **ret_stream) ERR_MUST;
/* Of the answer's head; NULL: it has none. */
const char *client_stream_header(const client_stream *s, const char *name);
/* To poll. Try client_stream_recv first: bytes may have been read ahead. */
int client_stream_fd(const client_stream *s);
/* Without blocking: bytes, 0 at the end (recv), -EAGAIN, or another -errno. One thread at a time.
 */
ssize_t client_stream_recv(client_stream *s, void *p, size_t max);
ssize_t client_stream_send(client_stream *s, const void *p, size_t n);
/* The end of what we send; the other direction stays. Over TLS nothing tells the server. */
void client_stream_shut(client_stream *s);
void client_stream_free(client_stream *s);
static inline void client_stream_freep(client_stream **s)
{
    client_stream_free(*s);
}
