/* Other API files through the same generator: lenient and proto3-json, routes, prefixes. */
#include <math.h>
#include <string.h>

#include "api/lenient.h"
#include "api/proto.h"
#include "base/str.h"

#include "../unit.h"

err *len_on_ping(request *rq, response *rs)
{
    (void)rq, (void)rs;
    return NULL;
}
err *len_on_ping_all(request *rq, response *rs)
{
    (void)rq, (void)rs;
    return NULL;
}
err *len_on_file(request *rq, response *rs)
{
    (void)rq, (void)rs;
    return NULL;
}

static err *container(const char *text, len_container *ret)
{
    return len_container_decode(text, strlen(text), ret);
}

static void lenient_ignores_what_it_does_not_know(void **state)
{
    CLEANUP(len_container_done) len_container c = {0};

    (void)state;
    assert_ok(
        container("{\"Id\":\"x\",\"New\":{\"deep\":[1]},\"Mounts\":[{\"Source\":\"/a\",\"Z\":1},"
                  "{\"RW\":false}],\"ExitCode\":-1,\"Pid\":7.0,\"Ports\":[1,2,4294967295],"
                  "\"State\":\"dead\",\"Labels\":{\"a\":\"b\"},\"Raw\":{\"k\":[true]},"
                  "\"Names\":[\"n\"]}",
                  &c));
    assert_int_equal(c.nmounts, 2);
    assert_string_equal(c.mounts[0].source, "/a");
    assert_true(c.mounts[0].rw);
    assert_false(c.mounts[1].rw);
    assert_true(c.has_exit_code && c.exit_code == -1);
    assert_int_equal(c.pid, 7);
    assert_int_equal(c.nports, 3);
    assert_int_equal(c.ports[2], UINT32_MAX);
    assert_int_equal(c.state, LEN_STATE_DEAD);
    assert_string_equal(c.labels[0], "a=b");
    assert_true(json_is_true(json_array_get(json_object_get(c.raw, "k"), 0)));
    assert_string_equal(c.names[0], "n");
}

static void lenient_reads_null_as_absent(void **state)
{
    CLEANUP(len_container_done) len_container c = {0};

    (void)state;
    assert_ok(container("{\"Id\":\"x\",\"Names\":null,\"Mounts\":null,\"ExitCode\":null,"
                        "\"State\":null,\"default\":null,\"Weight\":null}",
                        &c));
    assert_null(c.names);
    assert_int_equal(c.nmounts, 0);
    assert_false(c.has_exit_code);
    assert_int_equal(c.state, LEN_STATE_UNSET);
    assert_string_equal(c.default_, "none");
    assert_true(c.weight == 0.5);
}

static void lenient_still_checks_types_and_required_members(void **state)
{
    static const char *const BAD[] = {"{}",
                                      "{\"Id\":null}",
                                      "{\"Id\":1}",
                                      "{\"Id\":\"x\",\"Pid\":-1}",
                                      "{\"Id\":\"x\",\"Pid\":1.5}",
                                      "{\"Id\":\"x\",\"ExitCode\":2147483648}",
                                      "{\"Id\":\"x\",\"State\":\"lost\"}",
                                      "{\"Id\":\"x\",\"Mounts\":[3]}",
                                      "{\"Id\":\"x\",\"Ports\":[-1]}",
                                      "{\"Id\":\"x\",\"Pid\":\"5\"}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        len_container c = {0};
        assert_err(container(BAD[i], &c), ERR_INVALID_REQUEST);
    }
}

static err *start(const char *text, pb_start_request *ret)
{
    return pb_start_request_decode(text, strlen(text), ret);
}

static void proto3_takes_both_spellings(void **state)
{
    static const char *const FORMS[] = {
        "{\"processConfig\":{\"cwdPath\":\"/a\"},\"timeout_ms\":\"9007199254740993\"}",
        "{\"process_config\":{\"cwd_path\":\"/a\"},\"timeoutMs\":9007199254740993}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(FORMS); i++) {
        CLEANUP(pb_start_request_done) pb_start_request r = {0};
        assert_ok(start(FORMS[i], &r));
        assert_true(r.has_process_config);
        assert_string_equal(r.process_config.cwd_path, "/a");
        assert_true(r.timeout_ms == 9007199254740993);
    }
    pb_start_request twice = {0};
    assert_err(start("{\"timeoutMs\":1,\"timeout_ms\":2}", &twice), ERR_INVALID_REQUEST);
}

static void proto3_numbers(void **state)
{
    CLEANUP(pb_start_request_done) pb_start_request r = {0};
    static const char *const BAD[] = {"{\"timeoutMs\":\"1x\"}",
                                      "{\"timeoutMs\":\"\"}",
                                      "{\"timeoutMs\":\"9223372036854775808\"}",
                                      "{\"size\":\"-1\"}",
                                      "{\"size\":\"18446744073709551616\"}",
                                      "{\"rate\":\"fast\"}"};

    (void)state;
    assert_ok(start("{\"timeoutMs\":\"-9223372036854775807\",\"size\":\"18446744073709551615\","
                    "\"rate\":\"Infinity\"}",
                    &r));
    assert_true(r.timeout_ms == -INT64_MAX);
    assert_true(r.size == UINT64_MAX);
    assert_true(isinf(r.rate));
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        pb_start_request bad = {0};
        assert_err(start(BAD[i], &bad), ERR_INVALID_REQUEST);
    }
}

static void proto3_enums_by_name_and_number(void **state)
{
    static const struct {
        const char *text;
        int value;
    } FORMS[] = {{"{}", 0},
                 {"{\"kind\":\"KIND_DIRECTORY\"}", PB_KIND_KIND_DIRECTORY},
                 {"{\"kind\":5}", PB_KIND_KIND_DIRECTORY},
                 {"{\"kind\":77}", 77}, /* open: kept */
                 {"{\"kind\":null}", PB_KIND_KIND_UNSPECIFIED}};

    (void)state;
    assert_int_equal(PB_KIND_KIND_DIRECTORY, 5);
    for (size_t i = 0; i < ARRAY_LEN(FORMS); i++) {
        CLEANUP(pb_start_request_done) pb_start_request r = {0};
        assert_ok(start(FORMS[i].text, &r));
        assert_int_equal(r.kind, FORMS[i].value);
    }
    pb_start_request bad = {0};
    assert_err(start("{\"kind\":\"KIND_LINK\"}", &bad), ERR_INVALID_REQUEST);
    assert_err(start("{\"kind\":99999999999}", &bad), ERR_INVALID_REQUEST);
}

static void proto3_bytes_in_all_base64_forms(void **state)
{
    static const char *const FORMS[] = {"{\"input\":\"+/8=\"}", "{\"input\":\"-_8=\"}",
                                        "{\"input\":\"-_8\"}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(FORMS); i++) {
        CLEANUP(pb_start_request_done) pb_start_request r = {0};
        assert_ok(start(FORMS[i], &r));
        assert_int_equal(r.input.n, 2);
        assert_memory_equal(r.input.p, "\xfb\xff", 2);
    }
    pb_start_request bad = {0};
    assert_err(start("{\"input\":\"a\"}", &bad), ERR_INVALID_REQUEST);
}

static void proto3_absent_is_the_default(void **state)
{
    CLEANUP(pb_start_request_done) pb_start_request r = {0};

    (void)state;
    assert_ok(start("{\"unknownField\":{}}", &r));
    assert_false(r.has_process_config || r.has_stdin);
    assert_int_equal(r.timeout_ms, 0);
    assert_int_equal(r.kind, PB_KIND_KIND_UNSPECIFIED);
    pb_start_request_done(&r);
    assert_ok(start("{\"stdin\":false}", &r));
    assert_true(r.has_stdin && !r.stdin);
}

static void routes_are_in_order_and_know_their_role(void **state)
{
    (void)state;
    assert_int_equal(LENIENT_NROUTES, 3);
    assert_string_equal(LENIENT_ROUTES[0].pattern, "/files/{path*}");
    assert_int_equal(LENIENT_ROUTES[0].role, ROLE_ADMIN);
    assert_string_equal(LENIENT_ROUTES[1].pattern, "/ping/all"); /* before {who} */
    assert_int_equal(LENIENT_ROUTES[1].role, ROLE_USER);
    assert_string_equal(LENIENT_ROUTES[2].pattern, "/ping/{who}");
    assert_string_equal(LENIENT_ROUTES[2].operation, "ping");
    assert_ptr_equal(LENIENT_ROUTES[2].handle, len_on_ping);
}

static void the_embedded_document_is_json_without_our_marks(void **state)
{
    CLEANUP(json_decrefp) json_t *j = NULL;

    (void)state;
    assert_ok(json_parse(LENIENT_JSON, LENIENT_JSON_LEN, &j));
    assert_string_equal(json_str(json_object_get(j, "info"), "title"), "lenient");
    assert_null(json_object_get(j, "x-mode"));
}

static const char *find_text(void *arg, const char *name)
{
    return !strcmp(name, ((const char **)arg)[0]) ? ((const char **)arg)[1] : NULL;
}

static err *ping(const char *name, const char *value, len_ping_query *ret)
{
    return len_ping_query_decode(find_text, (const char *[]){name, value}, ret);
}

static void queries_of_every_scalar(void **state)
{
    CLEANUP(len_ping_query_done) len_ping_query q = {0};

    (void)state;
    assert_ok(ping("count", "9", &q));
    assert_int_equal(q.count, 9);
    assert_ok(ping("x", "", &q));
    assert_int_equal(q.count, 3);
    assert_ok(ping("loud", "", &q));
    assert_true(q.loud);
    assert_ok(ping("loud", "0", &q));
    assert_false(q.loud);
    assert_ok(ping("tone", "low", &q));
    assert_int_equal(q.tone, LEN_PING_QUERY_TONE_LOW);
    assert_ok(ping("gap", "1.5", &q));
    assert_true(q.has_gap && q.gap == 1.5);
    assert_ok(ping("mask", "022", &q));
    assert_true(q.has_mask && q.mask == 022);
    assert_err(ping("count", "10", &q), ERR_INVALID_REQUEST);
    assert_err(ping("loud", "yes", &q), ERR_INVALID_REQUEST);
    assert_err(ping("tone", "mid", &q), ERR_INVALID_REQUEST);
    assert_err(ping("gap", "nan", &q), ERR_INVALID_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenient_ignores_what_it_does_not_know),
        cmocka_unit_test(lenient_reads_null_as_absent),
        cmocka_unit_test(lenient_still_checks_types_and_required_members),
        cmocka_unit_test(proto3_takes_both_spellings),
        cmocka_unit_test(proto3_numbers),
        cmocka_unit_test(proto3_enums_by_name_and_number),
        cmocka_unit_test(proto3_bytes_in_all_base64_forms),
        cmocka_unit_test(proto3_absent_is_the_default),
        cmocka_unit_test(routes_are_in_order_and_know_their_role),
        cmocka_unit_test(the_embedded_document_is_json_without_our_marks),
        cmocka_unit_test(queries_of_every_scalar),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
