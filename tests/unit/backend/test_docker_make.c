/* What the engine is given. */
#include <string.h>

#include "backend/docker.h"
#include "base/str.h"

#include "../unit.h"

#define BLOCK 512u

static bool is_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* An engine that has read the end of an archive reads no further: what is behind it cannot be
 * written any more (Podman: EPIPE, and the volume is not filled). */
static void the_volume_has_nothing_behind_its_end(void **state)
{
    static const char program[] = "/proc/version"; /* a short file that is everywhere */
    CLEANUP(buf_done) buf one = {0};
    CLEANUP(buf_done) buf two = {0};

    (void)state;
    assert_ok(docker_volume_tar(program, NULL, &one));
    assert_ok(docker_volume_tar(program, program, &two));
    /* Of each file its head and a block of its bytes, the head of the mark, and the end. */
    assert_int_equal(one.len, (2 + 1 + 2) * BLOCK);
    assert_int_equal(two.len, (2 + 2 + 1 + 2) * BLOCK);
    assert_string_equal(one.p, "bothy-init");
    assert_string_equal(two.p + 2 * (size_t)BLOCK, "bothy-kit");
    assert_string_equal(two.p + 4 * (size_t)BLOCK, "complete");
    assert_true(is_zero(two.p + 5 * (size_t)BLOCK, 2 * (size_t)BLOCK));
}

/* The engine has written its list before a box was made that is looked for in it. */
static void what_is_made_while_the_engine_lists_is_not_missed(void **state)
{
    docker d = {0};
    docker_list none = {0};
    docker_made made = {0};

    (void)state;
    pthread_mutex_init(&d.lock, NULL);
    CLEANUP(strv_freep) char **expected = docker_boxes_expected(&d);
    docker_box *x = docker_box_add(&d, "b000aaaaaaaaaaaaaaaa");
    str_copy(made.handle, sizeof made.handle, "aaaa");
    docker_box_contain(&d, x, &made);
    docker_boxes_compare(&d, expected, &none);
    assert_false(x->dead);
    docker_box_forget(&d, "b000aaaaaaaaaaaaaaaa");
    map_done(&d.boxes);
    map_done(&d.handles);
}

/* The first list shows what an earlier bothyd left. A later one may show a box that was removed
 * while the engine wrote it: it takes no place again. */
static void a_box_that_is_removed_while_the_engine_lists_is_not_learned(void **state)
{
    docker d = {.claims = -1};
    docker_container c = {
        .id = "aaaa", .name = "bothy-b000aaaaaaaaaaaaaaaa", .state = DOCKER_RUNNING};
    docker_list l = {&c, 1};
    box_status all[1] = {0};
    docker_box x;

    (void)state;
    pthread_mutex_init(&d.lock, NULL);
    assert_int_equal(docker_boxes_take(&d, &l, all), 1);
    assert_string_equal(all[0].id, "b000aaaaaaaaaaaaaaaa");
    assert_true(docker_box_get(&d, "b000aaaaaaaaaaaaaaaa", &x));
    assert_int_equal(d.live, 1);
    docker_box_forget(&d, "b000aaaaaaaaaaaaaaaa");
    assert_int_equal(docker_boxes_take(&d, &l, all), 1);
    assert_false(docker_box_get(&d, "b000aaaaaaaaaaaaaaaa", &x));
    assert_int_equal(d.live, 0);
    map_done(&d.boxes);
    map_done(&d.handles);
}

/* The first was warm, could not be claimed and was removed; the box is not dead of that. */
static void another_container_lives_anew(void **state)
{
    docker d = {0};
    docker_made made = {.handle = "aaaa"};

    (void)state;
    docker_box *x = docker_box_add(&d, "b000aaaaaaaaaaaaaaaa");
    docker_box_contain(&d, x, &made);
    x->dead = x->has_exit_code = true;
    d.live--;
    str_copy(made.handle, sizeof made.handle, "bbbb");
    docker_box_contain(&d, x, &made);
    assert_false(x->dead || x->has_exit_code);
    assert_int_equal(d.live, 1);
    docker_box_forget(&d, "b000aaaaaaaaaaaaaaaa");
    assert_int_equal(d.live, 0);
    map_done(&d.boxes);
    map_done(&d.handles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_volume_has_nothing_behind_its_end),
        cmocka_unit_test(what_is_made_while_the_engine_lists_is_not_missed),
        cmocka_unit_test(a_box_that_is_removed_while_the_engine_lists_is_not_learned),
        cmocka_unit_test(another_container_lives_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
