#include "core/admit.h"

#include "../unit.h"

#define GIB (UINT64_C(1) << 30)

static const admit_node EMPTY = {.memory = 100 * GIB, .available = 90 * GIB};

static enum admit_verdict ask(const admit_node *n, uint64_t memory, uint64_t pids)
{
    return admit(&ADMIT_DEFAULT, n, &(admit_ask){.memory = memory, .pids = pids});
}

static void an_empty_node_has_room(void **state)
{
    (void)state;
    assert_int_equal(ask(&EMPTY, GIB, 512), ADMIT_NOW);
}

static void the_count_is_a_ceiling(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.sandboxes = 999;
    assert_int_equal(ask(&n, GIB, 512), ADMIT_NOW);
    n.sandboxes = 1000;
    assert_int_equal(ask(&n, GIB, 512), ADMIT_WAIT_COUNT);
}

static void limits_may_add_up_to_fifty_times_the_memory(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.limits_sum = 4999 * GIB;
    assert_int_equal(ask(&n, GIB, 512), ADMIT_NOW);
    assert_int_equal(ask(&n, GIB + 1, 512), ADMIT_WAIT_LIMITS);
    n.limits_sum = UINT64_MAX; /* no wrap-around */
    assert_int_equal(ask(&n, GIB, 512), ADMIT_WAIT_LIMITS);
}

static void a_tenth_of_the_memory_stays_free(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.available = 10 * GIB;
    assert_int_equal(ask(&n, GIB, 512), ADMIT_NOW);
    n.available = 9 * GIB;
    assert_int_equal(ask(&n, GIB, 512), ADMIT_WAIT_RESERVE);
}

static void what_can_never_fit_does_not_wait(void **state)
{
    admit_node full = EMPTY;

    (void)state;
    full.sandboxes = 1000;
    assert_int_equal(ask(&full, 5001 * GIB, 512), ADMIT_NEVER);
    assert_int_equal(ask(&EMPTY, 5000 * GIB, 512), ADMIT_NOW);
}

static void one_sandbox_counts_at_most_as_the_machine(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.limits_sum = admit_counted(n.memory, 4999 * GIB);
    assert_int_equal(n.limits_sum, 100 * GIB);
    assert_int_equal(ask(&n, 4900 * GIB, 512), ADMIT_NOW);
    n.limits_sum = 4900 * GIB;
    assert_int_equal(ask(&n, 4000 * GIB, 512), ADMIT_NOW);
    n.limits_sum++;
    assert_int_equal(ask(&n, 4000 * GIB, 512), ADMIT_WAIT_LIMITS);
}

static void limits_of_processes_add_up_to_half_of_the_threads(void **state)
{
    admit_node n = EMPTY;

    (void)state;
    n.threads = 10000;
    assert_int_equal(ask(&n, GIB, 5000), ADMIT_NOW);
    assert_int_equal(ask(&n, GIB, 5001), ADMIT_NEVER_PIDS);
    n.pids_sum = 4488;
    assert_int_equal(ask(&n, GIB, 512), ADMIT_NOW);
    assert_int_equal(ask(&n, GIB, 513), ADMIT_WAIT_PIDS);
    n.pids_sum = UINT64_MAX; /* no wrap-around */
    assert_int_equal(ask(&n, GIB, 512), ADMIT_WAIT_PIDS);
    n.threads = 0; /* not known */
    n.pids_sum = UINT32_MAX;
    assert_int_equal(ask(&n, GIB, UINT32_MAX), ADMIT_NOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_node_has_room),
        cmocka_unit_test(the_count_is_a_ceiling),
        cmocka_unit_test(limits_may_add_up_to_fifty_times_the_memory),
        cmocka_unit_test(a_tenth_of_the_memory_stays_free),
        cmocka_unit_test(what_can_never_fit_does_not_wait),
        cmocka_unit_test(one_sandbox_counts_at_most_as_the_machine),
        cmocka_unit_test(limits_of_processes_add_up_to_half_of_the_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
