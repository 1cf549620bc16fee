#include "core/lifecycle.h"

#include "../unit.h"

/* Written down a second time, by row: creating, running, paused, hibernated, gone. */
static const bool LEGAL[LIFE_STATES][LIFE_STATES] = {
    {0, 1, 0, 0, 1}, {0, 0, 1, 1, 1}, {0, 1, 0, 1, 1}, {0, 1, 0, 0, 1}, {0, 0, 0, 0, 0},
};

static void only_legal_moves_are_allowed(void **state)
{
    (void)state;
    for (int from = 0; from < LIFE_STATES; from++)
        for (int to = 0; to < LIFE_STATES; to++)
            assert_int_equal(lifecycle_allows((enum lifecycle)from, (enum lifecycle)to),
                             LEGAL[from][to]);
}

static void a_refused_move_changes_nothing_and_says_why(void **state)
{
    enum lifecycle s = LIFE_GONE;

    (void)state;
    assert_err(lifecycle_move(&s, LIFE_RUNNING), ERR_SANDBOX_GONE);
    assert_int_equal(s, LIFE_GONE);
    s = LIFE_PAUSED;
    assert_err(lifecycle_move(&s, LIFE_PAUSED), ERR_SANDBOX_PAUSED);
    s = LIFE_CREATING;
    assert_err(lifecycle_move(&s, LIFE_PAUSED), ERR_CONFLICT);
    assert_ok(lifecycle_move(&s, LIFE_RUNNING));
    assert_int_equal(s, LIFE_RUNNING);
}

static void names_go_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < LIFE_STATES; i++)
        assert_int_equal(lifecycle_by_name(lifecycle_name((enum lifecycle)i)), i);
    assert_int_equal(lifecycle_by_name("dead"), LIFE_STATES);
    assert_int_equal(lifecycle_by_name(NULL), LIFE_STATES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_legal_moves_are_allowed),
        cmocka_unit_test(a_refused_move_changes_nothing_and_says_why),
        cmocka_unit_test(names_go_both_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
