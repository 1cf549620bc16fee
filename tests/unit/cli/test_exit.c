#include <errno.h>
#include <string.h>

#include "cli/exit.h"

#include "../unit.h"

static void ends_become_statuses(void **state)
{
    static const struct {
        const char *end;
        int status;
        const char *said; /* to people, or NULL */
    } ROWS[] = {
        {"{\"how\":\"exited\",\"exit_code\":0}", 0, NULL},
        {"{\"how\":\"exited\",\"exit_code\":3}", 3, NULL},
        {"{\"how\":\"exited\",\"exit_code\":255}", 255, NULL},
        {"{\"how\":\"exited\",\"exit_code\":null}", 125, NULL},
        {"{\"how\":\"signalled\",\"signal\":15}", 143, NULL},
        {"{\"how\":\"signalled\",\"signal\":9,\"oom\":true}", 137, "memory limit"},
        {"{\"how\":\"killed\",\"signal\":9}", 137, NULL},
        {"{\"how\":\"signalled\",\"signal\":null}", 125, NULL},
        {"{\"how\":\"timed_out\",\"signal\":15}", 124, "time was over"},
        {"{\"how\":\"not_started\",\"stage\":\"exec\",\"errno\":2}", 127, "could not be started"},
        {"{\"how\":\"not_started\",\"stage\":\"exec\",\"errno\":13}", 126, "could not be started"},
        {"{\"how\":\"not_started\",\"stage\":\"cwd\",\"errno\":2}", 126, "could not be started"},
        {"{\"how\":\"not_started\",\"stage\":\"user\",\"errno\":2}", 125, "could not be started"},
        {"{\"how\":\"not_started\",\"stage\":\"uid\",\"errno\":22}", 125, "could not be started"},
        {"{\"how\":\"unknown\"}", 125, "not known"},
        {"{\"how\":\"unknown\",\"cause\":{\"kind\":\"node_lost\"}}", 125, "not known"},
        {"{\"how\":\"somehow\"}", 125, NULL},
        {"{}", 125, "not known"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(json_decrefp) json_t *end = json_loads(ROWS[i].end, 0, NULL);
        assert_non_null(end);
        assert_int_equal(exit_of_end(end), ROWS[i].status);
        CLEANUP(err_freep) err *e = exit_error_of_end(end);
        assert_true(!e == !ROWS[i].said);
        if (e)
            assert_non_null(strstr(e->message, ROWS[i].said));
    }
}

static void errors_become_statuses(void **state)
{
    (void)state;
    for (err_code c = 0; c < ERR_CODES; c++) {
        CLEANUP(err_freep) err *e = err_new(c, "x");
        assert_int_equal(exit_of_error(e), err_info_of(c)->cli);
    }
    CLEANUP(err_freep) err *missing = err_sys(ERR_EXEC_FAILED, ENOENT, "x");
    CLEANUP(err_freep) err *denied = err_sys(ERR_EXEC_FAILED, EACCES, "x");
    CLEANUP(err_freep) err *other = err_sys(ERR_INTERNAL, ENOENT, "x");
    assert_int_equal(exit_of_error(missing), 127);
    missing->errnum = 0; /* as it comes over the wire: only the cause tells */
    assert_int_equal(exit_of_error(missing), 127);
    assert_int_equal(exit_of_error(denied), 126);
    assert_int_equal(exit_of_error(other), 125);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_become_statuses),
        cmocka_unit_test(errors_become_statuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
