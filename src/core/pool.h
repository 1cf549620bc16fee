/* The pool planner: decides when slots are made, how many at a time and how urgently, and estimates
 * how long a claim waits if no slot is ready. Arithmetic only: the caller supplies levels, time and
 * events, and carries out the plan.
 *
 * Rules, strongest first:
 *   never more slots and sandboxes than `max`;
 *   after a failed refill a pause that doubles up to POOL_BACKOFF_MAX_NS, then one attempt;
 *   a claim that waits for a slot (not for admission) starts a refill at once;
 *   below `low` the pool is filled up to `high`;
 *   a refill that no claim waits for is held back POOL_HOLD_NS after each claim, so that a burst on
 *   a full pool has the processors for itself; but not longer than POOL_HOLD_MAX_NS in a row, so
 *   that an endless stream of claims does not keep the pool from being refilled. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define POOL_WORKERS        2u
#define POOL_HOLD_NS        UINT64_C(30000000)    /* 30 ms */
#define POOL_HOLD_MAX_NS    UINT64_C(300000000)   /* 300 ms */
#define POOL_BACKOFF_NS     UINT64_C(250000000)   /* after the first failure */
#define POOL_BACKOFF_MAX_NS UINT64_C(30000000000) /* 30 s */
#define POOL_RETRY_MAX_S    3600u
#define POOL_GAPS           8u

typedef struct pool {
    uint32_t low, high; /* watermarks of slots that are ready or being made; low <= high */
    uint32_t max;       /* slots and sandboxes together */
    /* learned */
    uint64_t refill_ns;         /* time to make one; moving average, 0: not known yet */
    uint64_t gap_ns[POOL_GAPS]; /* ring of times between the last departures of sandboxes */
    uint32_t ngaps;             /* gaps measured in all */
    uint64_t left_at_ns;        /* the last departure, or the start */
    bool left;                  /* there has been a departure */
    uint64_t claimed_at_ns;     /* the last claim; 0: none yet */
    uint64_t held_at_ns;        /* start of holding refills back; 0: not held */
    uint64_t failed_at_ns;
    uint64_t not_before_ns;
    uint32_t failures; /* in a row */
    bool filling;
} pool;

typedef struct pool_level { /* at this moment */
    uint32_t ready, making, claimed;
    uint32_t waiting;
    bool blocked; /* admission holds the waiting claims up: more slots would not help */
} pool_level;

enum pool_why {
    POOL_FULL,    /* nothing to do */
    POOL_MAX,     /* as many as allowed */
    POOL_BUSY,    /* enough refills are running */
    POOL_HOLDING, /* held back in favour of claims */
    POOL_FAILING, /* the last refill failed */
    POOL_START,
    POOL_NO_ROOM,   /* the last refill failed: the disk is full */
    POOL_READ_ONLY, /* the last refill failed: the disk cannot be written */
    POOL_WHYS
};

typedef struct pool_plan {
    uint32_t start;    /* refills to start now */
    bool hurry;        /* a claim waits, or less than half of low is ready: not at low priority */
    uint64_t again_ns; /* plan again at this time, if no event comes before; 0: no need */
    enum pool_why why;
} pool_plan;

void pool_init(pool *p, uint32_t low, uint32_t high, uint32_t max, uint64_t now);
pool_plan pool_decide(pool *p, const pool_level *l, uint64_t now);
const char *pool_why_text(enum pool_why why); /* for people */

/* Events that the caller reports. */
void pool_claimed(pool *p, uint64_t now);
void pool_left(pool *p, uint64_t now); /* a sandbox made room */
void pool_made(pool *p, uint64_t took_ns);
void pool_failed(pool *p, uint64_t began_ns, uint64_t now);

/* Returns how long a claim with `before` others ahead of it will wait; 0: not at all. */
uint64_t pool_wait_ns(const pool *p, const pool_level *l, uint32_t before, uint64_t now);
/* Returns the same in whole seconds, 1 to POOL_RETRY_MAX_S, for Retry-After. */
unsigned pool_retry_after(const pool *p, const pool_level *l, uint32_t before, uint64_t now);
