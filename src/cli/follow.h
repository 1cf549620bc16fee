/* Follows a command: writes its output as it comes, each byte once and in order, then gets its end
 * record.
 *
 * After a lost connection it continues at the last offsets (Last-Event-ID). Bytes that come twice
 * are dropped. A hole that the daemon did not report as a gap counts as a lost connection. If the
 * daemon does not come back in time the end is unknown, and that is an error, never a success. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "net/client.h"

/* Target of one stream: a descriptor, or memory (fd < 0), at most keep_max bytes. */
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
    const char *at;    /* path of the resource that has the output, instead of a sandbox's exec */
    const char *until; /* "end", "eof", "no" */
    bool exact;        /* the end counts only after all bytes before it have come */
    follow_sink sink[2];
    json_t *end; /* the end record, NULL if there is none (until "no") */
} follow;

void follow_done(follow *f);
/* Runs until the end record; until "no": until the output that exists now was written. */
err *follow_run(follow *f) ERR_MUST;

/* Returns how long to wait for a lost daemon: $BOTHY_PATIENCE seconds, 60 if it is not set. */
uint64_t follow_patience_ns(void);
void follow_pause_ms(unsigned ms);
/* Prints once on stderr that a lost daemon is waited for until the deadline. Does nothing in the
 * first second after the loss: a restart takes less. Both times are monotonic. */
void follow_tell_waiting(uint64_t lost, uint64_t deadline, bool *told);
