#include <string.h>

#include "base/json.h"

#include "../unit.h"

static void strictness(void **state)
{
    static const char *const BAD[] = {"{\"a\":1,\"a\":2}", "\"a\\u0000\"", "{} x", "", "[1,]",
                                      "{\"a\":\"\xff\"}",  "{\"a\":NaN}"};
    json_t *j = NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_err(json_parse(BAD[i], strlen(BAD[i]), &j), ERR_INVALID_REQUEST);
}

static void levels_are_limited(void **state)
{
    char text[2 * JSON_DEPTH_MAX + 8];
    json_t *j = NULL;

    (void)state;
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_err(json_parse(text, 2 * JSON_DEPTH_MAX + 2, &j), ERR_INVALID_REQUEST);
    assert_ok(json_parse(text + 1, 2 * JSON_DEPTH_MAX, &j));
    json_decref(j);
    /* What is quoted is no level. */
    memset(text, '{', sizeof text);
    memcpy(text, "[\"\\\"", 4);
    memcpy(text + sizeof text - 2, "\"]", 2);
    assert_ok(json_parse(text, sizeof text, &j));
    json_decref(j);
}

static void bytes_choose_their_form(void **state)
{
    CLEANUP(json_decrefp) json_t *text = json_bytes("h\xc3\xa9", 3);
    CLEANUP(json_decrefp) json_t *nul = json_bytes("a\0b", 3);
    CLEANUP(json_decrefp) json_t *raw = json_bytes("\xff", 1);

    (void)state;
    assert_string_equal(json_str(text, "text"), "h\xc3\xa9");
    assert_string_equal(json_str(nul, "b64"), "YQBi");
    assert_string_equal(json_str(raw, "b64"), "/w==");
    assert_null(json_str(raw, "text"));
}

/* Somebody looks at it with a terminal, whatever wrote it. */
static void controls_are_written_as_escapes(void **state)
{
    CLEANUP(json_decrefp) json_t *j = json_pack("{s:s}", "a\x7f", "\xc2\x9b\xc2\xa0\xc3\xa9\n");
    CLEANUP(json_decrefp) json_t *again = NULL;
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    json_write(&b, j);
    assert_string_equal(buf_cstr(&b), "{\"a\\u007f\":\"\\u009b\xc2\xa0\xc3\xa9\\n\"}");
    assert_ok(json_parse(b.p, b.len, &again));
    assert_true(json_equal(j, again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strictness),
        cmocka_unit_test(levels_are_limited),
        cmocka_unit_test(bytes_choose_their_form),
        cmocka_unit_test(controls_are_written_as_escapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
