/* What a key allows its owner: how many sandboxes, how fast, how many at a time, for how long.
 * Plain values; the engine counts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct quota {      /* 0: no limit */
    uint32_t sandboxes;     /* that live, of the owner */
    uint32_t creates_milli; /* thousandths of a create, a second */
    uint32_t creating;      /* creates under way at once, with the key */
    uint64_t ttl_ms;
    uint64_t memory;         /* sum of the limits of the owner's live sandboxes, bytes */
    uint32_t cpu_milli;      /* likewise, thousandths of a core */
    uint64_t snapshot_bytes; /* of the owner's snapshots together */
} quota;
/* What is not set comes from `otherwise`. */
void quota_fill(quota *q, const quota *otherwise);

/* Creates of one key over time. Zero-initialised it is full: a burst of one second's creates, at
 * least one, may come at once. */
typedef struct quota_bucket {
    uint64_t at_ns;      /* when it was last looked at; 0: never */
    uint64_t spent_nano; /* thousandths of a millionth of a create */
} quota_bucket;
/* Takes one, or says after how long there is one. milli 0 always takes. */
bool quota_take(quota_bucket *b, uint32_t milli, uint64_t now_ns, uint64_t *ret_wait_ns);
