/* SHA-256, and SHA-1 for protocols that require it, through OpenSSL. Separate library
 * (base_crypto). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define SHA256_LEN 32
#define SHA1_LEN   20

void sha256(const void *p, size_t n, unsigned char ret_digest[SHA256_LEN]);
/* Computes SHA-1, which protects nothing: only for handshakes that name it. */
void sha1(const void *p, size_t n, unsigned char ret_digest[SHA1_LEN]);
void hmac_sha256(const void *key, size_t nkey, const void *p, size_t n,
                 unsigned char ret_mac[SHA256_LEN]);
bool bytes_equal_ct(const void *a, const void *b, size_t n); /* constant time */
