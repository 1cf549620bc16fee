/* Following a command: its output as it comes, each byte once and in order, then its end record.
 *
 * A stream that is cut is taken up again from the last offsets (Last-Event-ID). Bytes that come
 * twice are left out; a hole that the daemon has not told as a gap is a cut too. If the daemon does
 * not come back in time the end is unknown, and that is an error, never a success. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "net/client.h"

/* Where one stream goes: to a descriptor, or into memory (fd < 0), at most keep bytes of it. */
typedef struct follow_sink {
    int fd;
    buf kept;
    size_t keep_max;
    uint64_t offset;  /* of the next byte */
    uint64_t dropped; /* bytes the daemon did not keep */
} follow_sink;

typedef struct follow {
    client *client;
    const char *sandbox, *exec;
    const char *at;    /* instead of these: the path of what has the output */
    const char *until; /* "end", "eof", "no" */
    bool exact;        /* the end counts only when all bytes up to it are here */
    follow_sink sink[2];
    json_t *end; /* the end record, NULL if there is none (until "no") */
} follow;

void follow_done(follow *f);
/* Runs until the end record, or, until "no", until what is there now has been told. */
err *follow_run(follow *f) ERR_MUST;

/* How long a lost daemon is waited for: $BOTHY_PATIENCE seconds, 60 if it is not set. */
uint64_t follow_patience_ns(void);
void follow_pause_ms(unsigned ms);
