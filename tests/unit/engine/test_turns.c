/* Turns by owner, with a thread for each that waits. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/turns.h"

#include "../unit.h"

#define MAX 8

static struct {
    turns t;
    pthread_mutex_t lock;
    char order[MAX + 1]; /* the owners' first letters, as their turns came */
    size_t n;
    pthread_t thread[MAX];
    size_t nthreads;
} all;

static int setup(void **state)
{
    (void)state;
    memset(&all, 0, sizeof all);
    pthread_mutex_init(&all.lock, NULL);
    turns_init(&all.t, 1, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    turns_done(&all.t);
    return 0;
}

static uint64_t soon(uint64_t ms)
{
    return now_mono_ns() + ms * NS_PER_MS;
}

static void *comes(void *owner)
{
    if (!turns_take(&all.t, owner, soon(20000)))
        return NULL;
    pthread_mutex_lock(&all.lock);
    all.order[all.n++] = *(const char *)owner;
    pthread_mutex_unlock(&all.lock);
    turns_give(&all.t, owner);
    return NULL;
}

static unsigned waiting(void)
{
    unsigned n = 0;

    pthread_mutex_lock(&all.t.lock);
    for (const void *const *i = (const void *const *)all.t.waiting; i; i = *i)
        n++;
    pthread_mutex_unlock(&all.t.lock);
    return n;
}

/* One thread each, which waits before the next one comes. */
static void come(const char *const *owners, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(
            pthread_create(&all.thread[all.nthreads++], NULL, comes, (void *)owners[i]), 0);
        for (int k = 0; waiting() < all.nthreads && k < 5000; k++)
            usleep(1000);
        assert_int_equal(waiting(), all.nthreads);
    }
}

static void join(void)
{
    for (size_t i = 0; i < all.nthreads; i++)
        pthread_join(all.thread[i], NULL);
}

static void owners_take_turns(void **state)
{
    static const char *const OWNERS[] = {"ann", "ann", "ann", "ann", "ben", "cid", "ben"};

    (void)state;
    assert_true(turns_take(&all.t, "ann", soon(1)));
    come(OWNERS, ARRAY_LEN(OWNERS));
    turns_give(&all.t, "ann");
    join();
    assert_string_equal(all.order, "abcabaa");
}

static void who_waits_in_vain_goes_and_holds_up_nobody(void **state)
{
    (void)state;
    assert_true(turns_take(&all.t, "ann", soon(1)));
    assert_false(turns_take(&all.t, "ben", soon(5)));
    assert_int_equal(waiting(), 0);
    turns_give(&all.t, "ann");
    assert_true(turns_take(&all.t, "ben", soon(1)));
    turns_give(&all.t, "ben");
}

static void nobody_waits_for_what_is_closed(void **state)
{
    static const char *const OWNERS[] = {"ann", "ben"};

    (void)state;
    assert_true(turns_take(&all.t, "ann", soon(1)));
    come(OWNERS, ARRAY_LEN(OWNERS));
    turns_close(&all.t);
    join();
    turns_give(&all.t, "ann");
    assert_false(turns_take(&all.t, "ann", soon(1)));
    assert_string_equal(all.order, "");
}

/* Where an owner may have fewer places than there are, another one does not wait at all. */
static void an_owner_leaves_places_to_others(void **state)
{
    (void)state;
    turns_done(&all.t);
    turns_init(&all.t, 3, 2);
    assert_true(turns_take(&all.t, "ann", soon(1)));
    assert_true(turns_take(&all.t, "ann", soon(1)));
    assert_false(turns_take(&all.t, "ann", soon(5)));
    come((const char *const[]){"ann"}, 1); /* the first in the line, and not in the way */
    assert_true(turns_take(&all.t, "ben", soon(1000)));
    turns_give(&all.t, "ben");
    assert_string_equal(all.order, "");
    turns_give(&all.t, "ann");
    join();
    assert_string_equal(all.order, "a");
    turns_give(&all.t, "ann");
    assert_null(all.t.holders);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(owners_take_turns),
        CASE(who_waits_in_vain_goes_and_holds_up_nobody),
        CASE(nobody_waits_for_what_is_closed),
        CASE(an_owner_leaves_places_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
