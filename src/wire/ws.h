/* WebSocket (RFC 6455) without I/O, on wslay: both ends of the handshake, messages, pings, closing.
 *
 * A ws takes received bytes (ws_feed), calls back for whole messages, and appends the bytes to send
 * (ws_put, ws_flush) to a buffer of the caller. A peer's protocol error is answered with the close
 * code that the RFC names; after it nothing more is read. No extension is negotiated.
 *
 * A peer that sends pings and does not read would pile up pongs: stop feeding while ws_is_full().
 * One thread at a time. The caller supplies the time, and the randomness for a client's masks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define WS_PING_NS (UINT64_C(30) * 1000000000) /* of silence, then a ping is sent */
#define WS_DEAD_NS (UINT64_C(90) * 1000000000) /* of silence, then the connection is given up */
#define WS_KEY_LEN 24

enum ws_code { /* why the connection is closed */
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL_ERROR = 1002,
    WS_UNSUPPORTED_DATA = 1003,
    WS_NO_CODE = 1005, /* never sent: the peer gave no code */
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
    WS_TRY_AGAIN = 1013,
};

/* ---- the server's handshake ---- */
typedef struct ws_offer {  /* header values as received, or NULL */
    const char *version;   /* Sec-WebSocket-Version */
    const char *key;       /* Sec-WebSocket-Key */
    const char *protocols; /* Sec-WebSocket-Protocol */
} ws_offer;
/* Appends the lines of the 101 answer, each with CRLF. protocol is the one this server speaks; it
 * is named only if the client offered it. ERR_INVALID_REQUEST: answer it with the header line
 * "Sec-WebSocket-Version: 13". */
err *ws_accept(const ws_offer *o, const char *protocol, buf *ret_lines) ERR_MUST;

/* ---- the client's ---- */
/* Makes a fresh, NUL-terminated key. */
void ws_key(const uint8_t random[16], char ret_key[WS_KEY_LEN + 1]);
/* Appends the lines that a GET with "Upgrade: websocket" needs, each with CRLF. */
void ws_ask(buf *out, const char *key, const char *protocol);

/* Returns true if an answer's Sec-WebSocket-Accept (or NULL) matches the key. */
bool ws_accepted(const char *key, const char *value);

/* ---- the connection ---- */
typedef struct ws ws;
typedef struct ws_options {
    bool client;        /* masks what it sends */
    size_t message_max; /* of a message from the peer; beyond it: closed with WS_TOO_BIG */
    /* Takes a whole message. May call ws_close, not ws_feed or ws_free. */
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

/* Takes bytes from the peer. Bytes after its close, or after its first error, are dropped. */
void ws_feed(ws *w, const void *p, size_t n);
/* Sends one binary message made of head and p. Ignored after ws_close(). */
void ws_put(ws *w, buf *out, const void *head, size_t nhead, const void *p, size_t n);
/* Queues the close. The first code counts. reason: at most 123 bytes, or NULL. */
void ws_close(ws *w, enum ws_code code, const char *reason);
/* Appends the bytes that wait to be sent: pongs, pings, the close. */
void ws_flush(ws *w, buf *out);

bool ws_is_full(const ws *w);    /* too much waits for ws_flush() */
bool ws_is_closing(const ws *w); /* one side has sent a close: no more messages either way */
/* Returns true if both sides have closed, or the peer broke the protocol, and the close is flushed:
 * the connection can be shut down. */
bool ws_is_over(const ws *w);
/* Returns the peer's close code, 0: none yet. */
unsigned ws_peer_code(const ws *w);

/* Checks for silence. Queues a ping when it is due; *ret_wake is the time of the next call. Returns
 * false if the peer was silent for WS_DEAD_NS. deaf: this side does not read, so silence means
 * nothing. */
bool ws_alive(ws *w, uint64_t now, bool deaf, uint64_t *ret_wake);
