/* SHA-256, HMAC-SHA-256 and SipHash-2-4 for programs without libc, as the spine uses them. No I/O,
 * no memory. bothyd's end uses the same code, so that both ends agree; everything else in bothyd
 * uses base/digest.h (OpenSSL).
 *
 * SipHash is a MAC of 64 bits. That suffices because a wrong one ends the connection: a forger has
 * one try per connection. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEAL_DIGEST 32

struct seal_sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    uint8_t block[64];
};
void seal_sha256_init(struct seal_sha256 *s);
void seal_sha256_add(struct seal_sha256 *s, const void *p, size_t n);
void seal_sha256_end(struct seal_sha256 *s, uint8_t ret[SEAL_DIGEST]); /* wipes s */

/* A piece of the input of seal_hmac(), which covers all pieces in order; one may be empty. */
struct seal_piece {
    const void *p;
    size_t n;
};
void seal_hmac(const void *key, size_t nkey, const struct seal_piece *pieces, size_t npieces,
               uint8_t ret[SEAL_DIGEST]);

/* SipHash-2-4 with the 16-byte key as two little-endian words. */
uint64_t seal_siphash(const uint64_t key[2], const void *p, size_t n);
/* Computes SipHash-2-4 over a word and then p[0..n), n a multiple of 8. */
uint64_t seal_siphash_counted(const uint64_t key[2], uint64_t count, const void *p, size_t n);

bool seal_equal(const void *a, const void *b, size_t n); /* in constant time */
void seal_wipe(void *p, size_t n);
