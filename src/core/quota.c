#include "core/quota.h"

#define ONE UINT64_C(1000000000) /* one create, in the bucket's unit */

void quota_fill(quota *q, const quota *otherwise)
{
    q->sandboxes = q->sandboxes ? q->sandboxes : otherwise->sandboxes;
    q->creates_milli = q->creates_milli ? q->creates_milli : otherwise->creates_milli;
    q->creating = q->creating ? q->creating : otherwise->creating;
    q->ttl_ms = q->ttl_ms ? q->ttl_ms : otherwise->ttl_ms;
    q->memory = q->memory ? q->memory : otherwise->memory;
    q->cpu_milli = q->cpu_milli ? q->cpu_milli : otherwise->cpu_milli;
    q->snapshot_bytes = q->snapshot_bytes ? q->snapshot_bytes : otherwise->snapshot_bytes;
}

/* Returns how much the bucket regains in this time, without overflow. */
static uint64_t quota_earned(uint32_t milli, uint64_t ns)
{
    uint64_t us = ns / 1000;

    return us > UINT64_MAX / milli ? UINT64_MAX : us * milli; /* 1e6 us * 1000 milli = ONE */
}

bool quota_take(quota_bucket *b, uint32_t milli, uint64_t now_ns, uint64_t *ret_wait_ns)
{
    if (!milli)
        return true;
    uint64_t size = milli > 1000 ? (uint64_t)milli * (ONE / 1000) : ONE;
    uint64_t back = b->at_ns && now_ns > b->at_ns ? quota_earned(milli, now_ns - b->at_ns) : 0;

    b->spent_nano = b->spent_nano > back ? b->spent_nano - back : 0;
    b->at_ns = now_ns;
    if (b->spent_nano + ONE <= size) {
        b->spent_nano += ONE;
        return true;
    }
    uint64_t missing = b->spent_nano + ONE - size;
    *ret_wait_ns = (missing / milli + 1) * 1000;
    return false;
}
