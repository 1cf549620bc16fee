/* What fuzz targets share: a property that must hold, and inputs cut into parts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

__attribute__((noreturn)) static inline void fuzz_broken(const char *what, const char *file, int at)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, at, what);
    abort();
}
#define MUST(what)                                  \
    do {                                            \
        if (!(what))                                \
            fuzz_broken(#what, __FILE__, __LINE__); \
    } while (0)

/* What is left of an input, taken from its front. Behind its end are zeros and nothing. */
typedef struct fuzz_in {
    const uint8_t *p;
    size_t n;
} fuzz_in;

static inline uint8_t fuzz_byte(fuzz_in *in)
{
    if (!in->n)
        return 0;
    in->n--;
    return *in->p++;
}

static inline uint64_t fuzz_number(fuzz_in *in, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)fuzz_byte(in) << 8 * i;
    return v;
}

/* At most n bytes. Exactly as long as it says: a read behind it is a read behind an allocation. */
static inline void *fuzz_bytes(fuzz_in *in, size_t n, size_t *ret_n)
{
    size_t have = n < in->n ? n : in->n;
    void *p = xmalloc(have);

    if (have)
        memcpy(p, in->p, have);
    in->p += have;
    in->n -= have;
    *ret_n = have;
    return p;
}

/* Up to the byte `end`, which goes, or the end of the input. A NUL in it ends it for its readers,
 * as it does for everybody who reads text. */
static inline char *fuzz_word(fuzz_in *in, uint8_t end)
{
    const uint8_t *stop = in->n ? memchr(in->p, end, in->n) : NULL;
    size_t n = stop ? (size_t)(stop - in->p) : in->n;
    char *text = xstrndup((const char *)(in->n ? in->p : (const uint8_t *)""), n);

    in->p += n + (stop != NULL);
    in->n -= n + (stop != NULL);
    return text;
}

/* What a terminal may be given: lines of UTF-8 without a control character, C1 among them. */
static inline void fuzz_harmless(const char *p, size_t n)
{
    MUST(utf8_valid(p, n));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i], next = i + 1 < n ? (unsigned char)p[i + 1] : 0;
        MUST(c >= 0x20 || c == '\n');
        MUST(c != 0x7f);
        MUST(!(c == 0xc2 && next < 0xa0));
    }
}
