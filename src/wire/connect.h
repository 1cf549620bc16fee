/* The Connect protocol with JSON, as E2B's clients speak it: envelopes of streams, both ways, and
 * errors. https://connectrpc.com/docs/protocol
 *
 * An envelope is a byte of flags, a length of four bytes (big-endian) and so many bytes of JSON. A
 * stream of answers ends with an envelope of its own, flag 2, that holds an error or none: without
 * it the stream is unfinished. Compression is never asked for and not understood. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define CONNECT_HEAD        5
#define CONNECT_COMPRESSED  1u
#define CONNECT_END         2u
#define CONNECT_MESSAGE_MAX (8u << 20)

/* Appends one message, which is JSON already. */
void connect_message(buf *out, const void *p, size_t n);
/* Appends the end of a stream; code NULL: without an error. */
void connect_end(buf *out, const char *code, const char *message);
/* Appends {"code","message"}: the body of an answer that is an error. What of the text is not UTF-8
 * is replaced. */
void connect_error(buf *out, const char *code, const char *message);
/* The status of such an answer; 500 for a code that is none. */
int connect_status(const char *code);
/* Connect-Timeout-Ms: up to ten digits; ERR_INVALID_REQUEST. NULL, and 0: no time limit. */
err *connect_timeout(const char *header, uint64_t *ret_ms) ERR_MUST;

/* Zero-initialised is ready. */
typedef struct connect_decoder {
    uint8_t head[CONNECT_HEAD];
    size_t nhead;
    uint32_t length; /* of the message, once its head is there */
    buf message;
    uint32_t max; /* of a message's bytes; 0: CONNECT_MESSAGE_MAX */
} connect_decoder;
/* Takes a stream in whatever pieces it comes, calls back for each message; an error of the callback
 * ends it and is returned. ERR_INVALID_REQUEST for flags that a request's messages cannot have,
 * ERR_TOO_LARGE beyond max: nothing can be read behind these. */
err *connect_feed(connect_decoder *d, const void *p, size_t n,
                  err *(*on_message)(void *arg, const char *p, size_t n), void *arg) ERR_MUST;
/* The stream has ended; ERR_INVALID_REQUEST: in the middle of a message. */
err *connect_finish(const connect_decoder *d) ERR_MUST;
void connect_decoder_done(connect_decoder *d);
/* A body that is one envelope: where its message lies in it. */
err *connect_single(const void *p, size_t n, const char **ret_message, size_t *ret_n) ERR_MUST;
