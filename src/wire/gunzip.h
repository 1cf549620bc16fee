/* Decompresses a body sent with Content-Encoding: gzip. libarchive does the work; it needs a few
 * windows of 32 KiB, whatever the ratio. Only one layer is removed: a body that was compressed
 * twice comes out compressed once. */
#pragma once

#include <stddef.h>

#include "base/err.h"

typedef struct gunzip gunzip;
/* Reads the next bytes of the body; *ret_n is 0 at its end. */
typedef err *gunzip_source(void *arg, void *p, size_t max, size_t *ret_n);
gunzip *gunzip_new(gunzip_source *read, void *arg);
/* Reads decompressed bytes; *ret_n is 0 at the end. ERR_INVALID_REQUEST: not gzip, or damaged; or
 * the source's error. */
err *gunzip_read(gunzip *g, void *p, size_t max, size_t *ret_n) ERR_MUST;
void gunzip_free(gunzip *g);
static inline void gunzip_freep(gunzip **g)
{
    gunzip_free(*g);
}
