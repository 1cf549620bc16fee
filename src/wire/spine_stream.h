/* The stream form of the spine: the same records over a byte stream, with the bytes of stdio among
 * them, because a stream carries no descriptors. No I/O, no state; any thread.
 *
 * A message is an 8-byte head {size of the record, extra bytes}, the record, the extra bytes; both
 * padded with zeros to a multiple of 8, so that records in an aligned buffer are aligned. Extra
 * bytes hold what a packet would pass in a memfd (SPAWN, CLAIM with SP_F_MEMFD), or a piece of a
 * stream.
 *
 * Host byte order: version 1 runs between processes of one machine. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/spine_data.h"

enum sps_side {
    SPS_REQUESTS, /* what init reads */
    SPS_ANSWERS,  /* what init writes */
};

/* Reads the first message of p[0..n). Returns its length with padding, 0 if more bytes are needed,
 * or -1 if it is no valid message of that side: the connection is lost then, and *ret_why says
 * why. */
long sps_next(const void *p, size_t n, enum sps_side side, sps_message *ret_message,
              const char **ret_why);
/* Checks a message that came another way (spine_link.h). Returns NULL if its record and extra bytes
 * are valid for that side, else what is wrong. */
const char *sps_check(const sps_message *m, enum sps_side side);
void sps_put(buf *out, const void *record, size_t size, const void *extra, size_t nextra);
