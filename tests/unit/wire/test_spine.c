#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/str.h"
#include "wire/spine_codec.h"

#include "../unit.h"

static char *argv_echo[] = {"echo", "hello", "", NULL};
static char *env_two[] = {"A=1", "B=", NULL};

static void spawn_round_trip(void **state)
{
    (void)state;
    struct sp_rlimit limits[] = {{64, 128, 7, 0}};
    spine_spawn in = {.id = 9,
                      .flags = SP_F_PTY | SP_F_KEEP,
                      .umask = SP_UMASK_CLAIM,
                      .rows = 24,
                      .cols = 80,
                      .rlimits = limits,
                      .nrlimits = 1,
                      .user = "app:staff",
                      .cwd = "/srv",
                      .argv = argv_echo,
                      .env = env_two};
    CLEANUP(spine_out_done) spine_out out = {0};
    CLEANUP(spine_spawn_done) spine_spawn back = {0};

    assert_ok(spine_encode_spawn(&in, &out));
    assert_int_equal(out.payload.len, 0);
    assert_null(spine_check_request(out.record.p, out.record.len, 1));
    const struct sp_spawn *q = (const void *)out.record.p;
    assert_ok(spine_decode_spawn(q, q + 1, q->payload, &back));
    assert_int_equal(back.id, 9);
    assert_int_equal(back.flags, SP_F_PTY | SP_F_KEEP);
    assert_int_equal(back.rows, 24);
    assert_int_equal(back.nrlimits, 1);
    assert_int_equal(back.rlimits[0].hard, 128);
    assert_string_equal(back.user, "app:staff");
    assert_string_equal(back.cwd, "/srv");
    assert_int_equal(strv_len(back.argv), 3);
    assert_string_equal(back.argv[1], "hello");
    assert_string_equal(back.argv[2], "");
    assert_string_equal(back.env[1], "B=");
}

static void large_payload_goes_apart(void **state)
{
    (void)state;
    char *big = xmalloc(SP_INLINE_MAX + 1);
    memset(big, 'x', SP_INLINE_MAX);
    big[SP_INLINE_MAX] = 0;
    char *argv[] = {"echo", big, NULL};
    spine_spawn in = {.id = 1, .argv = argv};
    CLEANUP(spine_out_done) spine_out out = {0};

    assert_ok(spine_encode_spawn(&in, &out));
    assert_int_equal(out.record.len, sizeof(struct sp_spawn));
    const struct sp_spawn *q = (const void *)out.record.p;
    assert_true(q->flags & SP_F_MEMFD);
    assert_int_equal(q->payload, out.payload.len);
    assert_null(spine_check_request(out.record.p, out.record.len, 1));
    assert_non_null(spine_check_request(out.record.p, out.record.len, 0));
    free(big);
}

static void too_large_and_empty_are_refused(void **state)
{
    (void)state;
    char *big = xmalloc(SP_PAYLOAD_MAX + 1);
    memset(big, 'x', SP_PAYLOAD_MAX);
    big[SP_PAYLOAD_MAX] = 0;
    char *argv[] = {big, NULL}, *none[] = {NULL};
    CLEANUP(spine_out_done) spine_out out = {0};

    assert_err(spine_encode_spawn(&(spine_spawn){.id = 1, .argv = argv}, &out), ERR_TOO_LARGE);
    assert_err(spine_encode_spawn(&(spine_spawn){.id = 1, .argv = none}, &out),
               ERR_INVALID_REQUEST);
    assert_err(spine_encode_claim(&(spine_claim){.env = argv}, &out), ERR_TOO_LARGE);
    free(big);
}

static void claim_round_trip(void **state)
{
    (void)state;
    spine_claim in = {
        .user = "1000", .cwd = "", .env = env_two, .umask = 027, .grants = SP_GRANT_SETUID};
    CLEANUP(spine_out_done) spine_out out = {0};
    CLEANUP(spine_claim_done) spine_claim back = {0};

    assert_ok(spine_encode_claim(&in, &out));
    assert_null(spine_check_request(out.record.p, out.record.len, 0));
    const struct sp_claim *q = (const void *)out.record.p;
    assert_ok(spine_decode_claim(q, q + 1, q->payload, &back));
    assert_string_equal(back.user, "1000");
    assert_string_equal(back.env[0], "A=1");
    assert_int_equal(back.umask, 027);
    assert_int_equal(back.grants, SP_GRANT_SETUID);
}

static void payload_must_be_exact(void **state)
{
    (void)state;
    CLEANUP(spine_out_done) spine_out out = {0};
    spine_spawn back;

    assert_ok(spine_encode_spawn(&(spine_spawn){.id = 1, .argv = argv_echo, .env = env_two}, &out));
    struct sp_spawn *q = (void *)out.record.p;
    q->envc = 1; /* one string is left over */
    assert_err(spine_decode_spawn(q, q + 1, q->payload, &back), ERR_INVALID_REQUEST);
    q->envc = 3; /* one is missing */
    assert_err(spine_decode_spawn(q, q + 1, q->payload, &back), ERR_INVALID_REQUEST);
    q->envc = 2;
    out.record.p[out.record.len - 1] = 'x'; /* the last does not end */
    assert_err(spine_decode_spawn(q, q + 1, q->payload, &back), ERR_INVALID_REQUEST);
}

typedef struct hello2 {
    struct sp_hello h;
    struct sp_rec r[2];
} hello2;

static hello2 good_hello(void)
{
    return (hello2){
        .h = {.h = {.type = SP_HELLO}, .version = 1, .nrec = 2, .high = 7, .capacity = 1024},
        .r = {{.id = 5, .state = SP_LIVE, .pid = 12, .uid = ~0u, .gid = ~0u, .open = 7},
              {.id = 7, .state = SP_EXITED, .pid = 13, .status = 3 << 8, .flags = SP_F_ACKED}}};
}

static void hello_is_checked(void **state)
{
    (void)state;
    hello2 h = good_hello();

    assert_null(spine_check_answer(&h, sizeof h, 0));
    assert_non_null(spine_check_answer(&h, sizeof h - 1, 0));
    assert_non_null(spine_check_answer(&h, sizeof h.h, 0));
    assert_non_null(spine_check_answer(&h, sizeof h, 1));
#define REFUSED(change)                                       \
    do {                                                      \
        h = good_hello();                                     \
        change;                                               \
        assert_non_null(spine_check_answer(&h, sizeof h, 0)); \
    } while (0)
    REFUSED(h.h.version = SP_VERSION_MIN - 1);
    assert_non_null(strstr(spine_check_answer(&h, sizeof h, 0), "does not know any more"));
    REFUSED(h.h.version = SP_VERSION + 1);
    assert_non_null(strstr(spine_check_answer(&h, sizeof h, 0), "newer version of the spine"));
    assert_true(spine_hello_is_newer(&h, 24)); /* however long the newer one is */
    assert_false(spine_hello_is_newer(&h, 16));
    REFUSED(h.h.nrec = 3);
    REFUSED(h.h.nrec = UINT32_MAX);
    REFUSED(h.h.capacity = 1025);
    REFUSED(h.h.flags = 2);
    REFUSED(h.h.flags = WALL_BIT(ROOT) << SP_HELLO_WALLS); /* again, and never claimed */
    REFUSED(h.h.h.id = SP_WALLS(0, WALL_BIT(ROOT)));       /* held, and never tried */
    REFUSED(h.h.h.err = 1);
    REFUSED(h.h.high = 6);
    REFUSED(h.h.high = UINT64_MAX);
    REFUSED(h.r[0].id = 7);
    REFUSED(h.r[0].id = 0);
    REFUSED(h.r[0].pid = 0);
    REFUSED(h.r[0].open = 16);
    REFUSED(h.r[0].state = 4);
    REFUSED(h.r[0].flags = SP_F_ACKED);
    REFUSED(h.r[1].status = 0x7f);
    REFUSED(h.r[1].status = 1 << 16);
    REFUSED(h.r[1].status = 0x10a);
    REFUSED(h.r[1].reserved = 1);
    REFUSED(h.r[1].state = SP_FAILED); /* errno 768 fits, stage 0 does not */
#undef REFUSED
}

static void every_version_of_the_range_is_spoken(void **state)
{
    (void)state;
    hello2 h = good_hello();

    for (h.h.version = SP_VERSION_MIN; h.h.version <= SP_VERSION; h.h.version++) {
        assert_null(spine_check_answer(&h, sizeof h, 0));
        assert_false(spine_hello_is_newer(&h, sizeof h));
    }
}

static void hello_brings_walls(void **state)
{
    (void)state;
    hello2 h = good_hello();
    uint32_t tried = WALLS_REFILL_INSIDE, held = tried & ~WALL_BIT(SECCOMP);

    h.h.h.id = SP_WALLS(tried, held);
    h.h.flags = SP_HELLO_CLAIMED | (uint32_t)WALLS_CLAIM_INSIDE << SP_HELLO_WALLS;
    assert_null(spine_check_answer(&h, sizeof h, 0));
    assert_int_equal(SP_TRIED(h.h.h.id), tried);
    assert_int_equal(SP_HELD(h.h.h.id), held);
    assert_int_equal(h.h.flags >> SP_HELLO_WALLS, WALLS_CLAIM_INSIDE);
}

/* On the wire and in records: a row is added at the end, never moved. */
static void walls_keep_their_bits_and_names(void **state)
{
    static const char *const NAMES[] = {
        "userns",      "seccomp", "capabilities", "nnp",   "procsys", "sys",      "masked",
        "network",     "pidns",   "mountns",      "ipcns", "utsns",   "cgroupns", "devices",
        "descriptors", "root",    "cgroup",       "pools", "egress",  "disk"};

    (void)state;
    assert_int_equal(WALL_COUNT, sizeof NAMES / sizeof *NAMES);
    for (unsigned i = 0; i < WALL_COUNT; i++) {
        assert_string_equal(wall_info(i)->name, NAMES[i]);
        assert_true(strlen(wall_info(i)->what) > 10);
    }
    assert_int_equal(WALL_PROCSYS, 4);
    /* each is tried by somebody when the slot is made, and only such ones again; but for the one
     * that stands only where a claim grants a network */
    assert_int_equal(WALLS_REFILL_INSIDE | WALLS_REFILL_OUTSIDE, WALLS_ALL & ~WALL_BIT(EGRESS));
    assert_int_equal(WALLS_CLAIM_INSIDE & ~WALLS_REFILL_INSIDE, 0);
}

static void started_and_exit_are_checked(void **state)
{
    (void)state;
    struct sp_started s = {.h = {SP_STARTED, 0, 4}, .pid = 9, .fds = 6};
    struct sp_exit x = {.h = {SP_EXIT, 0, 4},
                        .r = {.id = 4, .state = SP_EXITED, .pid = 9, .status = SIGKILL}};
    struct sp_hdr d = {SP_DONE, ESRCH, 4};

    assert_null(spine_check_answer(&s, sizeof s, 2));
    assert_non_null(spine_check_answer(&s, sizeof s, 1));
    assert_non_null(spine_check_answer(&s, sizeof s - 8, 2));
    s.h.err = ENOSPC;
    assert_non_null(spine_check_answer(&s, sizeof s, 2));
    s.fds = 0;
    assert_null(spine_check_answer(&s, sizeof s, 0));
    s.h.err = -1;
    assert_non_null(spine_check_answer(&s, sizeof s, 0));
    assert_null(spine_check_answer(&x, sizeof x, 0));
    x.h.id = 5;
    assert_non_null(spine_check_answer(&x, sizeof x, 0));
    x.h.id = 4;
    x.r.state = SP_LIVE;
    assert_non_null(spine_check_answer(&x, sizeof x, 0));
    assert_null(spine_check_answer(&d, sizeof d, 0));
    assert_non_null(spine_check_answer(&d, 8, 0));
    d.type = 70;
    assert_non_null(spine_check_answer(&d, sizeof d, 0));
}

static void requests_are_checked(void **state)
{
    (void)state;
    struct sp_op op = spine_signal(3, SIGTERM, SP_TO_BELOW, 12, 99);

    assert_null(spine_check_request(&op, sizeof op, 0));
    assert_non_null(spine_check_request(&op, sizeof op, 1));
    assert_non_null(spine_check_request(&op, sizeof op - 1, 0));
    op.scope = SP_SCOPES;
    assert_non_null(spine_check_request(&op, sizeof op, 0));
    op = spine_ack(3, 7);
    assert_null(spine_check_request(&op, sizeof op, 0));
    op.h.type = SP_HELLO;
    assert_non_null(spine_check_request(&op, sizeof op, 0));
    assert_string_equal(spine_stage_name(SP_ST_USER), "user");
    assert_string_equal(spine_stage_name(99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spawn_round_trip),
        cmocka_unit_test(large_payload_goes_apart),
        cmocka_unit_test(too_large_and_empty_are_refused),
        cmocka_unit_test(claim_round_trip),
        cmocka_unit_test(payload_must_be_exact),
        cmocka_unit_test(hello_is_checked),
        cmocka_unit_test(every_version_of_the_range_is_spoken),
        cmocka_unit_test(hello_brings_walls),
        cmocka_unit_test(walls_keep_their_bits_and_names),
        cmocka_unit_test(started_and_exit_are_checked),
        cmocka_unit_test(requests_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
