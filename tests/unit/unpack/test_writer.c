/* The writer without its box: whatever an archive says, nothing outside the directory changes. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/str.h"
#include "unpack/stream.h"
#include "unpack/writer.h"

#include "../unit.h"

typedef struct place {
    char dir[64];
    int dirfd, root;
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);

    strcpy(p->dir, "/tmp/bothy-writer.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(fs_dir(p->dirfd, "root", 0755, &p->root));
    assert_ok(fs_write(p->dirfd, "secret", "s", 1, 0600, false));
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;

    close(p->root);
    close(p->dirfd);
    err_free(fs_remove(AT_FDCWD, p->dir));
    free(p);
    return 0;
}

typedef struct member {
    const char *name;
    mode_t type;
    const char *text; /* contents, or where a link leads */
    bool hard;
} member;

static void add(struct archive *a, const member *m)
{
    struct archive_entry *e = archive_entry_new();

    archive_entry_set_pathname(e, m->name);
    archive_entry_set_filetype(e, m->type);
    archive_entry_set_perm(e, 0755);
    archive_entry_set_uid(e, getuid());
    archive_entry_set_gid(e, getgid());
    if (m->hard)
        archive_entry_set_hardlink(e, m->text);
    else if (m->type == AE_IFLNK)
        archive_entry_set_symlink(e, m->text);
    else
        archive_entry_set_size(e, m->text ? (la_int64_t)strlen(m->text) : 0);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    if (!m->hard && m->type == AE_IFREG && m->text)
        archive_write_data(a, m->text, strlen(m->text));
    archive_entry_free(e);
}

static int tar_of(const member *m, size_t n)
{
    int fd = memfd_create("tar", MFD_CLOEXEC);
    struct archive *a = archive_write_new();

    archive_write_set_format_pax_restricted(a);
    assert_int_equal(archive_write_open_fd(a, fd), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++)
        add(a, &m[i]);
    archive_write_close(a);
    archive_write_free(a);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static err *unpack_members(place *p, const member *m, size_t n, tally *ret_tally)
{
    static const unpack_limits LIMITS = UNPACK_LIMITS_DEFAULT;
    struct archive *tar = NULL;
    stream s;
    writer w;

    assert_ok(stream_init(&s, LIMITS.bytes));
    s.fd = tar_of(m, n);
    writer_init(&w, p->root, &LIMITS);
    err *e = stream_open_tar(&s, &tar);
    if (!e)
        e = writer_run(&w, tar);
    if (ret_tally)
        *ret_tally = w.tally, w.tally = (tally){0};
    if (tar)
        archive_read_free(tar);
    close(s.fd);
    stream_done(&s);
    writer_done(&w);
    return e;
}
#define unpack_all(p, t, ...) \
    unpack_members(p, (const member[]){__VA_ARGS__}, ARRAY_LEN(((const member[]){__VA_ARGS__})), t)

static bool exists(int dir, const char *name)
{
    struct stat st;

    return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

static void links_do_not_lead_out(void **state)
{
    place *p = *state;

    assert_err(unpack_all(p, NULL, {"a", AE_IFLNK, p->dir}, {"a/evil", AE_IFREG, "x"}),
               ERR_IMAGE_UNSUPPORTED);
    assert_err(unpack_all(p, NULL, {"b", AE_IFLNK, ".."}, {"b/../evil", AE_IFREG, "x"}),
               ERR_IMAGE_UNSUPPORTED);
    /* ".." of the root is the root itself */
    assert_ok(unpack_all(p, NULL, {"c", AE_IFLNK, "../.."}, {"c/evil", AE_IFREG, "x"}));
    assert_true(exists(p->root, "evil"));
    assert_false(exists(p->dirfd, "evil"));
    assert_err(unpack_all(p, NULL, {"h", AE_IFREG, "../secret", true}), ERR_IMAGE_UNSUPPORTED);
}

static void leaf_links_are_replaced(void **state)
{
    place *p = *state;
    CLEANUP(freep) char *secret = str_printf("%s/secret", p->dir);
    CLEANUP(buf_done) buf text = {0};

    assert_ok(unpack_all(p, NULL, {"a", AE_IFLNK, secret}, {"a", AE_IFREG, "mine"}));
    assert_ok(fs_read(p->dirfd, "secret", 10, &text));
    assert_string_equal(text.p, "s");
    CLEANUP(buf_done) buf mine = {0};
    assert_ok(fs_read(p->root, "a", 10, &mine));
    assert_string_equal(mine.p, "mine");
}

/* The parent is remembered between entries; a link that changes under it must be seen. */
static void replaced_parent_is_looked_up_again(void **state)
{
    place *p = *state;

    assert_ok(unpack_all(p, NULL, {"one", AE_IFDIR, NULL}, {"two", AE_IFDIR, NULL},
                         {"to", AE_IFLNK, "one"}, {"to/x", AE_IFREG, "1"}, {"to", AE_IFLNK, "two"},
                         {"to/y", AE_IFREG, "2"}));
    assert_true(exists(p->root, "one/x"));
    assert_true(exists(p->root, "two/y"));
    assert_false(exists(p->root, "one/y"));
}

static void implicit_parents_are_reported(void **state)
{
    place *p = *state;
    CLEANUP(tally_done) tally t = {0};
    CLEANUP(buf_done) buf out = {0};

    assert_ok(unpack_all(p, &t, {"a b/c", AE_IFREG, "1"}, {"a b/d/e", AE_IFREG, "2"},
                         {"f", AE_IFDIR, NULL}, {"f/g", AE_IFREG, "3"}));
    tally_write(&t, (unsigned char[32]){0}, &out);
    assert_non_null(strstr(buf_cstr(&out), "implicit=a%20b\nimplicit=a%20b/d\nend=1\n"));
    assert_null(strstr(out.p, "implicit=f"));
    assert_int_equal(t.files, 3);
}

static void closed_directories_are_finished(void **state)
{
    place *p = *state;
    struct stat st;

    /* As a tar lists them: the directory, closed, before what is in it. */
    assert_ok(unpack_all(p, NULL, {"d", AE_IFDIR, NULL}, {"d/e", AE_IFDIR, NULL},
                         {"d/e/f", AE_IFREG, "x"}, {"d", AE_IFDIR, NULL}));
    assert_int_equal(fstatat(p->root, "d", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(links_do_not_lead_out),
        TEST(leaf_links_are_replaced),
        TEST(replaced_parent_is_looked_up_again),
        TEST(implicit_parents_are_reported),
        TEST(closed_directories_are_finished),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
