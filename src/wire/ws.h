/* WebSocket (RFC 6455) without I/O, on wslay: both ends of the handshake, messages, pings, closing.
 *
 * A ws takes the bytes that came (ws_feed), calls back for whole messages, and appends the bytes to
 * send (ws_put, ws_flush) to a buffer of the caller. What the peer does wrong is answered with the
 * close code the RFC names for it; then nothing more of it is read. No extension is negotiated.
 *
 * A peer that sends pings and does not read would pile up pongs: stop feeding while ws_is_full().
 * One thread at a time. The caller brings the time, and randomness for the masks of a client. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define WS_PING_NS (UINT64_C(30) * 1000000000) /* of silence, then a ping */
#define WS_DEAD_NS (UINT64_C(90) * 1000000000) /* of silence, then it is given up */
#define WS_KEY_LEN 24

enum ws_code { /* why it is closed */
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL_ERROR = 1002,
    WS_UNSUPPORTED_DATA = 1003,
    WS_NO_CODE = 1005, /* never sent: the peer named none */
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
    WS_TRY_AGAIN = 1013,
};

/* ---- the server's handshake ---- */
typedef struct ws_offer {  /* header values as they came, or NULL */
    const char *version;   /* Sec-WebSocket-Version */
    const char *key;       /* Sec-WebSocket-Key */
    const char *protocols; /* Sec-WebSocket-Protocol */
} ws_offer;
/* Appends the lines of the 101 answer, each with CRLF. protocol is the one we speak: chosen if it
 * was offered, else none is named. ERR_INVALID_REQUEST; answer it with the header line
 * "Sec-WebSocket-Version: 13". */
err *ws_accept(const ws_offer *o, const char *protocol, buf *ret_lines) ERR_MUST;

/* ---- the client's ---- */
/* A fresh key, NUL-terminated. */
void ws_key(const uint8_t random[16], char ret_key[WS_KEY_LEN + 1]);
/* The lines a GET with "Upgrade: websocket" needs, each with CRLF. */
void ws_ask(buf *out, const char *key, const char *protocol);

/* Whether an answer's Sec-WebSocket-Accept (or NULL) belongs to our key. */
bool ws_accepted(const char *key, const char *value);

/* ---- the connection ---- */
typedef struct ws ws;
typedef struct ws_options {
    bool client;        /* masks what it sends */
    size_t message_max; /* of a message from the peer; beyond it: closed with WS_TOO_BIG */
    /* A whole message. May call ws_close, not ws_feed or ws_free. */
    void (*on_message)(void *arg, bool text, const void *p, size_t n);
    void *arg;
    void (*random)(void *p, size_t n); /* client */
} ws_options;
ws *ws_new(const ws_options *o);
void ws_free(ws *w);
static inline void ws_freep(ws **w)
{
    ws_free(*w);
}

/* Bytes from the peer. After its close, or its first mistake, they are dropped. */
void ws_feed(ws *w, const void *p, size_t n);
/* One binary message, head and p in one; ignored when we have said close. */
void ws_put(ws *w, buf *out, const void *head, size_t nhead, const void *p, size_t n);
/* The last thing we say; the first code counts. reason: at most 123 bytes, or NULL. */
void ws_close(ws *w, enum ws_code code, const char *reason);
/* Appends what waits to be sent: pongs, pings, the close. */
void ws_flush(ws *w, buf *out);

bool ws_is_full(const ws *w);    /* too much waits for ws_flush */
bool ws_is_closing(const ws *w); /* one side has said close: no more messages either way */
/* Both have, or the peer cannot be understood any more, and our close is flushed: hang up. */
bool ws_is_over(const ws *w);
/* What the peer said, 0: nothing yet. */
unsigned ws_peer_code(const ws *w);

/* Silence: queues a ping when it is time, says in *ret_wake when to come back. False: the peer has
 * not been heard for WS_DEAD_NS. deaf: we are not reading, so its silence says nothing. */
bool ws_alive(ws *w, uint64_t now, bool deaf, uint64_t *ret_wake);
