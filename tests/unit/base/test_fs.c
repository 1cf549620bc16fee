#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"

#include "../unit.h"

static int scratch(void)
{
    char path[] = "/tmp/bothy-test-XXXXXX";

    assert_non_null(mkdtemp(path));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void drop(int fd)
{
    char link[64], path[256];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = 0;
    close(fd);
    assert_ok(fs_remove(AT_FDCWD, path));
}

static void write_replaces_and_read_has_a_ceiling(void **state)
{
    int d = scratch();
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    assert_ok(fs_write(d, "f", "one", 3, 0600, true));
    assert_ok(fs_write(d, "f", "second", 6, 0600, false));
    assert_ok(fs_read(d, "f", 100, &b));
    assert_string_equal(b.p, "second");
    assert_err(fs_read(d, "f", 3, &b), ERR_TOO_LARGE);
    assert_err(fs_read(d, "missing", 3, &b), ERR_NOT_FOUND);
    drop(d);
}

static void links_are_not_followed(void **state)
{
    int d = scratch();
    CLEANUP(buf_done) buf b = {0};
    struct stat st;

    (void)state;
    assert_int_equal(symlinkat("/etc/passwd", d, "l"), 0);
    assert_err(fs_read(d, "l", 1 << 20, &b), ERR_INTERNAL);
    CLEANUP(freep) char *linked = str_printf("/proc/self/fd/%d/l", d);
    assert_ok(fs_read_linked(linked, 1 << 20, &b));
    assert_true(b.len > 0);
    assert_int_equal(mkdirat(d, "tree", 0700), 0);
    assert_int_equal(symlinkat("/etc", d, "tree/etc"), 0);
    assert_ok(fs_remove(d, "tree"));
    assert_int_equal(stat("/etc/passwd", &st), 0);
    assert_true(fs_open_in_root(d, "../../../etc/passwd", O_RDONLY) < 0);
    drop(d);
}

static void a_lock_is_held_once(void **state)
{
    int d = scratch(), a = -1, b = -1;

    (void)state;
    assert_ok(fs_lock(d, "lock", &a));
    assert_err(fs_lock(d, "lock", &b), ERR_CONFLICT);
    close(a);
    assert_ok(fs_lock(d, "lock", &b));
    close(b);
    drop(d);
}

static void a_tree_goes_whole(void **state)
{
    int d = scratch();

    (void)state;
    assert_int_equal(mkdirat(d, "a", 0700), 0);
    assert_int_equal(mkdirat(d, "a/b", 0700), 0);
    assert_int_equal(mkdirat(d, "a/b/c", 0700), 0);
    assert_ok(fs_remove(d, "a"));
    assert_int_equal(faccessat(d, "a", F_OK, 0), -1);
    assert_ok(fs_remove(d, "a"));
    drop(d);
}

static void *remove_deep(void *dir)
{
    return fs_remove(*(int *)dir, "deep");
}

/* Deeper than a thread's stack and descriptors would bear one level each. */
static void a_deep_tree_is_removed(void **state)
{
    int d = scratch(), fd = -1;
    void *failure = NULL;

    (void)state;
    assert_ok(fs_dir(d, "deep", 0700, &fd));
    for (int i = 0; i < 4000; i++) {
        int below = -1;
        assert_ok(fs_dir(fd, "d", 0700, &below));
        close(fd);
        fd = below;
    }
    close(fd);
    pthread_join(thread_start("remove", remove_deep, &d), &failure);
    assert_ok(failure);
    assert_int_equal(faccessat(d, "deep", F_OK, 0), -1);
    drop(d);
}

static bool set_immutable(int dirfd, const char *name, bool on)
{
    int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
    int flags = on ? FS_IMMUTABLE_FL : 0;
    bool done = fd >= 0 && !ioctl(fd, FS_IOC_SETFLAGS, &flags);

    close(fd);
    return done;
}

/* A directory of rubbish is emptied of all that can go, whatever stands before it. */
static void what_cannot_go_does_not_keep_the_rest(void **state)
{
    int d = scratch(), left = 0;
    char name[16];

    (void)state;
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_ok(fs_write(d, name, "x", 1, 0600, false));
    }
    if (!set_immutable(d, "20", true)) { /* not root, or another file system */
        drop(d);
        skip();
    }
    assert_err(fs_empty(d), ERR_INTERNAL);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "%d", i);
        left += !faccessat(d, name, F_OK, 0);
    }
    set_immutable(d, "20", false);
    drop(d);
    assert_int_equal(left, 1);
}

/* A tree of that many files, one of them below so many directories. */
static void make_tree(int d, const char *name, int files, int depth)
{
    int fd = -1;
    char file[16];

    assert_ok(fs_dir(d, name, 0700, &fd));
    for (int i = 0; i < files; i++) {
        snprintf(file, sizeof file, "%d", i);
        assert_int_equal(close(openat(fd, file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
    }
    for (int i = 0; i < depth; i++) {
        int below = -1;
        assert_ok(fs_dir(fd, "d", 0700, &below));
        close(fd);
        fd = below;
    }
    close(fd);
}

static void large_trees_go_in_turns_with_small_ones(void **state)
{
    int d = scratch(), passes = 1;
    bool more = false;
    char name[16];

    (void)state;
    make_tree(d, "large", 1000, 300);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "small%d", i);
        make_tree(d, name, 3, 3);
    }
    assert_ok(fs_empty_some(d, 100, &more));
    assert_true(more);
    assert_int_equal(faccessat(d, "large", F_OK, 0), 0);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "small%d", i);
        assert_int_equal(faccessat(d, name, F_OK, 0), -1);
    }
    for (; more && passes < 1000; passes++)
        assert_ok(fs_empty_some(d, 100, &more));
    assert_false(more);
    assert_true(passes >= 10);
    assert_int_equal(faccessat(d, "large", F_OK, 0), -1);
    drop(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deep_tree_is_removed),
        cmocka_unit_test(what_cannot_go_does_not_keep_the_rest),
        cmocka_unit_test(large_trees_go_in_turns_with_small_ones),
        cmocka_unit_test(write_replaces_and_read_has_a_ceiling),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(a_lock_is_held_once),
        cmocka_unit_test(a_tree_goes_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
