#include <string.h>

#include "base/clock.h"
#include "core/pool.h"

#include "../unit.h"

#define MS(n) ((uint64_t)(n)*NS_PER_MS)
#define T0    MS(1000000)

/* ---- situations ---- */

static const struct situation {
    const char *name;
    uint32_t low, high, max;
    pool_level level;
    bool filling;
    uint64_t claim_ago_ms; /* 0: none yet */
    uint32_t failures;     /* the last one just now */
    uint32_t start;
    bool hurry;
    enum pool_why why;
} SITUATIONS[] = {
    {"an empty pool is filled by both workers",
     4,
     8,
     100,
     {0},
     .start = 2,
     .hurry = true,
     .why = POOL_START},
    {"one under way, one more",
     4,
     8,
     100,
     {.making = 1},
     .start = 1,
     .hurry = true,
     .why = POOL_START},
    {"half of low is ready: no hurry", 4, 8, 100, {.ready = 2}, .start = 2, .why = POOL_START},
    {"two under way are enough", 4, 8, 100, {.making = 2}, .why = POOL_BUSY},
    {"at low nothing begins", 4, 8, 100, {.ready = 4}, .why = POOL_FULL},
    {"what was begun goes on to high",
     4,
     8,
     100,
     {.ready = 5},
     true,
     .start = 1,
     .why = POOL_START},
    {"above low one worker does", 4, 8, 100, {.ready = 5, .making = 1}, true, .why = POOL_BUSY},
    {"at high it ends", 4, 8, 100, {.ready = 7, .making = 1}, true, .why = POOL_FULL},
    {"the last one is not made twice", 4, 4, 100, {.ready = 3, .making = 1}, .why = POOL_FULL},
    {"no pool, no slots", 0, 0, 100, {.claimed = 7}, .why = POOL_FULL},
    {"without a pool a claim still gets one",
     0,
     0,
     100,
     {.waiting = 1},
     .start = 1,
     .hurry = true,
     .why = POOL_START},
    {"as many as wait", 0, 0, 100, {.waiting = 9}, .start = 2, .hurry = true, .why = POOL_START},
    {"those that come count for those that wait",
     0,
     0,
     100,
     {.waiting = 2, .making = 2},
     .why = POOL_FULL},
    {"max counts all", 4, 8, 10, {.ready = 1, .claimed = 8, .making = 1}, .why = POOL_MAX},
    {"the last place",
     4,
     8,
     10,
     {.ready = 1, .claimed = 8},
     .start = 1,
     .hurry = true,
     .why = POOL_START},
    {"what waits for admission needs no slot",
     2,
     2,
     100,
     {.ready = 2, .waiting = 50, .blocked = true},
     .why = POOL_FULL},
    {"claims on a full pool go first",
     4,
     8,
     100,
     {.ready = 3, .claimed = 5},
     true,
     5,
     .why = POOL_HOLDING},
    {"and when they pause it is refilled",
     4,
     8,
     100,
     {.ready = 3, .claimed = 5},
     true,
     31,
     .start = 2,
     .why = POOL_START},
    {"who waits for more than is ready does not hold",
     4,
     8,
     100,
     {.ready = 3, .waiting = 5},
     true,
     5,
     .start = 2,
     .why = POOL_START},
    {"who waits for what is ready does",
     4,
     8,
     100,
     {.ready = 3, .waiting = 3},
     true,
     5,
     .why = POOL_HOLDING},
    {"after a failure nobody begins",
     4,
     8,
     100,
     {.waiting = 3},
     .failures = 1,
     .why = POOL_FAILING},
};

static void every_situation_has_its_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SITUATIONS); i++) {
        const struct situation *s = &SITUATIONS[i];
        pool p;
        pool_init(&p, s->low, s->high, s->max, T0 - MS(5000));
        p.filling = s->filling;
        if (s->claim_ago_ms)
            pool_claimed(&p, T0 - MS(s->claim_ago_ms));
        for (uint32_t f = 0; f < s->failures; f++)
            pool_failed(&p, T0, T0);
        pool_plan plan = pool_decide(&p, &s->level, T0);
        if (plan.start != s->start || plan.hurry != s->hurry || plan.why != s->why)
            fail_msg("%s: start %u hurry %d why %d", s->name, plan.start, plan.hurry, plan.why);
        bool waits = plan.why == POOL_HOLDING || plan.why == POOL_FAILING;
        if (waits != (plan.again_ns > T0))
            fail_msg("%s: again after %lld ns", s->name, (long long)(plan.again_ns - T0));
        assert_true(strlen(pool_why_text(plan.why)) > 0);
    }
}

static void pauses_double_up_to_a_ceiling(void **state)
{
    static const uint64_t PAUSES_MS[] = {250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    const pool_level empty = {0};
    uint64_t now = T0;
    pool p;

    (void)state;
    pool_init(&p, 4, 8, 100, now);
    for (size_t i = 0; i < ARRAY_LEN(PAUSES_MS); i++) {
        pool_failed(&p, now, now);
        pool_failed(&p, now - 1, now); /* the other worker's, begun before: the same failure */
        assert_int_equal(pool_decide(&p, &empty, now + MS(PAUSES_MS[i]) - 1).start, 0);
        now += MS(PAUSES_MS[i]);
        assert_int_equal(pool_decide(&p, &empty, now).start, 1); /* one tries, not two */
    }
    pool_made(&p, MS(30));
    assert_int_equal(pool_decide(&p, &empty, now).start, 2);
    pool_failed(&p, now, now);
    assert_int_equal(p.not_before_ns - now, MS(250));
}

static void failures_do_not_wrap(void **state)
{
    uint64_t now = T0;
    pool p;

    (void)state;
    pool_init(&p, 1, 1, 10, now);
    for (int i = 0; i < 100000; i++) {
        pool_failed(&p, now, now);
        assert_true(p.not_before_ns - now <= POOL_BACKOFF_MAX_NS);
        now = p.not_before_ns;
    }
}

/* ---- a small world ---- */

#define QUEUE 4096

typedef struct world {
    pool p;
    pool_level l;
    uint64_t now;
    uint64_t refill_ns;
    uint64_t done_at[POOL_WORKERS]; /* 0: idle */
    uint64_t arrived[QUEUE];        /* of those that wait, a ring */
    size_t head;
    uint32_t served;
    uint64_t worst_wait_ns;
    unsigned started_while_claims; /* refills begun less than POOL_HOLD_NS after a claim */
} world;

static void world_init(world *w, uint32_t low, uint32_t high, uint32_t max, uint64_t refill_ms)
{
    *w = (world){.now = T0, .refill_ns = MS(refill_ms)};
    pool_init(&w->p, low, high, max, w->now);
}

static void arrive(world *w)
{
    assert_true(w->l.waiting < QUEUE);
    w->arrived[(w->head + w->l.waiting++) % QUEUE] = w->now;
}

static void leave(world *w)
{
    w->l.claimed--;
    pool_left(&w->p, w->now);
}

static void serve(world *w)
{
    while (w->l.waiting && w->l.ready && w->l.claimed < w->p.max) {
        uint64_t waited = w->now - w->arrived[w->head++ % QUEUE];
        w->worst_wait_ns = waited > w->worst_wait_ns ? waited : w->worst_wait_ns;
        w->l.waiting--, w->l.ready--, w->l.claimed++, w->served++;
        pool_claimed(&w->p, w->now);
    }
}

static void refill(world *w)
{
    for (size_t i = 0; i < POOL_WORKERS; i++)
        if (w->done_at[i] && w->now >= w->done_at[i]) {
            w->done_at[i] = 0;
            w->l.making--, w->l.ready++;
            pool_made(&w->p, w->refill_ns);
        }
    serve(w);
    w->l.blocked = w->l.waiting && w->l.claimed >= w->p.max;
    pool_plan plan = pool_decide(&w->p, &w->l, w->now);
    for (size_t i = 0; i < POOL_WORKERS && plan.start; i++)
        if (!w->done_at[i]) {
            w->done_at[i] = w->now + w->refill_ns;
            w->l.making++, plan.start--;
            w->started_while_claims +=
                w->p.claimed_at_ns && w->now - w->p.claimed_at_ns < POOL_HOLD_NS;
        }
    assert_int_equal(plan.start, 0); /* never more than there are workers */
    assert_true(w->l.claimed + w->l.ready + w->l.making <= w->p.max);
}

/* One millisecond. */
static void step(world *w)
{
    w->now += MS(1);
    refill(w);
}

static void steps(world *w, unsigned n)
{
    while (n--)
        step(w);
}

static void a_burst_on_a_full_pool_is_not_disturbed(void **state)
{
    world w;

    (void)state;
    world_init(&w, 32, 32, 1000, 30);
    steps(&w, 2000);
    assert_int_equal(w.l.ready, 32);
    for (int i = 0; i < 30; i++) { /* one a millisecond, as fast as a claim takes */
        arrive(&w);
        step(&w);
    }
    assert_int_equal(w.served, 30);
    assert_int_equal(w.worst_wait_ns, MS(1));
    assert_int_equal(w.started_while_claims, 0);
    assert_int_equal(w.l.making, 0);
    steps(&w, 1000);
    assert_int_equal(w.l.ready, 32);
}

static void a_stream_of_claims_does_not_starve_the_refill(void **state)
{
    world w;

    (void)state;
    world_init(&w, 32, 32, 100000, 20);
    steps(&w, 2000);
    for (int i = 0; i < 60000; i++) { /* one every 20 ms, for 20 minutes: never quiet for 30 */
        if (i % 20 == 0)
            arrive(&w);
        step(&w);
    }
    assert_int_equal(w.served, 3000);
    assert_true(w.worst_wait_ns <= MS(1)); /* two workers make 100 a second, 50 are taken */
    assert_true(w.l.ready >= 8);
}

static void a_large_burst_is_served_as_fast_as_slots_are_made(void **state)
{
    world w;

    (void)state;
    world_init(&w, 32, 32, 1000, 40);
    steps(&w, 3000);
    for (int i = 0; i < 200; i++)
        arrive(&w);
    steps(&w, 168 / 2 * 40 + 60);
    assert_int_equal(w.served, 200);
}

static void a_pool_without_claims_is_left_alone(void **state)
{
    world w;

    (void)state;
    world_init(&w, 4, 8, 1000, 40);
    steps(&w, 1000);
    assert_int_equal(w.l.ready, 8);
    for (int i = 0; i < 4; i++) {
        arrive(&w);
        steps(&w, 500);
        assert_int_equal(w.l.ready, 8 - (i + 1)); /* not before it is below low */
    }
    arrive(&w);
    steps(&w, 500);
    assert_int_equal(w.l.ready, 8);
}

/* ---- Retry-After ---- */

/* Tells a claim that comes now how long it takes, then sees how long it does. Within a factor of
 * two is what is promised; in this orderly world it must be better. */
static void promise(world *w, uint32_t waiting, uint64_t leave_every_ms, const char *name)
{
    for (uint32_t i = 0; i < waiting; i++)
        arrive(w);
    refill(w);
    unsigned told = pool_retry_after(&w->p, &w->l, w->l.waiting, w->now);
    uint64_t from = w->now, left = w->now;
    arrive(w);
    uint32_t until = w->served + w->l.waiting;
    for (unsigned i = 0; w->served < until; i++) {
        assert_true(i < 4000000);
        if (leave_every_ms && w->now - left >= MS(leave_every_ms)) {
            leave(w);
            left = w->now;
        }
        step(w);
    }
    double took = (double)(w->now - from) / NS_PER_S;
    if (told > took * 1.5 + 1 || told < took / 1.5)
        fail_msg("%s: told %u s, took %.3f s", name, told, took);
}

static void what_is_told_is_within_a_factor_of_two(void **state)
{
    static const uint32_t WAITING[] = {0, 1, 7, 100, 1000, 2000};
    static const uint64_t REFILL_MS[] = {10, 40, 300, 2500};
    world w;
    char name[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(WAITING); i++)
        for (size_t r = 0; r < ARRAY_LEN(REFILL_MS); r++) {
            snprintf(name, sizeof name, "%u wait, %u ms", WAITING[i], (unsigned)REFILL_MS[r]);
            world_init(&w, 8, 8, 100000, REFILL_MS[r]);
            steps(&w, 30000);
            for (int k = 0; k < 8; k++)
                arrive(&w);
            refill(&w);
            promise(&w, WAITING[i], 0, name);
        }
}

static void a_full_node_tells_when_somebody_leaves(void **state)
{
    static const uint64_t EVERY_MS[] = {100, 1000, 3600, 20000};
    static const uint32_t WAITING[] = {0, 3, 40};
    world w;
    char name[64];

    (void)state;
    for (size_t e = 0; e < ARRAY_LEN(EVERY_MS); e++)
        for (size_t i = 0; i < ARRAY_LEN(WAITING); i++) {
            snprintf(name, sizeof name, "%u wait, one leaves every %u ms", WAITING[i],
                     (unsigned)EVERY_MS[e]);
            world_init(&w, 4, 4, 50, 30);
            for (int k = 0; k < 50; k++)
                arrive(&w);
            steps(&w, 3000);
            assert_int_equal(w.l.claimed, 50);
            for (int k = 0; k < 40; k++) { /* it learns how often */
                steps(&w, (unsigned)EVERY_MS[e]);
                leave(&w);
                arrive(&w);
                steps(&w, 1);
            }
            steps(&w, 100);
            promise(&w, WAITING[i], EVERY_MS[e], name);
        }
}

static void a_silent_node_promises_nothing_soon(void **state)
{
    const pool_level full = {.claimed = 10, .waiting = 1, .blocked = true};
    pool p;

    (void)state;
    pool_init(&p, 2, 2, 10, T0);
    assert_int_equal(pool_retry_after(&p, &full, 1, T0), 1);
    assert_int_equal(pool_retry_after(&p, &full, 0, T0 + MS(40000)), 40);
    assert_int_equal(pool_retry_after(&p, &full, 4000, T0 + MS(40000)), POOL_RETRY_MAX_S);
}

static void an_idle_hour_says_nothing_about_a_busy_minute(void **state)
{
    const pool_level full = {.claimed = 10, .waiting = 1, .blocked = true};
    uint64_t now = T0 + MS(3600000);
    pool p;

    (void)state;
    pool_init(&p, 2, 2, 10, T0);
    pool_left(&p, T0 + MS(1000));
    for (int i = 0; i < 4; i++, now += MS(2000))
        pool_left(&p, now);
    assert_in_range(pool_retry_after(&p, &full, 9, now), 18, 22); /* ten times 2 s */
}

static void a_failing_refill_counts_its_pause(void **state)
{
    const pool_level l = {.waiting = 1};
    pool p;

    (void)state;
    pool_init(&p, 2, 2, 10, T0);
    pool_made(&p, MS(50));
    assert_int_equal(pool_retry_after(&p, &l, 1, T0), 1);
    for (int i = 0; i < 8; i++)
        pool_failed(&p, T0 + (uint64_t)i, T0 + (uint64_t)i);
    assert_in_range(pool_retry_after(&p, &l, 1, T0), 30, 31);
}

static void what_is_ready_takes_no_time(void **state)
{
    const pool_level l = {.ready = 3};
    pool p;

    (void)state;
    pool_init(&p, 2, 2, 10, T0);
    assert_int_equal(pool_wait_ns(&p, &l, 2, T0), 0);
    assert_true(pool_wait_ns(&p, &l, 3, T0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_situation_has_its_plan),
        cmocka_unit_test(pauses_double_up_to_a_ceiling),
        cmocka_unit_test(failures_do_not_wrap),
        cmocka_unit_test(a_burst_on_a_full_pool_is_not_disturbed),
        cmocka_unit_test(a_stream_of_claims_does_not_starve_the_refill),
        cmocka_unit_test(a_large_burst_is_served_as_fast_as_slots_are_made),
        cmocka_unit_test(a_pool_without_claims_is_left_alone),
        cmocka_unit_test(what_is_told_is_within_a_factor_of_two),
        cmocka_unit_test(a_full_node_tells_when_somebody_leaves),
        cmocka_unit_test(a_silent_node_promises_nothing_soon),
        cmocka_unit_test(an_idle_hour_says_nothing_about_a_busy_minute),
        cmocka_unit_test(a_failing_refill_counts_its_pause),
        cmocka_unit_test(what_is_ready_takes_no_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
