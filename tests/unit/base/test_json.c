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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strictness),
        cmocka_unit_test(bytes_choose_their_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
