/* The rate of a disk, in a directory that stands for the hierarchy. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "warden/cgroup.h"

#include "../unit.h"

#define OLD \
    "8:0 rbps=1048576 wbps=1048576 riops=5 wiops=5\n253:16 rbps=1 wbps=max riops=max wiops=max\n"

static void an_earlier_rate_goes_and_ours_comes(void **state)
{
    char dir[] = "/tmp/bothy-rate.XXXXXX";
    cgroup_rate none = {0}, ours = {.bytes = 7, .major = 8};
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    cgroups cg = {.v2 = true, .path = "/cg", .hier = {open(dir, O_RDONLY | O_DIRECTORY)}};
    assert_int_equal(mkdirat(cg.hier[0], "cg", 0700), 0);
    assert_int_equal(mkdirat(cg.hier[0], "cg/5", 0700), 0);
    /* No controller: nothing to lift, but nothing that would hold either. */
    assert_ok(cgroup_rate_renew(&cg, 5, &none));
    assert_err(cgroup_rate_renew(&cg, 5, &ours), ERR_WALL_FAILED);
    /* A file keeps all that is written to it, which the kernel's does not. */
    int fd = openat(cg.hier[0], "cg/5/io.max", O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, OLD, strlen(OLD)), strlen(OLD));
    close(fd);
    assert_ok(cgroup_rate_renew(&cg, 5, &none));
    assert_ok(fs_read(cg.hier[0], "cg/5/io.max", 4096, &b));
    assert_string_equal(buf_cstr(&b), OLD "8:0 rbps=max wbps=max riops=max wiops=max"
                                          "253:16 rbps=max wbps=max riops=max wiops=max");
    close(cg.hier[0]);
    assert_ok(fs_remove(AT_FDCWD, dir));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_earlier_rate_goes_and_ours_comes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
