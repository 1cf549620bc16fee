/* The stream of a command that an engine runs: the same bytes of each stream however it is cut. */
#include "wire/dockermux.h"

#include "fuzz.h"

typedef struct heard {
    uint8_t *p[DOCKERMUX_ENGINE + 1];
    size_t n[DOCKERMUX_ENGINE + 1];
    bool bad, whole;
} heard;

static heard hear(const uint8_t *data, size_t size, size_t step)
{
    heard h = {0};
    dockermux m = {0};

    for (int i = 0; i <= DOCKERMUX_ENGINE; i++)
        h.p[i] = xmalloc(size + 1);
    for (size_t at = 0; at < size && !h.bad;) {
        size_t some = size - at < step ? size - at : step, used = 0;
        dockermux_piece piece;
        enum dockermux_result r = dockermux_feed(&m, data + at, some, &used, &piece);
        MUST(used <= some && (r != DOCKERMUX_MORE || used == some));
        if (r == DOCKERMUX_PIECE) {
            MUST(piece.n && piece.p + piece.n == data + at + used);
            memcpy(h.p[piece.stream] + h.n[piece.stream], piece.p, piece.n);
            h.n[piece.stream] += piece.n;
        }
        h.bad = r == DOCKERMUX_BAD;
        at += used;
    }
    h.whole = dockermux_is_whole(&m);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    heard whole = hear(data, size, size), cut = hear(data, size, 1);

    MUST(whole.bad == cut.bad && whole.whole == cut.whole);
    for (int i = 0; i <= DOCKERMUX_ENGINE; i++) {
        MUST(whole.n[i] == cut.n[i] && !memcmp(whole.p[i], cut.p[i], cut.n[i]));
        free(whole.p[i]);
        free(cut.p[i]);
    }
    return 0;
}
