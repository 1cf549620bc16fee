/* Idleness by a clock in the test's hands. */
#include <string.h>

#include "base/clock.h"
#include "core/idle.h"

#include "../unit.h"

/* Samples every period for so many, each with this much more CPU and bytes. */
static void run(idle_meter *m, uint64_t idle_ms, unsigned n, uint64_t cpu_us, uint64_t bytes)
{
    idle_sample s = {.at_ns = NS_PER_S};

    for (unsigned i = 0; i < n; i++) {
        idle_add(m, &s);
        s.at_ns += idle_period_ns(idle_ms);
        s.cpu_us += cpu_us;
        s.bytes += bytes;
    }
}

static void it_is_idle_after_its_time_and_not_before(void **state)
{
    idle_meter m = {0};

    (void)state;
    run(&m, 60000, 16, 0, 0);
    assert_false(idle_is(&m, 60000));
    idle_reset(&m);
    run(&m, 60000, 17, 0, 0);
    assert_true(idle_is(&m, 60000));
}

static void one_per_cent_of_a_core_is_busy(void **state)
{
    uint64_t period_us = idle_period_ns(60000) / 1000;
    idle_meter m = {0};

    (void)state;
    run(&m, 60000, 40, period_us / 100, 0);
    assert_false(idle_is(&m, 60000));
    idle_reset(&m);
    run(&m, 60000, 40, period_us / 100 - 1, 0);
    assert_true(idle_is(&m, 60000));
}

static void for_how_long_nothing_happened(void **state)
{
    uint64_t period = idle_period_ns(60000);
    idle_meter m = {0};

    (void)state;
    assert_int_equal(idle_for_ns(&m), 0);
    run(&m, 60000, 1, 0, 0);
    assert_int_equal(idle_for_ns(&m), 0);
    idle_reset(&m);
    run(&m, 60000, 5, 0, 0);
    assert_int_equal(idle_for_ns(&m), 4 * period);
    m.s[2].cpu_us = m.s[3].cpu_us = m.s[4].cpu_us =
        period; /* a burst between the second and third */
    assert_int_equal(idle_for_ns(&m), 2 * period);
    idle_reset(&m);
    run(&m, 60000, 5, period / 1000, 0);
    assert_int_equal(idle_for_ns(&m), 0);
}

static void a_kib_a_second_is_busy(void **state)
{
    uint64_t period_ms = idle_period_ns(60000) / NS_PER_MS;
    idle_meter m = {0};

    (void)state;
    run(&m, 60000, 40, 0, period_ms * 1024 / 1000 + 1);
    assert_false(idle_is(&m, 60000));
    idle_reset(&m);
    run(&m, 60000, 40, 0, period_ms * 1024 / 1000 - 1);
    assert_true(idle_is(&m, 60000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_idle_after_its_time_and_not_before),
        cmocka_unit_test(one_per_cent_of_a_core_is_busy),
        cmocka_unit_test(for_how_long_nothing_happened),
        cmocka_unit_test(a_kib_a_second_is_busy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
