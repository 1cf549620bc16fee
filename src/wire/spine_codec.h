/* Builds and checks spine records (spine.h). No I/O, no state; any thread.
 *
 * To init:    spine_encode_*() make a record. A payload that does not fit a record is returned
 *             separately: the transport puts it into a sealed memfd and attaches that first.
 * From init:  call spine_check_answer() before trusting any part of a record. Init lives inside the
 *             tenant's trust domain.
 * Reverse direction (a node that plays init over a byte stream, tests): spine_decode_*(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/spine.h"

typedef struct spine_out {
    buf record;  /* what is sent; begins with its sp_hdr */
    buf payload; /* not empty: goes into a memfd, SP_F_MEMFD is set */
} spine_out;
void spine_out_done(spine_out *o); /* wipes, because a claim holds secrets */

typedef struct spine_spawn {
    uint64_t id;
    uint32_t flags; /* SP_F_*, without SP_F_MEMFD */
    uint32_t umask; /* or SP_UMASK_CLAIM */
    uint16_t rows, cols;
    const struct sp_rlimit *rlimits;
    uint32_t nrlimits;
    const char *user, *cwd; /* NULL is "" */
    char *const *argv;      /* at least one */
    char *const *env;       /* may be NULL */
} spine_spawn;
/* Encodes a SPAWN. ERR_TOO_LARGE if the payload exceeds SP_PAYLOAD_MAX; ERR_INVALID_REQUEST without
 * argv. */
err *spine_encode_spawn(const spine_spawn *s, spine_out *ret_out) ERR_MUST;

typedef struct spine_claim {
    const char *user, *cwd;
    char *const *env;
    uint32_t umask;
    uint32_t grants; /* SP_GRANT_* */
    /* The sandbox's id, packed, if the spine is a byte stream (spine_stream.h). Otherwise 0,
     * because an init of the previous release refuses any other value. */
    uint32_t sandbox[4];
} spine_claim;
err *spine_encode_claim(const spine_claim *c, spine_out *ret_out) ERR_MUST;

struct sp_op spine_fetch(uint64_t id);
struct sp_op spine_signal(uint64_t id, uint32_t signo, uint32_t scope, uint32_t pid,
                          uint64_t since);
struct sp_op spine_close(uint64_t id, uint32_t mask);
struct sp_op spine_ack(uint64_t id, uint32_t mask);

/* Checks a record from init: length, ranges, counts, states and ids, and that it names as many
 * descriptors as it brought. Returns NULL if p[0..n) with nfds descriptors is valid, otherwise what
 * is wrong, for the log. p is 8-byte aligned. The caller checks that the record answers a request
 * of its own. */
const char *spine_check_answer(const void *p, size_t n, size_t nfds);
/* Returns true for the HELLO of an init that is newer than this program. */
bool spine_hello_is_newer(const void *p, size_t n);
/* Returns the records of a checked HELLO; they lie in it. */
const struct sp_rec *spine_hello_recs(const struct sp_hello *h);

/* Checks a request to init with nfds attached descriptors. Returns NULL or what is wrong. */
const char *spine_check_request(const void *p, size_t n, size_t nfds);
/* Decodes a SPAWN. payload: the bytes after the record (SP_F_MEMFD not set) or those of the memfd.
 * The strings stay in it; each vector is one malloc'ed block. ERR_INVALID_REQUEST. */
err *spine_decode_spawn(const struct sp_spawn *q, const void *payload, size_t n,
                        spine_spawn *ret_spawn) ERR_MUST;
void spine_spawn_done(spine_spawn *s); /* only after spine_decode_spawn() */
err *spine_decode_claim(const struct sp_claim *q, const void *payload, size_t n,
                        spine_claim *ret_claim) ERR_MUST;
void spine_claim_done(spine_claim *c);

/* Returns "exec", "user" ...: the stage of a failed start, for messages. */
const char *spine_stage_name(uint32_t stage);
