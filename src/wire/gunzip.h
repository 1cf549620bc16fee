/* A body that was compressed (Content-Encoding: gzip), read as what it was. The decompressor is
 * libarchive's; its memory is a few windows of 32 KiB, however much comes out of how little. One
 * layer: what was compressed twice comes out compressed. */
#pragma once

#include <stddef.h>

#include "base/err.h"

typedef struct gunzip gunzip;
/* read: the next bytes of the body; *ret_n is 0 at its end. */
typedef err *gunzip_source(void *arg, void *p, size_t max, size_t *ret_n);
gunzip *gunzip_new(gunzip_source *read, void *arg);
/* *ret_n is 0 at the end. ERR_INVALID_REQUEST: it is no gzip, or damaged; else as the source says.
 */
err *gunzip_read(gunzip *g, void *p, size_t max, size_t *ret_n) ERR_MUST;
void gunzip_free(gunzip *g);
static inline void gunzip_freep(gunzip **g)
{
    gunzip_free(*g);
}
