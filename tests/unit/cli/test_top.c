#include <string.h>

#include "base/clock.h"
#include "cli/top_view.h"

#include "../unit.h"

#define AT(s) "2026-01-02T03:04:" s ".000Z"

static json_t *item(const char *id, const char *at, double cpu, int memory)
{
    return json_pack("{s:s,s:s,s:{s:s},s:s,s:i,s:{s:s,s:f,s:i,s:i,s:i,s:i,s:i}}", "id", id,
                     "created", AT("00"), "image", "name", "busybox", "state", "running",
                     "running_execs", 1, "usage", "at", at, "cpu_seconds", cpu, "memory", memory,
                     "memory_limit", 4096, "pids", 2, "io_read", 0, "io_written",
                     (int)(cpu * 1000));
}

static top_sample two_looks(void)
{
    CLEANUP(json_decrefp) json_t *first = json_array(), *second = json_array();
    top_sample a, b;

    json_array_append_new(first, item("aaa", AT("10"), 1.0, 100));
    json_array_append_new(first, item("bbb", AT("10"), 1.0, 300));
    json_array_append_new(second, item("aaa", AT("12"), 2.0, 100));
    json_array_append_new(second, item("bbb", AT("12"), 1.5, 300));
    json_array_append_new(second, item("new", AT("12"), 9.0, 200));
    top_sample_read(first, NULL, 0, &a);
    top_sample_read(second, &a, 0, &b);
    top_sample_done(&a);
    return b;
}

static void rates_come_from_two_looks(void **state)
{
    (void)state;
    CLEANUP(top_sample_done) top_sample s = two_looks();

    assert_int_equal((int)s.rows[0].load, 50);
    assert_int_equal((int)s.rows[1].load, 25);
    assert_int_equal((int)s.rows[0].io, 500);
    assert_true(s.rows[2].load < 0); /* seen once */
    top_sort(&s, top_column("cpu"), false);
    assert_string_equal(s.rows[0].id, "aaa");
    top_sort(&s, top_column("memory"), false);
    assert_string_equal(s.rows[0].id, "bbb");
    top_sort(&s, top_column_of_key('m'), true);
    assert_string_equal(s.rows[0].id, "aaa");
    assert_int_equal(top_column("id"), -1);
    assert_int_equal(top_column_of_key('x'), -1);
}

static void idle_ones_are_told_from_those_that_may_be(void **state)
{
    (void)state;
    CLEANUP(json_decrefp) json_t *items = json_array();
    CLEANUP(top_sample_done) top_sample s = {0};
    CLEANUP(buf_done) buf out = {0};
    json_t *busy = item("busy", AT("10"), 1.0, 100), *idle = item("idle", AT("10"), 1.0, 100);

    json_object_set_new(busy, "idle", json_integer(300));
    json_object_set_new(busy, "idle_for", json_integer(0));
    json_object_set_new(idle, "idle", json_integer(300));
    json_object_set_new(idle, "idle_for", json_integer(120));
    json_array_append_new(items, item("ever", AT("10"), 1.0, 100));
    json_array_append_new(items, busy);
    json_array_append_new(items, idle);
    top_sample_read(items, NULL, 0, &s);
    top_sort(&s, top_column("idle"), false);
    assert_string_equal(s.rows[0].id, "idle");
    assert_string_equal(s.rows[1].id, "busy");
    assert_string_equal(s.rows[2].id, "ever");
    top_draw(&s, &(top_look){.rows = 20, .cols = 200, .column = top_column("idle")}, &out);
    assert_non_null(strstr(buf_cstr(&out), "IDLE"));
    assert_non_null(strstr(out.p, " 2m/5m"));
}

static size_t lines_of(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void a_screen_is_never_scrolled(void **state)
{
    (void)state;
    CLEANUP(top_sample_done) top_sample s = two_looks();

    for (unsigned rows = 4; rows < 12; rows++) {
        CLEANUP(buf_done) buf out = {0};
        top_draw(&s,
                 &(top_look){.rows = rows, .cols = 20, .column = top_column("cpu"), .screen = true},
                 &out);
        assert_true(lines_of(buf_cstr(&out)) < rows);
        for (const char *line = out.p; *line; line = strchr(line, '\n') + 1)
            assert_true(strcspn(line, "\033") <=
                        22); /* 20 characters, one of them of three bytes */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_ones_are_told_from_those_that_may_be),
        cmocka_unit_test(rates_come_from_two_looks),
        cmocka_unit_test(a_screen_is_never_scrolled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
