/* An HTTP client on libcurl for the command line and for backends: one call and one answer, or a
 * stream delivered to a callback. Unix sockets by path, TCP with a bearer key; no proxy. Any thread
 * may call; concurrent calls have connections of their own. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

typedef struct client client;

/* Makes a client. url: "unix:/run/bothy/bothyd.sock" or "http://127.0.0.1:7070". key may be
 * NULL. */
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
    /* A body of unknown length, used if json and bytes are NULL. Fills p with up to max bytes.
     * Returns 0 at the end, -1 to give up (the call then fails). May be NULL. */
    ssize_t (*on_read)(void *arg, void *p, size_t max);
    const char *type; /* of bytes and on_read; NULL: application/octet-stream */
    /* Called every second and after every piece; false ends the call. May be NULL. */
    bool (*on_tick)(void *arg);
    const char *idempotency_key;
    const char *last_event_id;
    /* Called for every piece of a 2xx body; returns false to stop. NULL: the body is collected. */
    bool (*on_bytes)(void *arg, const void *p, size_t n);
    void *arg;
    const char *accept;
    const char *line;    /* one more header, "Name: value", or NULL */
    uint64_t timeout_ms; /* 0: none */
    bool any_status;     /* return every status as an answer, none as an error */
} client_call;
typedef struct client_answer {
    long status;
    buf body;    /* collected */
    bool replay; /* Idempotent-Replay: true */
} client_answer;
void client_answer_done(client_answer *a);
/* Makes a call. A POST without an idempotency key is sent once, on a connection of its own.
 * Transport errors are ERR_UNAVAILABLE, with the errno of a failed connect; exceeding timeout_ms is
 * ERR_TIMEOUT; an answer with {"error":{...}} is returned as that error. */
err *client_do(client *c, const client_call *call, client_answer *ret_answer) ERR_MUST;
/* Like client_do(), for JSON answers. */
err *client_json(client *c, const client_call *call, json_t **ret_json) ERR_MUST;
char *client_escape(const char *s); /* percent-encoded for a path segment or query value */

/* ---- connections that turn into byte streams ---- */
typedef struct client_stream client_stream;
/* Sends a GET with "Upgrade: protocol" and waits for the 101. lines: further headers, each with
 * CRLF, or NULL. Any other answer is an error: the server's, if it wrote one. */
err *client_upgrade(client *c, const char *path, const char *protocol, const char *lines,
                    client_stream **ret_stream) ERR_MUST;
/* Sends a POST of a JSON body whose answer starts a byte stream both ways: 101, or 200 from a
 * server that takes the connection over without an upgrade. timeout_ms limits the wait for the
 * answer. */
err *client_hijack(client *c, const char *path, const json_t *json, uint64_t timeout_ms,
                   client_stream **ret_stream) ERR_MUST;
/* Returns a header of the answer, or NULL. */
const char *client_stream_header(const client_stream *s, const char *name);
/* Returns the descriptor to poll. Try client_stream_recv() first: bytes may have been read
 * ahead. */
int client_stream_fd(const client_stream *s);
/* Transfer bytes without blocking. Return the number of bytes, 0 at the end (recv), -EAGAIN, or
 * another -errno. One thread at a time. */
ssize_t client_stream_recv(client_stream *s, void *p, size_t max);
ssize_t client_stream_send(client_stream *s, const void *p, size_t n);
/* Ends sending; the other direction stays open. Over TLS the server is not notified. */
void client_stream_shut(client_stream *s);
void client_stream_free(client_stream *s);
static inline void client_stream_freep(client_stream **s)
{
    client_stream_free(*s);
}
