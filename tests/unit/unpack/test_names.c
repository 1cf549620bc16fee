#include <string.h>

#include "unpack/names.h"

#include "../unit.h"

static void names_are_normalised(void **state)
{
    static const struct {
        const char *in, *out;
        unsigned depth;
    } CASES[] = {
        {"a", "a", 1},
        {"/a", "a", 1},
        {"./a/", "a", 1},
        {"././/a//./b", "a/b", 2},
        {"///", "", 0},
        {".", "", 0},
        {"./", "", 0},
        {"...", "...", 1},
        {"a/..b/c..", "a/..b/c..", 3},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        char path[64];
        unsigned depth = 99;
        strcpy(path, CASES[i].in);
        assert_null(name_normalise(path, 128, &depth));
        assert_string_equal(path, CASES[i].out);
        assert_int_equal(depth, CASES[i].depth);
    }
}

static void bad_names_are_refused(void **state)
{
    static const char *const BAD[] = {"..", "../a", "a/..", "/a/../b", "./..", "a/b/c/d"};
    char path[5000];
    unsigned depth;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        strcpy(path, BAD[i]);
        assert_non_null(name_normalise(path, 3, &depth));
    }
    memset(path, 'x', 256);
    path[256] = 0;
    assert_non_null(name_normalise(path, 128, &depth));
    path[255] = 0;
    assert_null(name_normalise(path, 128, &depth));
    for (size_t i = 0; i < 4096; i++)
        path[i] = i % 200 == 199 ? '/' : 'y';
    path[4096] = 0;
    assert_non_null(name_normalise(path, 128, &depth));
}

static void whiteouts_are_told_apart(void **state)
{
    static const struct {
        const char *path;
        enum name_kind kind;
        const char *target;
    } CASES[] = {
        {"a", NAME_PLAIN, NULL},
        {"a/.whx", NAME_PLAIN, NULL},
        {".wh.a", NAME_WHITEOUT, "a"},
        {"d/.wh.a.b", NAME_WHITEOUT, "a.b"},
        {"d/.wh..wh..opq", NAME_OPAQUE, NULL},
        {".wh..wh.plnk", NAME_AUFS, NULL},
        {".wh..wh.plnk/1.2", NAME_AUFS, NULL},
        {".wh.", NAME_BAD, NULL},
        {".wh..", NAME_BAD, NULL},
        {"a/.wh...", NAME_BAD, NULL},
        {".wh.d/x", NAME_BAD, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        const char *target = NULL;
        assert_int_equal(name_kind_of(CASES[i].path, &target), CASES[i].kind);
        if (CASES[i].target)
            assert_string_equal(target, CASES[i].target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_normalised),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(whiteouts_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
