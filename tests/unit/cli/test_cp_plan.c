#include "base/str.h"
#include "cli/cp_plan.h"

#include "unit.h"

static void words_name_a_sandbox_or_a_path_of_ours(void **state)
{
    static const struct {
        const char *word, *sandbox, *path;
    } CASES[] = {
        {"box:/a", "box", "/a"},  {"box:", "box", ""},      {"box:a:b", "box", "a:b"},
        {"/a:b", NULL, "/a:b"},   {"./a:b", NULL, "./a:b"}, {":a", NULL, ":a"},
        {"d/a:b", NULL, "d/a:b"}, {"-", NULL, "-"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(place_done) place p = {0};
        place_parse(CASES[i].word, &p);
        assert_true(str_eq(p.sandbox, CASES[i].sandbox));
        assert_string_equal(p.path, CASES[i].path);
    }
}

static void a_copy_is_called_as_docker_calls_it(void **state)
{
    static const struct {
        const char *from;
        bool from_dir;
        const char *to;
        enum found found;
        const char *dir, *name;
        bool parents;
    } CASES[] = {
        {"f", false, "/t/new", FOUND_NOTHING, "/t", "new", false},
        {"f", false, "/t", FOUND_DIR, "/t", "f", false},
        {"f", false, "/new", FOUND_NOTHING, "/", "new", false},
        {"f", false, "new", FOUND_OTHER, ".", "new", false},
        {"a/d", true, "/t", FOUND_DIR, "/t", "d", false},
        {"a/d/", true, "/t", FOUND_DIR, "/t", "d", false},
        {"a/d/.", true, "/t", FOUND_DIR, "/t", "", false},
        {"a/d", true, "/t/new", FOUND_NOTHING, "/t/new", "", true},
        {"/", true, "out", FOUND_DIR, "out", "", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(plan_done) plan p = {0};
        assert_ok(plan_make(CASES[i].from, CASES[i].from_dir, CASES[i].to, CASES[i].found, &p));
        assert_string_equal(p.dir, CASES[i].dir);
        assert_string_equal(p.name, CASES[i].name);
        assert_int_equal(p.parents, CASES[i].parents);
    }
}

static void what_cannot_be_is_refused(void **state)
{
    plan p = {0};

    (void)state;
    assert_err(plan_make("d", true, "/t/f", FOUND_OTHER, &p), ERR_CONFLICT);
    assert_err(plan_make("f", false, "/t/new/", FOUND_NOTHING, &p), ERR_NOT_FOUND);
    assert_err(plan_make("f", false, "/t/..", FOUND_NOTHING, &p), ERR_NOT_FOUND);
    assert_err(plan_make("/x/..", true, "out", FOUND_DIR, &p), ERR_INVALID_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_name_a_sandbox_or_a_path_of_ours),
        cmocka_unit_test(a_copy_is_called_as_docker_calls_it),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
