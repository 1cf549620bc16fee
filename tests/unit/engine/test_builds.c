/* Which builds run: places for owners, and the queue. Nothing is built. */
#include <string.h>

#include "base/str.h"
#include "engine/build_internal.h"

#include "../unit.h"

#define MAX 64

static build_desk desk;
static build all[MAX];
static size_t n;

static int setup(void **state)
{
    (void)state;
    memset(&desk, 0, sizeof desk);
    memset(all, 0, sizeof all);
    n = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    map_done(&desk.known);
    return 0;
}

/* Whether it runs. */
static bool start(char *owner)
{
    build *b = &all[n];

    snprintf(b->id, sizeof b->id, "b%zu", n++);
    b->who.owner = owner;
    map_put_str(&desk.known, b->id, b);
    return build_place(&desk, b);
}

/* The owner whose build runs behind the first one of this owner, "" if none does. */
static const char *end(const char *owner)
{
    for (size_t i = 0; i < n; i++) {
        if (!all[i].runs || !str_eq(all[i].who.owner, owner))
            continue;
        all[i].runs = false;
        desk.running--;
        const build *b = build_next(&desk);
        return b ? b->who.owner : "";
    }
    fail();
    return NULL;
}

static void builds_that_sleep_hold_up_no_other_owner(void **state)
{
    (void)state;
    unsigned run = 0;

    for (unsigned i = 0; i < BUILDS_OWNER; i++)
        run += start("ann");
    assert_int_equal(run, BUILDS_SHARE);
    assert_true(run <= BUILDS_RUNNING / 2);
    assert_true(start("ben"));
    assert_true(start("cid"));
    assert_string_equal(end("ben"), ""); /* ann has what she may have */
    assert_string_equal(end("ann"), "ann");
}

static void a_place_goes_to_the_owner_with_the_fewest(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 6; i++)
        start("ann");
    for (unsigned i = 0; i < 6; i++)
        start("ben");
    assert_int_equal(desk.running, BUILDS_RUNNING);
    assert_false(start("cid"));
    assert_false(start("cid"));
    assert_string_equal(end("ben"), "cid");
    assert_string_equal(end("ann"), "cid");
    assert_string_equal(end("ann"), "ann"); /* two of hers are left, and three of ben's */
    assert_string_equal(end("cid"), "ann");
    assert_int_equal(desk.running, BUILDS_RUNNING);
}

static void the_queue_keeps_an_owners_order(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 6; i++)
        start("ann");
    assert_string_equal(end("ann"), "ann");
    assert_true(all[4].runs);
    assert_false(all[5].runs);
    assert_string_equal(end("ann"), "ann");
    assert_true(all[5].runs);
    assert_string_equal(end("ann"), "");
    assert_null(desk.queue);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(builds_that_sleep_hold_up_no_other_owner),
        CASE(a_place_goes_to_the_owner_with_the_fewest),
        CASE(the_queue_keeps_an_owners_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
