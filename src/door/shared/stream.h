/* Bodies that doors read and write. */
#pragma once

#include "base/str.h"
#include "net/http.h"

/* A piece of a body whose length is not known; n 0 ends it. HTTP/1.0 has no chunks: its end is the
 * end of the connection. */
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

/* Request bodies may hold secrets: wiped before their memory goes back. For CLEANUP(). */
static inline void body_wipe(buf *b)
{
    secret_wipe(b->p, b->cap);
    buf_done(b);
}
