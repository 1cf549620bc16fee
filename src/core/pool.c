#include "core/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define UNKNOWN_REFILL_NS NS_PER_S

static uint32_t pool_minus(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static uint32_t pool_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint64_t pool_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t pool_since(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

static void pool_average(uint64_t *of, uint64_t sample)
{
    *of = *of ? (*of * 7 + sample) / 8 : sample;
}

void pool_init(pool *p, uint32_t low, uint32_t high, uint32_t max, uint64_t now)
{
    *p = (pool){.low = low, .high = high, .max = max, .left_at_ns = now};
}

/* ---- what happened ---- */

void pool_claimed(pool *p, uint64_t now)
{
    p->claimed_at_ns = now;
}

void pool_left(pool *p, uint64_t now)
{
    if (p->left)
        p->gap_ns[p->ngaps++ % POOL_GAPS] = pool_since(p->left_at_ns, now);
    p->left = true;
    p->left_at_ns = now;
}

void pool_made(pool *p, uint64_t took_ns)
{
    pool_average(&p->refill_ns, took_ns);
    p->failures = 0;
    p->not_before_ns = 0;
}

void pool_failed(pool *p, uint64_t began_ns, uint64_t now)
{
    /* Refills that were running when another failed share its reason: count one failure. */
    if (!p->failures || began_ns >= p->failed_at_ns) {
        uint64_t pause = POOL_BACKOFF_NS;
        for (uint32_t i = 0; i < p->failures && pause < POOL_BACKOFF_MAX_NS; i++)
            pause *= 2;
        p->failures++;
        p->failed_at_ns = now;
        p->not_before_ns = now + (pause < POOL_BACKOFF_MAX_NS ? pause : POOL_BACKOFF_MAX_NS);
    }
}

/* ---- the plan ---- */

/* Returns how many slots, ready or being made, there should be. coming: how many there are;
 * demand: how many claims wait for one. */
static uint32_t pool_target(pool *p, uint32_t coming, uint32_t demand)
{
    if (coming < p->low)
        p->filling = true;
    if (coming >= p->high)
        p->filling = false;
    return p->filling && p->high > demand ? p->high : demand;
}

/* Returns until when a refill that no claim waits for leaves the processors to claims; 0: no need
 * to. */
static uint64_t hold_until(pool *p, uint64_t now)
{
    if (!p->claimed_at_ns || pool_since(p->claimed_at_ns, now) >= POOL_HOLD_NS) {
        p->held_at_ns = 0;
        return 0;
    }
    if (!p->held_at_ns)
        p->held_at_ns = now;
    if (pool_since(p->held_at_ns, now) >= POOL_HOLD_MAX_NS)
        return 0;
    uint64_t quiet = p->claimed_at_ns + POOL_HOLD_NS, bound = p->held_at_ns + POOL_HOLD_MAX_NS;
    return quiet < bound ? quiet : bound;
}

static uint32_t pool_workers(const pool *p, const pool_level *l, bool urgent)
{
    if (p->failures)
        return 1; /* a single attempt shows whether refills work again */
    return urgent || l->ready < p->low ? POOL_WORKERS : 1;
}

pool_plan pool_decide(pool *p, const pool_level *l, uint64_t now)
{
    uint32_t coming = l->ready + l->making;
    uint32_t demand = l->blocked ? 0 : l->waiting;
    uint32_t wanted = pool_minus(pool_target(p, coming, demand), coming);
    uint32_t room = pool_minus(p->max, l->claimed + coming);
    bool urgent = demand > l->ready;

    if (!wanted || !room) {
        p->held_at_ns = 0;
        return (pool_plan){.why = wanted ? POOL_MAX : POOL_FULL};
    }
    if (now < p->not_before_ns)
        return (pool_plan){.again_ns = p->not_before_ns, .why = POOL_FAILING};
    uint64_t hold = urgent ? 0 : hold_until(p, now);
    if (hold)
        return (pool_plan){.again_ns = hold, .why = POOL_HOLDING};
    uint32_t start =
        pool_least(pool_least(wanted, room), pool_minus(pool_workers(p, l, urgent), l->making));
    return (pool_plan){.start = start,
                       .hurry = start && ((demand && !l->ready) || l->ready < p->low - p->low / 2),
                       .why = start ? POOL_START : POOL_BUSY};
}

const char *pool_why_text(enum pool_why why)
{
    static const char *const TEXTS[POOL_WHYS] = {
        [POOL_FULL] = "the pool is as full as it should be",
        [POOL_MAX] = "there are as many slots and sandboxes as there may be",
        [POOL_BUSY] = "slots are being made",
        [POOL_HOLDING] = "claims go first",
        [POOL_FAILING] = "the last refill failed; it is tried again after a pause",
        [POOL_START] = "slots are being made",
        [POOL_NO_ROOM] = "the disk of the slots is full; it is tried again after a pause",
        [POOL_READ_ONLY] = "the disk of the slots is read-only; it is tried again after a pause",
    };

    return TEXTS[why < POOL_WHYS ? why : POOL_FULL];
}

/* ---- how long ---- */

/* Returns the time until n more slots are made. */
static uint64_t slots_ns(const pool *p, const pool_level *l, uint32_t n, uint64_t now)
{
    uint64_t each = p->refill_ns ? p->refill_ns : UNKNOWN_REFILL_NS;

    if (!n)
        return 0;
    uint64_t begun = l->making ? each / 2 : 0; /* running refills are half done on average */
    uint64_t work = each * ((n + POOL_WORKERS - 1) / POOL_WORKERS);
    return pool_since(now, p->not_before_ns) + pool_most(work - begun, each / 2);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Returns the median gap: an idle hour before a busy minute must not distort the estimate. */
static uint64_t usual_gap(const pool *p)
{
    uint64_t gap[POOL_GAPS];
    size_t n = pool_least(p->ngaps, POOL_GAPS);

    if (!n)
        return 0;
    memcpy(gap, p->gap_ns, n * sizeof *gap);
    qsort(gap, n, sizeof *gap, by_size);
    return gap[n / 2];
}

/* Returns the time until n sandboxes have left. If no sandbox left for long, that is expected to go
 * on: the first departure takes at least as long as the time since the last one. */
static uint64_t departures_ns(const pool *p, uint32_t n, uint64_t now)
{
    uint64_t ago = pool_since(p->left_at_ns, now);
    uint64_t usual = usual_gap(p), each = usual ? usual : ago;

    return n ? pool_most(each, ago) + each * (n - 1) : 0;
}

uint64_t pool_wait_ns(const pool *p, const pool_level *l, uint32_t before, uint64_t now)
{
    uint32_t mine = before + 1;
    uint32_t room = l->blocked ? 0 : pool_minus(p->max, l->claimed);
    uint64_t slot = slots_ns(p, l, pool_minus(mine, l->ready), now);

    return pool_most(slot, departures_ns(p, pool_minus(mine, room), now));
}

unsigned pool_retry_after(const pool *p, const pool_level *l, uint32_t before, uint64_t now)
{
    uint64_t s = (pool_wait_ns(p, l, before, now) + NS_PER_S - 1) / NS_PER_S;

    return s < 1 ? 1 : s > POOL_RETRY_MAX_S ? POOL_RETRY_MAX_S : (unsigned)s;
}
