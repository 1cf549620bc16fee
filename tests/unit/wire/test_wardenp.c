/* Frames between bothyd and the warden: what is let through and what is not. */
#include <string.h>

#include "wire/wardenp.h"

#include "../unit.h"

static struct wp_id an_id(void)
{
    struct wp_id id = {0};

    memcpy(id.id, "cell0123456789abcdef", 20);
    return id;
}

struct claim_frame {
    struct wp_claim c;
    struct wp_tmpfs t[WP_TMPFS_MAX + 1];
};

static struct claim_frame a_claim(uint32_t ntmpfs)
{
    struct claim_frame f = {.c = {.sandbox = an_id(), .ntmpfs = ntmpfs}};

    for (uint32_t i = 0; i < ntmpfs && i <= WP_TMPFS_MAX; i++) {
        f.t[i] = (struct wp_tmpfs){.size = 4096, .mode = 01777};
        strcpy(f.t[i].path, "/run/x");
    }
    return f;
}

static bool claim_passes(const struct claim_frame *f)
{
    return wp_request_ok(WP_CLAIM, f, sizeof f->c + f->c.ntmpfs * sizeof f->t[0]);
}

static bool path_passes(const char *path)
{
    struct claim_frame f = a_claim(1);

    memset(f.t[0].path, 0, sizeof f.t[0].path);
    strcpy(f.t[0].path, path);
    return claim_passes(&f);
}

static void claim_takes_up_to_the_limit_of_tmpfs(void **state)
{
    (void)state;
    for (uint32_t n = 0; n <= WP_TMPFS_MAX; n++) {
        struct claim_frame f = a_claim(n);
        assert_true(claim_passes(&f));
    }
    struct claim_frame f = a_claim(WP_TMPFS_MAX + 1);
    assert_false(claim_passes(&f));
}

static void claim_length_is_exact(void **state)
{
    (void)state;
    struct claim_frame f = a_claim(1);
    size_t n = sizeof f.c + sizeof f.t[0];
    assert_false(wp_request_ok(WP_CLAIM, &f, n - 1));
    assert_false(wp_request_ok(WP_CLAIM, &f, n + 1));
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f.c));
    assert_false(wp_request_ok(WP_CLAIM, &f, 0));
}

static void a_named_claim_has_its_name_behind_the_mounts(void **state)
{
    struct {
        struct wp_claim c;
        struct wp_tmpfs t;
        struct wp_id name;
    } f = {.c = {.sandbox = an_id(), .ntmpfs = 1, .flags = WP_CLAIM_NAMED},
           .t = {.path = "/run/x", .size = 4096, .mode = 01777},
           .name = an_id()};

    (void)state;
    assert_true(wp_request_ok(WP_CLAIM, &f, sizeof f));
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f - 1));
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f - sizeof f.name));
    f.name.id[3] = '.';
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f));
    f.name = an_id();
    f.c.flags = 0;
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f));
}

static void an_owned_claim_has_its_owner_last(void **state)
{
    struct {
        struct wp_claim c;
        struct wp_id name;
        struct wp_owner owner;
    } f = {.c = {.sandbox = an_id(), .flags = WP_CLAIM_NAMED | WP_CLAIM_OWNED},
           .name = an_id(),
           .owner = {UINT64_MAX}};

    (void)state;
    assert_true(wp_request_ok(WP_CLAIM, &f, sizeof f));
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f - 1));
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f - sizeof f.owner));
    f.c.flags = WP_CLAIM_NAMED;
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f));
    f.c.flags = WP_CLAIM_OWNED; /* the name is one thing too many */
    assert_false(wp_request_ok(WP_CLAIM, &f, sizeof f));
}

static void claim_refuses_unknown_flags_and_reserved(void **state)
{
    (void)state;
    struct claim_frame f = a_claim(0);
    f.c.flags = 32;
    assert_false(claim_passes(&f));
    f = a_claim(0);
    f.c.limits.reserved = 1;
    assert_false(claim_passes(&f));
    f = a_claim(1);
    f.t[0].flags = 2;
    assert_false(claim_passes(&f));
    f = a_claim(1);
    f.t[0].size = 0;
    assert_false(claim_passes(&f));
}

static void ids_have_one_alphabet(void **state)
{
    (void)state;
    struct wp_id id = an_id();
    assert_true(wp_request_ok(WP_DESTROY, &id, sizeof id));
    id.id[3] = '/';
    assert_false(wp_request_ok(WP_DESTROY, &id, sizeof id));
    id = an_id();
    id.id[19] = 0;
    assert_false(wp_request_ok(WP_DESTROY, &id, sizeof id));
    id = an_id();
    id.id[23] = 'a';
    assert_false(wp_request_ok(WP_DESTROY, &id, sizeof id));
}

static void tmpfs_paths(void **state)
{
    (void)state;
    assert_true(path_passes("/tmp"));
    assert_true(path_passes("/a/..b/c."));
    assert_true(path_passes("/tmp/"));
    assert_false(path_passes("/"));
    assert_false(path_passes("//./"));
    assert_false(path_passes("tmp"));
    assert_false(path_passes("/tmp/.."));
    assert_false(path_passes("/../tmp"));
    assert_false(path_passes("/a/../b"));
    struct claim_frame f = a_claim(1);
    memset(f.t[0].path, 'a', sizeof f.t[0].path);
    f.t[0].path[0] = '/';
    assert_false(claim_passes(&f));
    f = a_claim(1);
    f.t[0].path[200] = 'x'; /* behind the terminator */
    assert_false(claim_passes(&f));
}

static void stats_counts_ids(void **state)
{
    (void)state;
    struct {
        struct wp_stats s;
        struct wp_id id[2];
    } f = {{2, 0}, {an_id(), an_id()}};
    assert_true(wp_request_ok(WP_STATS, &f, sizeof f));
    f.s.n = 1;
    assert_false(wp_request_ok(WP_STATS, &f, sizeof f));
    f.s.n = 0xffffffff;
    assert_false(wp_request_ok(WP_STATS, &f, sizeof f));
}

static void usage_has_the_size_it_says(void **state)
{
    (void)state;
    struct {
        struct wp_stats s;
        struct wp_usage u[2];
    } f = {{2, sizeof f.u[0]}, {{.sandbox = an_id()}, {.sandbox = an_id(), .inodes = 7}}};
    assert_true(wp_answer_ok(WP_STATS, &f, sizeof f));
    assert_int_equal(wp_usage_at(&f, 1).inodes, 7);
    f.s.size = WP_USAGE_FIRST;
    assert_false(wp_answer_ok(WP_STATS, &f, sizeof f));
    f.s.size = WP_USAGE_FIRST - 8;
    assert_false(wp_answer_ok(WP_STATS, &f, sizeof f.s + 2 * (WP_USAGE_FIRST - 8)));
    f.s.size = sizeof f.u[0] + 8;
    assert_false(wp_answer_ok(WP_STATS, &f, sizeof f));

    /* of before the field: 72 bytes each, nothing behind them */
    f.s = (struct wp_stats){.n = 1};
    assert_true(wp_answer_ok(WP_STATS, &f, sizeof f.s + WP_USAGE_FIRST));
    f.u[0].io_read = 9;
    assert_int_equal(wp_usage_at(&f, 0).io_read, 0);
}

static void image_and_prune_count_digests(void **state)
{
    (void)state;
    struct {
        struct wp_image i;
        struct wp_digest d[2];
    } f = {.i = {.n = 2}};
    assert_true(wp_request_ok(WP_IMAGE, &f, sizeof f));
    f.i.n = 3;
    assert_false(wp_request_ok(WP_IMAGE, &f, sizeof f));
    f.i.n = 0;
    assert_false(wp_request_ok(WP_IMAGE, &f, sizeof f.i));
    struct wp_prune p = {0};
    assert_true(wp_request_ok(WP_PRUNE, &p, sizeof p));
    p.n = 0x08000000; /* times 32 wraps to 0 in 32 bits */
    assert_false(wp_request_ok(WP_PRUNE, &p, sizeof p));
}

static void answers_are_checked_too(void **state)
{
    (void)state;
    struct {
        struct wp_list l;
        struct wp_box b[1];
    } f = {.l = {.n = 1}, .b = {{.sandbox = an_id()}}};
    assert_true(wp_answer_ok(WP_LIST, &f, sizeof f));
    f.l.n = 2;
    assert_false(wp_answer_ok(WP_LIST, &f, sizeof f));
    struct wp_claimed c = {.hello = 0};
    assert_true(wp_answer_ok(WP_CLAIM, &c, sizeof c));
    c.hello = 64;
    assert_false(wp_answer_ok(WP_CLAIM, &c, sizeof c));
    assert_true(wp_answer_ok(WP_METRICS, "a 1\n", 4));
    assert_false(wp_answer_ok(WP_METRICS, "a\0 1\n", 5));
}

static void unknown_types_are_refused(void **state)
{
    (void)state;
    struct wp_id id = an_id();
    assert_false(wp_request_ok(0, &id, sizeof id));
    assert_false(wp_request_ok(WP_TYPES, &id, sizeof id));
    assert_false(wp_request_ok(WP_ATTACH | WP_ANSWER, &id, sizeof id));
    assert_string_equal(wp_type_name(77), "unknown");
    assert_int_equal(wp_request_fds(WP_UNPACK), 1);
    assert_int_equal(wp_request_fds(WP_CLAIM), 0);
}

static void pool_watermarks_are_ordered(void **state)
{
    (void)state;
    struct wp_watermarks p = {.low = 2, .high = 4, .flags = WP_POOL_SET};
    assert_true(wp_request_ok(WP_POOL, &p, sizeof p));
    p.low = 5;
    assert_false(wp_request_ok(WP_POOL, &p, sizeof p));
    p = (struct wp_watermarks){.low = 1};
    assert_false(wp_request_ok(WP_POOL, &p, sizeof p));
    p = (struct wp_watermarks){.reserved = 1};
    assert_false(wp_request_ok(WP_POOL, &p, sizeof p));
    struct wp_pool a = {.low = 1, .high = 1};
    assert_true(wp_answer_ok(WP_POOL, &a, sizeof a));
    memset(a.last_error, 'x', sizeof a.last_error); /* not terminated */
    assert_false(wp_answer_ok(WP_POOL, &a, sizeof a));
}

static void walls_are_known_ones(void **state)
{
    (void)state;
    const struct wp_walls good = {.sandbox = {"abcdefghijklmnopqrst"}, .failed = WALL_BIT(ROOT)};
    struct wp_walls f = good;
    assert_true(wp_request_ok(WP_WALLS, &f, sizeof f));
    assert_true(wp_answer_ok(WP_WALLS, NULL, 0));
    assert_false(wp_request_ok(WP_WALLS, &f, sizeof f - 1));
    f.failed = 0;
    assert_false(wp_request_ok(WP_WALLS, &f, sizeof f));
    f.failed = WALLS_ALL + 1;
    assert_false(wp_request_ok(WP_WALLS, &f, sizeof f));
    f = good;
    f.reserved = 1;
    assert_false(wp_request_ok(WP_WALLS, &f, sizeof f));
    f = good;
    f.sandbox.id[3] = '/';
    assert_false(wp_request_ok(WP_WALLS, &f, sizeof f));
    struct wp_claimed c = {.walls = WALLS_CLAIM_OUTSIDE};
    assert_true(wp_answer_ok(WP_CLAIM, &c, sizeof c));
    c.walls = WALLS_ALL + 1;
    assert_false(wp_answer_ok(WP_CLAIM, &c, sizeof c));
}

static void errors_carry_seconds_and_text(void **state)
{
    struct {
        struct wp_error e;
        char text[WP_ERROR_TEXT + 1];
    } f = {.e = {.retry_after = 3}};

    (void)state;
    assert_true(wp_error_ok(&f, sizeof f.e));
    assert_true(wp_error_ok(&f, sizeof f.e + WP_ERROR_TEXT));
    assert_false(wp_error_ok(&f, sizeof f.e + WP_ERROR_TEXT + 1));
    assert_false(wp_error_ok(&f, sizeof f.e - 1));
    f.e.reserved = 1;
    assert_false(wp_error_ok(&f, sizeof f.e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claim_takes_up_to_the_limit_of_tmpfs),
        cmocka_unit_test(claim_length_is_exact),
        cmocka_unit_test(a_named_claim_has_its_name_behind_the_mounts),
        cmocka_unit_test(an_owned_claim_has_its_owner_last),
        cmocka_unit_test(claim_refuses_unknown_flags_and_reserved),
        cmocka_unit_test(ids_have_one_alphabet),
        cmocka_unit_test(tmpfs_paths),
        cmocka_unit_test(stats_counts_ids),
        cmocka_unit_test(usage_has_the_size_it_says),
        cmocka_unit_test(image_and_prune_count_digests),
        cmocka_unit_test(answers_are_checked_too),
        cmocka_unit_test(unknown_types_are_refused),
        cmocka_unit_test(pool_watermarks_are_ordered),
        cmocka_unit_test(walls_are_known_ones),
        cmocka_unit_test(errors_carry_seconds_and_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
