/* Uploads of the SWE-ReX door that are under way. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "door/swerex/internal.h"

#include "../unit.h"

#define ROOM 1000u

static swerex *door(void)
{
    return swerex_new(&(swerex_options){.staging = AT_FDCWD, .staged = ROOM});
}

static void an_owners_uploads_have_a_limit_together(void **state)
{
    swerex *d = door();
    rex_stage one = {.fd = -1}, two = {.fd = -1}, other = {.fd = -1};
    char bytes[ROOM] = "x", back[ROOM];

    (void)state;
    assert_ok(rex_stage_open(d, "a", &one));
    assert_ok(rex_stage_open(d, "a", &two));
    assert_ok(rex_stage_open(d, "b", &other));
    assert_ok(rex_stage_write(&one, bytes, ROOM - 10));
    assert_ok(rex_stage_write(&two, bytes, 10));
    assert_err(rex_stage_write(&two, bytes, 1), ERR_QUOTA_EXCEEDED);
    assert_ok(rex_stage_write(&other, bytes, ROOM));
    assert_int_equal(pread(one.fd, back, ROOM, 0), ROOM - 10);
    rex_stage_done(&one);
    assert_ok(rex_stage_write(&two, bytes, ROOM - 10)); /* what has ended makes room */
    rex_stage_done(&two);
    rex_stage_done(&two);
    rex_stage_done(&other);
    assert_int_equal(d->staged.count, 0);
    swerex_free(d);
}

static void an_upload_has_a_limit(void **state)
{
    swerex *d = door();
    rex_stage s = {.fd = -1};

    (void)state;
    assert_ok(rex_stage_open(d, "a", &s));
    assert_err(rex_stage_write(&s, "x", REX_STAGE_MAX + 1), ERR_TOO_LARGE);
    rex_stage_done(&s);
    assert_int_equal(d->staged.count, 0);
    swerex_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owners_uploads_have_a_limit_together),
        cmocka_unit_test(an_upload_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
