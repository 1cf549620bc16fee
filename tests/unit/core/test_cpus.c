#include "core/cpus.h"

#include "../unit.h"

static cpus machine(const char *list)
{
    static cpus c; /* 8 KiB */
    cpus_set host;

    assert_true(cpus_parse(list, &host));
    cpus_init(&c, &host);
    return c;
}

static const char *chosen(const cpus *c, uint32_t milli, const char *hint)
{
    static char text[CPUS_TEXT];
    cpus_set h = {0}, s;

    assert_true(!hint || cpus_parse(hint, &h));
    cpus_choose(c, milli, &h, &s);
    cpus_text(&s, text);
    return text;
}

static void a_limit_is_shown_as_whole_processors(void **state)
{
    (void)state;
    assert_int_equal(cpus_of_milli(0), 1);
    assert_int_equal(cpus_of_milli(10), 1);
    assert_int_equal(cpus_of_milli(1000), 1);
    assert_int_equal(cpus_of_milli(1001), 2);
    assert_int_equal(cpus_of_milli(2500), 3);
    assert_int_equal(cpus_of_milli(UINT32_MAX), 4294968);
}

static void the_least_promised_are_chosen(void **state)
{
    cpus c = machine("0-3");

    (void)state;
    c.load[0] = c.load[1] = 500;
    assert_string_equal(chosen(&c, 1000, NULL), "2");
    assert_string_equal(chosen(&c, 2000, NULL), "2-3");
    c.load[2] = 501;
    assert_string_equal(chosen(&c, 2000, NULL), "0,3");
}

static void among_equals_what_it_has_stays(void **state)
{
    cpus c = machine("0-3");

    (void)state;
    assert_string_equal(chosen(&c, 1000, "2"), "2");
    assert_string_equal(chosen(&c, 1500, "2"), "0,2");
    c.load[2] = 1;
    assert_string_equal(chosen(&c, 1000, "2"), "0");
}

static void no_more_than_the_host_has(void **state)
{
    cpus c = machine("1,5");

    (void)state;
    assert_string_equal(chosen(&c, 1000, NULL), "1");
    assert_string_equal(chosen(&c, 2000, NULL), "1,5");
    assert_string_equal(chosen(&c, 64000, "0"), "1,5");
}

static void promises_spread_and_end(void **state)
{
    cpus c = machine("0-2,8");
    cpus_set s[12], none = {0};

    (void)state;
    for (int i = 0; i < 12; i++) {
        cpus_choose(&c, 700, &none, &s[i]);
        cpus_promise(&c, &s[i], 700);
    }
    assert_int_equal(c.load[0], 2100);
    assert_int_equal(c.load[1], 2100);
    assert_int_equal(c.load[2], 2100);
    assert_int_equal(c.load[8], 2100);
    for (int i = 0; i < 12; i++)
        cpus_release(&c, &s[i], 700);
    for (unsigned i = 0; i < CPUS_MAX; i++)
        assert_int_equal(c.load[i], 0);
}

static void the_kernels_lists_are_read_and_written(void **state)
{
    static const char *const BAD[] = {"", "\n", ",", "0,", "-1", "1-", "0 1", "1024", "a", "0x"};
    char text[CPUS_TEXT];
    cpus_set s;

    (void)state;
    assert_true(cpus_parse("0-3,8,10-11\n", &s));
    assert_int_equal(cpus_count(&s), 7);
    cpus_text(&s, text);
    assert_string_equal(text, "0-3,8,10-11");
    assert_true(cpus_parse("1023", &s));
    cpus_text(&s, text);
    assert_string_equal(text, "1023");
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        assert_false(cpus_parse(BAD[i], &s));
    for (unsigned i = 0; i < CPUS_MAX; i += 2)
        cpus_add(&s, i);
    cpus_text(&s, text); /* the longest there is */
    assert_true(cpus_parse(text, &s));
    assert_int_equal(cpus_count(&s), CPUS_MAX / 2 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_shown_as_whole_processors),
        cmocka_unit_test(the_least_promised_are_chosen),
        cmocka_unit_test(among_equals_what_it_has_stays),
        cmocka_unit_test(no_more_than_the_host_has),
        cmocka_unit_test(promises_spread_and_end),
        cmocka_unit_test(the_kernels_lists_are_read_and_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
