/* The Connect protocol with JSON, as E2B's clients speak it: stream envelopes, both ways, and
 * errors. https://connectrpc.com/docs/protocol
 *
 * An envelope is a byte of flags, a big-endian length of four bytes, and that many bytes of JSON. A
 * stream of answers ends with an envelope of flag 2 that holds an error or none; without it the
 * stream is unfinished. Compression is neither offered nor understood. */
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
/* Appends {"code","message"}, the body of an error answer. Invalid UTF-8 is replaced. */
void connect_error(buf *out, const char *code, const char *message);
/* Returns the HTTP status of such an answer; 500 for an unknown code. */
int connect_status(const char *code);
/* Parses Connect-Timeout-Ms: up to ten digits; ERR_INVALID_REQUEST otherwise. NULL and 0 mean no
 * time limit. */
err *connect_timeout(const char *header, uint64_t *ret_ms) ERR_MUST;

/* Zero-initialised is ready. */
typedef struct connect_decoder {
    uint8_t head[CONNECT_HEAD];
    size_t nhead;
    uint32_t length; /* of the message; valid once the head is complete */
    buf message;
    uint32_t max; /* ceiling of a message's bytes; 0: CONNECT_MESSAGE_MAX */
} connect_decoder;
/* Takes a stream in pieces of any size and calls back for each message. An error of the callback
 * ends the stream and is returned. ERR_INVALID_REQUEST for flags that request messages cannot have,
 * ERR_TOO_LARGE beyond max; after either nothing more can be read. */
err *connect_feed(connect_decoder *d, const void *p, size_t n,
                  err *(*on_message)(void *arg, const char *p, size_t n), void *arg) ERR_MUST;
/* Checks the end of a stream. ERR_INVALID_REQUEST if it ended within a message. */
err *connect_finish(const connect_decoder *d) ERR_MUST;
void connect_decoder_done(connect_decoder *d);
/* Finds the message in a body that is one envelope. */
err *connect_single(const void *p, size_t n, const char **ret_message, size_t *ret_n) ERR_MUST;
