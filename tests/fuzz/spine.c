/* Spine records from both ends. The first byte says how many descriptors came along; the rest is a
 * record. What the checks let pass is then read the way its receivers read it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "wire/spine_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_hello(const struct sp_hello *h)
{
    const struct sp_rec *r = spine_hello_recs(h);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < h->nrec; i++)
        sum += r[i].id + (uint64_t)spine_stage_name(r[i].stage)[0];
    if (h->nrec && !sum)
        abort();
}

/* What was decoded and encoded again must be what came in. */
static void read_spawn(const struct sp_spawn *q)
{
    spine_spawn s;
    spine_out out = {0};
    err *e = spine_decode_spawn(q, q + 1, q->payload, &s);

    if (e) {
        err_free(e);
        return;
    }
    e = spine_encode_spawn(&s, &out);
    if (e || out.payload.len || out.record.len != sizeof *q + q->payload ||
        memcmp(out.record.p, q, out.record.len))
        abort();
    spine_out_done(&out);
    spine_spawn_done(&s);
}

static void read_claim(const struct sp_claim *q)
{
    spine_claim c;
    spine_out out = {0};
    err *e = spine_decode_claim(q, q + 1, q->payload, &c);

    if (e) {
        err_free(e);
        return;
    }
    e = spine_encode_claim(&c, &out);
    if (e || out.record.len + out.payload.len != sizeof *q + q->payload)
        abort();
    spine_out_done(&out);
    spine_claim_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    size_t n = size - 1, nfds = data[0];
    struct sp_hdr *h = xmalloc(n + 1); /* exactly as long: a read beyond it is seen */
    memcpy(h, data + 1, n);
    if (!spine_check_answer(h, n, nfds) && h->type == SP_HELLO)
        read_hello((const struct sp_hello *)h);
    if (!spine_check_request(h, n, nfds)) {
        /* err is an answer's field; encoders leave it 0 */
        h->err = 0;
        if (h->type == SP_SPAWN && !(((struct sp_spawn *)h)->flags & SP_F_MEMFD) &&
            n <= SP_INLINE_MAX)
            read_spawn((const struct sp_spawn *)h);
        if (h->type == SP_CLAIM && !(((struct sp_claim *)h)->flags & SP_F_MEMFD))
            read_claim((const struct sp_claim *)h);
    }
    free(h);
    return 0;
}
