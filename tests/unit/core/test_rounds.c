/* Queues of owners, served in turn. */
#include "core/rounds.h"

#include "../unit.h"

#define ANN 1
#define BEN 2
#define CAT 3

static void an_owner_with_many_delays_another_by_one_turn(void **state)
{
    rounds r = {0};
    rounds_entry ann[3], ben;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        rounds_add(&r, &ann[i], ANN);
    rounds_add(&r, &ben, BEN);
    assert_ptr_equal(rounds_next(&r, NULL), &ann[0]);
    rounds_serve(&r, &ann[0]);
    assert_ptr_equal(rounds_next(&r, NULL), &ben);
    rounds_serve(&r, &ben);
    assert_ptr_equal(rounds_next(&r, NULL), &ann[1]);
    rounds_serve(&r, &ann[1]);
    rounds_add(&r, &ben, BEN);
    assert_ptr_equal(rounds_next(&r, NULL), &ann[2]);
    rounds_serve(&r, &ann[2]);
    assert_ptr_equal(rounds_next(&r, NULL), &ben);
    rounds_serve(&r, &ben);
    assert_null(rounds_next(&r, NULL));
}

static void only_the_first_of_each_owner_is_offered(void **state)
{
    rounds r = {0};
    rounds_entry ann[2], ben, cat;

    (void)state;
    rounds_add(&r, &ann[0], ANN);
    rounds_add(&r, &ann[1], ANN);
    rounds_add(&r, &ben, BEN);
    rounds_add(&r, &cat, CAT);
    assert_ptr_equal(rounds_next(&r, &ann[0]), &ben);
    assert_ptr_equal(rounds_next(&r, &ben), &cat);
    assert_null(rounds_next(&r, &cat));
    /* The one in front is held up and keeps its turn while another is served. */
    rounds_serve(&r, &ben);
    assert_ptr_equal(rounds_next(&r, NULL), &ann[0]);
    rounds_remove(&r, &ann[0]);
    assert_ptr_equal(rounds_next(&r, NULL), &ann[1]);
    rounds_remove(&r, &cat);
    rounds_remove(&r, &ann[1]);
    assert_null(rounds_next(&r, NULL));
}

static void a_full_queue_gives_up_the_last_of_the_longest_line(void **state)
{
    rounds r = {0};
    rounds_entry ann, ben[3];

    (void)state;
    assert_null(rounds_longest(&r));
    rounds_add(&r, &ann, ANN);
    for (size_t i = 0; i < 3; i++)
        rounds_add(&r, &ben[i], BEN);
    assert_ptr_equal(rounds_longest(&r), &ben[2]);
    assert_int_equal(rounds_waiting(&r, BEN), 3);
    assert_int_equal(rounds_waiting(&r, CAT), 0);
    rounds_remove(&r, &ben[1]);
    assert_ptr_equal(rounds_longest(&r), &ben[2]);
    assert_int_equal(rounds_waiting(&r, BEN), 2);
    rounds_remove(&r, &ben[0]);
    rounds_remove(&r, &ben[2]);
    assert_ptr_equal(rounds_longest(&r), &ann);
    rounds_remove(&r, &ann);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_with_many_delays_another_by_one_turn),
        cmocka_unit_test(only_the_first_of_each_owner_is_offered),
        cmocka_unit_test(a_full_queue_gives_up_the_last_of_the_longest_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
