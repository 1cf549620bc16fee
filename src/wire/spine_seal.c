#include "wire/spine_seal.h"

/* ---- SHA-256 (FIPS 180-4) ---- */

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t spine_seal_rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void spine_seal_expand(const uint8_t *p, uint32_t w[64])
{
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (spine_seal_rotr(a, 7) ^ spine_seal_rotr(a, 18) ^ a >> 3) +
               (spine_seal_rotr(b, 17) ^ spine_seal_rotr(b, 19) ^ b >> 10);
    }
}

static void spine_seal_compress(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], s[8];

    spine_seal_expand(p, w);
    for (int i = 0; i < 8; i++)
        s[i] = h[i];
    for (int i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t t1 = s[7] +
                      (spine_seal_rotr(e, 6) ^ spine_seal_rotr(e, 11) ^ spine_seal_rotr(e, 25)) +
                      ((e & s[5]) ^ (~e & s[6])) + K[i] + w[i];
        uint32_t t2 = (spine_seal_rotr(a, 2) ^ spine_seal_rotr(a, 13) ^ spine_seal_rotr(a, 22)) +
                      ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        for (int j = 7; j > 0; j--)
            s[j] = s[j - 1];
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
    seal_wipe(w, sizeof w);
}

void seal_sha256_init(struct seal_sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    for (int i = 0; i < 8; i++)
        s->h[i] = start[i];
    s->n = 0;
}

void seal_sha256_add(struct seal_sha256 *s, const void *p, size_t n)
{
    const uint8_t *b = p;

    for (size_t i = 0; i < n; i++) {
        s->block[s->n++ % 64] = b[i];
        if (s->n % 64 == 0)
            spine_seal_compress(s->h, s->block);
    }
}

void seal_sha256_end(struct seal_sha256 *s, uint8_t ret[SEAL_DIGEST])
{
    uint64_t bits = s->n * 8;
    uint8_t length[8], one = 0x80, zero = 0;

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    seal_sha256_add(s, &one, 1);
    while (s->n % 64 != 56)
        seal_sha256_add(s, &zero, 1);
    seal_sha256_add(s, length, sizeof length);
    for (int i = 0; i < SEAL_DIGEST; i++)
        ret[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    seal_wipe(s, sizeof *s);
}

/* ---- HMAC (RFC 2104) ---- */

static void begin_padded(struct seal_sha256 *s, const uint8_t key[64], uint8_t with)
{
    uint8_t block[64];

    for (int i = 0; i < 64; i++)
        block[i] = key[i] ^ with;
    seal_sha256_init(s);
    seal_sha256_add(s, block, sizeof block);
    seal_wipe(block, sizeof block);
}

void seal_hmac(const void *key, size_t nkey, const struct seal_piece *pieces, size_t npieces,
               uint8_t ret[SEAL_DIGEST])
{
    struct seal_sha256 s;
    uint8_t block[64] = {0}, inner[SEAL_DIGEST];

    if (nkey > sizeof block) {
        seal_sha256_init(&s);
        seal_sha256_add(&s, key, nkey);
        seal_sha256_end(&s, block);
    } else {
        for (size_t i = 0; i < nkey; i++)
            block[i] = ((const uint8_t *)key)[i];
    }
    begin_padded(&s, block, 0x36);
    for (size_t i = 0; i < npieces; i++)
        seal_sha256_add(&s, pieces[i].p, pieces[i].n);
    seal_sha256_end(&s, inner);
    begin_padded(&s, block, 0x5c);
    seal_sha256_add(&s, inner, sizeof inner);
    seal_sha256_end(&s, ret);
    seal_wipe(block, sizeof block);
    seal_wipe(inner, sizeof inner);
}

/* ---- SipHash-2-4 ---- */

static uint64_t spine_seal_rotl64(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = spine_seal_rotl64(v[1], 13) ^ v[0];
    v[0] = spine_seal_rotl64(v[0], 32);
    v[2] += v[3];
    v[3] = spine_seal_rotl64(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = spine_seal_rotl64(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = spine_seal_rotl64(v[1], 17) ^ v[2];
    v[2] = spine_seal_rotl64(v[2], 32);
}

static void sip_begin(uint64_t v[4], const uint64_t key[2])
{
    v[0] = key[0] ^ 0x736f6d6570736575;
    v[1] = key[1] ^ 0x646f72616e646f6d;
    v[2] = key[0] ^ 0x6c7967656e657261;
    v[3] = key[1] ^ 0x7465646279746573;
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static uint64_t spine_seal_load(const uint8_t *p, size_t n)
{
    uint64_t word = 0;

    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)p[i] << 8 * i;
    return word;
}

static uint64_t sip_rest(uint64_t v[4], const uint8_t *p, size_t n, size_t length)
{
    for (; n >= 8; p += 8, n -= 8)
        sip_word(v, spine_seal_load(p, 8));
    sip_word(v, spine_seal_load(p, n) | (uint64_t)length << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t seal_siphash(const uint64_t key[2], const void *p, size_t n)
{
    uint64_t v[4];

    sip_begin(v, key);
    return sip_rest(v, p, n, n);
}

uint64_t seal_siphash_counted(const uint64_t key[2], uint64_t count, const void *p, size_t n)
{
    uint64_t v[4];

    sip_begin(v, key);
    sip_word(v, count);
    return sip_rest(v, p, n, n + sizeof count);
}

/* ---- */

bool seal_equal(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;
    uint8_t differ = 0;

    for (size_t i = 0; i < n; i++)
        differ |= x[i] ^ y[i];
    return !differ;
}

void seal_wipe(void *p, size_t n)
{
    volatile uint8_t *b = p;

    while (n--)
        *b++ = 0;
}
