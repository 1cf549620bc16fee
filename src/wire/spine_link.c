#include "wire/spine_link.h"

#include <linux/errno.h>

/* Declared by the compiler: init has no string.h. */
#define COPY  __builtin_memcpy
#define CLEAR __builtin_memset

#define SEAL sizeof(uint64_t)

struct head {
    uint32_t size, extra;
};

static size_t spine_link_padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

size_t spl_size(size_t record, size_t extra)
{
    return SPL_SIZE(record, extra);
}

/* ---- keys ---- */

static void spine_link_derive(const spl_end *e, const uint8_t secret[SPL_SECRET], const char *label,
                              size_t nlabel, uint8_t ret[SEAL_DIGEST])
{
    struct seal_piece pieces[] = {
        {label, nlabel}, {e->init_nonce, SPL_NONCE}, {e->link_nonce, SPL_NONCE}};

    seal_hmac(secret, SPL_SECRET, pieces, 3, ret);
}

static void make_proof(const spl_end *e, const uint8_t secret[SPL_SECRET], uint8_t ret[SEAL_DIGEST])
{
    static const char label[] = "bothy-attach";

    spine_link_derive(e, secret, label, sizeof label - 1, ret);
}

static void make_way(const spl_end *e, const uint8_t secret[SPL_SECRET], bool to_init,
                     struct spl_way *ret)
{
    static const char to[] = "bothy-to-init", from[] = "bothy-from-init";
    uint8_t key[SEAL_DIGEST];

    spine_link_derive(e, secret, to_init ? to : from, to_init ? sizeof to - 1 : sizeof from - 1,
                      key);
    COPY(ret->key, key, sizeof ret->key);
    ret->count = 0;
    seal_wipe(key, sizeof key);
}

static void make_ways(spl_end *e, const uint8_t secret[SPL_SECRET])
{
    make_way(e, secret, e->is_init, &e->in);
    make_way(e, secret, !e->is_init, &e->out);
}

/* ---- writing ---- */

void *spl_put_begin(void *out, const void *record, size_t size, size_t nextra)
{
    struct head h = {(uint32_t)size, (uint32_t)nextra};
    char *p = out;

    COPY(p, &h, sizeof h);
    p += sizeof h;
    COPY(p, record, size);
    CLEAR(p + size, 0, spine_link_padded(size) - size);
    p += spine_link_padded(size);
    CLEAR(p + nextra, 0, spine_link_padded(nextra) - nextra);
    return p;
}

static size_t length_of(const void *out)
{
    struct head h;

    COPY(&h, out, sizeof h);
    return sizeof h + spine_link_padded(h.size) + spine_link_padded(h.extra);
}

size_t spl_put_end(spl_end *e, void *out)
{
    size_t n = length_of(out);
    uint64_t seal = seal_siphash_counted(e->out.key, e->out.count++, out, n);

    COPY((char *)out + n, &seal, sizeof seal);
    return n + sizeof seal;
}

size_t spl_put(spl_end *e, void *out, const void *record, size_t size, const void *extra,
               size_t nextra)
{
    void *at = spl_put_begin(out, record, size, nextra);

    if (nextra)
        COPY(at, extra, nextra);
    return spl_put_end(e, out);
}

static size_t put_open(void *out, const void *record, size_t size)
{
    spl_put_begin(out, record, size, 0);
    return length_of(out);
}

/* ---- reading ---- */

struct bounds {
    size_t size, extra;
    bool sealed;
};

static struct bounds bounds_of(const spl_end *e)
{
    switch (e->phase) {
    case SPL_WANTS_GREETING:
        return (struct bounds){sizeof(struct spl_greeting), 0, false};
    case SPL_WANTS_ATTACH:
        return (struct bounds){sizeof(struct spl_attach), 0, false};
    case SPL_WANTS_HELLO:
        return (struct bounds){SP_HELLO_MAX, SPS_SANDBOX, true};
    default:
        return e->is_init ? (struct bounds){SP_INLINE_MAX, SP_PAYLOAD_MAX, true}
                          : (struct bounds){SP_HELLO_MAX, SPS_CHUNK_MAX, true};
    }
}

/* Returns true if a message is a REFUSED in place of HELLO: an init that shares no keys cannot seal
 * it. */
static bool is_refusal(const spl_end *e, const void *p, size_t n)
{
    struct head h;
    uint32_t type;

    if (e->phase != SPL_WANTS_HELLO || n < sizeof h + sizeof type)
        return false;
    COPY(&h, p, sizeof h);
    COPY(&type, (const char *)p + sizeof h, sizeof type);
    return h.size == sizeof(struct sp_hdr) && type == SPS_REFUSED;
}

long spl_want(const spl_end *e, const void *p, size_t n)
{
    struct bounds b = bounds_of(e);
    struct head h;

    if (n < sizeof h)
        return 0;
    COPY(&h, p, sizeof h);
    if (h.size < sizeof(struct sp_hdr) || h.size > b.size || h.extra > b.extra)
        return -1;
    bool sealed = b.sealed && !is_refusal(e, p, n);
    return (long)(sizeof h + spine_link_padded(h.size) + spine_link_padded(h.extra) +
                  (sealed ? SEAL : 0));
}

static bool spine_link_zeros(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static const char *read_greeting(spl_end *e, const sps_message *m)
{
    const struct spl_greeting *g = m->record;

    if (m->type != SPS_GREETING || m->size != sizeof *g || g->h.err || g->h.id || g->reserved)
        return "no greeting of init";
    if (g->version < SPL_VERSION_MIN || g->version > SPL_VERSION)
        return "init speaks another version of the link";
    if (g->state != SPL_FRESH && g->state != SPL_OWNED)
        return "the state in init's greeting is unknown";
    COPY(e->init_nonce, g->nonce, SPL_NONCE);
    e->peer_state = (uint8_t)g->state;
    e->phase = SPL_WANTS_CALLER;
    return NULL;
}

static const char *read_attach(spl_end *e, const sps_message *m)
{
    const struct spl_attach *a = m->record;

    if (m->type != SPS_ATTACH || m->size != sizeof *a || a->h.err || a->h.id)
        return "no attach";
    COPY(e->link_nonce, a->nonce, SPL_NONCE);
    e->phase = SPL_WANTS_ADMIT;
    return NULL;
}

static const char *read_hello(spl_end *e, const sps_message *m)
{
    if (m->type == SPS_REFUSED) {
        e->phase = SPL_ENDED;
        return NULL;
    }
    e->phase = SPL_OPEN;
    return m->type == SP_HELLO ? NULL : "init does not begin with HELLO";
}

static const char *check_seal(spl_end *e, const void *p, size_t n)
{
    uint64_t seal = seal_siphash_counted(e->in.key, e->in.count, p, n);

    if (!seal_equal(&seal, (const char *)p + n, sizeof seal))
        return "the seal is wrong";
    e->in.count++;
    return NULL;
}

static const char *spine_link_accept(spl_end *e, const sps_message *m)
{
    switch (e->phase) {
    case SPL_WANTS_GREETING:
        return read_greeting(e, m);
    case SPL_WANTS_ATTACH:
        return read_attach(e, m);
    case SPL_WANTS_HELLO:
        return read_hello(e, m);
    default:
        return NULL;
    }
}

static const char *read_message(spl_end *e, const char *p, size_t whole, sps_message *m)
{
    bool sealed = bounds_of(e).sealed && !is_refusal(e, p, whole);
    struct head h;

    COPY(&h, p, sizeof h);
    m->record = p + sizeof h;
    m->size = h.size;
    m->extra = p + sizeof h + spine_link_padded(h.size);
    m->nextra = h.extra;
    COPY(&m->type, m->record, sizeof m->type);
    const char *why = sealed ? check_seal(e, p, whole - SEAL) : NULL;
    if (why)
        return why;
    if (!spine_link_zeros((const char *)m->record + m->size,
                          spine_link_padded(m->size) - m->size) ||
        !spine_link_zeros((const char *)m->extra + m->nextra,
                          spine_link_padded(m->nextra) - m->nextra))
        return "the padding is not zero";
    return spine_link_accept(e, m);
}

long spl_next(spl_end *e, const void *p, size_t n, sps_message *ret_message, const char **ret_why)
{
    sps_message m;

    *ret_why = "the connection is over";
    if (e->phase == SPL_ENDED)
        return -1;
    if (e->phase == SPL_WANTS_CALLER || e->phase == SPL_WANTS_ADMIT)
        return 0;
    long whole = spl_want(e, p, n);
    if (whole < 0)
        *ret_why = "a message is larger than this end takes";
    /* As long as a refusal's type has not come, spl_want() counts a seal too; more bytes are needed
     * anyway. */
    if (whole == 0 || (whole > 0 && n < (size_t)whole))
        return 0;
    if (whole > 0)
        *ret_why = read_message(e, p, (size_t)whole, &m);
    if (*ret_why) {
        e->phase = SPL_ENDED;
        return -1;
    }
    *ret_message = m;
    return whole;
}

/* ---- the handshake ---- */

void spl_begin_link(spl_end *e, const uint8_t nonce[SPL_NONCE])
{
    *e = (spl_end){.phase = SPL_WANTS_GREETING};
    COPY(e->link_nonce, nonce, SPL_NONCE);
}

size_t spl_begin_init(spl_end *e, const uint8_t nonce[SPL_NONCE], uint64_t instance, bool owned,
                      void *out)
{
    struct spl_greeting g = {.h.type = SPS_GREETING,
                             .version = SPL_VERSION,
                             .state = owned ? SPL_OWNED : SPL_FRESH,
                             .instance = instance};

    *e = (spl_end){.phase = SPL_WANTS_ATTACH, .is_init = true};
    COPY(e->init_nonce, nonce, SPL_NONCE);
    COPY(g.nonce, nonce, SPL_NONCE);
    return put_open(out, &g, sizeof g);
}

void spl_end_wipe(spl_end *e)
{
    seal_wipe(e, sizeof *e);
    e->phase = SPL_ENDED;
}

size_t spl_attach(spl_end *e, const uint8_t secret[SPL_SECRET], void *out)
{
    struct spl_attach a = {.h.type = SPS_ATTACH, .version = SPL_VERSION, .state = e->peer_state};

    COPY(a.nonce, e->link_nonce, SPL_NONCE);
    if (e->peer_state == SPL_FRESH)
        COPY(a.word, secret, SPL_SECRET);
    else
        make_proof(e, secret, a.word);
    make_ways(e, secret);
    e->phase = SPL_WANTS_HELLO;
    size_t n = put_open(out, &a, sizeof a);
    seal_wipe(&a, sizeof a);
    return n;
}

int spl_admit(spl_end *e, const struct spl_attach *a, uint8_t secret[SPL_SECRET], bool *owned)
{
    uint8_t proof[SEAL_DIGEST];

    if (a->version < SPL_VERSION_MIN || a->version > SPL_VERSION)
        return EPROTONOSUPPORT;
    if (a->state != (*owned ? SPL_OWNED : SPL_FRESH))
        return *owned ? EALREADY : ENOKEY;
    if (*owned) {
        make_proof(e, secret, proof);
        bool proved = seal_equal(proof, a->word, sizeof proof);
        seal_wipe(proof, sizeof proof);
        if (!proved)
            return EACCES;
    } else {
        COPY(secret, a->word, SPL_SECRET);
        *owned = true;
    }
    make_ways(e, secret);
    e->phase = SPL_OPEN;
    return 0;
}

size_t spl_refuse(spl_end *e, int errnum, void *out)
{
    struct sp_hdr h = {.type = SPS_REFUSED, .err = errnum};

    e->phase = SPL_ENDED;
    return put_open(out, &h, sizeof h);
}

/* ---- windows ---- */

enum spl_take spl_window_take(spl_window *w, uint64_t offset, size_t n)
{
    if (offset != w->next)
        return SPL_TAKE_ORDER;
    if (n && (w->limit < offset || n > w->limit - offset))
        return SPL_TAKE_OVER;
    w->next += n;
    return SPL_TAKE_OK;
}

void spl_window_grant(spl_window *w, uint64_t offset, uint32_t credit)
{
    uint64_t limit = offset > UINT64_MAX - credit ? UINT64_MAX : offset + credit;

    if (limit > w->limit)
        w->limit = limit;
}
