#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"

#include "../unit.h"

static void numbers_are_read_strictly(void **state)
{
    static const char *const BAD[] = {"", " 1", "1 ", "-1", "+1", "0x1", "18446744073709551616"};
    uint64_t v = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_false(str_to_u64(BAD[i], UINT64_MAX, &v));
    assert_true(str_to_u64("18446744073709551615", UINT64_MAX, &v));
    assert_true(v == UINT64_MAX);
    assert_false(str_to_u64("11", 10, &v));
}

static void sizes_and_durations(void **state)
{
    uint64_t v = 0;

    (void)state;
    assert_true(str_to_bytes("512m", &v));
    assert_int_equal(v, 512u << 20);
    assert_true(str_to_bytes("1.5GiB", &v));
    assert_true(v == 3ull << 29);
    assert_true(str_to_bytes("7", &v) && v == 7);
    assert_false(str_to_bytes("1x", &v));
    assert_false(str_to_bytes(".", &v));
    assert_false(str_to_bytes("99999999999t", &v));
    assert_true(str_to_duration_ms("2m", &v));
    assert_int_equal(v, 120000);
    assert_true(str_to_duration_ms("250ms", &v));
    assert_int_equal(v, 250);
    assert_true(str_to_duration_ms("1.5", &v));
    assert_int_equal(v, 1500);
    assert_false(str_to_duration_ms("5 m", &v));
}

static void utf8_refuses_what_the_standard_refuses(void **state)
{
    static const char *const BAD[] = {"\x80",         "\xc0\xaf",         "\xe0\x80\x80",
                                      "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_false(utf8_valid(BAD[i], strlen(BAD[i])));
    assert_true(utf8_valid("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8f\xa0", 12));
}

static void base64_round_trip_and_strictness(void **state)
{
    unsigned char in[65];

    (void)state;
    for (size_t n = 0; n < sizeof in; n++) {
        random_bytes(in, n);
        CLEANUP(freep) char *text = base64_encode(in, n);
        CLEANUP(freep) void *out = NULL;
        size_t k = 0;
        assert_true(base64_decode(text, strlen(text), &out, &k));
        assert_int_equal(k, n);
        assert_memory_equal(out, in, n);
    }
    void *out;
    size_t k;
    assert_false(base64_decode("QQ", 2, &out, &k));
    assert_false(base64_decode("QR==", 4, &out, &k)); /* stray bits */
    assert_false(base64_decode("Q===", 4, &out, &k));
    assert_false(base64_decode("QQ==QQ==", 8, &out, &k));
}

static void percent_decoding(void **state)
{
    char ok[] = "a%2Fb%20c", bad[] = "a%2", nul[] = "a%00b";
    size_t n = 0;

    (void)state;
    assert_true(percent_decode(ok, &n));
    assert_string_equal(ok, "a/b c");
    assert_int_equal(n, 5);
    assert_false(percent_decode(bad, &n));
    assert_false(percent_decode(nul, &n));
}

static void environment_vectors_replace(void **state)
{
    char **env = NULL;

    (void)state;
    strv_env_set(&env, "A", "1");
    strv_env_set(&env, "AB", "2");
    strv_env_set(&env, "A", "3");
    assert_int_equal(strv_len(env), 2);
    assert_string_equal(strv_env_get(env, "A"), "3");
    assert_string_equal(strv_env_get(env, "AB"), "2");
    assert_null(strv_env_get(env, "B"));
    strv_free(env);
}

static void nearest_name(void **state)
{
    static const char *const NAMES[] = {"memory", "cpu", "pids"};

    (void)state;
    assert_string_equal(str_nearest("memroy", NAMES, 3), "memory");
    assert_null(str_nearest("network", NAMES, 3));
}

static void json_strings_are_escaped(void **state)
{
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    buf_json_string(&b, "a\"\\\n\xff\xc3\xa9", 7);
    assert_string_equal(buf_cstr(&b), "\"a\\\"\\\\\\u000a\xef\xbf\xbd\xc3\xa9\"");
    buf_clear(&b);
    buf_json_string(&b, "\x7f\xc2\x9b\xc2\xa0", 5);
    assert_string_equal(buf_cstr(&b), "\"\\u007f\\u009b\xc2\xa0\"");
}

static void c1_is_a_control_too(void **state)
{
    (void)state;
    assert_true(utf8_has_control("a\xc2\x9b"
                                 "31m"));
    assert_true(utf8_has_control("\x7f"));
    assert_true(utf8_has_control("a\n"));
    assert_false(utf8_has_control("h\xc3\xa9\xc2\xa0 x"));
}

static void sandbox_ids_have_their_form(void **state)
{
    char id[SANDBOX_ID_LEN + 1];

    (void)state;
    id_sandbox("ab12", id);
    assert_true(id_is_sandbox(id));
    assert_memory_equal(id, "ab12", 4);
    assert_false(id_is_sandbox("ab12"));
    assert_false(id_is_sandbox("AB12aaaaaaaaaaaaaaaa"));
}

static void time_is_printed_in_utc(void **state)
{
    char text[CLOCK_TEXT_MAX];

    (void)state;
    clock_format(1700000000123 * NS_PER_MS, text);
    assert_string_equal(text, "2023-11-14T22:13:20.123Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_strictly),
        cmocka_unit_test(sizes_and_durations),
        cmocka_unit_test(utf8_refuses_what_the_standard_refuses),
        cmocka_unit_test(base64_round_trip_and_strictness),
        cmocka_unit_test(percent_decoding),
        cmocka_unit_test(environment_vectors_replace),
        cmocka_unit_test(nearest_name),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(c1_is_a_control_too),
        cmocka_unit_test(sandbox_ids_have_their_form),
        cmocka_unit_test(time_is_printed_in_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
