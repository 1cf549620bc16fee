/* Both ends of the link against each other, and against who sits between them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/str.h"
#include "wire/spine_link.h"
#include "wire/spine_stream.h"

#include "../unit.h"

/* ---- seals ---- */

static void hex(const uint8_t *p, size_t n, char *ret)
{
    for (size_t i = 0; i < n; i++)
        snprintf(ret + 2 * i, 3, "%02x", p[i]);
}

static void assert_hmac(const char *key, size_t nkey, const char *text, const char *want)
{
    struct seal_piece piece = {text, strlen(text)};
    uint8_t mac[SEAL_DIGEST];
    char have[2 * SEAL_DIGEST + 1];

    seal_hmac(key, nkey, &piece, 1, mac);
    hex(mac, sizeof mac, have);
    assert_string_equal(have, want);
}

static void digests_are_the_published_ones(void **state)
{
    (void)state;
    static const char *const sha[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
    char key[131];

    for (size_t i = 0; i < sizeof sha / sizeof *sha; i++) {
        struct seal_sha256 s;
        uint8_t digest[SEAL_DIGEST];
        char have[2 * SEAL_DIGEST + 1];
        seal_sha256_init(&s);
        seal_sha256_add(&s, sha[i][0], strlen(sha[i][0]));
        seal_sha256_end(&s, digest);
        hex(digest, sizeof digest, have);
        assert_string_equal(have, sha[i][1]);
    }
    memset(key, 0x0b, 20); /* RFC 4231, cases 1, 2 and 6 */
    assert_hmac(key, 20, "Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    assert_hmac("Jefe", 4, "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    assert_hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void siphash_is_the_published_one(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        uint64_t want;
    } rows[] = {{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {2, 0x0d6c8009d9a94f5a},
                {3, 0x85676696d7fb7e2d}, {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5},
                {63, 0x958a324ceb064572}};
    uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908}, words[8];
    uint8_t in[64];

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(seal_siphash(key, in, rows[i].n), rows[i].want);
    memcpy(words, in, sizeof words);
    assert_int_equal(seal_siphash_counted(key, words[0], words + 1, 56),
                     seal_siphash(key, words, 64));
}

static void digests_agree_with_openssl(void **state)
{
    (void)state;
    uint8_t in[300], key[100], ours[SEAL_DIGEST], theirs[SHA256_LEN];

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * 31 + 7);
    memcpy(key, in + 50, sizeof key);
    for (size_t n = 0; n < sizeof in; n++)
        for (size_t nkey = 0; nkey <= sizeof key; nkey += 25) {
            struct seal_piece cut[] = {{in, n / 3}, {in + n / 3, n - n / 3}};
            seal_hmac(key, nkey, cut, 2, ours);
            hmac_sha256(key, nkey, in, n, theirs);
            assert_memory_equal(ours, theirs, sizeof ours);
        }
}

/* ---- a pair of ends ---- */

static const uint8_t SECRET[SPL_SECRET] = "thirty-two bytes that nobody has";

typedef struct pair {
    spl_end link, init;
    uint8_t secret[SPL_SECRET]; /* init's */
    bool owned;
} pair;

#define ROOM 512
typedef union room {
    uint64_t align;
    uint8_t b[ROOM];
} room;

static sps_message must_read(spl_end *e, const void *p, size_t n)
{
    sps_message m;
    const char *why;

    long r = spl_next(e, p, n, &m, &why);
    if (r != (long)n)
        fail_msg("%ld of %zu: %s", r, n, r < 0 ? why : "short");
    return m;
}

static void must_end(spl_end *e, const void *p, size_t n, const char *want)
{
    sps_message m;
    const char *why;

    assert_int_equal(spl_next(e, p, n, &m, &why), -1);
    assert_string_equal(why, want);
    assert_int_equal(spl_next(e, p, n, &m, &why), -1); /* and stays so */
}

static void nonce_of(uint8_t ret[SPL_NONCE], uint8_t salt)
{
    for (int i = 0; i < SPL_NONCE; i++)
        ret[i] = (uint8_t)(i * 3 + salt);
}

/* Up to ATTACH; its answer is init's. */
static int shake(pair *p, uint8_t salt, const uint8_t secret[SPL_SECRET])
{
    uint8_t a[SPL_NONCE], b[SPL_NONCE];
    room r;

    nonce_of(a, salt);
    nonce_of(b, (uint8_t)(salt + 100));
    spl_begin_link(&p->link, a);
    size_t n = spl_begin_init(&p->init, b, 77, p->owned, r.b);
    assert_true(n <= SPL_GREETING_ROOM);
    sps_message m = must_read(&p->link, r.b, n);
    const struct spl_greeting *g = m.record;
    assert_int_equal(m.type, SPS_GREETING);
    assert_int_equal(g->instance, 77);
    assert_int_equal(g->state, p->owned ? SPL_OWNED : SPL_FRESH);
    n = spl_attach(&p->link, secret, r.b);
    assert_true(n <= SPL_ATTACH_ROOM);
    m = must_read(&p->init, r.b, n);
    assert_int_equal(m.type, SPS_ATTACH);
    return spl_admit(&p->init, m.record, p->secret, &p->owned);
}

static size_t make_hello(spl_end *init, void *out)
{
    struct sp_hello h = {.h.type = SP_HELLO, .version = SP_VERSION, .instance = 77, .capacity = 1};

    return spl_put(init, out, &h, sizeof h, NULL, 0);
}

static void open_pair(pair *p, uint8_t salt)
{
    room r;

    assert_int_equal(shake(p, salt, SECRET), 0);
    size_t n = make_hello(&p->init, r.b);
    sps_message m = must_read(&p->link, r.b, n);
    assert_int_equal(m.type, SP_HELLO);
    assert_null(sps_check(&m, SPS_ANSWERS));
}

static void first_attach_owns_and_later_ones_prove(void **state)
{
    (void)state;
    pair p = {0};

    open_pair(&p, 1);
    assert_true(p.owned);
    assert_memory_equal(p.secret, SECRET, SPL_SECRET);
    open_pair(&p, 2);
    spl_end_wipe(&p.link);
    assert_true(p.link.in.key[0] == 0 && p.link.phase == SPL_ENDED);
}

static void assert_refused(pair *p, int errnum)
{
    room r;
    size_t n = spl_refuse(&p->init, errnum, r.b);
    sps_message m = must_read(&p->link, r.b, n);

    assert_int_equal(m.type, SPS_REFUSED);
    assert_int_equal(((const struct sp_hdr *)m.record)->err, errnum);
    must_end(&p->link, r.b, n, "the connection is over");
    must_end(&p->init, r.b, n, "the connection is over");
}

static void wrong_proofs_are_refused(void **state)
{
    (void)state;
    uint8_t wrong[SPL_SECRET] = {1}, kept[SPL_SECRET];
    pair p = {0};

    open_pair(&p, 1);
    memcpy(kept, p.secret, sizeof kept);
    int r = shake(&p, 2, wrong);
    assert_int_equal(r, EACCES);
    assert_memory_equal(p.secret, kept, sizeof kept);
    assert_refused(&p, r);
    open_pair(&p, 3);
}

/* The state in ATTACH is what bothyd read in GREETING: one of another moment is not taken. */
static void a_secret_is_taken_once(void **state)
{
    (void)state;
    struct spl_attach a = {.h.type = SPS_ATTACH, .version = SPL_VERSION, .state = SPL_FRESH};
    uint8_t secret[SPL_SECRET] = {0};
    bool owned = true;
    spl_end init = {0};
    room r;

    spl_begin_init(&init, SECRET, 1, true, r.b);
    assert_int_equal(spl_admit(&init, &a, secret, &owned), EALREADY);
    a.state = SPL_OWNED;
    owned = false;
    assert_int_equal(spl_admit(&init, &a, secret, &owned), ENOKEY);
    assert_false(owned);
    a.version = SPL_VERSION + 1;
    assert_int_equal(spl_admit(&init, &a, secret, &owned), EPROTONOSUPPORT);
    a.version = SPL_VERSION_MIN - 1;
    assert_int_equal(spl_admit(&init, &a, secret, &owned), EPROTONOSUPPORT);
    assert_false(owned);
}

static void a_proof_of_another_connection_is_refused(void **state)
{
    (void)state;
    pair p = {0};
    spl_end other;
    uint8_t nonce[SPL_NONCE];
    room greeting, attach;

    open_pair(&p, 1);
    nonce_of(nonce, 9);
    spl_begin_link(&p.link, nonce);
    size_t n = spl_begin_init(&p.init, nonce, 77, true, greeting.b);
    must_read(&p.link, greeting.b, n);
    n = spl_attach(&p.link, SECRET, attach.b);
    nonce_of(nonce, 10); /* who heard the proof connects himself */
    spl_begin_init(&other, nonce, 77, true, greeting.b);
    sps_message m = must_read(&other, attach.b, n);
    assert_int_equal(spl_admit(&other, m.record, p.secret, &p.owned), EACCES);
    m = must_read(&p.init, attach.b, n);
    assert_int_equal(spl_admit(&p.init, m.record, p.secret, &p.owned), 0);
}

static void greetings_are_checked(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        const char *why;
    } rows[] = {
        {0, 80, "a message is larger than this end takes"},
        {0, 8, "a message is larger than this end takes"},
        {4, 1, "a message is larger than this end takes"},
        {8, 1, "no greeting of init"},
        {12, 1, "no greeting of init"},
        {16, 1, "no greeting of init"},
        {24, SPL_VERSION + 1, "init speaks another version of the link"},
        {24, 0, "init speaks another version of the link"},
        {28, 0, "the state in init's greeting is unknown"},
        {28, 3, "the state in init's greeting is unknown"},
        {79, 1, "no greeting of init"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pair p = {0};
        room r;
        spl_begin_link(&p.link, SECRET);
        size_t n = spl_begin_init(&p.init, SECRET, 1, false, r.b);
        r.b[rows[i].at] = rows[i].value;
        must_end(&p.link, r.b, n, rows[i].why);
    }
}

/* ---- messages ---- */

typedef struct sample {
    struct sps_data d;
    size_t nextra;
} sample;

static const sample TO_INIT[] = {{{{SPS_RECEIVED, 0, 1}, 1, 65536, 99}, 0},
                                 {{{SPS_STDIN, 0, 1}, 0, 0, 5}, 13},
                                 {{{SPS_STDIN, 0, 1}, SPS_STDIN_EOF, 0, 18}, 0},
                                 {{{SPS_RESIZE, 0, 1}, 24, 80, 0}, 0},
                                 {{{SPS_PING, 0, 4}, 0, 0, 7}, 0}};
static const sample FROM_INIT[] = {{{{SPS_STDIO, 0, 1}, 1, 0, 0}, 64},
                                   {{{SPS_STDIO, 0, 1}, 2, 0, 8}, 1},
                                   {{{SPS_STDIO, 0, 1}, 2, 0, 9}, 0},
                                   {{{SPS_TAKEN, 0, 1}, 0, 4096, UINT64_MAX}, 0},
                                   {{{SPS_PONG, 0, 4}, 0, 0, 7}, 0}};
static const char BYTES[64] = "sixty-four bytes of output, which need not be text at all......";

static size_t put_sample(spl_end *e, const sample *s, void *out)
{
    return spl_put(e, out, &s->d, sizeof s->d, BYTES, s->nextra);
}

static void assert_sample(const sps_message *m, const sample *s, enum sps_side side)
{
    assert_int_equal(m->type, s->d.h.type);
    assert_int_equal(m->size, sizeof s->d);
    assert_memory_equal(m->record, &s->d, sizeof s->d);
    assert_int_equal(m->nextra, s->nextra);
    assert_memory_equal(m->extra, BYTES, s->nextra);
    assert_null(sps_check(m, side));
    assert_non_null(sps_check(m, side == SPS_REQUESTS ? SPS_ANSWERS : SPS_REQUESTS));
}

/* Every message in every split: nothing before its last byte, all of it then. */
static void messages_pass_in_every_split(void **state)
{
    (void)state;
    pair p = {0};
    sps_message m;
    const char *why;

    open_pair(&p, 1);
    for (size_t i = 0; i < 10; i++) {
        bool to_init = i < 5;
        const sample *s = to_init ? &TO_INIT[i] : &FROM_INIT[i - 5];
        spl_end *from = to_init ? &p.link : &p.init, *to = to_init ? &p.init : &p.link;
        room r;
        size_t n = put_sample(from, s, r.b);
        assert_int_equal(n, spl_size(sizeof s->d, s->nextra));
        for (size_t cut = 0; cut < n; cut++)
            assert_int_equal(spl_next(to, r.b, cut, &m, &why), 0);
        m = must_read(to, r.b, n);
        assert_sample(&m, s, to_init ? SPS_REQUESTS : SPS_ANSWERS);
    }
}

static void the_handshake_passes_in_every_split(void **state)
{
    (void)state;
    pair p = {0};
    sps_message m;
    const char *why;
    room r;

    spl_begin_link(&p.link, SECRET);
    size_t n = spl_begin_init(&p.init, SECRET, 1, false, r.b);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(spl_next(&p.link, r.b, cut, &m, &why), 0);
    must_read(&p.link, r.b, n);
    assert_int_equal(spl_next(&p.link, r.b, n, &m, &why), 0); /* the caller's turn */
    n = spl_attach(&p.link, SECRET, r.b);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(spl_next(&p.init, r.b, cut, &m, &why), 0);
    must_read(&p.init, r.b, n);
    n = spl_refuse(&p.init, EACCES, r.b);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(spl_next(&p.link, r.b, cut, &m, &why), 0);
    assert_int_equal(must_read(&p.link, r.b, n).type, SPS_REFUSED);
}

static void records_and_large_payloads_pass(void **state)
{
    (void)state;
    pair p = {0};
    size_t big = SP_PAYLOAD_MAX;
    struct sp_claim q = {.h.type = SP_CLAIM,
                         .flags = SP_F_MEMFD,
                         .payload = SP_PAYLOAD_MAX,
                         .envc = 1,
                         .umask = 022};
    CLEANUP(freep) char *extra = xcalloc(1, big), *out = xmalloc(SPL_REQUEST_MAX);

    open_pair(&p, 1);
    size_t n = spl_put(&p.link, out, &q, sizeof q, extra, big);
    assert_true(n <= SPL_REQUEST_MAX);
    assert_int_equal(spl_want(&p.init, out, 8), n);
    sps_message m = must_read(&p.init, out, n);
    assert_int_equal(m.nextra, big);
    assert_null(sps_check(&m, SPS_REQUESTS));
    uint32_t more = SP_PAYLOAD_MAX + 1;
    memcpy(out + 4, &more, sizeof more);
    assert_int_equal(spl_want(&p.init, out, 8), -1);
    more = SPS_CHUNK_MAX + 1; /* bothyd takes less */
    memcpy(out + 4, &more, sizeof more);
    assert_int_equal(spl_want(&p.link, out, 8), -1);
}

/* ---- who sits in between ---- */

static void every_flipped_bit_ends_the_connection(void **state)
{
    (void)state;
    pair fresh = {0};
    room good;

    open_pair(&fresh, 1);
    size_t n = put_sample(&fresh.init, &FROM_INIT[1], good.b);
    for (size_t bit = 0; bit < n * 8; bit++) {
        spl_end link = fresh.link;
        room r = good;
        sps_message m;
        const char *why;
        r.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        long got = spl_next(&link, r.b, n, &m, &why);
        assert_true(got <= 0); /* 0: it says it is longer; a wrong seal when that comes */
        assert_true(bit < 64 || got == -1);
    }
    must_read(&fresh.link, good.b, n);
}

static void replays_and_gaps_end_the_connection(void **state)
{
    (void)state;
    pair p = {0}, q;
    room a, b;

    open_pair(&p, 1);
    size_t n = put_sample(&p.init, &FROM_INIT[0], a.b);
    size_t m = put_sample(&p.init, &FROM_INIT[1], b.b);
    q = p;
    must_end(&q.link, b.b, m, "the seal is wrong"); /* the first one is missing */
    q = p;
    must_read(&q.link, a.b, n);
    must_end(&q.link, a.b, n, "the seal is wrong"); /* again */
    must_read(&p.link, a.b, n);
    must_read(&p.link, b.b, m);
}

static void a_message_goes_one_way_and_in_one_connection(void **state)
{
    (void)state;
    pair p = {0};
    room r;

    open_pair(&p, 1);
    p.link.out.count = p.init.out.count = p.link.in.count = p.init.in.count = 5;
    spl_end old = p.link;
    size_t n = put_sample(&p.link, &TO_INIT[4], r.b);
    must_end(&old, r.b, n, "the seal is wrong"); /* reflected */
    open_pair(&p, 2);
    p.init.in.count = 5;
    must_end(&p.init, r.b, n, "the seal is wrong"); /* of the connection before */
}

static void only_hello_comes_first(void **state)
{
    (void)state;
    pair p = {0};
    room r;

    assert_int_equal(shake(&p, 1, SECRET), 0);
    size_t n = put_sample(&p.init, &FROM_INIT[4], r.b);
    must_end(&p.link, r.b, n, "init does not begin with HELLO");
    assert_int_equal(shake(&p, 2, SECRET), 0);
    n = make_hello(&p.init, r.b);
    r.b[n - 1] ^= 1;
    must_end(&p.link, r.b, n, "the seal is wrong");
    /* REFUSED is not believed once the connection is proved */
    open_pair(&p, 3);
    n = spl_refuse(&p.init, EACCES, r.b);
    memset(r.b + n, 0, 8);
    must_end(&p.link, r.b, n + 8, "the seal is wrong");
}

static void padding_is_zero(void **state)
{
    (void)state;
    pair p = {0};
    room r;

    open_pair(&p, 1);
    struct sps_data d = FROM_INIT[1].d;
    char *extra = spl_put_begin(r.b, &d, sizeof d, 1);
    extra[0] = 'x';
    extra[7] = 1;
    size_t n = spl_put_end(&p.init, r.b);
    must_end(&p.link, r.b, n, "the padding is not zero");
}

/* ---- windows ---- */

static void windows_keep_order_and_credit(void **state)
{
    (void)state;
    spl_window w = {0};

    spl_window_grant(&w, 0, 10);
    assert_int_equal(spl_window_take(&w, 1, 1), SPL_TAKE_ORDER);
    assert_int_equal(spl_window_take(&w, 0, 11), SPL_TAKE_OVER);
    assert_int_equal(spl_window_take(&w, 0, 10), SPL_TAKE_OK);
    assert_int_equal(spl_window_take(&w, 9, 1), SPL_TAKE_ORDER);
    assert_int_equal(spl_window_take(&w, 10, 1), SPL_TAKE_OVER);
    assert_int_equal(spl_window_take(&w, 10, 0), SPL_TAKE_OK); /* an end needs no credit */
    spl_window_grant(&w, 4, 5);                                /* never back */
    assert_int_equal(w.limit, 10);
    spl_window_grant(&w, 10, 5);
    assert_int_equal(spl_window_take(&w, 10, 5), SPL_TAKE_OK);
    spl_window_grant(&w, UINT64_MAX - 1, 5);
    assert_int_equal(w.limit, UINT64_MAX);
    w = (spl_window){.next = 8, .limit = 4};
    assert_int_equal(spl_window_take(&w, 8, 1), SPL_TAKE_OVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_the_published_ones),
        cmocka_unit_test(siphash_is_the_published_one),
        cmocka_unit_test(digests_agree_with_openssl),
        cmocka_unit_test(first_attach_owns_and_later_ones_prove),
        cmocka_unit_test(wrong_proofs_are_refused),
        cmocka_unit_test(a_secret_is_taken_once),
        cmocka_unit_test(a_proof_of_another_connection_is_refused),
        cmocka_unit_test(greetings_are_checked),
        cmocka_unit_test(messages_pass_in_every_split),
        cmocka_unit_test(the_handshake_passes_in_every_split),
        cmocka_unit_test(records_and_large_payloads_pass),
        cmocka_unit_test(every_flipped_bit_ends_the_connection),
        cmocka_unit_test(replays_and_gaps_end_the_connection),
        cmocka_unit_test(a_message_goes_one_way_and_in_one_connection),
        cmocka_unit_test(only_hello_comes_first),
        cmocka_unit_test(padding_is_zero),
        cmocka_unit_test(windows_keep_order_and_credit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
