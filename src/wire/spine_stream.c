#include "wire/spine_stream.h"

#include <string.h>

#include "wire/spine_codec.h"

#define PRIVATE_MAX (1u << 20)

struct head {
    uint32_t size, extra;
};

static size_t spine_stream_padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static bool is_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* Checks the sizes in a head, before waiting for the rest of the message. */
static const char *check_head(const struct head *h)
{
    if (h->size < sizeof(struct sp_hdr) || h->size > SP_HELLO_MAX)
        return "size of the record";
    return h->extra > SP_PAYLOAD_MAX ? "size of the extra bytes" : NULL;
}

static const char *check_data(const sps_message *m, enum sps_side side)
{
    const struct sps_data *d = m->record;
    bool piece = m->type == SPS_STDIN || m->type == SPS_STDIO;
    bool beat = m->type == SPS_PING || m->type == SPS_PONG;

    if (m->size != sizeof *d)
        return "size of a data record";
    if ((m->type >= SPS_STDIO) != (side == SPS_ANSWERS))
        return "a data record of the other side";
    if (!d->h.id && !beat)
        return "exec id 0";
    if (m->nextra > (piece ? SPS_CHUNK_MAX : 0))
        return "too many bytes";
    if (piece && d->offset > UINT64_MAX - SPS_CHUNK_MAX)
        return "offset";
    if ((m->type == SPS_RECEIVED || m->type == SPS_STDIO) && d->a != 1 && d->a != 2)
        return "stream";
    if (m->type == SPS_STDIN && d->a > SPS_STDIN_EOF)
        return "flags of stdin";
    if (m->type == SPS_RESIZE && (d->a > UINT16_MAX || d->b > UINT16_MAX))
        return "size of a terminal";
    return NULL;
}

static const char *check_spine(const sps_message *m, enum sps_side side)
{
    if (side == SPS_ANSWERS) {
        size_t may = m->type == SP_HELLO ? SPS_SANDBOX : 0; /* spine_link.h */
        return m->nextra && m->nextra != may ? "extra bytes"
                                             : spine_check_answer(m->record, m->size, 0);
    }
    bool memfd = false;
    uint32_t payload = 0;
    if (m->type == SP_SPAWN && m->size >= sizeof(struct sp_spawn)) {
        memfd = ((const struct sp_spawn *)m->record)->flags & SP_F_MEMFD;
        payload = ((const struct sp_spawn *)m->record)->payload;
    } else if (m->type == SP_CLAIM && m->size >= sizeof(struct sp_claim)) {
        memfd = ((const struct sp_claim *)m->record)->flags & SP_F_MEMFD;
        payload = ((const struct sp_claim *)m->record)->payload;
    }
    if (m->nextra != (memfd ? payload : 0))
        return "extra bytes";
    return spine_check_request(m->record, m->size, memfd);
}

const char *sps_check(const sps_message *m, enum sps_side side)
{
    switch (m->type) {
    case SPS_RECEIVED:
    case SPS_STDIN:
    case SPS_RESIZE:
    case SPS_PING:
    case SPS_STDIO:
    case SPS_TAKEN:
    case SPS_PONG:
        return check_data(m, side);
    default:
        if (m->type >= SPS_PRIVATE)
            return m->nextra > PRIVATE_MAX ? "too many bytes" : NULL;
        return check_spine(m, side);
    }
}

long sps_next(const void *p, size_t n, enum sps_side side, sps_message *ret_message,
              const char **ret_why)
{
    struct head h;
    sps_message m;

    if (n < sizeof h)
        return 0;
    memcpy(&h, p, sizeof h);
    *ret_why = check_head(&h);
    if (*ret_why)
        return -1;
    size_t whole = sizeof h + spine_stream_padded(h.size) + spine_stream_padded(h.extra);
    if (n < whole)
        return 0;
    m.record = (const char *)p + sizeof h;
    m.size = h.size;
    m.extra = (const char *)m.record + spine_stream_padded(h.size);
    m.nextra = h.extra;
    memcpy(&m.type, m.record, sizeof m.type);
    *ret_why = sps_check(&m, side);
    if (!*ret_why &&
        (!is_zero((const char *)m.record + m.size, spine_stream_padded(m.size) - m.size) ||
         !is_zero((const char *)m.extra + m.nextra, spine_stream_padded(m.nextra) - m.nextra)))
        *ret_why = "padding";
    if (*ret_why)
        return -1;
    *ret_message = m;
    return (long)whole;
}

static void put_padded(buf *out, const void *p, size_t n)
{
    static const char zeros[8];

    if (n)
        buf_append(out, p, n);
    buf_append(out, zeros, spine_stream_padded(n) - n);
}

void sps_put(buf *out, const void *record, size_t size, const void *extra, size_t nextra)
{
    struct head h = {(uint32_t)size, (uint32_t)nextra};

    buf_append(out, &h, sizeof h);
    put_padded(out, record, size);
    put_padded(out, extra, nextra);
}
