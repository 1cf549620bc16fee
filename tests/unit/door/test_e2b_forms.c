/* How errors look to E2B's clients. */
#include <string.h>

#include "base/json.h"
#include "door/e2b/internal.h"

#include "../unit.h"

static json_t *told(const error_form *form, err *owned, int *status, size_t skip)
{
    CLEANUP(err_freep) err *e = owned;
    CLEANUP(buf_done) buf body = {0};
    json_t *o = NULL;

    *status = err_info_of(e->code)->http;
    form->write(&body, e, "id", status);
    assert_ok(json_parse(body.p + skip, body.len - skip, &o));
    return o;
}

static void over_http_the_code_is_the_status(void **state)
{
    int status;
    CLEANUP(json_decrefp)
    json_t *o = told(&E2B_FORM_HTTP, err_new(ERR_FORBIDDEN, "no \"x\""), &status, 0);

    (void)state;
    assert_int_equal(status, 403);
    assert_int_equal(json_int(o, "code", 0), 403);
    assert_non_null(strstr(json_str(o, "message"), "no \"x\". "));
    CLEANUP(json_decrefp)
    json_t *gone = told(&E2B_FORM_HTTP, err_new(ERR_SANDBOX_GONE, "ended"), &status, 0);
    assert_int_equal(status, 404);
    assert_int_equal(json_int(gone, "code", 0), 404);
}

static void connect_has_names_and_statuses_of_its_own(void **state)
{
    int status;
    CLEANUP(json_decrefp)
    json_t *o = told(&E2B_FORM_UNARY, err_new(ERR_SANDBOX_GONE, "ended"), &status, 0);

    (void)state;
    assert_int_equal(status, 404);
    assert_string_equal(json_str(o, "code"), "not_found");
    CLEANUP(json_decrefp)
    json_t *refused = told(&E2B_FORM_UNARY, err_new(ERR_UNAUTHENTICATED, "no"), &status, 0);
    assert_int_equal(status, 401);
    assert_string_equal(json_str(refused, "code"), "unauthenticated");
}

static void a_stream_ends_with_its_error(void **state)
{
    CLEANUP(err_freep) err *e = err_new(ERR_NOT_FOUND, "nothing");
    CLEANUP(buf_done) buf body = {0};
    int status = 404;

    (void)state;
    assert_string_equal(E2B_FORM_STREAM.write(&body, e, "id", &status), "application/connect+json");
    assert_int_equal(status, 200);
    assert_int_equal(body.p[0], 2);
    assert_int_equal((uint8_t)body.p[3] << 8 | (uint8_t)body.p[4], body.len - 5);
    CLEANUP(json_decrefp) json_t *o = NULL;
    assert_ok(json_parse(body.p + 5, body.len - 5, &o));
    assert_string_equal(json_str(json_object_get(o, "error"), "code"), "not_found");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_http_the_code_is_the_status),
        cmocka_unit_test(connect_has_names_and_statuses_of_its_own),
        cmocka_unit_test(a_stream_ends_with_its_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
