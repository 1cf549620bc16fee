/* Kernel settings that sandboxes share: how large they must be. */
#include <string.h>

#include "core/sysctl.h"

#include "../unit.h"

#define GIB (UINT64_C(1) << 30)

static const sysctl_need *need_of(const char *name)
{
    for (size_t i = 0; i < SYSCTL_NEEDS_N; i++)
        if (!strcmp(SYSCTL_NEEDS[i].name, name))
            return &SYSCTL_NEEDS[i];
    fail_msg("no %s", name);
    return NULL;
}

/* An open file costs a sandbox 387 bytes of its memory. */
static void open_files_run_out_behind_memory(void **state)
{
    const sysctl_need *files = need_of("fs.file-max");

    (void)state;
    assert_int_equal(sysctl_need_for(files, 1000, 1000 * GIB), 1000 * GIB / 400);
    assert_int_equal(sysctl_need_for(files, 1000, 0), 65536 + 1024 * 1000); /* not known */
    assert_int_equal(sysctl_goal_for(files, 1000), INT64_MAX);
}

static void sandboxes_of_the_default_have_half_of_the_threads(void **state)
{
    const sysctl_need *threads = need_of("kernel.threads-max");

    (void)state;
    assert_true(sysctl_need_for(threads, 1000, 64 * GIB) / 2 >= 1000 * 512);
    assert_int_equal(sysctl_goal_for(threads, 1000), sysctl_need_for(threads, 1000, 64 * GIB));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_files_run_out_behind_memory),
        cmocka_unit_test(sandboxes_of_the_default_have_half_of_the_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
