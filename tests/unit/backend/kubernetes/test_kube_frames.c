/* The channel protocol of exec, with frames as an API server wrote them. */
#include <string.h>

#include "backend/kubernetes/kube_exec.h"
#include "base/str.h"

#include "../../unit.h"

static void masks(void *p, size_t n)
{
    memset(p, 0, n); /* what is sent can be read here */
}

static void put(buf *b, unsigned channel, const char *text)
{
    size_t n = strlen(text) + 1;

    buf_char(b, (char)0x82);
    if (n < 126) {
        buf_char(b, (char)n);
    } else {
        buf_char(b, 126);
        buf_char(b, (char)(n >> 8));
        buf_char(b, (char)n);
    }
    buf_char(b, (char)channel);
    buf_str(b, text);
}

#define SUCCESS "{\"metadata\":{},\"status\":\"Success\"}"
#define EXIT_7                                                                                     \
    "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"command terminated with non-zero exit " \
    "code: command terminated with exit code 7\",\"reason\":\"NonZeroExitCode\",\"details\":"      \
    "{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"7\"}]}}"
#define NO_COMMAND                                                                                 \
    "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Internal error occurred: ... stat "     \
    "/nonexistent: no such file or directory: unknown\",\"reason\":\"InternalError\",\"details\":" \
    "{\"causes\":[{\"message\":\"...\"}]},\"code\":500}"

static kube_frames *session(const char *status)
{
    kube_frames *f = kube_frames_new(5, masks);
    CLEANUP(buf_done) buf in = {0};

    put(&in, 1, "");
    put(&in, 1, "out\n");
    put(&in, 2, "err\n");
    if (status)
        put(&in, 3, status);
    buf_append(&in, "\x88\x02\x03\xe8", 4);
    for (size_t i = 0; i < in.len; i++) /* a byte at a time */
        kube_frames_feed(f, in.p + i, 1);
    assert_true(kube_frames_over(f));
    assert_memory_equal(kube_frames_out(f)->p, "out\n", 4);
    assert_int_equal(kube_frames_out(f)->len, 4);
    assert_memory_equal(kube_frames_err(f)->p, "err\n", 4);
    return f;
}

static void it_succeeds(void **state)
{
    kube_frames *f = session(SUCCESS);

    (void)state;
    assert_true(kube_frames_end(f)->known);
    assert_int_equal(kube_frames_end(f)->exit_code, 0);
    kube_frames_free(f);
}

static void it_exits_with_7(void **state)
{
    kube_frames *f = session(EXIT_7);

    (void)state;
    assert_true(kube_frames_end(f)->known && kube_frames_end(f)->started);
    assert_int_equal(kube_frames_end(f)->exit_code, 7);
    kube_frames_free(f);
}

static void it_is_not_there(void **state)
{
    kube_frames *f = session(NO_COMMAND);

    (void)state;
    assert_true(kube_frames_end(f)->known);
    assert_false(kube_frames_end(f)->started);
    assert_non_null(strstr(kube_frames_end(f)->message, "nonexistent"));
    kube_frames_free(f);
}

static void without_a_status_nothing_is_known(void **state)
{
    static const char *const ROWS[] = {NULL, "nonsense", "{}", "[]", "{\"status\":\"Maybe\"}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        kube_frames *f = session(ROWS[i]);
        assert_false(kube_frames_end(f)->known);
        kube_frames_free(f);
    }
}

/* What a client sends is masked; with a mask of zeros it can be read. */
static void what_is_sent(void **state)
{
    kube_frames *f = kube_frames_new(5, masks), *four = kube_frames_new(4, masks);
    CLEANUP(buf_done) buf out = {0};

    (void)state;
    kube_frames_stdin(f, &out, "hi", 2);
    assert_int_equal(out.len, 9);
    assert_memory_equal(out.p, "\x82\x83\0\0\0\0\0hi", 9);
    buf_clear(&out);
    assert_true(kube_frames_stdin_end(f, &out));
    assert_memory_equal(out.p, "\x82\x82\0\0\0\0\xff\0", 8);
    buf_clear(&out);
    assert_false(kube_frames_stdin_end(four, &out));
    assert_int_equal(out.len, 0);
    kube_frames_resize(f, &out, 43, 132);
    assert_string_equal(buf_cstr(&out) + 6, "\4{\"Width\":132,\"Height\":43}");
    kube_frames_free(f);
    kube_frames_free(four);
}

static void pings_are_answered(void **state)
{
    kube_frames *f = kube_frames_new(5, masks);
    CLEANUP(buf_done) buf out = {0};

    (void)state;
    kube_frames_feed(f, "\x89\x02hi", 4);
    kube_frames_flush(f, &out);
    assert_memory_equal(out.p, "\x8a\x82\0\0\0\0hi", 8);
    for (int i = 0; i < 100; i++)
        kube_frames_feed(f, "\x89\x02hi", 4);
    assert_true(kube_frames_flooded(f));
    kube_frames_free(f);
}

static void stderr_is_kept_up_to_its_limit(void **state)
{
    kube_frames *f = kube_frames_new(5, masks);
    CLEANUP(buf_done) buf in = {0};
    char text[10001];

    (void)state;
    memset(text, 'e', 10000);
    text[10000] = 0;
    put(&in, 2, text);
    kube_frames_feed(f, in.p, in.len);
    assert_int_equal(kube_frames_err(f)->len, KUBE_STDERR_MAX);
    assert_false(kube_frames_over(f));
    kube_frames_free(f);
}

static void a_message_has_an_end(void **state)
{
    kube_frames *f = kube_frames_new(5, masks);
    static const char HEAD[] = "\x82\x7f\0\0\0\0\x7f\xff\xff\xff\1";

    (void)state;
    kube_frames_feed(f, HEAD, sizeof HEAD - 1);
    for (int i = 0; i < 40 && !kube_frames_over(f); i++) {
        static const char MORE[65536];
        kube_frames_feed(f, MORE, sizeof MORE);
    }
    assert_true(kube_frames_over(f));
    assert_false(kube_frames_end(f)->known);
    kube_frames_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_succeeds),
        cmocka_unit_test(it_exits_with_7),
        cmocka_unit_test(it_is_not_there),
        cmocka_unit_test(without_a_status_nothing_is_known),
        cmocka_unit_test(what_is_sent),
        cmocka_unit_test(pings_are_answered),
        cmocka_unit_test(stderr_is_kept_up_to_its_limit),
        cmocka_unit_test(a_message_has_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
