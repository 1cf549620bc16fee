/* The stream of a command that a container engine runs without a terminal: stdout and stderr in
 * one, each piece behind a head of eight bytes {stream, 0, 0, 0, length as big endian}. No I/O and
 * nothing kept but a head: pieces lie in the bytes that were fed, however large the engine says
 * they are. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum dockermux_stream {
    DOCKERMUX_IN, /* nobody sends it; known to the protocol */
    DOCKERMUX_OUT,
    DOCKERMUX_ERR,
    DOCKERMUX_ENGINE, /* what the engine itself has to say, at the end */
};

enum dockermux_result {
    DOCKERMUX_MORE,  /* all bytes are used */
    DOCKERMUX_PIECE, /* *ret_piece is the next; feed what is left behind it */
    DOCKERMUX_BAD,   /* this is no such stream; nothing of it can be read any more */
};

typedef struct dockermux { /* zero-initialised at the beginning of a stream */
    uint8_t head[8];
    uint8_t nhead;
    uint32_t left; /* of the present piece */
} dockermux;

typedef struct dockermux_piece {
    enum dockermux_stream stream;
    const uint8_t *p; /* within what was fed; never empty */
    size_t n;
} dockermux_piece;

enum dockermux_result dockermux_feed(dockermux *m, const void *p, size_t n, size_t *ret_used,
                                     dockermux_piece *ret_piece);
/* Whether the stream may end here. */
static inline int dockermux_is_whole(const dockermux *m)
{
    return !m->nhead && !m->left;
}
