/* The rate at which a pool is claimed, for autoscaling. Pure; the caller
 * passes times of one monotonic clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define DEMAND_BUCKETS   60
#define DEMAND_BUCKET_NS UINT64_C(5000000000) /* 60 of them are five minutes */

typedef struct demand {
    uint32_t count[DEMAND_BUCKETS]; /* a ring by time */
    uint64_t bucket;                /* the newest, in buckets since time 0 */
    uint64_t began_ns;              /* the first claim or question; 0: none */
    uint64_t last_ns;               /* the last claim; 0: none yet */
    uint64_t refill_ms;             /* moving average from a pod's create to warm; 0: unknown */
} demand;

void demand_claimed(demand *d, uint64_t now);
void demand_refilled(demand *d, uint64_t took_ms);
/* Returns claims in a thousand seconds: the 95th percentile of the last five minutes, or of the
 * time since the start if that is shorter. */
uint64_t demand_rate(demand *d, uint64_t now);
