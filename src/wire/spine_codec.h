/* Building and checking spine records (spine.h). No I/O, no state; any thread.
 *
 * To init:    spine_encode_*() make a record. A payload that does not fit a record is given apart:
 *             the transport puts it into a sealed memfd and attaches that first.
 * From init:  spine_check_answer() before anything of a record is believed. Init lives inside the
 *             tenant's trust domain.
 * The other way round (a node that plays init over a byte stream, tests): spine_decode_*(). */
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
void spine_out_done(spine_out *o); /* wipes: a claim holds secrets */

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
/* ERR_TOO_LARGE when the payload is beyond SP_PAYLOAD_MAX; ERR_INVALID_REQUEST without argv. */
err *spine_encode_spawn(const spine_spawn *s, spine_out *ret_out) ERR_MUST;

typedef struct spine_claim {
    const char *user, *cwd;
    char *const *env;
    uint32_t umask;
    uint32_t grants;     /* SP_GRANT_* */
    uint32_t sandbox[4]; /* stream form; 0 elsewhere: an init of the last release refuses others */
} spine_claim;
err *spine_encode_claim(const spine_claim *c, spine_out *ret_out) ERR_MUST;

struct sp_op spine_fetch(uint64_t id);
struct sp_op spine_signal(uint64_t id, uint32_t signo, uint32_t scope, uint32_t pid,
                          uint64_t since);
struct sp_op spine_close(uint64_t id, uint32_t mask);
struct sp_op spine_ack(uint64_t id, uint32_t mask);

/* NULL if p[0..n) with nfds descriptors is a record init may send: its length, ranges, counts,
 * states and ids are right and it names as many descriptors as it brought. Otherwise what is wrong,
 * for the log. p is 8-byte aligned. Whether the record is an answer to what was asked is the
 * caller's to compare. */
const char *spine_check_answer(const void *p, size_t n, size_t nfds);
/* It is the greeting of an init that is newer than we are. */
bool spine_hello_is_newer(const void *p, size_t n);
/* The records of a checked HELLO; they lie in it. */
const struct sp_rec *spine_hello_recs(const struct sp_hello *h);

/* A request as a receiver reads it: NULL or what is wrong. nfds as attached. */
const char *spine_check_request(const void *p, size_t n, size_t nfds);
/* payload: behind the record (SP_F_MEMFD not set) or the memfd's bytes. The strings stay in it; the
 * vectors are malloc'ed, one block each. ERR_INVALID_REQUEST. */
err *spine_decode_spawn(const struct sp_spawn *q, const void *payload, size_t n,
                        spine_spawn *ret_spawn) ERR_MUST;
void spine_spawn_done(spine_spawn *s); /* of a decoded one */
err *spine_decode_claim(const struct sp_claim *q, const void *payload, size_t n,
                        spine_claim *ret_claim) ERR_MUST;
void spine_claim_done(spine_claim *c);

/* "exec", "user" ...: the stage of a failed start, for messages. */
const char *spine_stage_name(uint32_t stage);
