#include "operator/demand.h"

#include <stdlib.h>
#include <string.h>

static void move_to(demand *d, uint64_t now)
{
    uint64_t bucket = now / DEMAND_BUCKET_NS;

    if (!d->began_ns) {
        d->began_ns = now;
        d->bucket = bucket;
    }
    for (unsigned i = 0; d->bucket < bucket && i < DEMAND_BUCKETS; i++)
        d->count[++d->bucket % DEMAND_BUCKETS] = 0;
    if (d->bucket < bucket)
        d->bucket = bucket; /* more than five minutes have passed: all are empty */
}

void demand_claimed(demand *d, uint64_t now)
{
    move_to(d, now);
    d->count[d->bucket % DEMAND_BUCKETS]++;
    d->last_ns = now;
}

void demand_refilled(demand *d, uint64_t took_ms)
{
    d->refill_ms = d->refill_ms ? (d->refill_ms * 7 + took_ms) / 8 : took_ms;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

uint64_t demand_rate(demand *d, uint64_t now)
{
    uint32_t sorted[DEMAND_BUCKETS];
    uint64_t n;

    move_to(d, now);
    n = d->bucket - d->began_ns / DEMAND_BUCKET_NS + 1;
    if (n > DEMAND_BUCKETS)
        n = DEMAND_BUCKETS;
    for (uint64_t i = 0; i < n; i++)
        sorted[i] = d->count[(d->bucket - i) % DEMAND_BUCKETS];
    qsort(sorted, n, sizeof *sorted, by_size);
    return (uint64_t)sorted[(n * 95 + 99) / 100 - 1] * 1000 * 1000000000 / DEMAND_BUCKET_NS;
}
