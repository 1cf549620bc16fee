/* The link against a scripted init: dialling, greeting, claiming, attaching. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "link_world.h"

static void wait_forgotten(world *w)
{
    for (;;) {
        CLEANUP(freep) char *handle = link_handle_of(w->host, ID);
        if (!handle)
            return;
        usleep(1000);
    }
}

/* ---- warm ---- */

static void warm_leaves_the_secret_once_and_proves_it_later(void **state)
{
    world *w = *state;
    static const uint8_t none[SPL_SECRET];

    warm_up(w);
    assert_true(link_warm_ready(w->warm));
    assert_true(w->init.owned);
    assert_memory_not_equal(w->init.secret, none, SPL_SECRET);
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.ready == 2 && w->s.lost == 1));
    assert_int_equal(w->init.claims, 0);
}

/* The secret of a container is of its nonce: another bothyd with the key has it, others not. */
static void warm_of_another_nonce_cannot_prove(void **state)
{
    world *w = *state;
    link_container other = {.handle = "container-2", .nonce = {5}};

    warm_up(w);
    link_warm_drop(TAKE_PTR(w->warm));
    peer_close(&w->conn);
    assert_ok(link_warm_new(w->host, &other, &SEEN_WARM, &w->s, &w->warm));
    assert_false(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ended == 1));
    assert_non_null(strstr(w->s.why, "tainted"));
    assert_int_equal(w->wire.condemned, 1);
}

static void warm_that_was_restarted_is_tainted(void **state)
{
    world *w = *state;

    warm_up(w);
    w->init = (peer_init){.instance = 78};
    peer_close(&w->conn);
    assert_true(peer_open(&w->wire, &w->conn, 5000));
    peer_greet(&w->conn, &w->init);
    assert_true(SEEN_WAIT(&w->s, w->s.ended == 1));
    assert_non_null(strstr(w->s.why, "tainted"));
    assert_false(w->init.owned); /* it was not given the secret */
}

static void warm_claimed_by_another_ends_but_is_left_alone(void **state)
{
    world *w = *state;

    w->init.claimed = true;
    w->init.sandbox[0] = 5;
    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ended == 1));
    assert_int_equal(w->wire.condemned, 0);
    assert_false(link_warm_ready(w->warm));
}

/* Between a claim and its record lies a kill: what init says is all there is. */
static void warm_that_was_claimed_tells_whose_it_is(void **state)
{
    world *w = *state;

    claim(w);
    link_box_unref(TAKE_PTR(w->box));
    wait_forgotten(w);
    peer_close(&w->conn);
    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ended == 1));
    assert_string_equal(link_warm_whose(w->warm), ID);
    link_warm_drop(TAKE_PTR(w->warm));
    w->init.sandbox[3] ^= 1u << 31; /* no id of ours */
    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    peer_close(&w->conn);
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ended == 2));
    assert_string_equal(link_warm_whose(w->warm), "");
}

static void warm_whose_container_died_ends(void **state)
{
    world *w = *state;

    warm_up(w);
    link_died(w->host, "another", "not this");
    link_died(w->host, HANDLE, "the container exited");
    assert_true(SEEN_WAIT(&w->s, w->s.ended == 1));
    assert_string_equal(w->s.why, "the container exited");
    ask_claim(w, 1000); /* who had it in hand already hears it in `done` */
    assert_true(SEEN_WAIT(&w->s, w->s.done == 1));
    assert_int_equal(w->s.failure->code, ERR_SANDBOX_GONE);
}

static void a_handle_is_dialled_once_only(void **state)
{
    world *w = *state;
    link_warm *second;
    box *third;

    warm_up(w);
    assert_err(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &second), ERR_CONFLICT);
    assert_err(link_attach(w->host, ID, &CONTAINER, &SEEN_BOX, &w->s, &third), ERR_CONFLICT);
}

/* ---- dialling ---- */

static void dial_backs_off_and_comes_back(void **state)
{
    world *w = *state;

    peer_wire_fail(&w->wire, true, ERR_UNAVAILABLE);
    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    while (peer_dials(&w->wire) < 4)
        usleep(1000);
    peer_wire_fail(&w->wire, false, 0);
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ready == 1));
    LOCK_SCOPE(&w->wire.lock);
    const uint64_t *at = w->wire.dialled_ns;
    assert_true(at[1] - at[0] >= 37 * NS_PER_MS);
    assert_true(at[3] - at[2] >= 150 * NS_PER_MS); /* the waits double twice: 200, a quarter less */
}

static void dial_that_finds_no_container_ends_it(void **state)
{
    world *w = *state;

    peer_wire_fail(&w->wire, true, ERR_NOT_FOUND);
    assert_ok(link_attach(w->host, ID, &CONTAINER, &SEEN_BOX, &w->s, &w->box));
    assert_true(SEEN_WAIT(&w->s, w->s.gone == 1));
    assert_string_equal(w->s.why, "the engine is away");
    assert_int_equal(w->s.attached, 0);
    assert_null(link_handle_of(w->host, ID));
}

static void stream_that_ends_before_the_greeting_is_dialled_again(void **state)
{
    world *w = *state;

    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    for (int i = 0; i < 3; i++) {
        assert_true(peer_open(&w->wire, &w->conn, 5000));
        peer_close(&w->conn);
    }
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ready == 1));
}

/* From the cut of a stream that held long to its next dial, in the i-th round. */
static uint64_t redial_ns(world *w, unsigned i)
{
    usleep(5200000);
    uint64_t cut = now_mono_ns();
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.ready == 1 + i));
    LOCK_SCOPE(&w->wire.lock);
    return w->wire.dialled_ns[i] - cut;
}

static void stream_that_held_long_is_dialled_at_once(void **state)
{
    world *w = *state;
    bool at_once = false;

    warm_up(w);
    for (unsigned i = 1; i <= 4 && !at_once; i++)   /* a busy machine may be late, but not always */
        at_once = redial_ns(w, i) < 37 * NS_PER_MS; /* the shortest wait there is */
    assert_true(at_once);
}

/* ---- silence ---- */

static void silent_stream_is_given_up(void **state)
{
    world *w = *state;
    link_stats st;
    sps_message m;

    with_beats(w);
    warm_up(w);
    expect(w, SPS_PING, &m);
    peer_conn stopped = w->conn; /* it is not closed: nobody reads it */
    w->conn = (peer_conn){.fd = -1};
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ready == 2));
    link_host_stats(w->host, &st);
    assert_int_equal(st.silent, 1);
    peer_close(&stopped);
}

static void answered_pings_keep_a_stream(void **state)
{
    world *w = *state;
    sps_message m;

    with_beats(w);
    warm_up(w);
    uint64_t until = now_mono_ns() + 3 * (PING_MS + PONG_MS) * NS_PER_MS;
    while (now_mono_ns() < until)
        assert_int_equal(peer_next_asked(&w->conn, &m, 50), 0);
    assert_int_equal(peer_dials(&w->wire), 1);
    assert_int_equal(w->s.lost, 0);
}

static void stream_without_greeting_is_given_up(void **state)
{
    world *w = *state;
    peer_conn mute;

    with_beats(w);
    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    assert_true(peer_open(&w->wire, &mute, 5000));
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ready == 1));
    peer_close(&mute);
}

/* ---- claims ---- */

static void claim_is_one_record_and_done_comes_before_attached(void **state)
{
    world *w = *state;

    claim(w);
    assert_true(w->s.done_first);
    assert_true(w->s.timing.claim_ns > 0);
    assert_int_equal(w->init.claims, 1);
    CLEANUP(freep) char *handle = link_handle_of(w->host, ID);
    assert_string_equal(handle, HANDLE);
    assert_string_equal(link_box_handle(w->box), HANDLE);
    assert_string_equal(link_box_id(w->box), ID);
    assert_ptr_equal(link_box_arg(w->box), &w->wire);
}

static void claim_waits_for_a_container_that_is_not_ready(void **state)
{
    world *w = *state;
    sps_message m;

    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    ask_claim(w, 5000);
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    expect(w, SP_CLAIM, &m);
    peer_take_claim(&w->conn, &w->init, &m);
    take_made(w);
    assert_int_equal(w->s.ready, 0);
}

/* Cut behind the CLAIM: whether it was taken, HELLO of the next stream tells. */
static void claim_that_was_taken_is_found_again(void **state)
{
    world *w = *state;
    sps_message m;

    warm_up(w);
    ask_claim(w, 5000);
    expect(w, SP_CLAIM, &m);
    w->init.claimed = true;
    w->init.claims++;
    memcpy(w->init.sandbox, ((const struct sp_claim *)m.record)->sandbox, 16);
    reattach(w);
    take_made(w);
    assert_int_equal(w->init.claims, 1);
    expect_silence(w);
}

static void claim_that_was_not_taken_is_sent_again(void **state)
{
    world *w = *state;
    sps_message m;

    warm_up(w);
    ask_claim(w, 5000);
    expect(w, SP_CLAIM, &m);
    reattach(w);
    expect(w, SP_CLAIM, &m);
    peer_take_claim(&w->conn, &w->init, &m);
    take_made(w);
}

static void refused_with(world *w, int errnum, err_code code, int shown)
{
    sps_message m;

    warm_up(w);
    ask_claim(w, 5000);
    expect(w, SP_CLAIM, &m);
    peer_put_hdr(&w->conn, SP_DONE, errnum, errnum == SP_EWALL ? SP_WALLS(3, 1) : 0);
    assert_true(SEEN_WAIT(&w->s, w->s.done == 1));
    assert_null(w->s.made);
    assert_int_equal(w->s.failure->code, code);
    assert_int_equal(w->s.failure->errnum, shown);
    assert_int_equal(w->wire.condemned, 0);
    assert_int_equal(w->s.gone, 0);
    assert_null(link_handle_of(w->host, ID));
}

static void claim_of_another_is_ealready(void **state)
{
    refused_with(*state, EALREADY, ERR_CONFLICT, EALREADY);
}

static void claim_that_init_refuses_fails(void **state)
{
    refused_with(*state, EINVAL, ERR_CREATE_FAILED, EINVAL);
}

static void claim_behind_a_wall_that_fails(void **state)
{
    refused_with(*state, SP_EWALL, ERR_WALL_FAILED, 0);
}

static void claim_found_taken_by_another_is_ealready(void **state)
{
    world *w = *state;
    sps_message m;

    warm_up(w);
    ask_claim(w, 5000);
    expect(w, SP_CLAIM, &m);
    w->init.claimed = true;
    w->init.sandbox[0] = 5;
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.done == 1));
    assert_int_equal(w->s.failure->errnum, EALREADY);
    assert_int_equal(w->wire.condemned, 0);
}

static void claim_without_an_answer_times_out(void **state)
{
    world *w = *state;

    warm_up(w);
    ask_claim(w, 100);
    assert_true(SEEN_WAIT(&w->s, w->s.done == 1));
    assert_int_equal(w->s.failure->code, ERR_TIMEOUT);
}

static void claim_times_out_while_the_engine_is_away(void **state)
{
    world *w = *state;

    peer_wire_fail(&w->wire, true, ERR_UNAVAILABLE);
    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    ask_claim(w, 200);
    assert_true(SEEN_WAIT(&w->s, w->s.done == 1));
    assert_int_equal(w->s.failure->code, ERR_TIMEOUT);
}

static void claim_under_way_fails_with_its_host(void **state)
{
    world *w = *state;

    warm_up(w);
    ask_claim(w, 5000);
    link_host_free(TAKE_PTR(w->host));
    assert_int_equal(w->s.done, 1);
    assert_int_equal(w->s.failure->code, ERR_UNAVAILABLE);
}

/* ---- boxes that were there before us ---- */

static void attach_tells_what_init_remembers(void **state)
{
    world *w = *state;

    claim(w);
    link_box_unref(TAKE_PTR(w->box)); /* bothyd ends */
    peer_close(&w->conn);
    wait_forgotten(w);
    w->init.nrecs = 1;
    w->init.high = 3;
    w->init.recs[0] = (struct sp_rec){.id = 3, .state = SP_LIVE, .pid = 5};
    assert_ok(link_attach(w->host, ID, &CONTAINER, &SEEN_BOX, &w->s, &w->box));
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 2));
    assert_int_equal(w->s.hello.nrec, 1);
    assert_int_equal(w->s.recs[0].id, 3);
    assert_true(w->s.hello.flags & SP_HELLO_CLAIMED);
}

static void attach_to_an_unclaimed_one_says_so(void **state)
{
    world *w = *state;

    warm_up(w);
    link_warm_drop(TAKE_PTR(w->warm));
    peer_close(&w->conn);
    link_stats st = {.warm = 1};
    while (st.warm || st.boxes)
        link_host_stats(w->host, &st);
    assert_ok(link_attach(w->host, ID, &CONTAINER, &SEEN_BOX, &w->s, &w->box));
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 1));
    assert_false(w->s.hello.flags & SP_HELLO_CLAIMED);
}

static void attach_to_a_fresh_one_is_tainted(void **state)
{
    world *w = *state;

    assert_ok(link_attach(w->host, ID, &CONTAINER, &SEEN_BOX, &w->s, &w->box));
    assert_true(peer_open(&w->wire, &w->conn, 5000));
    peer_greet(&w->conn, &w->init);
    assert_true(SEEN_WAIT(&w->s, w->s.gone == 1));
    assert_non_null(strstr(w->s.why, "tainted"));
    assert_int_equal(w->wire.condemned, 1);
    assert_int_equal(w->s.distrusted, 1);
}

static void attach_to_anothers_box_is_gone(void **state)
{
    world *w = *state;

    claim(w);
    link_box_unref(TAKE_PTR(w->box));
    wait_forgotten(w);
    assert_ok(link_attach(w->host, OTHER, &CONTAINER, &SEEN_BOX, &w->s, &w->box));
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.gone == 1));
    assert_int_equal(w->wire.condemned, 0);
}

static void box_whose_init_forgot_its_claim_is_tainted(void **state)
{
    world *w = *state;

    claim(w);
    w->init.claimed = false;
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.gone == 1));
    assert_non_null(strstr(w->s.why, "tainted"));
}

static void box_with_another_instance_is_tainted(void **state)
{
    world *w = *state;

    claim(w);
    w->init.instance = 78;
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.gone == 1));
    assert_non_null(strstr(w->s.why, "tainted"));
}

static void box_of_a_newer_release_lives_on_out_of_reach(void **state)
{
    world *w = *state;
    struct sp_hello h = {.h.type = SP_HELLO, .version = SP_VERSION + 1};
    static char *argv[] = {"/bin/true", NULL};
    exec_spec s = command(argv);

    claim(w);
    peer_close(&w->conn);
    assert_true(peer_open(&w->wire, &w->conn, 5000));
    peer_greet(&w->conn, &w->init);
    assert_true(peer_admit(&w->conn, &w->init));
    peer_put(&w->conn, &h, sizeof h, NULL, 0);
    assert_true(SEEN_WAIT(&w->s, w->s.newer == 1));
    assert_err(link_exec(w->box, 1, &s, -1), ERR_UNAVAILABLE);
    assert_int_equal(w->s.gone, 0);
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 2));
    run(w, 1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LINK_TEST(warm_leaves_the_secret_once_and_proves_it_later),
        LINK_TEST(warm_of_another_nonce_cannot_prove),
        LINK_TEST(warm_that_was_restarted_is_tainted),
        LINK_TEST(warm_claimed_by_another_ends_but_is_left_alone),
        LINK_TEST(warm_that_was_claimed_tells_whose_it_is),
        LINK_TEST(warm_whose_container_died_ends),
        LINK_TEST(a_handle_is_dialled_once_only),
        LINK_TEST(dial_backs_off_and_comes_back),
        LINK_TEST(dial_that_finds_no_container_ends_it),
        LINK_TEST(stream_that_ends_before_the_greeting_is_dialled_again),
        LINK_TEST(stream_that_held_long_is_dialled_at_once),
        LINK_TEST(silent_stream_is_given_up),
        LINK_TEST(answered_pings_keep_a_stream),
        LINK_TEST(stream_without_greeting_is_given_up),
        LINK_TEST(claim_is_one_record_and_done_comes_before_attached),
        LINK_TEST(claim_waits_for_a_container_that_is_not_ready),
        LINK_TEST(claim_that_was_taken_is_found_again),
        LINK_TEST(claim_that_was_not_taken_is_sent_again),
        LINK_TEST(claim_of_another_is_ealready),
        LINK_TEST(claim_that_init_refuses_fails),
        LINK_TEST(claim_behind_a_wall_that_fails),
        LINK_TEST(claim_found_taken_by_another_is_ealready),
        LINK_TEST(claim_without_an_answer_times_out),
        LINK_TEST(claim_times_out_while_the_engine_is_away),
        LINK_TEST(claim_under_way_fails_with_its_host),
        LINK_TEST(attach_tells_what_init_remembers),
        LINK_TEST(attach_to_an_unclaimed_one_says_so),
        LINK_TEST(attach_to_a_fresh_one_is_tainted),
        LINK_TEST(attach_to_anothers_box_is_gone),
        LINK_TEST(box_whose_init_forgot_its_claim_is_tainted),
        LINK_TEST(box_with_another_instance_is_tainted),
        LINK_TEST(box_of_a_newer_release_lives_on_out_of_reach),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
