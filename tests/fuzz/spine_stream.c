/* Messages of the spine's stream form, read as either side would, whole and byte by byte. */
#include "wire/spine_stream.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/spine_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the node does with a request's payload. */
static void decode(const sps_message *m)
{
    if (m->type == SP_SPAWN) {
        const struct sp_spawn *q = m->record;
        bool apart = q->flags & SP_F_MEMFD;
        spine_spawn s;
        err *e = spine_decode_spawn(q, apart ? m->extra : (const void *)(q + 1),
                                    apart ? m->nextra : m->size - sizeof *q, &s);
        if (!e)
            spine_spawn_done(&s);
        err_free(e);
    } else if (m->type == SP_CLAIM) {
        const struct sp_claim *q = m->record;
        bool apart = q->flags & SP_F_MEMFD;
        spine_claim c;
        err *e = spine_decode_claim(q, apart ? m->extra : (const void *)(q + 1),
                                    apart ? m->nextra : m->size - sizeof *q, &c);
        if (!e)
            spine_claim_done(&c);
        err_free(e);
    }
}

/* What was read is written back to the same bytes. */
static void check_round_trip(const char *p, long whole, const sps_message *m)
{
    buf b = {0};

    sps_put(&b, m->record, m->size, m->extra, m->nextra);
    if (b.len != (size_t)whole || memcmp(b.p, p, b.len))
        abort();
    buf_done(&b);
}

static void run(const uint8_t *data, size_t size, enum sps_side side)
{
    char *p = malloc(size ? size : 1); /* aligned, and its end is a wall for the sanitizer */
    const char *why;
    size_t at = 0;

    memcpy(p, data, size);
    while (at < size) {
        sps_message m;
        long n = sps_next(p + at, size - at, side, &m, &why);
        if (n <= 0)
            break;
        sps_message early;
        if (sps_next(p + at, (size_t)n - 1, side, &early, &why) > 0)
            abort();
        check_round_trip(p + at, n, &m);
        if (side == SPS_REQUESTS)
            decode(&m);
        at += (size_t)n;
    }
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    run(data + 1, size - 1, data[0] & 1 ? SPS_ANSWERS : SPS_REQUESTS);
    return 0;
}
