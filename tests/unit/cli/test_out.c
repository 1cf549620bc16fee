#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"

#include "../unit.h"

static void check_safe(const char *text, const char *want)
{
    CLEANUP(buf_done) buf b = {0};

    out_safe(&b, text);
    assert_string_equal(buf_cstr(&b), want);
}

static void control_characters_are_shown_not_sent(void **state)
{
    (void)state;
    check_safe(NULL, "-");
    check_safe("", "");
    check_safe("h\xc3\xb6lle", "h\xc3\xb6lle");
    check_safe("\x1b[2J\n\x7f", "\\x1b[2J\\x0a\\x7f");
    check_safe("a\xff\xc3", "a\\xff\\xc3");
    check_safe("\xc2\x9b"
               "31m",
               "\\xc2\\x9b31m"); /* CSI as one character */
}

static void check_size(uint64_t bytes, const char *want)
{
    CLEANUP(buf_done) buf b = {0};

    out_size(&b, bytes);
    assert_string_equal(buf_cstr(&b), want);
}

static void check_age(uint64_t seconds, const char *want)
{
    CLEANUP(buf_done) buf b = {0};

    out_age(&b, seconds);
    assert_string_equal(buf_cstr(&b), want);
}

static void sizes_and_ages(void **state)
{
    (void)state;
    check_size(0, "0 B");
    check_size(1023, "1023 B");
    check_size(1536, "1.5 KiB");
    check_size(UINT64_C(3) << 40, "3.0 TiB");
    check_age(0, "0s");
    check_age(119, "119s");
    check_age(120, "2m");
    check_age(7200, "2h");
    check_age(172800, "2d");
}

static void times(void **state)
{
    (void)state;
    assert_true(out_parse_time("1970-01-01T00:00:01.500Z") == NS_PER_S * 3 / 2);
    assert_true(out_parse_time("2026-01-02T03:04:05Z") == UINT64_C(1767323045) * NS_PER_S);
    assert_true(out_parse_time("yesterday") == 0);
    assert_true(out_parse_time(NULL) == 0);
}

/* What a function prints, as a string. */
typedef struct capture {
    char *text;
    size_t n;
    FILE *f;
} capture;

static void capture_begin(capture *c)
{
    *c = (capture){0};
    c->f = open_memstream(&c->text, &c->n);
}

static void capture_is(capture *c, const char *want)
{
    fclose(c->f);
    assert_string_equal(c->text, want);
    free(c->text);
}

static void tables_line_up(void **state)
{
    out_table t;
    capture c;

    (void)state;
    out_table_init(&t, "ID NAME");
    out_table_cell(&t, "x");
    out_table_cell(&t, NULL);
    out_table_cell(&t, "h\xc3\xb6lle");
    out_table_cell(&t, "a\nb");
    capture_begin(&c);
    out_table_print(&t, c.f, false);
    capture_is(&c, "ID     NAME\nx      -\nh\xc3\xb6lle  a\\x0ab\n");
    capture_begin(&c);
    out_table_print(&t, c.f, true);
    capture_is(&c, "\x1b[1mID\x1b[0m     \x1b[1mNAME\x1b[0m\nx      -\nh\xc3\xb6lle  a\\x0ab\n");
    out_table_done(&t);
}

static void errors_for_people_and_programs(void **state)
{
    CLEANUP(err_freep) err *e = err_new(ERR_NOT_FOUND, "there is no %s", "thing");
    capture c;

    (void)state;
    e = err_remedy(err_because(e, "it\n went"), "Look elsewhere.");
    capture_begin(&c);
    out_error(c.f, e, false, false);
    capture_is(&c, "bothy: there is no thing\n  cause:  it\\x0a went\n  remedy: Look elsewhere.\n");
    capture_begin(&c);
    out_error(c.f, e, true, false);
    capture_is(&c,
               "{\"error\":{\"code\":\"not_found\",\"message\":\"there is no thing\","
               "\"cause\":\"it\\n went\",\"remedy\":\"Look elsewhere.\",\"retryable\":false}}\n");
}

static void remedies_about_headers_are_the_command_lines(void **state)
{
    static const struct {
        err_code code;
        int retry_after;
        const char *remedy, *want;
    } CASES[] = {
        {ERR_UNAUTHENTICATED, 0, NULL,
         "Put a valid key into $BOTHY_KEY; 'bothy key create' makes one."},
        {ERR_QUOTA_EXCEEDED, 7, NULL, "Wait 7 s and try again, or end something that is counted."},
        {ERR_POOL_EXHAUSTED, 0, NULL, "Wait and try again, or raise the pool's size."},
        {ERR_POOL_EXHAUSTED, 3, "Do this.", "Do this."},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        err *e = err_retry_after(err_new(CASES[i].code, "no"), CASES[i].retry_after);
        CLEANUP(freep) char *want = str_printf("bothy: no\n  remedy: %s\n", CASES[i].want);
        capture c;
        if (CASES[i].remedy)
            e = err_remedy(e, "%s", CASES[i].remedy);
        capture_begin(&c);
        out_error(c.f, e, false, false);
        capture_is(&c, want);
        err_free(e);
    }
}

static void json_and_lines_drive_no_terminal(void **state)
{
    capture c;
    CLEANUP(json_decrefp) json_t *j = json_pack("{s:s}", "name", "\xc2\x9b\x7f");

    (void)state;
    capture_begin(&c);
    out_json(c.f, j);
    out_line(c.f, "a\xc2\x9b\n");
    capture_is(&c, "{\"name\":\"\\u009b\\u007f\"}\na\\xc2\\x9b\\x0a\n");
}

static void check_value(const char *json, const char *want)
{
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(json_decrefp) json_t *v = json_loads(json, JSON_DECODE_ANY, NULL);

    assert_non_null(v);
    out_value(v, &b);
    assert_string_equal(buf_cstr(&b), want);
}

static void values_are_written_as_people_write_them(void **state)
{
    (void)state;
    check_value("null", "-");
    check_value("\"a\\u001bb\"", "a\\x1bb");
    check_value("12345678", "12345678");
    check_value("[0.56789, 12345.6]", "0.568 12346");
    check_value("{\"argv\":[\"sleep\",\"600\"],\"user\":null,\"exec\":\"1\"}",
                "argv sleep 600, exec 1");
    check_value("[{\"path\":\"/t\",\"size\":64},{\"path\":\"/u\",\"exec\":true}]",
                "path /t, size 64; path /u, exec true");
    check_value("{\"of\":{\"a\":1,\"b\":{}}}", "of (a 1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_shown_not_sent),
        cmocka_unit_test(sizes_and_ages),
        cmocka_unit_test(times),
        cmocka_unit_test(tables_line_up),
        cmocka_unit_test(errors_for_people_and_programs),
        cmocka_unit_test(remedies_about_headers_are_the_command_lines),
        cmocka_unit_test(json_and_lines_drive_no_terminal),
        cmocka_unit_test(values_are_written_as_people_write_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
