#include <string.h>

#include "base/clock.h"
#include "base/metric.h"

#include "../unit.h"

static const char *const CAUSES[] = {"ttl", "oom", NULL};
static const char *const WHEN[] = {"early", "late", NULL};
static metric METRICS[] = {
    METRIC_COUNTER_BY("t_ended_total", "Ended.", "cause", CAUSES),
    METRIC_GAUGE("t_live", "Live."),
    METRIC_HISTOGRAM("t_seconds", "Time."),
    METRIC_COUNTER_BY2("t_both_total", "Both.", "cause", CAUSES, "when", WHEN),
};

static void text_format(void **state)
{
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    metric_add(&METRICS[1], 0, 5); /* before registration: nothing, no crash */
    metric_register(METRICS, 4);
    metric_register(METRICS, 4);
    metric_add(&METRICS[3], 1 * 2 + 0, 7);
    metric_add(&METRICS[0], 1, 2);
    metric_set(&METRICS[1], 0, -3);
    metric_observe_ns(&METRICS[2], 0, 2 * NS_PER_MS);
    metric_observe_ns(&METRICS[2], 0, 120 * NS_PER_S);
    metric_write(&b);
    const char *t = buf_cstr(&b);
    assert_non_null(strstr(t, "# TYPE t_ended_total counter\n"));
    assert_non_null(strstr(t, "t_ended_total{cause=\"ttl\"} 0\n"));
    assert_non_null(strstr(t, "t_ended_total{cause=\"oom\"} 2\n"));
    assert_non_null(strstr(t, "t_live -3\n"));
    assert_non_null(strstr(t, "t_both_total{cause=\"oom\",when=\"early\"} 7\n"));
    assert_non_null(strstr(t, "t_both_total{cause=\"oom\",when=\"late\"} 0\n"));
    assert_non_null(strstr(t, "t_seconds_bucket{le=\"0.001\"} 0\n"));
    assert_non_null(strstr(t, "t_seconds_bucket{le=\"0.0025\"} 1\n"));
    assert_non_null(strstr(t, "t_seconds_bucket{le=\"60\"} 1\n"));
    assert_non_null(strstr(t, "t_seconds_bucket{le=\"+Inf\"} 2\n"));
    assert_non_null(strstr(t, "t_seconds_sum 120.002000\n"));
    assert_null(strstr(strstr(t, "t_ended_total") + 200, "# HELP t_ended_total"));
}

/* What does not fit goes in whole families, and is counted. */
static void what_is_too_long_is_cut_between_families(void **state)
{
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    metric_register(METRICS, 4);
    metric_write(&b);
    size_t whole = b.len, live = (size_t)(strstr(buf_cstr(&b), "# HELP t_live") - b.p);
    assert_int_equal(metric_cut(&b, whole), 0);
    assert_int_equal(b.len, whole);
    assert_int_equal(metric_cut(&b, live + 20), whole - live);
    assert_int_equal(b.len, live);
    assert_int_equal(metric_cut(&b, live), 0);
    assert_int_equal(metric_cut(&b, live - 1), live); /* not even the first */
    assert_int_equal(b.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_format),
                                       cmocka_unit_test(what_is_too_long_is_cut_between_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
