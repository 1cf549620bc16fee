/* Copies of a tenant's tree. /dev/shm shares no blocks: what is copied there, is copied. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fs.h"
#include "warden/copy.h"

#include "../unit.h"

#define MIB (1 << 20)

static struct {
    char place[64];
    int top, from, to;
} t;

/* In place of the system's: how the disk was waited for. */
static struct {
    unsigned waits;
    off_t longest; /* bytes of a call; INT64_MAX: of a whole file */
} disk;

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
    (void)fd, (void)offset;
    if (!(flags & (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER)))
        return 0;
    bytes = bytes ? bytes : INT64_MAX;
    disk.waits++;
    disk.longest = bytes > disk.longest ? bytes : disk.longest;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    memset(&disk, 0, sizeof disk);
    snprintf(t.place, sizeof t.place, "/dev/shm/bothy-copy-XXXXXX");
    if (!mkdtemp(t.place))
        return -1;
    t.top = open(t.place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    err *e = fs_dir(t.top, "from", 0755, &t.from);
    if (!e)
        e = fs_dir(t.top, "to", 0700, &t.to);
    err_free(e);
    return e ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    close(t.from);
    close(t.to);
    close(t.top);
    err *e = fs_remove(AT_FDCWD, t.place);
    err_free(e);
    return e ? -1 : 0;
}

static void write_file(const char *name, const char *text)
{
    CLEANUP(closep) int fd = openat(t.from, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static copy_what copied(void)
{
    copy_what what = {0};

    assert_ok(copy_tree(t.from, t.to, &(copy_how){0}, &what));
    return what;
}

static struct stat stat_of(int dir, const char *name)
{
    struct stat st;

    assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

/* Kind, owner, mode, size, links and times are the same. */
static void same(const char *name)
{
    struct stat a = stat_of(t.from, name), b = stat_of(t.to, name);

    assert_int_equal(a.st_mode, b.st_mode);
    assert_int_equal(a.st_uid, b.st_uid);
    assert_int_equal(a.st_gid, b.st_gid);
    assert_int_equal(a.st_nlink, b.st_nlink);
    assert_int_equal(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
    assert_int_equal(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
    if (!S_ISDIR(a.st_mode))
        assert_int_equal(a.st_size, b.st_size);
}

static void holds(const char *name, const char *text)
{
    CLEANUP(closep) int fd = openat(t.to, name, O_RDONLY | O_CLOEXEC);
    char got[64];

    assert_int_equal(read(fd, got, sizeof got), strlen(text));
    assert_memory_equal(got, text, strlen(text));
}

static void old(const char *name)
{
    const struct timespec times[] = {{981173106, 5}, {981173107, 123456789}};

    assert_int_equal(utimensat(t.from, name, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void every_kind_of_entry_is_there_and_the_same(void **state)
{
    static const char *const NAMES[] = {"plain",    "dir",      "dir/deep", "dir/linked",
                                        "dir/soft", "dir/fifo", "sock",     "a\nname \377",
                                        "outside",  "dangling", "."};

    (void)state;
    assert_int_equal(mkdirat(t.from, "dir", 0750), 0);
    write_file("plain", "text");
    write_file("dir/deep", "deeper");
    write_file("a\nname \377", "");
    assert_int_equal(linkat(t.from, "plain", t.from, "dir/linked", 0), 0);
    assert_int_equal(symlinkat("../plain", t.from, "dir/soft"), 0);
    assert_int_equal(symlinkat("/etc/passwd", t.from, "outside"), 0);
    assert_int_equal(symlinkat("nowhere", t.from, "dangling"), 0);
    assert_int_equal(mkfifoat(t.from, "dir/fifo", 0620), 0);
    assert_int_equal(mknodat(t.from, "sock", S_IFSOCK | 0700, 0), 0);
    assert_int_equal(fchmodat(t.from, "dir/deep", 06711, 0), 0);
    for (size_t i = ARRAY_LEN(NAMES); i--;)
        old(NAMES[i]);
    copy_what what = copied();
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        same(NAMES[i]);
    holds("plain", "text");
    holds("dir/deep", "deeper");
    assert_int_equal(stat_of(t.to, "plain").st_ino, stat_of(t.to, "dir/linked").st_ino);
    assert_int_not_equal(stat_of(t.to, "plain").st_ino, stat_of(t.from, "plain").st_ino);
    assert_int_equal(what.entries, ARRAY_LEN(NAMES) - 1);
    assert_int_equal(what.bytes, strlen("text") + strlen("deeper"));
    assert_int_equal(what.copied, what.bytes); /* nothing is shared here */
}

static void holes_stay_holes_where_blocks_are_not_shared(void **state)
{
    char page[4096], got[4096];
    CLEANUP(closep) int fd = openat(t.from, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    memset(page, 'x', sizeof page);
    assert_int_equal(pwrite(fd, page, sizeof page, 0), sizeof page);
    assert_int_equal(pwrite(fd, page, sizeof page, 64 * MIB), sizeof page);
    assert_int_equal(ftruncate(fd, 100 * MIB + 1), 0);
    copy_what what = copied();
    same("sparse");
    assert_true(stat_of(t.to, "sparse").st_blocks <= stat_of(t.from, "sparse").st_blocks);
    assert_int_equal(what.bytes, 100 * MIB + 1);
    assert_true(what.copied < MIB);
    CLEANUP(closep) int to = openat(t.to, "sparse", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(to, got, sizeof got, 64 * MIB), sizeof got);
    assert_memory_equal(got, page, sizeof got);
}

static void what_is_larger_than_a_piece_comes_whole(void **state)
{
    CLEANUP(closep) int fd = openat(t.from, "large", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CLEANUP(freep) char *a = malloc(20 * MIB), *b = malloc(20 * MIB);

    (void)state;
    for (size_t i = 0; i < 20 * MIB; i++)
        a[i] = (char)(i * 2654435761u >> 24);
    assert_int_equal(write(fd, a, 20 * MIB), 20 * MIB);
    copied();
    CLEANUP(closep) int to = openat(t.to, "large", O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(to, b, 20 * MIB), 20 * MIB);
    assert_memory_equal(a, b, 20 * MIB);
}

static void a_root_keeps_removals_and_drops_what_overlays_note(void **state)
{
    char got[16];

    (void)state;
    if (geteuid())
        skip(); /* only root has trusted attributes */
    write_file("file", "x");
    assert_int_equal(mkdirat(t.from, "new", 0755), 0);
    assert_int_equal(mknodat(t.from, "removed", S_IFCHR, makedev(0, 0)), 0);
    CLEANUP(closep) int dir = openat(t.from, "new", O_RDONLY | O_CLOEXEC);
    CLEANUP(closep) int file = openat(t.from, "file", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsetxattr(dir, "trusted.overlay.opaque", "y", 1, 0), 0);
    assert_int_equal(fsetxattr(dir, "trusted.overlay.impure", "y", 1, 0), 0);
    assert_int_equal(fsetxattr(file, "trusted.overlay.origin", "abc", 3, 0), 0);
    assert_int_equal(
        fsetxattr(file, "security.capability", "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, 0),
        0);
    assert_int_equal(fchown(file, 1234, 4321), 0);
    assert_int_equal(
        fsetxattr(file, "security.capability", "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, 0),
        0);
    copy_what what = copied();
    same("file");
    assert_int_equal(what.whiteouts, 1);
    struct stat st = stat_of(t.to, "removed");
    assert_true(S_ISCHR(st.st_mode) && !st.st_rdev);
    CLEANUP(closep) int dir_to = openat(t.to, "new", O_RDONLY | O_CLOEXEC);
    CLEANUP(closep) int file_to = openat(t.to, "file", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fgetxattr(dir_to, "trusted.overlay.opaque", got, sizeof got), 1);
    assert_int_equal(fgetxattr(dir_to, "trusted.overlay.impure", got, sizeof got), -1);
    assert_int_equal(fgetxattr(file_to, "trusted.overlay.origin", got, sizeof got), -1);
    assert_int_equal(fgetxattr(file_to, "security.capability", NULL, 0), 20);
}

/* Its bytes would lie in a layer below. */
static void a_file_without_its_content_is_refused(void **state)
{
    copy_what what;

    (void)state;
    if (geteuid())
        skip();
    write_file("file", "x");
    CLEANUP(closep) int file = openat(t.from, "file", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsetxattr(file, "trusted.overlay.metacopy", "", 0, 0), 0);
    assert_err(copy_tree(t.from, t.to, &(copy_how){0}, &what), ERR_UNSUPPORTED);
}

static void a_device_is_left_out(void **state)
{
    struct stat st;

    (void)state;
    if (geteuid() || mknodat(t.from, "null", S_IFCHR | 0666, makedev(1, 3)))
        skip();
    copied();
    assert_int_equal(fstatat(t.to, "null", &st, AT_SYMLINK_NOFOLLOW), -1);
}

static void directories_have_a_ceiling_of_depth(void **state)
{
    CLEANUP(closep) int at = dup(t.from);
    copy_what what;

    (void)state;
    for (unsigned i = 0; i < COPY_DEPTH_MAX + 1; i++) {
        assert_int_equal(mkdirat(at, "d", 0755), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    err *e = copy_tree(t.from, t.to, &(copy_how){0}, &what);
    assert_int_equal(e->errnum, E2BIG);
    assert_err(e, ERR_TOO_LARGE);
}

/* A FIFO without a writer and a link to itself hold nobody up. */
static void flushing_changes_nothing_and_follows_nothing(void **state)
{
    CLEANUP(closep) int at = dup(t.from);

    (void)state;
    write_file("plain", "text");
    assert_int_equal(mkfifoat(t.from, "fifo", 0600), 0);
    assert_int_equal(symlinkat("loop", t.from, "loop"), 0);
    assert_int_equal(symlinkat("/dev/zero", t.from, "zero"), 0);
    old("plain");
    for (unsigned i = 0; i < COPY_DEPTH_MAX + 10; i++) {
        assert_int_equal(mkdirat(at, "d", 0755), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    struct stat before = stat_of(t.from, "plain");
    copy_flush(t.from);
    struct stat after = stat_of(t.from, "plain");
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
    assert_int_equal(before.st_size, after.st_size);
}

static void big_file(const char *name, unsigned mib)
{
    CLEANUP(closep) int fd = openat(t.from, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    static char bytes[MIB];

    for (unsigned i = 0; i < mib; i++)
        assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(ftruncate(fd, (off_t)4096 * MIB), 0); /* and a hole behind it */
}

/* No call waits for more than a piece of a file, however much of it lies in memory. */
static void flushing_waits_for_a_piece_at_a_time(void **state)
{
    (void)state;
    big_file("big", 17);
    copy_flush(t.from);
    assert_int_equal(disk.longest, 4 * MIB);
    assert_true(disk.waits >= 5 && disk.waits <= 6);
}

static bool first_time(void *arg)
{
    return !(*(int *)arg)--;
}

/* Also while the sandbox stands still: sharing its blocks would wait for all of them. */
static void a_copy_can_be_given_up_between_pieces(void **state)
{
    (void)state;
    copy_what what;
    int asks = 3; /* the file itself, and two of its pieces */

    big_file("big", 17);
    err *e = copy_tree(t.from, t.to, &(copy_how){.given_up = first_time, .arg = &asks}, &what);
    assert_non_null(e);
    assert_int_equal(e->errnum, ECANCELED);
    err_free(e);
    assert_int_equal(disk.longest, 4 * MIB);
    assert_true(disk.waits >= 1 && disk.waits < 5);
}

/* A chain of directories with long names below from; its last one. */
static int deep(unsigned levels)
{
    char name[251];
    int at = dup(t.from);

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (unsigned i = 0; i < levels; i++) {
        assert_int_equal(mkdirat(at, name, 0755), 0);
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    return at;
}

/* A file in dir whose other name lies outside of what is copied. */
static void linked_file(int dir, unsigned n)
{
    char name[24];

    snprintf(name, sizeof name, "aside%u", n);
    CLEANUP(closep) int fd = openat(dir, "f", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(linkat(dir, "f", t.top, name, 0), 0);
    assert_int_equal(renameat(dir, "f", dir, name), 0);
}

static void linked_names_of_a_deep_directory_are_remembered_with_one_path(void **state)
{
    CLEANUP(closep) int at = deep(COPY_DEPTH_MAX - 2);

    (void)state;
    for (unsigned i = 0; i < COPY_LINKS_MAX / 30000; i++)
        linked_file(at, i);
    copied();
}

static void what_is_remembered_of_links_has_a_ceiling(void **state)
{
    CLEANUP(closep) int at = deep(COPY_DEPTH_MAX - 2);
    copy_what what;
    char name[24];

    (void)state;
    for (unsigned i = 0; i < COPY_LINKS_MAX / 30000; i++) {
        snprintf(name, sizeof name, "d%u", i);
        assert_int_equal(mkdirat(at, name, 0755), 0);
        CLEANUP(closep) int dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        linked_file(dir, i);
    }
    err *e = copy_tree(t.from, t.to, &(copy_how){0}, &what);
    assert_non_null(e);
    assert_int_equal(e->errnum, E2BIG);
    assert_err(e, ERR_TOO_LARGE);
}

static void a_link_to_a_path_that_is_too_long_is_too_large(void **state)
{
    CLEANUP(closep) int at = deep(20);
    copy_what what;

    (void)state;
    CLEANUP(closep) int fd = openat(at, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(linkat(at, "a", at, "b", 0), 0);
    err *e = copy_tree(t.from, t.to, &(copy_how){0}, &what);
    assert_int_equal(e->errnum, E2BIG);
    assert_err(e, ERR_TOO_LARGE);
}

static void sizes_that_no_number_holds_are_the_largest(void **state)
{
    static const char *const NAMES[] = {"a", "b", "c"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        CLEANUP(closep) int fd = openat(t.from, NAMES[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(ftruncate(fd, INT64_C(1) << 62), 0);
    }
    assert_int_equal(copied().bytes, INT64_MAX);
}

static err *copied_as(const copy_how *how)
{
    copy_what what;
    return copy_tree(t.from, t.to, how, &what);
}

static void fails_with(int errnum, const copy_how *how)
{
    err *e = copied_as(how);

    assert_non_null(e);
    assert_int_equal(e->errnum, errnum);
    err_free(e);
}

static bool third_time(void *arg)
{
    return ++*(int *)arg == 3;
}

static void a_copy_ends_when_its_time_is_over_or_nobody_wants_it(void **state)
{
    int asked = 0;

    (void)state;
    write_file("a", "x");
    fails_with(ETIMEDOUT, &(copy_how){.until_ns = 1});
    fails_with(ECANCELED, &(copy_how){.given_up = third_time, .arg = (asked = 2, &asked)});
    write_file("b", "x");
    fails_with(ECANCELED, &(copy_how){.given_up = third_time, .arg = (asked = 0, &asked)});
    assert_int_equal(asked, 3); /* in the middle */
}

static uint64_t room(void)
{
    struct statvfs fs;

    assert_int_equal(fstatvfs(t.to, &fs), 0);
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

static void a_copy_leaves_room(void **state)
{
    CLEANUP(closep) int fd = openat(t.from, "large", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CLEANUP(freep) char *a = calloc(1, 200 * MIB);

    (void)state;
    fails_with(ENOSPC, &(copy_how){.keep_free = UINT64_MAX});
    assert_int_equal(write(fd, a, 200 * MIB), 200 * MIB);
    assert_int_equal(unlinkat(t.to, "large", 0), -1);
    fails_with(ENOSPC, &(copy_how){.keep_free = room() - 32 * MIB});
    assert_true(stat_of(t.to, "large").st_size < 200 * MIB); /* and not when it is all there */
}

static void what_cannot_be_written_says_so(void **state)
{
    copy_what what;

    (void)state;
    write_file("file", "x");
    assert_ok(fs_write(t.to, "file", "there", 5, 0600, false));
    err *e = copy_tree(t.from, t.to, &(copy_how){0}, &what);
    assert_int_equal(e->errnum, EEXIST);
    assert_err(e, ERR_INTERNAL);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_kind_of_entry_is_there_and_the_same),
        CASE(holes_stay_holes_where_blocks_are_not_shared),
        CASE(what_is_larger_than_a_piece_comes_whole),
        CASE(a_root_keeps_removals_and_drops_what_overlays_note),
        CASE(a_file_without_its_content_is_refused),
        CASE(a_device_is_left_out),
        CASE(directories_have_a_ceiling_of_depth),
        CASE(flushing_changes_nothing_and_follows_nothing),
        CASE(flushing_waits_for_a_piece_at_a_time),
        CASE(a_copy_can_be_given_up_between_pieces),
        CASE(linked_names_of_a_deep_directory_are_remembered_with_one_path),
        CASE(what_is_remembered_of_links_has_a_ceiling),
        CASE(a_link_to_a_path_that_is_too_long_is_too_large),
        CASE(sizes_that_no_number_holds_are_the_largest),
        CASE(a_copy_ends_when_its_time_is_over_or_nobody_wants_it),
        CASE(a_copy_leaves_room),
        CASE(what_cannot_be_written_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
