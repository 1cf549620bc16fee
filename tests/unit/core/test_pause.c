#include <string.h>

#include "core/pause.h"

#include "../unit.h"

static void an_estimate_is_of_the_last_ones(void **state)
{
    resume_times t = {0};

    (void)state;
    assert_int_equal(resume_times_estimate(&t).measured, 0);
    resume_times_add(&t, 900);
    assert_int_equal(resume_times_estimate(&t).expect_ns, 900);
    assert_int_equal(resume_times_estimate(&t).measured, 1);
    for (uint64_t i = 1; i <= RESUMES_KEPT; i++) /* the first one goes */
        resume_times_add(&t, 10 * i);
    resume_estimate e = resume_times_estimate(&t);
    assert_int_equal(e.measured, RESUMES_KEPT);
    assert_int_equal(e.worst_ns, 10 * RESUMES_KEPT);
    assert_int_equal(e.expect_ns, 10 * (RESUMES_KEPT / 2 + 1));
}

static void only_what_lies_within_counts(void **state)
{
    CLEANUP(pause_spans_done) pause_spans s = {0};

    (void)state;
    assert_int_equal(pause_spans_between(&s, 0, 1000), 0);
    pause_spans_add(&s, 100, 150);
    pause_spans_add(&s, 200, 300);
    assert_int_equal(pause_spans_between(&s, 0, 1000), 150);
    assert_int_equal(pause_spans_between(&s, 120, 1000), 130);
    assert_int_equal(pause_spans_between(&s, 120, 250), 80);
    assert_int_equal(pause_spans_between(&s, 150, 200), 0);
    assert_int_equal(pause_spans_between(&s, 300, 400), 0);
    assert_int_equal(pause_spans_between(&s, 400, 300), 0);
}

static void one_with_the_same_beginning_replaces_the_last(void **state)
{
    CLEANUP(pause_spans_done) pause_spans s = {0};

    (void)state;
    for (uint64_t i = 0; i < 20; i++)
        pause_spans_add(&s, 100 * i, 100 * i + 10);
    pause_spans_add(&s, 1900, 1950);
    assert_int_equal(s.n, 20);
    assert_int_equal(pause_spans_between(&s, 0, 5000), 19 * 10 + 50);
}

static void facts_are_told_once_and_whole(void **state)
{
    static const pause_fact *const LISTS[] = {PAUSE_KEPT, PAUSE_LOST};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(LISTS); i++)
        for (const pause_fact *f = LISTS[i]; f->what; f++) {
            assert_true(*f->what && *f->detail && f->detail[strlen(f->detail) - 1] == '.');
            for (const pause_fact *g = f + 1; g->what; g++)
                assert_string_not_equal(f->what, g->what);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_estimate_is_of_the_last_ones),
        cmocka_unit_test(only_what_lies_within_counts),
        cmocka_unit_test(one_with_the_same_beginning_replaces_the_last),
        cmocka_unit_test(facts_are_told_once_and_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
