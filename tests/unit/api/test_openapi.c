/* The decoders of the native API: strict, with errors somebody can act on. */
#include <string.h>

#include "api/openapi.h"
#include "base/str.h"

#include "../unit.h"

static err *decode_create(const char *text, create_sandbox *ret)
{
    return create_sandbox_decode(text, strlen(text), ret);
}

/* The whole message, because callers read it. */
static void refused(const char *text, const char *message)
{
    create_sandbox c = {0};
    err *e = decode_create(text, &c);

    if (!e)
        print_error("taken: %s\n", text);
    assert_non_null(e);
    assert_int_equal(e->code, ERR_INVALID_REQUEST);
    assert_string_equal(e->message, message);
    err_free(e);
    static const create_sandbox ZERO;
    assert_memory_equal(&c, &ZERO, sizeof c);
}

static void a_full_create_is_decoded(void **state)
{
    CLEANUP(create_sandbox_done) create_sandbox c = {0};

    (void)state;
    assert_ok(decode_create(
        "{\"image\":\"busybox\",\"name\":\"web\",\"env\":{\"A\":\"1\",\"B\":\"x=y\"},"
        "\"secrets\":{\"KEY\":\"hunter2\"},\"user\":\"1000:1000\",\"cwd\":\"/tmp\","
        "\"labels\":{\"team\":\"a\"},\"limits\":{\"memory\":268435456,\"cpu\":0.5,\"pids\":50},"
        "\"tmpfs\":[{\"path\":\"/scratch\",\"size\":65536,\"mode\":\"700\",\"exec\":true},"
        "{\"path\":\"/b\",\"size\":4096}],\"ttl\":600,\"queue_wait\":5,\"read_only\":true,"
        "\"grants\":[\"setuid\"],\"umask\":\"077\",\"tier\":\"strong\",\"network\":\"open\","
        "\"pull\":\"never\"}",
        &c));
    assert_string_equal(c.image, "busybox");
    assert_string_equal(c.name, "web");
    assert_int_equal(strv_len(c.env), 2);
    assert_string_equal(strv_env_get(c.env, "B"), "x=y");
    assert_string_equal(strv_env_get(c.secrets, "KEY"), "hunter2");
    assert_string_equal(c.user, "1000:1000");
    assert_string_equal(c.labels[0], "team=a");
    assert_true(c.has_limits && c.limits.has_memory && c.limits.has_cpu && !c.limits.has_disk);
    assert_int_equal(c.limits.memory, 256u << 20);
    assert_true(c.limits.cpu == 0.5);
    assert_int_equal(c.ntmpfs, 2);
    assert_string_equal(c.tmpfs[0].path, "/scratch");
    assert_true(c.tmpfs[0].has_mode && c.tmpfs[0].mode == 0700 && c.tmpfs[0].exec);
    assert_false(c.tmpfs[1].has_mode || c.tmpfs[1].exec);
    assert_true(c.has_ttl && c.ttl == 600 && c.queue_wait == 5 && c.read_only);
    assert_int_equal(c.ngrants, 1);
    assert_int_equal(c.grants[0], CREATE_SANDBOX_GRANTS_SETUID);
    assert_true(c.has_umask && c.umask == 077);
    assert_int_equal(c.tier, CREATE_SANDBOX_TIER_STRONG);
    assert_int_equal(c.network, CREATE_SANDBOX_NETWORK_OPEN);
    assert_int_equal(c.pull, CREATE_SANDBOX_PULL_NEVER);
}

static void defaults_are_those_of_the_file(void **state)
{
    CLEANUP(create_sandbox_done) create_sandbox c = {0};
    CLEANUP(exec_request_done) exec_request x = {0};
    const char *exec = "{\"argv\":[\"true\"]}";

    (void)state;
    assert_ok(decode_create("{\"image\":\"a\"}", &c));
    assert_null(c.name);
    assert_null(c.env);
    assert_false(c.has_limits || c.has_ttl || c.read_only || c.has_umask);
    assert_int_equal(c.tier, CREATE_SANDBOX_TIER_LIGHT);
    assert_int_equal(c.network, CREATE_SANDBOX_NETWORK_UNSET);
    assert_int_equal(c.pull, CREATE_SANDBOX_PULL_MISSING);
    assert_ok(exec_request_decode(exec, strlen(exec), &x));
    assert_int_equal(x.stdio, EXEC_REQUEST_STDIO_PIPES);
    assert_int_equal(x.rows, 24);
    assert_int_equal(x.cols, 80);
    assert_int_equal(x.timeout_ms, 0);
    assert_null(x.stdin.p);
}

static void errors_name_the_member_and_what_was_expected(void **state)
{
    (void)state;
    refused("[]", "the body must be an object, not an array");
    refused("{\"image\":5}", "image must be a string, not an integer");
    refused("{\"image\":null}", "image must be a string, not null");
    refused("{\"image\":\"\"}", "image must have at least 1 byte");
    refused("{\"image\":\"a\",\"imgae\":1}", "imgae is not known, did you mean 'image'?");
    refused("{\"image\":\"a\",\"zzzzzzzz\":1}", "zzzzzzzz is not known");
    refused("{\"image\":\"a\",\"limits\":{\"memroy\":1}}",
            "limits.memroy is not known, did you mean 'memory'?");
    refused("{\"image\":\"a\",\"limits\":{\"memory\":\"512m\"}}",
            "limits.memory must be an integer from 8388608 to 70368744177664, not a string");
    refused("{\"image\":\"a\",\"limits\":{\"memory\":1}}",
            "limits.memory must be an integer from 8388608 to 70368744177664, not 1");
    refused("{\"image\":\"a\",\"limits\":{\"pids\":5.0}}",
            "limits.pids must be an integer from 4 to 4194304, not a number");
    refused("{\"image\":\"a\",\"limits\":{\"cpu\":0}}",
            "limits.cpu must be from 0.01 to 1024, not 0");
    refused("{\"image\":\"a\",\"tmpfs\":[{\"path\":\"/a\",\"size\":4096},{\"path\":\"/b\"}]}",
            "tmpfs[1].size is missing");
    refused("{\"image\":\"a\",\"tmpfs\":[{\"path\":\"b/\",\"size\":4096}]}",
            "tmpfs[0].path must match ^/, 'b/' does not");
    refused("{\"image\":\"a\",\"tmpfs\":{}}", "tmpfs must be an array, not an object");
    refused("{\"image\":\"a\",\"pull\":\"often\"}",
            "pull must be 'missing', 'always' or 'never', not 'often'");
    refused("{\"image\":\"a\",\"grants\":[\"setuid\",\"root\"]}",
            "grants[1] must be 'setuid', not 'root'");
    refused("{\"image\":\"a\",\"umask\":\"9\"}", "umask must match ^[0-7]{1,4}$, '9' does not");
    refused("{\"image\":\"a\",\"umask\":18}",
            "umask must be a string of octal digits, not an integer");
    refused("{\"image\":\"a\",\"read_only\":1}", "read_only must be true or false, not an integer");
    refused("{\"image\":\"a\",\"env\":{\"A\":1}}", "env.A must be a string, not an integer");
    refused("{\"image\":\"a\",\"env\":{\"A=B\":\"\"}}",
            "env has a member 'A=B', names must match ^[^=]+$");
    refused("{\"image\":\"a\",\"env\":{\"\":\"\"}}",
            "env has a member '', names must match ^[^=]+$");
    refused("{\"image\":\"a\",\"name\":\"-x\"}",
            "name must match ^[A-Za-z0-9][A-Za-z0-9_.-]*$, '-x' does not");
}

static void an_unknown_member_is_told_the_known_ones(void **state)
{
    create_sandbox c = {0};
    CLEANUP(err_freep) err *e = decode_create("{\"image\":\"a\",\"imgae\":1}", &c);

    (void)state;
    assert_non_null(e);
    assert_non_null(strstr(e->remedy, "members of CreateSandbox: image, template, snapshot, name"));
}

static void broken_json_is_refused(void **state)
{
    static const char *const BAD[] = {"",
                                      "{",
                                      "{\"image\":\"a\"} x",
                                      "{\"image\":\"a\",\"image\":\"b\"}",
                                      "{\"image\":\"a\\u0000b\"}",
                                      "{\"image\":\"\xff\"}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        create_sandbox c = {0};
        assert_err(decode_create(BAD[i], &c), ERR_INVALID_REQUEST);
    }
}

static void counts_and_lengths_have_ceilings(void **state)
{
    CLEANUP(buf_done) buf b = {0};
    exec_request x = {0};
    create_sandbox c = {0};

    (void)state;
    buf_str(&b, "{\"image\":\"a\",\"tmpfs\":[");
    for (int i = 0; i < 9; i++)
        buf_printf(&b, "%s{\"path\":\"/t%d\",\"size\":4096}", i ? "," : "", i);
    buf_str(&b, "]}");
    CLEANUP(err_freep) err *e = create_sandbox_decode(b.p, b.len, &c);
    assert_non_null(e);
    assert_string_equal(e->message, "tmpfs has 9 items, at most 8 are allowed");
    assert_err(exec_request_decode("{\"argv\":[]}", 11, &x), ERR_INVALID_REQUEST);
}

static void bytes_come_as_text_or_base64(void **state)
{
    CLEANUP(exec_request_done) exec_request x = {0};
    static const char *const BAD[] = {
        "{\"argv\":[\"a\"],\"stdin\":7}", "{\"argv\":[\"a\"],\"stdin\":{}}",
        "{\"argv\":[\"a\"],\"stdin\":{\"text\":\"x\",\"b64\":\"eA==\"}}",
        "{\"argv\":[\"a\"],\"stdin\":{\"b64\":\"e\"}}",
        "{\"argv\":[\"a\"],\"stdin\":{\"text\":5}}"};
    const char *text = "{\"argv\":[\"a\"],\"stdin\":{\"text\":\"h\xc3\xa4\"}}";
    const char *b64 = "{\"argv\":[\"a\"],\"stdin\":{\"b64\":\"AAH/\"}}";
    const char *plain = "{\"argv\":[\"a\"],\"stdin\":\"abc\"}";

    (void)state;
    assert_ok(exec_request_decode(text, strlen(text), &x));
    assert_int_equal(x.stdin.n, 3);
    exec_request_done(&x);
    assert_ok(exec_request_decode(plain, strlen(plain), &x));
    assert_int_equal(x.stdin.n, 3);
    exec_request_done(&x);
    assert_ok(exec_request_decode(b64, strlen(b64), &x));
    assert_int_equal(x.stdin.n, 3);
    assert_memory_equal(x.stdin.p, "\0\1\xff", 3);
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        exec_request y = {0};
        assert_err(exec_request_decode(BAD[i], strlen(BAD[i]), &y), ERR_INVALID_REQUEST);
    }
}

static void a_signal_is_a_name_or_a_number(void **state)
{
    CLEANUP(signal_request_done) signal_request s = {0};

    (void)state;
    assert_ok(signal_request_decode("{\"signal\":15}", 13, &s));
    assert_string_equal(s.signal, "15");
    assert_int_equal(s.scope, SIGNAL_REQUEST_SCOPE_PROCESS);
    signal_request_done(&s);
    assert_ok(signal_request_decode("{\"signal\":\"TERM\"}", 17, &s));
    assert_string_equal(s.signal, "TERM");
    signal_request_done(&s);
    assert_err(signal_request_decode("{\"signal\":1.5}", 14, &s), ERR_INVALID_REQUEST);
}

static void an_optional_body_may_be_empty(void **state)
{
    prune_images p = {.all = true};
    create_key k = {0};

    (void)state;
    assert_ok(prune_images_decode("", 0, &p));
    assert_false(p.all);
    assert_err(create_key_decode("", 0, &k), ERR_INVALID_REQUEST);
}

/* Stands in for the real one (the linker's --wrap) and counts what it gets to wipe. */
void __real_secret_wipe(void *p, size_t n);
void __wrap_secret_wipe(void *p, size_t n);
static int wiped;

void __wrap_secret_wipe(void *p, size_t n)
{
    wiped += p && memmem(p, n, "hunter2", 7);
    __real_secret_wipe(p, n);
}

static void secrets_are_wiped(void **state)
{
    create_sandbox c = {0};

    (void)state;
    wiped = 0;
    assert_ok(decode_create("{\"image\":\"a\",\"secrets\":{\"K\":\"hunter2\"}}", &c));
    assert_int_equal(wiped, 1); /* the parsed document */
    create_sandbox_done(&c);
    assert_int_equal(wiped, 2); /* the struct */
    wiped = 0;
    assert_err(decode_create("{\"image\":\"a\",\"secrets\":{\"K\":\"hunter2\"},\"ttl\":0}", &c),
               ERR_INVALID_REQUEST);
    assert_int_equal(wiped, 2); /* both, also when something else is wrong */
}

static void secrets_are_not_quoted(void **state)
{
    static const char *const BAD[] = {
        "{\"image\":\"a\",\"secrets\":{\"K\":[\"hunter2\"]}}",
        "{\"image\":\"a\",\"secrets\":[\"hunter2\"]}",
        "{\"image\":\"a\",\"secrets\":\"hunter2\"}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        create_sandbox c = {0};
        CLEANUP(err_freep) err *e = decode_create(BAD[i], &c);
        assert_non_null(e);
        assert_null(strstr(e->message, "hunter2"));
        assert_null(strstr(str_or(e->cause, ""), "hunter2"));
    }
}

typedef struct query {
    const char *const *pairs; /* name, value, …, NULL */
} query;

static const char *find(void *arg, const char *name)
{
    for (const char *const *p = ((query *)arg)->pairs; *p; p += 2)
        if (!strcmp(*p, name))
            return p[1];
    return NULL;
}

static void queries_are_decoded_like_bodies(void **state)
{
    static const char *const GOOD[] = {"stream", "err", "offset", "12.5", "max", "64", NULL};
    static const char *const WRONG[] = {"max", "0", NULL};
    static const char *const NONE[] = {NULL};
    CLEANUP(process_output_query_done) process_output_query q = {0};
    CLEANUP(process_stdin_query_done) process_stdin_query in = {0};

    (void)state;
    assert_ok(process_output_query_decode(find, &(query){GOOD}, &q));
    assert_int_equal(q.stream, PROCESS_OUTPUT_QUERY_STREAM_ERR);
    assert_string_equal(q.offset, "12.5");
    assert_int_equal(q.max, 64);
    assert_int_equal(q.follow, PROCESS_OUTPUT_QUERY_FOLLOW_NO);
    process_output_query_done(&q);
    CLEANUP(err_freep) err *e = process_output_query_decode(find, &(query){WRONG}, &q);
    assert_non_null(e);
    assert_string_equal(e->message, "max must be an integer from 1 to 16777216, not 0");
    assert_ok(process_output_query_decode(find, &(query){NONE}, &q));
    assert_string_equal(q.offset, "0");
    assert_int_equal(q.stream, PROCESS_OUTPUT_QUERY_STREAM_UNSET);
    assert_ok(process_stdin_query_decode(find, &(query){NONE}, &in));
    assert_false(in.has_offset || in.eof);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_create_is_decoded),
        cmocka_unit_test(defaults_are_those_of_the_file),
        cmocka_unit_test(errors_name_the_member_and_what_was_expected),
        cmocka_unit_test(an_unknown_member_is_told_the_known_ones),
        cmocka_unit_test(broken_json_is_refused),
        cmocka_unit_test(counts_and_lengths_have_ceilings),
        cmocka_unit_test(bytes_come_as_text_or_base64),
        cmocka_unit_test(a_signal_is_a_name_or_a_number),
        cmocka_unit_test(an_optional_body_may_be_empty),
        cmocka_unit_test(secrets_are_wiped),
        cmocka_unit_test(secrets_are_not_quoted),
        cmocka_unit_test(queries_are_decoded_like_bodies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
