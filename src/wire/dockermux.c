#include "wire/dockermux.h"

static int head_is_good(const uint8_t h[8])
{
    return h[0] <= DOCKERMUX_ENGINE && !h[1] && !h[2] && !h[3];
}

static uint32_t length_of(const uint8_t h[8])
{
    return (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
}

/* Takes one byte of a head. Returns 0 if the head is invalid. An empty piece is legal and
 * ignored. */
static int take_head(dockermux *m, uint8_t byte)
{
    m->head[m->nhead++] = byte;
    if (m->nhead < sizeof m->head)
        return 1;
    if (!head_is_good(m->head))
        return 0;
    m->left = length_of(m->head);
    m->nhead = 0;
    return 1;
}

enum dockermux_result dockermux_feed(dockermux *m, const void *p, size_t n, size_t *ret_used,
                                     dockermux_piece *ret_piece)
{
    const uint8_t *in = p;
    size_t at = 0;

    while (!m->left && at < n)
        if (!take_head(m, in[at++])) {
            *ret_used = at;
            return DOCKERMUX_BAD;
        }
    if (!m->left || at == n) {
        *ret_used = at;
        return DOCKERMUX_MORE;
    }
    size_t have = n - at < m->left ? n - at : m->left;
    *ret_piece = (dockermux_piece){(enum dockermux_stream)m->head[0], in + at, have};
    m->left -= (uint32_t)have;
    *ret_used = at + have;
    return DOCKERMUX_PIECE;
}
