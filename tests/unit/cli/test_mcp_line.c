#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/mcp_line.h"

#include "../unit.h"

/* As JSON; NULL: none. */
static char *id_of(const char *p, size_t n)
{
    CLEANUP(json_decrefp) json_t *id = mcp_line_id(p, n);
    buf out = {0};

    if (!id)
        return NULL;
    json_write(&out, id);
    return buf_take(&out);
}

static void the_id_of_what_is_refused_is_found(void **state)
{
    static const struct {
        const char *line, *id;
    } CASES[] = {
        {"{\"id\":7,\"a\":\"\\u0000\"}", "7"},
        {"{\"a\":\"\\u0000\",\"id\":\"x\\\"1\"}", "\"x\\\"1\""},
        {" { \"params\" : {\"id\":1,\"b\":[{\"id\":2}]} , \"id\" : -3 }", "-3"},
        {"{\"a\":1,\"a\":2,\"id\":4}", "4"},
        {"{\"a\":\"\\ud800\",\"id\":5}", "5"},
        {"{\"id\":6,\"a\":", "6"},
        {"{\"a\":\"id\",\"id\":8}", "8"},
        {"{\"a\":\"\\\"id\\\":1\",\"id\":9}", "9"},
        {"{\"a\":\"\xff\",\"id\":10}", "10"},
        {"", NULL},
        {"{", NULL},
        {"{\"id\"", NULL},
        {"{\"id\":", NULL},
        {"{\"id\":}", NULL},
        {"{\"id\":\"x", NULL},
        {"{\"id\":\"x\\", NULL},
        {"{\"id\":{\"id\":1}}", NULL},
        {"{\"id\":\"\\u0000\"}", NULL},
        {"[{\"id\":1}]", NULL},
        {"{\"a\":{\"id\":1}}", NULL},
        {"{}}{\"id\":1}", NULL},
        {"\"id\":1", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        /* Of its own size, for what looks at memory: a byte behind it is a fault. */
        size_t n = strlen(CASES[i].line);
        CLEANUP(freep) char *line = xmalloc(n ? n : 1);
        memcpy(line, CASES[i].line, n);
        CLEANUP(freep) char *got = id_of(line, n);
        if (!CASES[i].id)
            assert_null(got);
        else
            assert_string_equal(str_or(got, "none"), CASES[i].id);
    }
}

static void an_id_has_a_length(void **state)
{
    char line[MCP_ID_MAX + 16];

    (void)state;
    for (int more = 0; more < 2; more++) {
        int n = snprintf(line, sizeof line, "{\"id\":\"%0*d\"", MCP_ID_MAX - 2 + more, 1);
        CLEANUP(freep) char *got = id_of(line, (size_t)n);
        assert_int_equal(!got, more);
    }
}

static void the_refusal_has_its_cause(void **state)
{
    static const char NUL[] = "{\"a\":\"\\u0000\"}", TWICE[] = "{\"a\":1,\"a\":2}";
    json_t *root = NULL;

    (void)state;
    CLEANUP(err_freep) err *nul = json_parse(NUL, strlen(NUL), &root);
    CLEANUP(err_freep) err *twice = json_parse(TWICE, strlen(TWICE), &root);
    CLEANUP(freep) char *one = mcp_line_refusal(nul);
    CLEANUP(freep) char *two = mcp_line_refusal(twice);
    assert_non_null(strstr(one, "encoding=base64"));
    assert_non_null(strstr(two, "duplicate"));
    assert_null(strstr(two, "base64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_id_of_what_is_refused_is_found),
        cmocka_unit_test(an_id_has_a_length),
        cmocka_unit_test(the_refusal_has_its_cause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
