/* The pool planner: when slots are made, how many at a time, how urgently, and how long somebody
 * who finds none will wait. Arithmetic only: the caller brings the levels, the time and what
 * happened, and does what the plan says.
 *
 * Rules, strongest first:
 *   never more slots and sandboxes than `max`;
 *   after a failed refill a pause that doubles up to POOL_BACKOFF_MAX_NS, then one attempt;
 *   a claim that waits for a slot (not for admission) is reason enough for one, at once;
 *   below `low` the pool is filled up to `high`;
 *   a refill that nobody waits for holds back POOL_HOLD_NS after each claim, so that a burst on a
 *   full pool has the processors for itself; but not longer than POOL_HOLD_MAX_NS in a row, so that
 *   an endless stream of claims does not keep the pool from being refilled. */
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
    uint64_t refill_ns;         /* what making one takes; moving average, 0: not known yet */
    uint64_t gap_ns[POOL_GAPS]; /* between the last departures of sandboxes, a ring */
    uint32_t ngaps;             /* ever */
    uint64_t left_at_ns;        /* the last departure, or the start */
    bool left;                  /* there has been one */
    uint64_t claimed_at_ns;     /* the last claim; 0: none yet */
    uint64_t held_at_ns;        /* since when refills hold back; 0: they do not */
    uint64_t failed_at_ns;
    uint64_t not_before_ns;
    uint32_t failures; /* in a row */
    bool filling;
} pool;

typedef struct pool_level { /* of this moment */
    uint32_t ready, making, claimed;
    uint32_t waiting;
    bool blocked; /* what waits is held up by admission: slots would not help it */
} pool_level;

enum pool_why {
    POOL_FULL,    /* nothing to do */
    POOL_MAX,     /* as many as there may be */
    POOL_BUSY,    /* enough workers are at it */
    POOL_HOLDING, /* claims go first */
    POOL_FAILING, /* the last refill failed */
    POOL_START,
    POOL_NO_ROOM,   /* it failed: the disk is full */
    POOL_READ_ONLY, /* it failed: the disk cannot be written */
    POOL_WHYS
};

typedef struct pool_plan {
    uint32_t start;    /* refills to begin now */
    bool hurry;        /* somebody waits, or less than half of low is ready: not at low priority */
    uint64_t again_ns; /* ask again then, if nothing happens before; 0: no need */
    enum pool_why why;
} pool_plan;

void pool_init(pool *p, uint32_t low, uint32_t high, uint32_t max, uint64_t now);
pool_plan pool_decide(pool *p, const pool_level *l, uint64_t now);
const char *pool_why_text(enum pool_why why); /* for people */

/* What happened. */
void pool_claimed(pool *p, uint64_t now);
void pool_left(pool *p, uint64_t now); /* a sandbox made room */
void pool_made(pool *p, uint64_t took_ns);
void pool_failed(pool *p, uint64_t began_ns, uint64_t now);

/* How long a claim with so many before it will wait; 0: not at all. */
uint64_t pool_wait_ns(const pool *p, const pool_level *l, uint32_t before, uint64_t now);
/* The same in whole seconds, 1 to POOL_RETRY_MAX_S: what Retry-After says. */
unsigned pool_retry_after(const pool *p, const pool_level *l, uint32_t before, uint64_t now);
