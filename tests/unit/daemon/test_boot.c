#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "daemon/boot.h"

#include "../unit.h"

static int open_scratch(char *path)
{
    assert_non_null(mkdtemp(path));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void holder_is_the_same_for_who_comes_after(void **state)
{
    char path[] = "/tmp/bothy-boot-XXXXXX";
    CLEANUP(closep) int fd = open_scratch(path);
    CLEANUP(freep) char *first = NULL, *second = NULL;

    (void)state;
    assert_ok(boot_holder(fd, &first));
    assert_ok(boot_holder(fd, &second));
    assert_true(strlen(first) > 8);
    assert_string_equal(first, second);
    assert_ok(fs_remove(AT_FDCWD, path));
}

/* A copy's lock keeps nobody away from the first one's lease. */
static void holder_of_a_copy_is_another(void **state)
{
    char from[] = "/tmp/bothy-boot-XXXXXX", to[] = "/tmp/bothy-boot-XXXXXX";
    CLEANUP(closep) int a = open_scratch(from);
    CLEANUP(closep) int b = open_scratch(to);
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(freep) char *first = NULL, *second = NULL;

    (void)state;
    assert_ok(boot_holder(a, &first));
    assert_ok(fs_read(a, "holder", 512, &text));
    assert_ok(fs_write(b, "holder", text.p, text.len, 0600, false));
    assert_ok(boot_holder(b, &second));
    assert_string_not_equal(first, second);
    assert_ok(fs_remove(AT_FDCWD, from));
    assert_ok(fs_remove(AT_FDCWD, to));
}

static void holder_of_before_a_reboot_is_another(void **state)
{
    static const char OLD[] = "00000000-0000-0000-0000-000000000000 1:1 host_old\n";
    char path[] = "/tmp/bothy-boot-XXXXXX";
    CLEANUP(closep) int fd = open_scratch(path);
    CLEANUP(freep) char *now = NULL;

    (void)state;
    assert_ok(fs_write(fd, "holder", OLD, sizeof OLD - 1, 0600, false));
    assert_ok(boot_holder(fd, &now));
    assert_string_not_equal(now, "host_old");
    assert_ok(fs_remove(AT_FDCWD, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holder_is_the_same_for_who_comes_after),
        cmocka_unit_test(holder_of_a_copy_is_another),
        cmocka_unit_test(holder_of_before_a_reboot_is_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
