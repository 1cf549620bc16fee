/* Bytes of the layer: blob -> decompressor -> pipe -> hash -> tar reader.
 *
 * The decompressor is a process of its own without any capability; what it sends is only trusted as
 * far as the diff id, which the writer computes over what arrived. */
#pragma once

#include <archive.h>
#include <openssl/evp.h>

#include "unpack/unpack.h"

typedef struct stream {
    int fd;
    EVP_MD_CTX *md;
    char *block;
    uint64_t total;
    uint64_t max;
    bool ended; /* all of it was read */
} stream;

/* Opens what OpenSSL needs from the file system: call it before the root is changed. */
err *stream_init(stream *s, uint64_t max) ERR_MUST;
/* Lets the tar reader read from s->fd. */
err *stream_open_tar(stream *s, struct archive **ret_tar) ERR_MUST;
/* Reads on to the end: the diff id covers what follows the tar's end marker. */
err *stream_drain(stream *s) ERR_MUST;
void stream_diff_id(stream *s, unsigned char ret_digest[32]);
void stream_done(stream *s);

/* The decompressor's whole work: in -> out. Exactly one stage, the one the format names. */
err *stream_decompress(int in, int out, enum unpack_format format,
                       const unpack_limits *lim) ERR_MUST;
