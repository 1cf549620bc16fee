#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/str.h"
#include "cli/spec.h"

#include "../unit.h"

static char *write_temporary(const char *text, size_t n)
{
    char *path = xstrdup("/tmp/bothy-test-XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text, n), 0);
    close(fd);
    return path;
}

static void check_file(const char *text, size_t n, const char *want)
{
    CLEANUP(json_decrefp) json_t *env = json_object();
    CLEANUP(freep) char *path = write_temporary(text, n);
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(err_freep) err *e = spec_add_env_file(env, path);

    unlink(path);
    if (!want) {
        assert_non_null(e);
        return;
    }
    assert_null(e);
    json_write(&b, env);
    assert_string_equal(buf_cstr(&b), want);
}

#define TEXT(s) s, sizeof(s) - 1

static void env_files(void **state)
{
    (void)state;
    setenv("BOTHY_TEST_GIVEN", "ours", 1);
    check_file(TEXT(""), "{}");
    check_file(TEXT("A=1\n\n# no\n  #neither\n B=two words \nC=\nD=a=b"),
               "{\"A\":\"1\",\"B\":\"two words \",\"C\":\"\",\"D\":\"a=b\"}");
    check_file(TEXT("A=1\r\nB='q'\r\n"), "{\"A\":\"1\",\"B\":\"'q'\"}");
    check_file(TEXT("BOTHY_TEST_GIVEN\nBOTHY_TEST_NOT_THERE\n"), "{\"BOTHY_TEST_GIVEN\":\"ours\"}");
    check_file(TEXT("A=1\n=2\n"), NULL);
    check_file(TEXT("A=\0\n"), NULL);
    check_file(TEXT("A=\xff\n"), NULL);
}

static void an_env_file_that_is_not_there(void **state)
{
    CLEANUP(json_decrefp) json_t *env = json_object();
    CLEANUP(err_freep) err *e = spec_add_env_file(env, "/no/such/file");

    (void)state;
    assert_non_null(e);
    assert_non_null(strstr(e->message, "/no/such/file"));
}

static void flags_win_over_files(void **state)
{
    CLEANUP(freep) char *path = write_temporary("A=file\nB=file\n", 14);
    char *files[] = {path, NULL}, *flags[] = {"A=flag", NULL};
    CLEANUP(json_decrefp) json_t *env = NULL;

    (void)state;
    CLEANUP(err_freep) err *e = spec_env_to_json(files, flags, &env);
    unlink(path);
    assert_null(e);
    assert_string_equal(json_str(env, "A"), "flag");
    assert_string_equal(json_str(env, "B"), "file");
}

static void secrets(void **state)
{
    CLEANUP(json_decrefp) json_t *o = json_object();
    CLEANUP(freep) char *path = write_temporary("in\nfile\n", 8);
    CLEANUP(freep) char *word = str_printf("F=@%s", path);

    (void)state;
    setenv("BOTHY_TEST_GIVEN", "ours", 1);
    assert_ok(spec_add_secret(o, "A=b=c"));
    assert_ok(spec_add_secret(o, "BOTHY_TEST_GIVEN"));
    assert_ok(spec_add_secret(o, word));
    unlink(path);
    assert_string_equal(json_str(o, "A"), "b=c");
    assert_string_equal(json_str(o, "BOTHY_TEST_GIVEN"), "ours");
    assert_string_equal(json_str(o, "F"), "in\nfile\n");
    static const char *const BAD[] = {"=x", "BOTHY_TEST_NOT_THERE", "F=@/no/such"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        CLEANUP(err_freep) err *e = spec_add_secret(o, BAD[i]);
        assert_non_null(e);
    }
}

static void check_tmpfs(const char *word, const char *want)
{
    CLEANUP(json_decrefp) json_t *mount = NULL;
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(err_freep) err *e = spec_parse_tmpfs(word, &mount);

    if (!want) {
        assert_non_null(e);
        return;
    }
    assert_null(e);
    json_write(&b, mount);
    assert_string_equal(buf_cstr(&b), want);
}

static void tmpfs(void **state)
{
    (void)state;
    check_tmpfs("/t", "{\"path\":\"/t\",\"size\":67108864}");
    check_tmpfs("/t:size=1m,exec,mode=1777",
                "{\"path\":\"/t\",\"size\":1048576,\"exec\":true,\"mode\":\"1777\"}");
    check_tmpfs("/t:rw,noexec,nosuid", "{\"path\":\"/t\",\"size\":67108864,\"exec\":false}");
    check_tmpfs("t", NULL);
    check_tmpfs("/t:size=much", NULL);
    check_tmpfs("/t:mode=9", NULL);
    check_tmpfs("/t:mode=", NULL);
    check_tmpfs("/t:loud", NULL);
}

static void only_what_was_asked_is_sent(void **state)
{
    spec_args a = {0};
    CLEANUP(json_decrefp) json_t *body = NULL;

    (void)state;
    assert_ok(spec_to_json(&a, "busybox", &body));
    assert_int_equal(json_object_size(body), 1);
    a.ttl_ms = 1;
    CLEANUP(json_decrefp) json_t *again = NULL;
    assert_ok(spec_to_json(&a, "busybox", &again));
    assert_int_equal(json_int(again, "ttl", 0), 1); /* rounded up: never "for ever" */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(env_files),
        cmocka_unit_test(an_env_file_that_is_not_there),
        cmocka_unit_test(flags_win_over_files),
        cmocka_unit_test(secrets),
        cmocka_unit_test(tmpfs),
        cmocka_unit_test(only_what_was_asked_is_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
