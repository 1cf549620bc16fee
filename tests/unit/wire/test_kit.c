#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "wire/kit.h"

#include "unit.h"

static char bytes[4 * KIT_RECORD_MAX];

static kit_record entry(const char *name, uint64_t size)
{
    kit_record r = {.type = KIT_ENTRY, .name = name, .name_len = strlen(name), .bytes = ""};

    r.entry = (struct kit_entry){.mode = S_IFREG | 0644, .size = size, .mtime = -5, .mtime_ns = 7};
    return r;
}

static kit_record data(uint64_t offset, const char *p)
{
    return (kit_record){.type = KIT_DATA, .offset = offset, .bytes = p, .bytes_len = strlen(p)};
}

static void a_record_is_read_as_it_was_written(void **state)
{
    (void)state;
    kit_record r = entry("dir/a\nb\xff", 12), back;
    size_t n, used;

    r.bytes = "target";
    r.bytes_len = 6;
    n = kit_encode(&r, bytes);
    assert_int_equal(n, 8 + 72 + 8 + 6);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(kit_decode(bytes, i, &back, &used), KIT_SHORT);
    assert_int_equal(kit_decode(bytes, sizeof bytes, &back, &used), KIT_OK);
    assert_int_equal(used, n);
    assert_int_equal(back.entry.size, 12);
    assert_int_equal(back.entry.mtime, -5);
    assert_memory_equal(back.name, "dir/a\nb\xff", back.name_len);
    assert_memory_equal(back.bytes, "target", 6);
}

static void a_path_and_a_detail_are_read_as_they_were_written(void **state)
{
    (void)state;
    kit_record at = {.type = KIT_AT, .bytes = "/a b", .bytes_len = 4}, back;
    kit_record d = {.type = KIT_DETAIL,
                    .name = "user",
                    .name_len = 4,
                    .group = "staff",
                    .group_len = 5,
                    .bytes = "/real",
                    .bytes_len = 5};
    size_t used, n = kit_encode(&at, bytes);

    assert_int_equal(kit_decode(bytes, n, &back, &used), KIT_OK);
    assert_memory_equal(back.bytes, "/a b", 4);
    d.detail.mode = 0755;
    n = kit_encode(&d, bytes);
    assert_int_equal(kit_decode(bytes, n, &back, &used), KIT_OK);
    assert_int_equal(back.detail.mode, 0755);
    assert_memory_equal(back.group, "staff", 5);
    assert_memory_equal(back.bytes, "/real", 5);
    at.bytes = "rel";
    at.bytes_len = 3;
    n = kit_encode(&at, bytes);
    assert_int_equal(kit_decode(bytes, n, &back, &used), KIT_BAD);
    d.bytes = "real";
    d.bytes_len = 4;
    n = kit_encode(&d, bytes);
    assert_int_equal(kit_decode(bytes, n, &back, &used), KIT_BAD);
    /* Behind an entry, once, before attributes and data. */
    kit_record e = entry("f", 3), x = data(0, "abc");
    kit_order o = {0};
    assert_false(kit_order_check(&o, &d));
    assert_true(kit_order_check(&o, &e) && kit_order_check(&o, &d));
    assert_false(kit_order_check(&o, &d));
    assert_true(kit_order_check(&o, &at));
    assert_false(kit_order_check(&o, &x));
}

static void names_lead_down_only(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool good;
    } CASES[] = {
        {"", true},        {"a", true},     {"a/b", true},     {"..a", true}, {"a..", true},
        {".a", true},      {"...", true},   {"a/.../b", true}, {"/a", false}, {"/", false},
        {"a/", false},     {"a//b", false}, {".", false},      {"..", false}, {"../a", false},
        {"a/../b", false}, {"a/..", false}, {"a/./b", false},
    };
    kit_record back;
    size_t used;

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        kit_record r = entry(CASES[i].name, 0), link = entry("l", 0);
        kit_encode(&r, bytes);
        assert_int_equal(kit_decode(bytes, sizeof bytes, &back, &used),
                         CASES[i].good ? KIT_OK : KIT_BAD);
        link.entry.flags = KIT_E_HARDLINK;
        link.bytes = CASES[i].name;
        link.bytes_len = strlen(CASES[i].name);
        kit_encode(&link, bytes);
        assert_int_equal(kit_decode(bytes, sizeof bytes, &back, &used),
                         CASES[i].good && *CASES[i].name ? KIT_OK : KIT_BAD);
    }
    assert_false(kit_name_valid("a\0b", 3));
}

static void what_is_beyond_a_ceiling_is_refused(void **state)
{
    (void)state;
    struct kit_hdr h = {.type = KIT_DATA, .size = KIT_PAYLOAD_MAX + 1};
    kit_record back, r = {.type = KIT_DATA, .bytes = bytes, .bytes_len = KIT_DATA_MAX + 1};
    size_t used;

    assert_int_equal(kit_encode(&r, bytes), 0);
    memcpy(bytes, &h, sizeof h);
    assert_int_equal(kit_decode(bytes, sizeof h, &back, &used),
                     KIT_BAD); /* before they have come */
    h = (struct kit_hdr){.type = KIT_TYPES};
    memcpy(bytes, &h, sizeof h);
    assert_int_equal(kit_decode(bytes, sizeof bytes, &back, &used), KIT_BAD);
}

static void no_file_belongs_to_minus_one(void **state)
{
    for (int i = 0; i < 2; i++) {
        kit_record r = entry("file", 0), back;
        size_t used;

        *(i ? &r.entry.uid : &r.entry.gid) = UINT32_MAX;
        size_t n = kit_encode(&r, bytes);
        assert_int_equal(kit_decode(bytes, n, &back, &used), KIT_BAD);
    }
    (void)state;
}

static void records_keep_their_order(void **state)
{
    (void)state;
    kit_record e = entry("f", 10), end = {.type = KIT_END}, fatal = {.type = KIT_ERROR};
    kit_record first = data(0, "01234"), third = data(8, "89"), over = data(8, "89x"),
               back = data(4, "4"), match = {.type = KIT_MATCH}, xattr = {.type = KIT_XATTR};
    kit_order o = {0};

    assert_false(kit_order_check(&o, &first)); /* of no entry */
    assert_false(kit_order_check(&o, &match));
    assert_true(kit_order_check(&o, &e));
    for (unsigned i = 0; i < KIT_XATTRS_MAX; i++)
        assert_true(kit_order_check(&o, &xattr));
    assert_false(kit_order_check(&o, &xattr));
    assert_true(kit_order_check(&o, &first));
    assert_false(kit_order_check(&o, &back));
    assert_false(kit_order_check(&o, &over));
    assert_true(kit_order_check(&o, &third)); /* a hole before it */
    assert_false(kit_order_check(&o, &xattr));
    fatal.error = (struct kit_error){.errnum = 5, .flags = KIT_E_FATAL};
    assert_true(kit_order_check(&o, &fatal));
    assert_false(kit_order_check(&o, &e));
    assert_true(kit_order_check(&o, &end));
    assert_false(kit_order_check(&o, &end));
}

static void a_hard_link_has_no_data(void **state)
{
    (void)state;
    kit_record e = entry("f", 10), d = data(0, "0");
    kit_order o = {0};

    e.entry.flags = KIT_E_HARDLINK;
    assert_true(kit_order_check(&o, &e));
    assert_false(kit_order_check(&o, &d));
}

static void a_request_is_its_argv(void **state)
{
    (void)state;
    kit_request rq = {.verb = KIT_SEARCH,
                      .flags = KIT_F_CASELESS,
                      .mode = KIT_MODE_NONE,
                      .depth = 3,
                      .length = UINT64_MAX,
                      .max = 100,
                      .path = "/a b",
                      .to = "*.c",
                      .text = "x,y"},
                back;
    char numbers[KIT_NUMBERS];
    const char *argv[KIT_ARGC + 1];

    kit_request_write(&rq, numbers, argv);
    assert_string_equal(argv[3], "32,4294967295,3,0,18446744073709551615,100");
    assert_true(kit_request_read(KIT_ARGC, (char *const *)argv, &back));
    assert_int_equal(back.verb, KIT_SEARCH);
    assert_int_equal(back.length, UINT64_MAX);
    assert_string_equal(back.text, "x,y");
    static const char *const WRONG[] = {"",
                                        "1",
                                        "1,2,3,4,5",
                                        "1,2,3,4,5,6,",
                                        "65536,0,0,0,0,0",
                                        "1,2,3,4,5,18446744073709551616",
                                        "-1,0,0,0,0,0"};
    for (size_t i = 0; i < ARRAY_LEN(WRONG); i++) {
        argv[3] = WRONG[i];
        assert_false(kit_request_read(KIT_ARGC, (char *const *)argv, &back));
    }
    argv[3] = numbers;
    argv[1] = "2";
    assert_false(kit_request_read(KIT_ARGC, (char *const *)argv, &back));
    assert_false(kit_request_read(KIT_ARGC - 1, (char *const *)argv, &back));
}

static void extents_ascend(void **state)
{
    (void)state;
    struct kit_extent good[] = {{0, 5}, {10, 5}}, bad[] = {{10, 5}, {12, 5}};
    kit_record back;
    size_t used;

    kit_encode_extents(good, 2, bytes);
    assert_int_equal(kit_decode(bytes, sizeof bytes, &back, &used), KIT_OK);
    assert_int_equal(kit_extent_get(&back, 1).from, 10);
    kit_encode_extents(bad, 2, bytes);
    assert_int_equal(kit_decode(bytes, sizeof bytes, &back, &used), KIT_BAD);
    assert_int_equal(kit_encode_extents(good, KIT_EXTENTS_MAX + 1, bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_read_as_it_was_written),
        cmocka_unit_test(a_path_and_a_detail_are_read_as_they_were_written),
        cmocka_unit_test(names_lead_down_only),
        cmocka_unit_test(what_is_beyond_a_ceiling_is_refused),
        cmocka_unit_test(no_file_belongs_to_minus_one),
        cmocka_unit_test(records_keep_their_order),
        cmocka_unit_test(a_hard_link_has_no_data),
        cmocka_unit_test(a_request_is_its_argv),
        cmocka_unit_test(extents_ascend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
