#include <errno.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"

#include "../unit.h"

static void table_is_complete_and_unambiguous(void **state)
{
    (void)state;
    for (err_code a = 0; a < ERR_CODES; a++) {
        const err_info *i = err_info_of(a);
        assert_non_null(i->name);
        assert_in_range(i->http, 400, 507);
        assert_in_range(i->cli, 124, 127);
        assert_true(strlen(i->remedy) > 10);
        assert_int_equal(err_code_by_name(i->name), a);
    }
    assert_int_equal(err_code_by_name("no_such_code"), ERR_CODES);
}

static void wrapping_keeps_code_and_cause(void **state)
{
    (void)state;
    err *e = err_wrap(err_sys(ERR_DISK_FULL, ENOSPC, "cannot write %s", "x"), "layer %d", 3);
    assert_int_equal(e->code, ERR_DISK_FULL);
    assert_string_equal(e->message, "layer 3: cannot write x");
    assert_non_null(strstr(e->cause, "ENOSPC"));
    assert_int_equal(e->errnum, ENOSPC);
    assert_true(e->retryable);
    err_free(e);
    assert_null(err_wrap(NULL, "nothing"));
}

static void json_form_comes_back_as_the_same_error(void **state)
{
    (void)state;
    err *e = err_retry_after(err_kind(err_new(ERR_QUOTA_EXCEEDED, "too many"), "sandbox"), 7);
    e = err_because(e, "limit is 3");
    CLEANUP(json_decrefp) json_t *root = json_pack("{s:o}", "error", json_of_err(e, "r1"));
    err *back = json_to_err(root);
    assert_int_equal(back->code, ERR_QUOTA_EXCEEDED);
    assert_string_equal(back->message, "too many");
    assert_string_equal(back->cause, "limit is 3");
    assert_string_equal(back->kind, "sandbox");
    assert_int_equal(back->retry_after, 7);
    assert_string_equal(err_remedy_of(back), err_remedy_of(e));
    err_free(e);
    err_free(back);
}

static void bytes_that_are_not_utf8_do_not_lose_the_answer(void **state)
{
    (void)state;
    err *e = err_new(ERR_INVALID_REQUEST, "bad name \xff\xfe");
    CLEANUP(json_decrefp) json_t *o = json_of_err(e, NULL);
    assert_string_equal(json_str(o, "message"), "bad name ??");
    err_free(e);
}

static void a_want_of_descriptors_passes(void **state)
{
    const int all[] = {EMFILE, ENFILE};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(err_freep) err *e = err_sys(ERR_INTERNAL, all[i], "cannot open a pipe");
        CLEANUP(err_freep) err *f = fs_error(all[i], "cannot open a file");
        assert_int_equal(e->code, ERR_UNAVAILABLE);
        assert_int_equal(f->code, ERR_UNAVAILABLE);
        assert_true(e->retryable && f->retryable);
        assert_int_equal(e->retry_after, 1);
        assert_non_null(strstr(e->remedy, "LimitNOFILE"));
        assert_non_null(strstr(f->remedy, "LimitNOFILE"));
    }
    CLEANUP(err_freep) err *other = err_sys(ERR_INTERNAL, EPERM, "cannot open a pipe");
    assert_int_equal(other->code, ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_complete_and_unambiguous),
        cmocka_unit_test(a_want_of_descriptors_passes),
        cmocka_unit_test(wrapping_keeps_code_and_cause),
        cmocka_unit_test(json_form_comes_back_as_the_same_error),
        cmocka_unit_test(bytes_that_are_not_utf8_do_not_lose_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
