/* Tracks how much of a stream its peer has: the bytes written, less those its kernel has
 * not acknowledged. A job notes after each step which offsets its output has reached. Pure:
 * the caller passes the counts in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct follow_ack {
    uint64_t wire; /* bytes of output up to here */
    uint64_t at[2];
} follow_ack;
typedef struct follow_acks {
    uint64_t reader;  /* from exec_reader_new() */
    uint64_t wire;    /* bytes of output so far */
    uint64_t look_ns; /* interval to the next check */
    follow_ack *list; /* not acknowledged yet, in order */
    size_t n, cap;
} follow_acks;

/* Notes that a step wrote `bytes`, after which the output reaches the offsets `at`. */
void follow_acks_note(follow_acks *a, size_t bytes, const uint64_t at[2]);
/* Returns true if the peer has more than at the last call, and sets ret_at to what it has.
 * `unacked`: the written bytes that its kernel has not acknowledged. */
bool follow_acks_take(follow_acks *a, uint64_t unacked, uint64_t ret_at[2]);
void follow_acks_done(follow_acks *a);
