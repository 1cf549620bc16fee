#include "base/map.h"

#include "../unit.h"

static void ten_thousand_keys(void **state)
{
    map m = {0};

    (void)state;
    for (uint64_t i = 1; i <= 10000; i++)
        assert_null(map_put_u64(&m, i, (void *)(uintptr_t)i));
    for (uint64_t i = 1; i <= 10000; i++)
        assert_int_equal((uintptr_t)map_get_u64(&m, i), i);
    assert_null(map_get_u64(&m, 10001));
    for (uint64_t i = 1; i <= 10000; i += 2)
        assert_int_equal((uintptr_t)map_take_u64(&m, i), i);
    assert_int_equal(m.count, 5000);
    assert_null(map_get_u64(&m, 1));
    map_done(&m);
}

static void iteration_may_remove_the_current_entry(void **state)
{
    map m = {0};
    map_iter it = {0};
    size_t seen = 0;

    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        map_put_u64(&m, i, &m);
    while (map_next(&m, &it)) {
        seen++;
        map_take(&m, it.entry->key, it.entry->len);
    }
    assert_int_equal(seen, 100);
    assert_int_equal(m.count, 0);
    map_done(&m);
}

static void putting_again_gives_the_former_value(void **state)
{
    map m = {0};
    int a, b;

    (void)state;
    assert_null(map_put_str(&m, "x", &a));
    assert_ptr_equal(map_put_str(&m, "x", &b), &a);
    assert_ptr_equal(map_get_str(&m, "x"), &b);
    assert_null(map_get_str(&m, ""));
    map_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_keys),
        cmocka_unit_test(iteration_may_remove_the_current_entry),
        cmocka_unit_test(putting_again_gives_the_former_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
