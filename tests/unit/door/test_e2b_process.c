#include <signal.h>
#include <string.h>

#include "base/str.h"
#include "door/e2b/process.h"
#include "wire/connect.h"

#include "unit.h"

static err *start(const char *text, process_start *s)
{
    return process_start_decode(text, strlen(text), s);
}

static void a_start_is_read(void **state)
{
    (void)state;
    CLEANUP(process_start_done) process_start s = {0};

    assert_ok(start("{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"x\"],\"envs\":"
                    "{\"A\":\"b=c\"},\"cwd\":\"/tmp\"},\"stdin\":false,\"tag\":\"t\","
                    "\"pty\":{\"size\":{\"cols\":80,\"rows\":\"24\"}},\"later\":[]}",
                    &s));
    assert_int_equal(strv_len(s.argv), 4);
    assert_string_equal(s.argv[0], "/bin/bash");
    assert_string_equal(s.argv[3], "x");
    assert_string_equal(s.env[0], "A=b=c");
    assert_string_equal(s.cwd, "/tmp");
    assert_string_equal(s.tag, "t");
    assert_true(s.no_stdin && s.has_pty);
    assert_int_equal(s.rows, 24);
    assert_int_equal(s.cols, 80);
}

static void what_is_left_out_is_the_default(void **state)
{
    (void)state;
    static const char *const SAME[] = {
        "{\"process\":{\"cmd\":\"a\"}}",
        "{\"process\":{\"cmd\":\"a\",\"args\":[],\"envs\":{},\"cwd\":\"\"},\"stdin\":true}",
        ("{\"process\":{\"cmd\":\"a\",\"args\":null,\"envs\":null,\"cwd\":null},\"stdin\":null,"
         "\"pty\":null,\"tag\":null}"),
    };
    for (size_t i = 0; i < ARRAY_LEN(SAME); i++) {
        CLEANUP(process_start_done) process_start s = {0};
        assert_ok(start(SAME[i], &s));
        assert_int_equal(strv_len(s.argv), 1);
        assert_true(!s.env && !s.cwd && !s.tag && !s.has_pty && !s.no_stdin);
    }
}

static void a_tag_is_short(void **state)
{
    (void)state;
    for (int n = 256; n <= 257; n++) {
        CLEANUP(process_start_done) process_start s = {0};
        CLEANUP(freep)
        char *text = str_printf("{\"process\":{\"cmd\":\"a\"},\"tag\":\"%0*d\"}", n, 0);
        if (n > 256)
            assert_err(start(text, &s), ERR_INVALID_REQUEST);
        else
            assert_ok(start(text, &s));
    }
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    static const char *const WRONG[] = {
        "",
        "[]",
        "{}",
        "{\"process\":[]}",
        "{\"process\":{\"cmd\":\"\"}}",
        "{\"process\":{\"cmd\":1}}",
        "{\"process\":{\"cmd\":\"a\",\"args\":\"x\"}}",
        "{\"process\":{\"cmd\":\"a\",\"args\":[1]}}",
        "{\"process\":{\"cmd\":\"a\",\"envs\":{\"A\":1}}}",
        "{\"process\":{\"cmd\":\"a\",\"envs\":{\"\":\"x\"}}}",
        "{\"process\":{\"cmd\":\"a\",\"envs\":{\"A=\":\"x\"}}}",
        "{\"process\":{\"cmd\":\"a\"},\"stdin\":1}",
        "{\"process\":{\"cmd\":\"a\"},\"pty\":{\"size\":{\"cols\":70000}}}",
        "{\"process\":{\"cmd\":\"a\"},\"pty\":{\"size\":{\"cols\":-1}}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(WRONG); i++) {
        process_start s = {0};
        assert_err(start(WRONG[i], &s), ERR_INVALID_REQUEST);
    }
}

static err *ask(const char *text, process_request *r)
{
    return process_request_decode(text, strlen(text), r);
}

static void requests_name_a_process_and_bring_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } INPUTS[] = {{"aGkK", 3}, {"aGk=", 2}, {"aGk", 2}, {"-_8=", 2}, {"+/8", 2}, {"", 0}};

    for (size_t i = 0; i < ARRAY_LEN(INPUTS); i++) {
        CLEANUP(process_request_done) process_request r = {0};
        CLEANUP(freep)
        char *text =
            str_printf("{\"process\":{\"pid\":7},\"input\":{\"pty\":\"%s\"}}", INPUTS[i].text);
        assert_ok(ask(text, &r));
        assert_int_equal(r.process.pid, 7);
        assert_int_equal(r.input, INPUT_PTY);
        assert_int_equal(r.bytes.len, INPUTS[i].n);
    }
    process_request r = {0};
    assert_err(ask("{\"process\":{}}", &r), ERR_INVALID_REQUEST);
    assert_err(ask("{\"process\":{\"pid\":-1}}", &r), ERR_INVALID_REQUEST);
    assert_err(ask("{\"process\":{\"pid\":1},\"input\":{\"stdin\":\"a\"}}", &r),
               ERR_INVALID_REQUEST);
}

static void signals_have_names_and_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int signo;
    } CASES[] = {{"\"SIGNAL_SIGKILL\"", SIGKILL},
                 {"9", SIGKILL},
                 {"\"SIGNAL_SIGTERM\"", SIGTERM},
                 {"15", SIGTERM},
                 {"1", 0},
                 {"\"SIGNAL_UNSPECIFIED\"", 0},
                 {"null", 0}};

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(process_request_done) process_request r = {0};
        CLEANUP(freep)
        char *text = str_printf("{\"process\":{\"tag\":\"x\"},\"signal\":%s}", CASES[i].text);
        assert_ok(ask(text, &r));
        assert_string_equal(r.process.tag, "x");
        assert_int_equal(r.signo, CASES[i].signo);
    }
}

static void end_is(const exec_end *end, const char *want)
{
    CLEANUP(buf_done) buf b = {0};
    const char *p = NULL;
    size_t n = 0;

    process_event_end(&b, end);
    assert_ok(connect_single(b.p, b.len, &p, &n));
    CLEANUP(freep) char *text = xstrndup(p, n);
    assert_string_equal(text, want);
}

static void ends_are_as_go_says_them(void **state)
{
    (void)state;
    end_is(&(exec_end){.how = EXEC_EXITED},
           "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}}}");
    end_is(&(exec_end){.how = EXEC_EXITED, .exit_code = 3},
           "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\","
           "\"error\":\"exit status 3\"}}}");
    end_is(&(exec_end){.how = EXEC_KILLED, .signal = SIGKILL},
           "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\","
           "\"error\":\"signal: killed\"}}}");
    end_is(&(exec_end){.how = EXEC_TIMED_OUT}, /* it was told to stop, and did so in its own way */
           "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\","
           "\"error\":\"signal: killed\"}}}");
}

static void notes_are_bounded(void **state)
{
    (void)state;
    CLEANUP(process_start_done) process_start s = {0};
    CLEANUP(buf_done) buf b = {0};

    buf_str(&b, "{\"process\":{\"cmd\":\"a\",\"args\":[\"");
    for (int i = 0; i < 100000; i++)
        buf_str(&b, "\xc3\xa9");
    buf_char(&b, '"');
    for (int i = 0; i < 10000; i++)
        buf_str(&b, ",\"123456789012345\"");
    buf_str(&b, "]}}");
    assert_ok(process_start_decode(b.p, b.len, &s));
    CLEANUP(freep) char *note = process_note(&s);
    assert_true(strlen(note) < 100000);
    assert_true(utf8_valid(note, strlen(note)));
    CLEANUP(json_decrefp) json_t *o = NULL;
    assert_ok(json_parse(note, strlen(note), &o));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_is_read),
        cmocka_unit_test(what_is_left_out_is_the_default),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(a_tag_is_short),
        cmocka_unit_test(requests_name_a_process_and_bring_bytes),
        cmocka_unit_test(signals_have_names_and_numbers),
        cmocka_unit_test(ends_are_as_go_says_them),
        cmocka_unit_test(notes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
