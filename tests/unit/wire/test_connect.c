#include <string.h>

#include "base/str.h"
#include "wire/connect.h"

#include "unit.h"

static err *collect(void *arg, const char *p, size_t n)
{
    buf_printf(arg, "(%.*s)", (int)n, p);
    return n == 4 && !memcmp(p, "stop", 4) ? err_new(ERR_CONFLICT, "enough") : NULL;
}

static void put(buf *b, unsigned flags, const char *text)
{
    size_t n = strlen(text);

    buf_char(b, (char)flags);
    buf_append(b, "\0\0", 2);
    buf_char(b, (char)(n >> 8));
    buf_char(b, (char)n);
    buf_str(b, text);
}

static err *feed(connect_decoder *d, const buf *b, size_t step, buf *got)
{
    for (size_t at = 0; at < b->len; at += step)
        TRY(connect_feed(d, b->p + at, step < b->len - at ? step : b->len - at, collect, got));
    return NULL;
}

static void streams_are_decoded_in_any_pieces(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf b = {0};

    put(&b, 0, "{\"start\":{}}");
    put(&b, 0, "");
    put(&b, 0, "{}");
    for (size_t step = 1; step < 40; step++) {
        CLEANUP(connect_decoder_done) connect_decoder d = {0};
        CLEANUP(buf_done) buf got = {0};
        assert_ok(feed(&d, &b, step, &got));
        assert_ok(connect_finish(&d));
        assert_string_equal(buf_cstr(&got), "({\"start\":{}})()({})");
    }
}

static void an_unfinished_message_is_an_error_at_the_end(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf b = {0};

    put(&b, 0, "{}");
    for (size_t n = 1; n < b.len; n++) {
        CLEANUP(connect_decoder_done) connect_decoder d = {0};
        CLEANUP(buf_done) buf got = {0};
        assert_ok(connect_feed(&d, b.p, n, collect, &got));
        assert_int_equal(got.len, 0);
        assert_err(connect_finish(&d), ERR_INVALID_REQUEST);
    }
}

static void flags_and_lengths_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        err_code code;
    } CASES[] = {
        {"\1\0\0\0\2", ERR_INVALID_REQUEST}, /* compressed */
        {"\2\0\0\0\2", ERR_INVALID_REQUEST}, /* the end of a stream of answers */
        {"\x80\0\0\0\2", ERR_INVALID_REQUEST}, {"\0\0\x80\0\1", ERR_TOO_LARGE},
        {"\0\xff\xff\xff\xff", ERR_TOO_LARGE},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(connect_decoder_done) connect_decoder d = {0};
        CLEANUP(buf_done) buf got = {0};
        const char *at = NULL;
        size_t n = 0;
        assert_err(connect_feed(&d, CASES[i].head, CONNECT_HEAD, collect, &got), CASES[i].code);
        assert_err(connect_single(CASES[i].head, CONNECT_HEAD, &at, &n), CASES[i].code);
    }
}

static void a_stream_may_have_a_limit_of_its_own(void **state)
{
    (void)state;
    CLEANUP(connect_decoder_done) connect_decoder d = {.max = 2};
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(buf_done) buf got = {0};

    put(&b, 0, "ab");
    put(&b, 0, "abc");
    assert_err(feed(&d, &b, 1, &got), ERR_TOO_LARGE);
    assert_string_equal(buf_cstr(&got), "(ab)");
}

static void a_callback_can_stop(void **state)
{
    (void)state;
    CLEANUP(connect_decoder_done) connect_decoder d = {0};
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(buf_done) buf got = {0};

    put(&b, 0, "a");
    put(&b, 0, "stop");
    put(&b, 0, "b");
    assert_err(feed(&d, &b, b.len, &got), ERR_CONFLICT);
    assert_string_equal(buf_cstr(&got), "(a)(stop)");
}

static void a_single_message_fills_the_body(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf b = {0};
    const char *p = NULL;
    size_t n = 0;

    connect_message(&b, "{\"a\":1}", 7);
    assert_ok(connect_single(b.p, b.len, &p, &n));
    assert_int_equal(n, 7);
    assert_memory_equal(p, "{\"a\":1}", 7);
    assert_err(connect_single(b.p, b.len - 1, &p, &n), ERR_INVALID_REQUEST);
    assert_err(connect_single(b.p, 4, &p, &n), ERR_INVALID_REQUEST);
    buf_char(&b, 'x');
    assert_err(connect_single(b.p, b.len, &p, &n), ERR_INVALID_REQUEST);
}

static void ends_carry_errors(void **state)
{
    (void)state;
    static const char NONE[] = "\2\0\0\0\2{}";
    static const char SOME[] =
        "\2\0\0\0\x33{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}}";
    CLEANUP(buf_done) buf b = {0};

    connect_end(&b, NULL, NULL);
    assert_int_equal(b.len, sizeof NONE - 1);
    assert_memory_equal(b.p, NONE, b.len);
    buf_clear(&b);
    connect_end(&b, "not_found", "no \"x\"");
    assert_int_equal(b.len, sizeof SOME - 1);
    assert_memory_equal(b.p, SOME, b.len);
    buf_clear(&b);
    connect_error(&b, "internal", "\xff");
    assert_true(utf8_valid(b.p, b.len));
}

static void codes_have_statuses(void **state)
{
    (void)state;
    assert_int_equal(connect_status("not_found"), 404);
    assert_int_equal(connect_status("deadline_exceeded"), 504);
    assert_int_equal(connect_status("unauthenticated"), 401);
    assert_int_equal(connect_status("no such code"), 500);
    for (int i = 0; i < ERR_CODES; i++) /* every code of our table is one of the protocol's */
        assert_true(connect_status(err_info_of(i)->connect) != 500 ||
                    !strcmp(err_info_of(i)->connect, "internal"));
}

static void time_limits_are_read(void **state)
{
    (void)state;
    uint64_t ms = 7;

    assert_ok(connect_timeout(NULL, &ms));
    assert_int_equal(ms, 0);
    assert_ok(connect_timeout("60000", &ms));
    assert_int_equal(ms, 60000);
    assert_ok(connect_timeout("9999999999", &ms));
    assert_err(connect_timeout("12345678901", &ms), ERR_INVALID_REQUEST);
    assert_err(connect_timeout("1.5", &ms), ERR_INVALID_REQUEST);
    assert_err(connect_timeout("-1", &ms), ERR_INVALID_REQUEST);
    assert_err(connect_timeout("", &ms), ERR_INVALID_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_decoded_in_any_pieces),
        cmocka_unit_test(an_unfinished_message_is_an_error_at_the_end),
        cmocka_unit_test(flags_and_lengths_are_checked),
        cmocka_unit_test(a_callback_can_stop),
        cmocka_unit_test(a_stream_may_have_a_limit_of_its_own),
        cmocka_unit_test(a_single_message_fills_the_body),
        cmocka_unit_test(ends_carry_errors),
        cmocka_unit_test(codes_have_statuses),
        cmocka_unit_test(time_limits_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
