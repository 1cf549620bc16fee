/* Spools by themselves: what a reader may see. */
#include "exec/spool.h"

#include "drive.h"

static bool mark(void *arg, int stream, uint64_t from, uint64_t to)
{
    (void)arg;
    (void)stream;
    (void)from;
    (void)to;
    return true;
}

/* Between a splice and the count of it the file is longer than the stream is known to be. Who read
 * that far would ask next from beyond the length, and be refused. */
static void a_reader_stops_at_the_known_length(void **state)
{
    world w;
    spool_set set;
    spool s;
    char got[64];
    size_t n = 0;
    uint64_t gap = 0;

    (void)state;
    world_init(&w);
    assert_int_equal(mkdirat(w.spool, SANDBOX, 0700), 0);
    assert_ok(spool_set_init(&set, w.spool, 64 << 20));
    spool_init(&s, &set, SANDBOX, 1, 1, mark, NULL);
    assert_int_equal(spool_write(&s, 0, "known", 5, &n), SPOOL_EMPTY);
    int fd = openat(w.spool, s.path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "ahead", 5), 5);
    close(fd);
    assert_ok(spool_read(&s, 2, got, sizeof got, &n, &gap));
    assert_int_equal(n, 3);
    assert_memory_equal(got, "own", 3);
    assert_ok(spool_read(&s, 5, got, sizeof got, &n, &gap));
    assert_int_equal(n, 0);
    spool_done(&s);
    spool_set_done(&set);
    world_done(&w);
}

static enum spool_status fill(spool *s, uint64_t upto)
{
    static const char bytes[1 << 16];
    enum spool_status st = SPOOL_EMPTY;
    size_t n;

    while (st == SPOOL_EMPTY && atomic_load(&s->length) < upto)
        st = spool_write(s, atomic_load(&s->length), bytes, sizeof bytes, &n);
    return st;
}

static void nothing_goes_that_a_follower_has_still_to_read(void **state)
{
    world w;
    spool_set set;
    spool s;
    spool_hold slow, fast;

    (void)state;
    world_init(&w);
    assert_int_equal(mkdirat(w.spool, SANDBOX, 0700), 0);
    assert_ok(spool_set_init(&set, w.spool, 8 << 20));
    spool_init(&s, &set, SANDBOX, 1, 1, mark, NULL);
    spool_hold_add(&s, &slow, 0);
    spool_hold_add(&s, &fast, 0);
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    assert_int_equal(atomic_load(&s.length), 8 << 20);
    /* An eighth goes at a time, behind the first MiB: two MiB must have been read by everybody. */
    assert_false(spool_hold_move(&s, &fast, 1 << 20));
    assert_true(spool_hold_move(&s, &fast, 8 << 20));
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    assert_true(spool_hold_move(&s, &slow, 2 << 20));
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    assert_int_equal(atomic_load(&s.length), 9 << 20);
    assert_int_equal(spool_dropped(&s, 0, UINT64_MAX), 1 << 20);
    /* Who leaves holds nothing, and who stands still for too long does not either. */
    assert_true(spool_hold_remove(&s, &slow));
    assert_int_equal(fill(&s, 12 << 20), SPOOL_EMPTY);
    set.patience_ns = 1;
    assert_int_equal(fill(&s, 40 << 20), SPOOL_EMPTY);
    assert_false(spool_hold_remove(&s, &fast));
    spool_done(&s);
    spool_set_done(&set);
    world_done(&w);
}

static uint64_t held_still;

static uint64_t still(void)
{
    return held_still;
}

static void who_comes_again_and_again_and_reads_nothing_holds_nothing_for_ever(void **state)
{
    world w;
    spool_set set;
    spool s;
    spool_hold h;

    (void)state;
    world_init(&w);
    assert_int_equal(mkdirat(w.spool, SANDBOX, 0700), 0);
    assert_ok(spool_set_init(&set, w.spool, 8 << 20));
    set.now = still;
    set.patience_ns = 60 * NS_PER_S;
    held_still = NS_PER_S;
    spool_init(&s, &set, SANDBOX, 1, 1, mark, NULL);
    spool_hold_add(&s, &h, 0);
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    held_still += 59 * NS_PER_S;
    assert_true(spool_hold_remove(&s, &h));
    spool_hold_add(&s, &h, 0);
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    /* Who reads is waited for anew. */
    assert_false(spool_hold_move(&s, &h, 1));
    held_still += 59 * NS_PER_S;
    assert_true(spool_hold_remove(&s, &h));
    spool_hold_add(&s, &h, 0);
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    held_still += NS_PER_S;
    assert_int_equal(fill(&s, 20 << 20), SPOOL_EMPTY);
    assert_true(spool_dropped(&s, 0, UINT64_MAX) > 0);
    spool_hold_remove(&s, &h);
    spool_done(&s);
    spool_set_done(&set);
    world_done(&w);
}

static struct {
    spool *s;
    spool_hold *h;
    uint64_t now, step;
} racer;

/* A clock whose reader is overtaken by a follower wherever the lock lets one pass. */
static uint64_t overtaken_now(void)
{
    uint64_t now = ++racer.now;

    if (racer.h && !pthread_mutex_trylock(&racer.s->lock)) {
        pthread_mutex_unlock(&racer.s->lock);
        spool_hold *h = racer.h;
        racer.h = NULL;
        spool_hold_move(racer.s, h, h->at + racer.step);
    }
    return now;
}

/* A wait that ends before it began would be counted as one of 500 years, and nobody be waited for.
 */
static void who_moves_while_the_writer_looks_is_waited_for(void **state)
{
    world w;
    spool_set set;
    spool s;
    spool_hold h;

    (void)state;
    world_init(&w);
    assert_int_equal(mkdirat(w.spool, SANDBOX, 0700), 0);
    assert_ok(spool_set_init(&set, w.spool, 8 << 20));
    set.now = overtaken_now;
    spool_init(&s, &set, SANDBOX, 1, 1, mark, NULL);
    spool_hold_add(&s, &h, 0);
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    racer.s = &s;
    racer.h = &h;
    racer.step = 4096;
    assert_int_equal(fill(&s, 20 << 20), SPOOL_HELD);
    assert_int_equal(spool_dropped(&s, 0, UINT64_MAX), 0);
    racer.h = NULL;
    spool_hold_remove(&s, &h);
    spool_done(&s);
    spool_set_done(&set);
    world_done(&w);
}

/* A session's next command lets go of what came before, but not of what somebody still reads. */
static void a_new_base_takes_nothing_that_a_follower_has_still_to_read(void **state)
{
    world w;
    spool_set set;
    spool s;
    spool_hold h;

    (void)state;
    world_init(&w);
    assert_int_equal(mkdirat(w.spool, SANDBOX, 0700), 0);
    assert_ok(spool_set_init(&set, w.spool, 8 << 20));
    spool_init(&s, &set, SANDBOX, 1, 1, mark, NULL);
    assert_int_equal(fill(&s, 8 << 20), SPOOL_EMPTY);
    spool_hold_add(&s, &h, 3 << 20);
    spool_set_base(&s, 8 << 20);
    assert_int_equal(fill(&s, 16 << 20), SPOOL_EMPTY);
    spool_set_base(&s, 16 << 20);
    assert_int_equal(spool_dropped(&s, 0, UINT64_MAX), 3 << 20);
    spool_hold_remove(&s, &h);
    assert_int_equal(fill(&s, 17 << 20), SPOOL_EMPTY);
    spool_set_base(&s, 17 << 20);
    assert_int_equal(spool_dropped(&s, 0, UINT64_MAX), 9 << 20);
    spool_done(&s);
    spool_set_done(&set);
    world_done(&w);
}

/* A ceiling that counts from too early (a session's, before it is there) drops nothing unwritten.
 */
static void nothing_goes_that_is_still_to_be_written(void **state)
{
    world w;
    spool_set set;
    spool s;

    (void)state;
    world_init(&w);
    assert_int_equal(mkdirat(w.spool, SANDBOX, 0700), 0);
    assert_ok(spool_set_init(&set, w.spool, 8 << 20));
    spool_init(&s, &set, SANDBOX, 1, 1, mark, NULL);
    assert_int_equal(fill(&s, 8 << 20), SPOOL_EMPTY);
    spool_set_base(&s, 8 << 20);
    assert_int_equal(fill(&s, 18 << 20), SPOOL_EMPTY);
    s.base = 0;
    assert_int_equal(fill(&s, 40 << 20), SPOOL_HELD);
    uint64_t length = atomic_load(&s.length);
    assert_int_equal(spool_dropped(&s, length, UINT64_MAX), 0);
    spool_done(&s);
    spool_set_done(&set);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_reader_stops_at_the_known_length),
        WORLD_TEST(nothing_goes_that_a_follower_has_still_to_read),
        WORLD_TEST(who_comes_again_and_again_and_reads_nothing_holds_nothing_for_ever),
        WORLD_TEST(who_moves_while_the_writer_looks_is_waited_for),
        WORLD_TEST(a_new_base_takes_nothing_that_a_follower_has_still_to_read),
        WORLD_TEST(nothing_goes_that_is_still_to_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
