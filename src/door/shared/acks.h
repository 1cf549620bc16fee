/* How far the peer of a stream has it: what was written, less what its kernel has not acknowledged.
 * A job notes after each step which offsets its output has come to. Pure, but for the caller's
 * counts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct follow_ack {
    uint64_t wire; /* bytes of output up to here */
    uint64_t at[2];
} follow_ack;
typedef struct follow_acks {
    uint64_t reader;  /* exec_reader_new's number */
    uint64_t wire;    /* bytes of output so far */
    uint64_t look_ns; /* how long until it is looked at again */
    follow_ack *list; /* not acknowledged yet, in order */
    size_t n, cap;
} follow_acks;

/* A step has written `bytes`, and what is sent comes to these offsets then. */
void follow_acks_note(follow_acks *a, size_t bytes, const uint64_t at[2]);
/* `unacked` bytes of all that was written are not with the peer. True: it has more than at the last
 * call; ret_at says what. */
bool follow_acks_take(follow_acks *a, uint64_t unacked, uint64_t ret_at[2]);
void follow_acks_done(follow_acks *a);
