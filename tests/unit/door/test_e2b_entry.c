/* Files and changes as E2B's clients read them. */
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "door/e2b/entry.h"

#include "unit.h"

static void permissions_are_gos(void **state)
{
    (void)state;
    static const struct {
        uint32_t mode;
        const char *want;
    } CASES[] = {
        {S_IFREG | 0644, "-rw-r--r--"},  {S_IFDIR | 0755, "drwxr-xr-x"},
        {S_IFLNK | 0777, "Lrwxrwxrwx"},  {S_IFDIR | 01777, "dtrwxrwxrwx"},
        {S_IFREG | 04755, "urwxr-xr-x"}, {S_IFREG | 02755, "grwxr-xr-x"},
        {S_IFCHR | 0666, "Dcrw-rw-rw-"}, {S_IFBLK | 0660, "Drw-rw----"},
        {S_IFIFO | 0600, "prw-------"},  {S_IFSOCK | 0, "S---------"},
    };
    char text[FS_PERMISSIONS_LEN];

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        fs_permissions(CASES[i].mode, text);
        assert_string_equal(text, CASES[i].want);
    }
}

static kit_record entry(uint32_t mode)
{
    kit_record r = {.type = KIT_ENTRY, .name = "n", .name_len = 1};

    r.entry = (struct kit_entry){
        .mode = mode, .uid = 7, .gid = 8, .size = 5, .mtime = 1706933106, .mtime_ns = 5};
    return r;
}

static void an_entry_is_whole(void **state)
{
    (void)state;
    fs_entry x = {0};
    kit_record r = entry(S_IFLNK | 0777);
    kit_record d = {.type = KIT_DETAIL,
                    .name = "user",
                    .name_len = 4,
                    .group = "",
                    .bytes = "/real",
                    .bytes_len = 5};
    kit_record own = {
        .type = KIT_XATTR, .name = "user.e2b.k", .name_len = 10, .bytes = "v", .bytes_len = 1};
    kit_record other = {
        .type = KIT_XATTR, .name = "user.x", .name_len = 6, .bytes = "v", .bytes_len = 1};
    kit_record bad = {
        .type = KIT_XATTR, .name = "user.e2b.b", .name_len = 10, .bytes = "\xff", .bytes_len = 1};
    CLEANUP(buf_done) buf full = {0}, brief = {0};

    d.detail.mode = S_IFDIR | 0750;
    fs_entry_take(&x, &r);
    fs_entry_take(&x, &d);
    fs_entry_take(&x, &own);
    fs_entry_take(&x, &other);
    fs_entry_take(&x, &bad);
    fs_entry_write(&full, &x, "/a/n", false);
    assert_string_equal(
        buf_cstr(&full),
        "{\"name\":\"n\",\"type\":\"FILE_TYPE_DIRECTORY\",\"path\":\"/a/n\",\"size\":\"5\","
        "\"mode\":488,\"permissions\":\"Lrwxrwxrwx\",\"owner\":\"user\",\"group\":\"8\","
        "\"modifiedTime\":\"2024-02-03T04:05:06.000000005Z\",\"symlinkTarget\":\"/real\","
        "\"metadata\":{\"k\":\"v\"}}");
    fs_entry_write(&brief, &x, "/a/n/", true);
    assert_string_equal(buf_cstr(&brief),
                        "{\"name\":\"n\",\"type\":\"FILE_TYPE_DIRECTORY\",\"path\":\"/a/n/\"}");
    /* The next one has nothing of it; a time that cannot be told is left out. */
    buf_clear(&full);
    r = entry(S_IFIFO | 0600);
    r.entry.mtime = INT64_MAX;
    fs_entry_take(&x, &r);
    fs_entry_write(&full, &x, "/", false);
    assert_string_equal(buf_cstr(&full),
                        "{\"name\":\"/\",\"path\":\"/\",\"size\":\"5\",\"mode\":384,"
                        "\"permissions\":\"prw-------\",\"owner\":\"7\",\"group\":\"8\"}");
    fs_entry_done(&x);
}

static void told(enum kit_change change, const char *name, const char *to, const char *want)
{
    kit_record r = {.type = KIT_EVENT,
                    .name = name,
                    .name_len = strlen(name),
                    .bytes = to,
                    .bytes_len = strlen(to)};
    CLEANUP(buf_done) buf got = {0};
    fs_event ev[2];
    size_t n = 0;

    r.event.change = change;
    enum fs_told what = fs_event_of(&r, ev, &n);
    assert_int_equal(what == FS_EVENTS, n > 0);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&got, "%s %s%s;", ev[i].type + strlen("EVENT_TYPE_"), ev[i].name,
                   ev[i].has_entry ? "+" : "");
        free(ev[i].name);
    }
    if (what == FS_LOST)
        buf_str(&got, "lost");
    assert_string_equal(buf_cstr(&got), want);
}

static void changes_become_e2bs_events(void **state)
{
    (void)state;
    told(KIT_READY, "", "", "");
    told(KIT_CREATED, "a/b", "", "CREATE a/b+;");
    told(KIT_MODIFIED, "a", "", "WRITE a+;");
    told(KIT_ATTRIB, "a", "", "CHMOD a+;");
    told(KIT_DELETED, "a", "", "REMOVE a;");
    told(KIT_DELETED, "", "", "REMOVE .;");
    told(KIT_MOVED, "a", "b", "RENAME a;CREATE b+;");
    told(KIT_MOVED, "a", "", "RENAME a;");
    told(KIT_MOVED, "", "b", "CREATE b+;");
    told(KIT_OVERFLOW, "", "", "lost");
    /* Our own writing. */
    told(KIT_CREATED, "d/.bothy-0123456789abcdef", "", "");
    told(KIT_MODIFIED, ".bothy-+0123456789abcdef", "", "");
    told(KIT_DELETED, ".bothy-+0123456789abcdef", "", "");
    told(KIT_MOVED, "d/.bothy-0123456789abcdef", "d/x", "WRITE d/x+;");
    told(KIT_MOVED, ".bothy-+0123456789abcdef", "x", "CREATE x+;WRITE x+;");
    /* What only looks like it. */
    told(KIT_CREATED, ".bothy-0123456789abcdeg", "", "CREATE .bothy-0123456789abcdeg+;");
    told(KIT_CREATED, ".bothy-cp-1", "", "CREATE .bothy-cp-1+;");
}

static void names_and_paths_are_joined(void **state)
{
    (void)state;
    static const char *const NAMES[][2] = {
        {"/a/b", "b"}, {"/a/b//", "b"}, {"/", "/"}, {"///", "/"}, {"b", "b"}};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        CLEANUP(freep) char *name = fs_base_name(NAMES[i][0]);
        assert_string_equal(name, NAMES[i][1]);
    }
    CLEANUP(freep) char *a = fs_join("/", "x", 1);
    CLEANUP(freep) char *b = fs_join("/a/", "x/y", 3);
    assert_string_equal(a, "/x");
    assert_string_equal(b, "/a/x/y");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permissions_are_gos),
        cmocka_unit_test(an_entry_is_whole),
        cmocka_unit_test(changes_become_e2bs_events),
        cmocka_unit_test(names_and_paths_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
