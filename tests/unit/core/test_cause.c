#include "core/cause.h"

#include "../unit.h"

static void check_text(const cause *c, const char *expected)
{
    CLEANUP(buf_done) buf b = {0};

    cause_write(&b, c);
    assert_string_equal(buf_cstr(&b), expected);
}

static void each_kind_shows_its_members_only(void **state)
{
    cause all = {.by = "alice", .stage = "pull", .limit = 10, .peak = 9};

    (void)state;
    all.kind = CAUSE_REQUESTED;
    check_text(&all, "{\"kind\":\"requested\",\"by\":\"alice\"}");
    all.kind = CAUSE_TTL;
    check_text(&all, "{\"kind\":\"ttl\"}");
    all.kind = CAUSE_OOM;
    check_text(&all, "{\"kind\":\"oom\",\"limit\":10,\"peak\":9}");
    all.kind = CAUSE_CREATE_FAILED;
    check_text(&all, "{\"kind\":\"create_failed\",\"stage\":\"pull\"}");
    all.detail = "say \"no\"";
    check_text(&all,
               "{\"kind\":\"create_failed\",\"stage\":\"pull\",\"detail\":\"say \\\"no\\\"\"}");
}

static void names_go_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < CAUSES; i++) {
        assert_int_equal(cause_by_name(cause_name((enum cause_kind)i)), i);
        assert_non_null(cause_text((enum cause_kind)i));
    }
    assert_int_equal(cause_by_name("boredom"), CAUSES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_shows_its_members_only),
        cmocka_unit_test(names_go_both_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
