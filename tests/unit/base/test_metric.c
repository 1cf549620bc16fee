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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_format)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
