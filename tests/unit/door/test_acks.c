#include "door/shared/acks.h"

#include "unit.h"

static void note(follow_acks *a, size_t bytes, uint64_t out, uint64_t errors)
{
    follow_acks_note(a, bytes, (const uint64_t[2]){out, errors});
}

static void offsets_count_when_their_bytes_are_acknowledged(void **state)
{
    (void)state;
    follow_acks a = {0};
    uint64_t at[2] = {0};

    note(&a, 100, 10, 0); /* a head, and ten bytes */
    note(&a, 50, 30, 5);
    assert_false(follow_acks_take(&a, 150, at));
    assert_false(follow_acks_take(&a, 51, at)); /* one byte of the first is missing */
    assert_true(follow_acks_take(&a, 50, at));
    assert_int_equal(at[0], 10);
    assert_false(follow_acks_take(&a, 50, at)); /* nothing new */
    assert_true(follow_acks_take(&a, 0, at));
    assert_int_equal(at[0], 30);
    assert_int_equal(at[1], 5);
    assert_null(a.list);
    follow_acks_done(&a);
}

static void bytes_of_an_answer_before_it_count_against_it(void **state)
{
    (void)state;
    follow_acks a = {0};
    uint64_t at[2] = {0};

    note(&a, 10, 1, 0);
    assert_false(follow_acks_take(&a, 1000, at)); /* more than it has written itself */
    follow_acks_done(&a);
}

static void what_moves_no_offset_is_not_kept(void **state)
{
    (void)state;
    follow_acks a = {0};
    uint64_t at[2] = {0};

    note(&a, 10, 1, 0);
    for (int i = 0; i < 1000; i++)
        note(&a, 10, 1, 0); /* keepalives */
    assert_int_equal(a.n, 1);
    assert_true(follow_acks_take(&a, 1000 * 10, at));
    assert_int_equal(at[0], 1);
    follow_acks_done(&a);
}

static void a_peer_that_acknowledges_nothing_costs_little(void **state)
{
    (void)state;
    follow_acks a = {0};
    uint64_t at[2] = {0};

    for (uint64_t i = 1; i <= 100000; i++)
        note(&a, 10, i, 0);
    assert_true(a.n <= 256);
    assert_true(follow_acks_take(&a, 100000 * 10 - 100, at)); /* it has 100 bytes */
    assert_int_equal(at[0], 10);
    assert_true(follow_acks_take(&a, 10, at)); /* never more than it has */
    assert_true(at[0] < 100000);
    assert_true(follow_acks_take(&a, 0, at));
    assert_int_equal(at[0], 100000);
    follow_acks_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_count_when_their_bytes_are_acknowledged),
        cmocka_unit_test(bytes_of_an_answer_before_it_count_against_it),
        cmocka_unit_test(what_moves_no_offset_is_not_kept),
        cmocka_unit_test(a_peer_that_acknowledges_nothing_costs_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
