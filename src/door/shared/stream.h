/* Bodies that doors read and write. */
#pragma once

#include "base/str.h"
#include "net/http.h"

/* Appends a piece of a body of unknown length; n 0 ends it. HTTP/1.0 has no chunks: the
 * body ends with the connection. */
static inline void stream_put(relay_io *io, const void *p, size_t n)
{
    if (io->http11)
        http_chunk(io->out, p, n);
    else
        buf_append(io->out, p, n);
}
static inline enum relay_next stream_done(const relay_io *io)
{
    return io->keep_alive && io->http11 ? RELAY_DONE : RELAY_CLOSE;
}

/* Frees a request body. It may hold secrets, so it is wiped first. For CLEANUP(). */
static inline void body_wipe(buf *b)
{
    secret_wipe(b->p, b->cap);
    buf_done(b);
}
