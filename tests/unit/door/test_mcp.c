#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "door/mcp/fit.h"
#include "door/mcp/page.h"
#include "door/mcp/rpc.h"
#include "door/mcp/tools.h"

#include "unit.h"

static void text_is_utf8_whatever_comes(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf out = {0};

    assert_true(fit_text(&out, "a\xc3\xa9", 3));
    buf_clear(&out);
    assert_false(fit_text(&out, "a\xff\0b\xc3", 5));
    assert_string_equal(buf_cstr(&out), "a\xef\xbf\xbd\xef\xbf\xbd"
                                        "b\xef\xbf\xbd");
}

static void cuts_spare_lines_and_characters(void **state)
{
    (void)state;
    assert_int_equal(fit_head("one\ntwo\nthree\n", 14, 9), 8);
    assert_int_equal(fit_head("abc\xe2\x82\xac", 6, 5), 3);
    assert_int_equal(fit_head("abc", 3, 5), 3);
    assert_int_equal(fit_tail("one\ntwo\nthree\n", 14, 11), 10);
    assert_int_equal(fit_tail("\xe2\x82\xac"
                              "abc",
                              6, 5),
                     3);
}

typedef struct text {
    const char *p;
    size_t n, hole_from, hole_to;
} text;

static err *read_text(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                      uint64_t *ret_gap_to)
{
    const text *t = arg;
    size_t end = offset < t->hole_from ? t->hole_from : t->n;

    *ret_n = 0;
    if (offset >= t->hole_from && offset < t->hole_to) {
        *ret_gap_to = t->hole_to;
        return NULL;
    }
    *ret_n = end - offset < max ? end - offset : max;
    memcpy(p, t->p + offset, *ret_n);
    return NULL;
}

static void what_is_long_has_head_and_tail_and_the_way_to_the_rest(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf all = {0}, out = {0};
    bool cut = false;

    for (int i = 0; i < 1000; i++)
        buf_printf(&all, "%03d\n", i);
    text t = {all.p, all.len, all.len, all.len};
    fit_source s = {.read = read_text,
                    .arg = &t,
                    .length = all.len,
                    .head = 16,
                    .tail = 32,
                    .rest = "output(exec=\"1\", "};
    assert_null(fit_stream(&out, &s, &cut));
    assert_true(cut);
    const char *shown = buf_cstr(&out);
    assert_true(str_starts(shown, "000\n001\n002\n003\n[... "));
    assert_non_null(strstr(shown, "read them with output(exec=\"1\", offset=16) ...]\n"));
    assert_true(str_ends(shown, "998\n999\n"));
    assert_true(out.len < 150);
    buf_clear(&out);
    s.length = 48;
    assert_null(fit_stream(&out, &s, &cut));
    assert_false(cut);
    assert_int_equal(out.len, 48);
}

static void what_was_dropped_is_not_shown_as_if_it_were_whole(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf out = {0};
    text t = {"0123456789", 10, 2, 8};
    fit_source s = {
        .read = read_text, .arg = &t, .length = 10, .head = 8, .tail = 8, .rest = "output("};
    bool cut = false;

    assert_null(fit_stream(&out, &s, &cut));
    assert_true(cut);
    assert_string_equal(buf_cstr(&out), "01");
}

/* ---- pages ---- */

static void a_page_has_the_lines_that_were_asked_for(void **state)
{
    (void)state;
    CLEANUP(page_done) page p;

    page_of_lines(&p, 2, 3, 100);
    page_take(&p, 0, "one\ntw", 6);
    page_take(&p, 6, "o\nthree\nfour\n", 13);
    assert_true(p.full);
    assert_string_equal(buf_cstr(&p.bytes), "two\nthree\n");
    assert_int_equal(p.line, 4);
    assert_int_equal(p.at, 14);
}

/* A petabyte of zeros costs nothing, before the lines that are wanted and in them. */
static void a_hole_costs_no_more_than_the_page_has_room_for(void **state)
{
    (void)state;
    CLEANUP(page_done) page before, within;
    uint64_t far = UINT64_C(1) << 50;

    page_of_lines(&before, 2, UINT64_MAX, 16);
    page_take(&before, far, "x\ny", 3);
    assert_false(before.full);
    assert_string_equal(buf_cstr(&before.bytes), "y");
    assert_int_equal(before.at, far + 3);
    page_of_bytes(&within, 0, 16);
    page_take(&within, far, "x", 1);
    assert_true(within.full);
    assert_int_equal(within.bytes.len, 16);
    assert_int_equal(within.at, 16);
}

static void the_hole_at_the_end_is_part_of_the_file(void **state)
{
    (void)state;
    CLEANUP(page_done) page p, cut;

    page_of_bytes(&p, 0, 16);
    page_take(&p, 0, "ab", 2);
    page_end(&p, 5);
    assert_int_equal(p.bytes.len, 5);
    assert_memory_equal(p.bytes.p, "ab\0\0\0", 5);
    assert_int_equal(p.at, 5);
    page_of_bytes(&cut, 0, 4);
    page_end(&cut, UINT64_C(1) << 50);
    assert_int_equal(cut.bytes.len, 4);
    assert_true(cut.full);
}

/* Files of /proc come from their beginning, whatever was asked for. */
static void what_is_before_the_page_is_passed_over(void **state)
{
    (void)state;
    CLEANUP(page_done) page p;

    page_of_bytes(&p, 5, 3);
    page_take(&p, 0, "0123", 4);
    page_take(&p, 4, "456789", 6);
    assert_string_equal(buf_cstr(&p.bytes), "567");
    assert_int_equal(p.at, 8);
}

static void messages_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum rpc_kind kind;
        int code; /* 0: it is taken */
    } CASES[] = {
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", RPC_REQUEST, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\",\"params\":{}}", RPC_REQUEST, 0},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"n\"}", RPC_NOTIFICATION, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", RPC_RESPONSE, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"n\"}", 0, RPC_INVALID},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"n\"}", 0, RPC_INVALID},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"n\",\"params\":[1]}", 0, RPC_PARAMS},
        {"{\"id\":1,\"method\":\"n\"}", 0, RPC_INVALID},
        {"[]", 0, RPC_INVALID},
        {"{", 0, RPC_PARSE},
    };

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(rpc_message_done) rpc_message m = {0};
        CLEANUP(err_freep) err *e = rpc_parse(CASES[i].text, strlen(CASES[i].text), &m);
        assert_int_equal(e ? rpc_code(e) : 0, CASES[i].code);
        if (!e)
            assert_int_equal(m.kind, CASES[i].kind);
    }
}

/* What is quoted may be cut within a character, or never was text. */
static void an_error_is_told_whatever_bytes_it_quotes(void **state)
{
    (void)state;
    CLEANUP(err_freep) err *e = err_new(ERR_INVALID_REQUEST, "no tool 'a\xc3'");
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(json_decrefp) json_t *back = NULL;

    rpc_failure(&out, NULL, e, "r");
    assert_null(json_parse(out.p, out.len, &back));
    const char *message = json_str(json_object_get(back, "error"), "message");
    assert_non_null(message);
    assert_true(str_starts(message, "no tool 'a\xef\xbf\xbd'"));
}

static void tools_have_schemas_and_ask_for_a_sandbox_only_without_a_session(void **state)
{
    (void)state;
    const json_t *tool;
    size_t i;

    tools_init();
    for (int without = 0; without < 2; without++) {
        json_array_foreach(tools_listed(without), i, tool)
        {
            const json_t *input = json_object_get(tool, "inputSchema");
            bool asks = false,
                 has = json_object_get(json_object_get(input, "properties"), "sandbox");
            const json_t *name;
            size_t k;
            json_array_foreach(json_object_get(input, "required"), k, name) asks |=
                str_eq(json_string_value(name), "sandbox");
            assert_true(json_is_object(json_object_get(tool, "outputSchema")));
            assert_int_equal(asks, without && has);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_utf8_whatever_comes),
        cmocka_unit_test(cuts_spare_lines_and_characters),
        cmocka_unit_test(what_is_long_has_head_and_tail_and_the_way_to_the_rest),
        cmocka_unit_test(what_was_dropped_is_not_shown_as_if_it_were_whole),
        cmocka_unit_test(a_page_has_the_lines_that_were_asked_for),
        cmocka_unit_test(a_hole_costs_no_more_than_the_page_has_room_for),
        cmocka_unit_test(the_hole_at_the_end_is_part_of_the_file),
        cmocka_unit_test(what_is_before_the_page_is_passed_over),
        cmocka_unit_test(messages_are_told_apart),
        cmocka_unit_test(an_error_is_told_whatever_bytes_it_quotes),
        cmocka_unit_test(tools_have_schemas_and_ask_for_a_sandbox_only_without_a_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
