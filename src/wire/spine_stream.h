/* The stream form of the spine: the same records over a byte stream, and the bytes of stdio among
 * them, because a stream carries no descriptors. No I/O, no state; any thread.
 *
 * A message is an 8-byte head {size of the record, extra bytes}, the record, the extra bytes; both
 * padded with zeros to a multiple of 8, so that records in an aligned buffer are aligned. Extra
 * bytes are what would lie in a memfd (SPAWN, CLAIM with SP_F_MEMFD), or a piece of a stream.
 *
 * Host byte order: version 1 runs between processes of one machine. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/spine.h"

#define SPS_CHUNK_MAX (64u * 1024)

enum sps_type {
    /* to init */
    SPS_RECEIVED = 32, /* stream, offset: bytes below it are safe */
    SPS_STDIN = 33,    /* offset, extra bytes; SPS_STDIN_EOF after them */
    SPS_RESIZE = 34,   /* a: rows, b: columns */
    /* from init */
    SPS_STDIO = 96, /* stream, offset, extra bytes; none: the stream has ended there */
    SPS_TAKEN = 97, /* offset: stdin below it was written; UINT64_MAX: nobody reads it */
    /* 128 and above: a backend's own, not looked into here */
    SPS_PRIVATE = 128,
};

struct sps_data { /* the types of this header: 32 bytes */
    struct sp_hdr h;
    uint32_t a; /* RECEIVED, STDIO: stream (1 out, 2 err); STDIN: SPS_STDIN_EOF or 0 */
    uint32_t b;
    uint64_t offset;
};
#define SPS_STDIN_EOF 1u

enum sps_side {
    SPS_REQUESTS, /* what init reads */
    SPS_ANSWERS,  /* what init writes */
};

typedef struct sps_message {
    const void *record; /* in the buffer, 8-byte aligned if that is */
    size_t size;
    const void *extra;
    size_t nextra;
    uint32_t type;
} sps_message;

/* Reads the first message of p[0..n). Returns its length with padding, 0 if more bytes are needed,
 * -1 if this is no message of that side (the connection is lost then; *ret_why says why). */
long sps_next(const void *p, size_t n, enum sps_side side, sps_message *ret_message,
              const char **ret_why);
void sps_put(buf *out, const void *record, size_t size, const void *extra, size_t nextra);
