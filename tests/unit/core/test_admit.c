#include "core/admit.h"

#include "../unit.h"

#define GIB (UINT64_C(1) << 30)

static const admit_node EMPTY = {.memory = 100 * GIB, .available = 90 * GIB};

static void an_empty_node_has_room(void **state)
{
    (void)state;
    assert_int_equal(admit(&ADMIT_DEFAULT, &EMPTY, GIB), ADMIT_NOW);
}

static void the_count_is_a_ceiling(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.sandboxes = 999;
    assert_int_equal(admit(&ADMIT_DEFAULT, &n, GIB), ADMIT_NOW);
    n.sandboxes = 1000;
    assert_int_equal(admit(&ADMIT_DEFAULT, &n, GIB), ADMIT_WAIT_COUNT);
}

static void limits_may_add_up_to_fifty_times_the_memory(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.limits_sum = 4999 * GIB;
    assert_int_equal(admit(&ADMIT_DEFAULT, &n, GIB), ADMIT_NOW);
    assert_int_equal(admit(&ADMIT_DEFAULT, &n, GIB + 1), ADMIT_WAIT_LIMITS);
    n.limits_sum = UINT64_MAX; /* no wrap-around */
    assert_int_equal(admit(&ADMIT_DEFAULT, &n, GIB), ADMIT_WAIT_LIMITS);
}

static void a_tenth_of_the_memory_stays_free(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.available = 10 * GIB;
    assert_int_equal(admit(&ADMIT_DEFAULT, &n, GIB), ADMIT_NOW);
    n.available = 9 * GIB;
    assert_int_equal(admit(&ADMIT_DEFAULT, &n, GIB), ADMIT_WAIT_RESERVE);
}

static void what_can_never_fit_does_not_wait(void **state)
{
    admit_node full = EMPTY;

    (void)state;
    full.sandboxes = 1000;
    assert_int_equal(admit(&ADMIT_DEFAULT, &full, 5001 * GIB), ADMIT_NEVER);
    assert_int_equal(admit(&ADMIT_DEFAULT, &EMPTY, 5000 * GIB), ADMIT_NOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_node_has_room),
        cmocka_unit_test(the_count_is_a_ceiling),
        cmocka_unit_test(limits_may_add_up_to_fifty_times_the_memory),
        cmocka_unit_test(a_tenth_of_the_memory_stays_free),
        cmocka_unit_test(what_can_never_fit_does_not_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
