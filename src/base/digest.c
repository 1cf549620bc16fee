#include "base/digest.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <unistd.h>

void sha256(const void *p, size_t n, unsigned char ret_digest[SHA256_LEN])
{
    if (!EVP_Digest(p, n, ret_digest, NULL, EVP_sha256(), NULL))
        abort();
}

void sha1(const void *p, size_t n, unsigned char ret_digest[SHA1_LEN])
{
    if (!EVP_Digest(p, n, ret_digest, NULL, EVP_sha1(), NULL))
        abort();
}

void hmac_sha256(const void *key, size_t nkey, const void *p, size_t n,
                 unsigned char ret_mac[SHA256_LEN])
{
    if (!HMAC(EVP_sha256(), key, (int)nkey, p, n, ret_mac, NULL))
        abort();
}

bool bytes_equal_ct(const void *a, const void *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}
