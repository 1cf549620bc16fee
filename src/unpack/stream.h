/* The bytes of a layer on their way: blob -> decompressor -> pipe -> hash -> tar reader.
 *
 * The decompressor is a process of its own without any capability. Its output is trusted only as
 * far as the diff id, which the writer computes over the bytes that arrived. */
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
    bool ended; /* the end was reached */
} stream;

/* Prepares SHA-256. OpenSSL opens files for that: call it before the root is changed. */
err *stream_init(stream *s, uint64_t max) ERR_MUST;
/* Opens the tar reader on s->fd. */
err *stream_open_tar(stream *s, struct archive **ret_tar) ERR_MUST;
/* Reads the rest of the stream: the diff id also covers what follows the tar's end marker. */
err *stream_drain(stream *s) ERR_MUST;
void stream_diff_id(stream *s, unsigned char ret_digest[32]);
void stream_done(stream *s);

/* Decompresses in to out: the decompressor's whole work. Exactly one stage, the one the format
 * names. */
err *stream_decompress(int in, int out, enum unpack_format format,
                       const unpack_limits *lim) ERR_MUST;
