/* Input of a command: appended at once, or without a thread when the command has read enough. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct feed_options {
    uint64_t offset; /* UINT64_MAX: append */
    bool eof;
    uint64_t deadline_ns; /* monotonic: ERR_TIMEOUT then; 0: none */
    /* When all of it was appended. */
    void (*answer)(relay_io *io, exec *x, const char *request_id);
    /* How an error is told: takes it and returns it, or another; NULL: as it is. */
    err *(*told)(exec *x, err *e);
} feed_options;
/* Takes the body, which is wiped, on success; errors that come later are in the response's form. */
err *feed_start(request *rq, response *rs, exec *x, buf *body, const feed_options *o) ERR_MUST;
/* Pushed back: more waits to be read than may. */
bool feed_is_full(const err *e);
#define FEED_WHOLE (UINT64_C(1) << 20) /* up to so much is appended as a whole; of more: */
#define FEED_PIECE (UINT64_C(256) << 10)
