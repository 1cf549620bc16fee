/* Turns of new requests and of those that were put back. */
#include "base/clock.h"
#include "warden/queue.h"

#include "../unit.h"

/* A stream of new requests does not hold up those that were put back, nor these the new ones. */
static void late_jobs_take_turns_with_new_ones(void **state)
{
    job late = {0}, one = {0}, two = {0};
    queue q;

    (void)state;
    queue_init(&q, NULL);
    queue_put(&q, &one);
    queue_put(&q, &two);
    queue_later(&q, &late, now_mono_ns() - 30 * NS_PER_MS);
    assert_ptr_equal(queue_get(&q), &late);
    queue_later(&q, &late, now_mono_ns() - 30 * NS_PER_MS);
    assert_ptr_equal(queue_get(&q), &one);
    assert_ptr_equal(queue_get(&q), &late);
    queue_later(&q, &late, now_mono_ns() - 30 * NS_PER_MS);
    assert_ptr_equal(queue_get(&q), &two);
    assert_ptr_equal(queue_get(&q), &late);
}

static void new_jobs_come_before_those_that_are_not_late(void **state)
{
    job back = {0}, one = {0};
    queue q;

    (void)state;
    queue_init(&q, NULL);
    queue_later(&q, &back, now_mono_ns() + NS_PER_S / 2);
    queue_put(&q, &one);
    assert_ptr_equal(queue_get(&q), &one);
    assert_ptr_equal(queue_get(&q), &back); /* when its time has come */
    assert_true(now_mono_ns() >= back.again_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_jobs_take_turns_with_new_ones),
        cmocka_unit_test(new_jobs_come_before_those_that_are_not_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
