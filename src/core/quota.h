/* The limits that a key sets for its owner: number of sandboxes, rate and concurrency of creates,
 * time to live and more. Plain values; the engine counts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct quota {      /* 0: no limit */
    uint32_t sandboxes;     /* live sandboxes of the owner */
    uint32_t creates_milli; /* creates per second, in thousandths */
    uint32_t creating;      /* creates in progress at once that used this API key */
    uint64_t ttl_ms;
    uint64_t memory;         /* sum of the limits of the owner's live sandboxes, bytes */
    uint32_t cpu_milli;      /* sum of the same sandboxes' cpu limits, thousandths of a core */
    uint64_t snapshot_bytes; /* of the owner's snapshots together */
} quota;
/* Sets members that are 0 from `otherwise`. */
void quota_fill(quota *q, const quota *otherwise);

/* The rate limit of one key's creates. Zero-initialised it is full: a burst of one second's
 * creates, at least one, may come at once. */
typedef struct quota_bucket {
    uint64_t at_ns;      /* time of the last take; 0: never */
    uint64_t spent_nano; /* used up, in billionths of a create */
} quota_bucket;
/* Takes one create and returns true, or returns false and how long to wait for one. milli 0: no
 * limit. */
bool quota_take(quota_bucket *b, uint32_t milli, uint64_t now_ns, uint64_t *ret_wait_ns);
