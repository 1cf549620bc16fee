/* The link as bothyd reads it: from somebody who has no key (any bytes), and from an init that has
 * (messages of the input, sealed for it; a few of them spoiled on the way).
 * The first byte: 0 any bytes; otherwise messages: [spoil][record size, 2][extra size, 2][bytes].
 */
#include "wire/spine_link.h"

#include "wire/spine_stream.h"

#include "fuzz.h"

static const uint8_t SECRET[SPL_SECRET] = "the box's";

static void *aligned(const void *p, size_t n)
{
    void *copy = xmalloc(n);

    if (n)
        memcpy(copy, p, n);
    return copy;
}

/* A message is whole or not there. Returns the length read, as spl_next() does. */
static long next(spl_end *e, const char *p, size_t n, sps_message *m)
{
    spl_end before = *e;
    const char *why = NULL;
    long r = spl_next(e, p, n, m, &why);

    MUST(r >= -1 && r <= (long)n);
    MUST(r >= 0 || (why && e->phase == SPL_ENDED));
    if (r <= 0)
        return r;
    MUST((uint64_t)r <= SPL_ANSWER_MAX && r % 8 == 0);
    MUST((const char *)m->record >= p && (const char *)m->extra + m->nextra <= p + r);
    for (size_t cut = 0; cut < (size_t)r; cut += (size_t)r / 16 + 1) {
        spl_end early = before;
        sps_message none;
        void *part = aligned(p, cut);
        MUST(spl_next(&early, part, cut, &none, &why) == 0);
        free(part);
    }
    return r;
}

static void read_all(spl_end *e, const uint8_t *data, size_t size)
{
    char *p = aligned(data, size);
    uint8_t out[SPL_ATTACH_ROOM];
    sps_message m;
    size_t at = 0;
    long n;

    while ((n = next(e, p + at, size - at, &m)) > 0) {
        at += (size_t)n;
        if (e->phase == SPL_WANTS_CALLER)
            spl_attach(e, SECRET, out);
        else if (m.type != SPS_REFUSED)
            sps_check(&m, SPS_ANSWERS);
        MUST(e->phase != SPL_OPEN); /* without the key nobody says HELLO */
    }
    free(p);
}

static void shake(spl_end *link, spl_end *init)
{
    uint8_t nonce[SPL_NONCE] = {1}, secret[SPL_SECRET];
    uint64_t out[SPL_ATTACH_ROOM / 8];
    bool owned = false;
    sps_message m;
    const char *why;

    spl_begin_link(link, nonce);
    nonce[0] = 2;
    size_t n = spl_begin_init(init, nonce, 7, owned, out);
    MUST(spl_next(link, out, n, &m, &why) == (long)n);
    n = spl_attach(link, SECRET, out);
    MUST(spl_next(init, out, n, &m, &why) == (long)n);
    MUST(!spl_admit(init, m.record, secret, &owned) && owned);
}

/* One message of init's; false when the connection has ended. */
static bool pass(spl_end *link, spl_end *init, fuzz_in *in)
{
    uint8_t spoil = fuzz_byte(in);
    size_t size = (size_t)fuzz_number(in, 2), nextra = (size_t)fuzz_number(in, 2);
    char *record = fuzz_bytes(in, size, &size), *extra = fuzz_bytes(in, nextra, &nextra);
    char *out = xmalloc(spl_size(size, nextra));
    size_t n = spl_put(init, out, record, size, extra, nextra);
    bool first = link->phase == SPL_WANTS_HELLO;
    uint32_t type = 0;
    sps_message m;

    if (spoil & 128)
        out[(size_t)(spoil & 127) * 97 % n] ^= 1;
    long r = next(link, out, n, &m);
    if (size >= sizeof type)
        memcpy(&type, record, sizeof type);
    bool refused = r > 0 && m.type == SPS_REFUSED && first;
    MUST(r <= 0 || refused || !(spoil & 128));
    if (r > 0 && !refused) {
        MUST(r == (long)n && m.type == type && m.size == size && m.nextra == nextra);
        MUST(!memcmp(m.record, record, size) && (!nextra || !memcmp(m.extra, extra, nextra)));
        MUST(!first || type == SP_HELLO);
        sps_check(&m, SPS_ANSWERS);
    }
    free(record);
    free(extra);
    free(out);
    return r > 0 && !refused;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t nonce[SPL_NONCE] = {9};
    fuzz_in in = {data, size};
    spl_end link, init;

    if (!fuzz_byte(&in)) {
        spl_begin_link(&link, nonce);
        read_all(&link, in.p, in.n);
        return 0;
    }
    shake(&link, &init);
    while (in.n && pass(&link, &init, &in))
        continue;
    return 0;
}
