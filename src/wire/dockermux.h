/* Splits the stream of a container engine's command without a terminal: stdout and stderr in one,
 * each piece after a head of eight bytes {stream, 0, 0, 0, big-endian length}. No I/O. Only a head
 * is ever buffered: pieces lie in the bytes that were fed, however large the engine says they
 * are. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum dockermux_stream {
    DOCKERMUX_IN, /* never sent; known to the protocol */
    DOCKERMUX_OUT,
    DOCKERMUX_ERR,
    DOCKERMUX_ENGINE, /* a message of the engine itself, at the end */
};

enum dockermux_result {
    DOCKERMUX_MORE,  /* all bytes are used */
    DOCKERMUX_PIECE, /* *ret_piece is the next piece; feed the bytes after *ret_used again */
    DOCKERMUX_BAD,   /* not such a stream; nothing more of it can be read */
};

typedef struct dockermux { /* zero-initialised at the beginning of a stream */
    uint8_t head[8];
    uint8_t nhead;
    uint32_t left; /* bytes left of the current piece */
} dockermux;

typedef struct dockermux_piece {
    enum dockermux_stream stream;
    const uint8_t *p; /* within the bytes that were fed; never empty */
    size_t n;
} dockermux_piece;

enum dockermux_result dockermux_feed(dockermux *m, const void *p, size_t n, size_t *ret_used,
                                     dockermux_piece *ret_piece);
/* Returns true if the stream may end here. */
static inline int dockermux_is_whole(const dockermux *m)
{
    return !m->nhead && !m->left;
}
