/* Turns the output of a command into the text of an answer. */
#include "door/swerex/internal.h"
#include "door/swerex/text.h"

#define CHUNK (64u << 10)
#define HALF  (REX_OUTPUT_MAX / 2)

/* Appends the bytes [from, to) to b. Adds dropped bytes to *lost. */
static err *read_span(rex_reader *read, void *of, int stream, uint64_t from, uint64_t to, buf *b,
                      uint64_t *lost)
{
    while (from < to) {
        uint64_t gap = 0;
        size_t n = 0, want = to - from < CHUNK ? (size_t)(to - from) : CHUNK;
        buf_reserve(b, want);
        TRY(read(of, stream, from, b->p + b->len, want, &n, &gap));
        if (gap > from) {
            *lost += (gap < to ? gap : to) - from;
            from = gap;
        } else if (!n) {
            return NULL;
        }
        b->len += n;
        from += n;
    }
    return NULL;
}

static void put_lost(buf *out, uint64_t lost)
{
    if (lost)
        buf_printf(out, "\n[... %lu bytes left out ...]\n", lost);
}

err *rex_output(rex_reader *read, void *from, int stream, uint64_t length, buf *out)
{
    CLEANUP(buf_done) buf head = {0};
    CLEANUP(buf_done) buf tail = {0};
    bool whole = length <= REX_OUTPUT_MAX;
    uint64_t lost = whole ? 0 : length - REX_OUTPUT_MAX;

    TRY(read_span(read, from, stream, 0, whole ? length : HALF, &head, &lost));
    if (!whole)
        TRY(read_span(read, from, stream, length - HALF, length, &tail, &lost));
    rex_decode(out, head.p, head.len);
    put_lost(out, lost);
    rex_decode(out, tail.p, tail.len);
    return NULL;
}
