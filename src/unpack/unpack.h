/* Types that the parts of bothy-unpack share. A run unpacks one layer, without threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum unpack_format {
    FORMAT_PLAIN,
    FORMAT_GZIP,
    FORMAT_ZSTD
};

/* Ceilings for one layer. The defaults are above every real layer seen (reference figures in the
 * README). The caller limits the time. */
typedef struct unpack_limits {
    uint64_t entries;
    uint64_t bytes;       /* uncompressed tar */
    uint64_t file;        /* logical size of one file: holes count */
    uint64_t ratio;       /* uncompressed : compressed, once ratio_floor is out */
    uint64_t ratio_floor; /* bytes */
    uint64_t names;       /* bytes of remembered directory names */
    uint64_t xattr;       /* bytes of one value */
    unsigned depth;
} unpack_limits;

#define UNPACK_LIMITS_DEFAULT                                                                     \
    {                                                                                             \
        .entries = 300000, .bytes = UINT64_C(32) << 30, .file = UINT64_C(32) << 30, .ratio = 200, \
        .ratio_floor = UINT64_C(256) << 20, .names = UINT64_C(256) << 20,                         \
        .xattr = UINT64_C(64) << 10, .depth = 128                                                 \
    }

/* Makes an error that is the layer's fault: the program ends with UNPACK_REFUSED. */
#define refuse(...) err_new(ERR_IMAGE_UNSUPPORTED, __VA_ARGS__)
