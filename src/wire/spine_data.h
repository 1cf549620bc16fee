/* The messages of the stream form that carry bytes of stdio, and the form of a message in memory.
 * No libc: init includes it too. Framing: spine_stream.h (between trusted processes of one
 * machine), spine_link.h (through a container engine, sealed). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire/spine.h"

#define SPS_CHUNK_MAX (64u * 1024)

enum sps_type {
    /* to init */
    SPS_RECEIVED = 32, /* stream, offset: bytes below it are stored; b: how many more may be sent */
    SPS_STDIN = 33,    /* offset, extra bytes; SPS_STDIN_EOF after them */
    SPS_RESIZE = 34,   /* a: rows, b: columns */
    SPS_PING = 35,     /* answered by PONG with the same id and offset */
    SPS_ATTACH = 36,   /* spine_link.h */
    /* from init */
    SPS_STDIO = 96, /* stream, offset, extra bytes; without any: the stream has ended there */
    SPS_TAKEN = 97, /* offset: stdin below it was written; UINT64_MAX: stdin has no reader; b:
                     * how many bytes from there on may be sent */
    SPS_PONG = 98,
    SPS_GREETING = 99, /* spine_link.h */
    SPS_REFUSED = 100, /* spine_link.h */
    /* 128 and above: private to a backend, not interpreted here */
    SPS_PRIVATE = 128,
};

/* RECEIVED, STDIN, RESIZE, PING, STDIO, TAKEN, PONG: 32 bytes. b is a window in the protocol of
 * spine_link.h, and 0 elsewhere. */
struct sps_data {
    struct sp_hdr h;
    uint32_t a; /* RECEIVED, STDIO: stream (1 out, 2 err); STDIN: SPS_STDIN_EOF or 0; PONG:
                 * out-of-memory kills in the container's cgroup, 0 if that is not visible */
    uint32_t b;
    uint64_t offset;
};
#define SPS_STDIN_EOF 1u
#define SPS_SANDBOX   16u /* HELLO's extra bytes, if there are any: CLAIM.sandbox */

typedef struct sps_message {
    const void *record; /* in the buffer; 8-byte aligned if the buffer is */
    size_t size;
    const void *extra;
    size_t nextra;
    uint32_t type;
} sps_message;

_Static_assert(sizeof(struct sps_data) == 32, "layout");
