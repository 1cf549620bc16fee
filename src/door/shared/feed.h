/* Appends input to a command: at once, or when the command has read enough. No thread waits. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct feed_options {
    uint64_t offset; /* UINT64_MAX: append */
    bool eof;
    uint64_t deadline_ns; /* monotonic; afterwards ERR_TIMEOUT; 0: none */
    /* Writes the answer after all input was appended. */
    void (*answer)(relay_io *io, exec *x, const char *request_id);
    /* Converts an error for this door; takes it and returns it or another.
     * NULL: errors stay as they are. */
    err *(*told)(exec *x, err *e);
} feed_options;
/* Takes ownership of the body on success, and wipes it. Later errors are in the response's form. */
err *feed_start(request *rq, response *rs, exec *x, buf *body, const feed_options *o) ERR_MUST;
/* Returns true if the command's input buffer is full, so that the caller must retry. */
bool feed_is_full(const err *e);
#define FEED_WHOLE (UINT64_C(1) << 20) /* up to so much is appended whole; more in pieces: */
#define FEED_PIECE (UINT64_C(256) << 10)
