/* The link against a scripted init: what an open box asks and is told. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "link_world.h"

/* ---- execs ---- */

static void exec_runs_and_its_bytes_are_credited(void **state)
{
    world *w = *state;
    sps_message m;
    struct sp_exit x = {.h = {SP_EXIT, 0, 1}, .r = {.id = 1, .state = SP_EXITED, .pid = 7}};

    claim(w);
    run(w, 1, false);
    expect(w, SP_SPAWN, &m);
    assert_int_equal(id_of(&m), 1);
    peer_put_started(&w->conn, SP_STARTED, 1, SP_F_NOSTDIN);
    put_data(w, SPS_STDIO, 1, 1, 0, 0, "hello");
    expect(w, SPS_RECEIVED, &m);
    const struct sps_data *d = m.record;
    assert_int_equal(d->a, 1);
    assert_int_equal(d->offset, 5);
    assert_int_equal(d->b, 256 * 1024);
    put_data(w, SPS_STDIO, 1, 1, 0, 5, NULL);
    peer_put(&w->conn, &x, sizeof x, NULL, 0);
    assert_true(SEEN_WAIT(&w->s, w->s.exits == 1));
    assert_int_equal(w->s.x[1].starts, 1);
    assert_true(w->s.x[1].eof[0]);
    assert_int_equal(w->s.x[1].out[0].len, 5);
    link_ack(w->box, 1, 15);
    link_close(w->box, 1, 15);
    while (next(w, &m) == SPS_RECEIVED)
        continue;
    assert_int_equal(m.type, SP_ACK);
    expect(w, SP_CLOSE, &m);
}

static void refused_exec_is_told(void **state)
{
    world *w = *state;
    sps_message m;
    struct sp_started st = {.h = {SP_STARTED, EAGAIN, 1}};

    claim(w);
    run(w, 1, false);
    expect(w, SP_SPAWN, &m);
    peer_put(&w->conn, &st, sizeof st, NULL, 0);
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].starts == 1));
    assert_int_equal(w->s.x[1].errnum, EAGAIN);
}

static void unanswered_spawns_are_sent_again_in_order_and_answered_once(void **state)
{
    world *w = *state;
    sps_message m;

    claim(w);
    for (uint64_t id = 1; id <= 3; id++)
        run(w, id, false);
    expect(w, SP_SPAWN, &m);
    peer_put_started(&w->conn, SP_STARTED, 1, SP_F_NOSTDIN);
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].starts == 1));
    assert_ok(link_fetch(w->box, 1));
    reattach(w);
    expect(w, SP_SPAWN, &m);
    assert_int_equal(id_of(&m), 2);
    expect(w, SP_SPAWN, &m);
    assert_int_equal(id_of(&m), 3);
    expect(w, SP_FETCH, &m);
    assert_int_equal(id_of(&m), 1);
    peer_put_started(&w->conn, SP_STARTED, 2, SP_F_NOSTDIN);
    peer_put_started(&w->conn, SP_STARTED, 3, SP_F_NOSTDIN);
    peer_put_started(&w->conn, SP_FDS, 1, SP_F_NOSTDIN);
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].starts == 2 && w->s.x[3].starts == 1));
    assert_int_equal(w->s.x[2].starts, 1);
    assert_int_equal(w->s.attached, 2);
}

/* Who asks again has dropped something: what was under way then would be a gap, or an end too
 * early.
 */
static void what_flows_before_the_answer_to_fetch_is_dropped(void **state)
{
    world *w = *state;
    sps_message m;
    struct sp_exit x = {.h = {SP_EXIT, 0, 1}, .r = {.id = 1, .state = SP_EXITED, .pid = 7}};

    claim(w);
    assert_ok(link_fetch(w->box, 1));
    expect(w, SP_FETCH, &m);
    put_data(w, SPS_STDIO, 1, 1, 0, 9, "stale");
    put_data(w, SPS_TAKEN, 1, 0, 9, 9, NULL);
    peer_put(&w->conn, &x, sizeof x, NULL, 0);
    put_data(w, SPS_STDIO, 2, 1, 0, 0, "other");
    peer_put_started(&w->conn, SP_FDS, 1, SP_F_NOSTDIN);
    put_data(w, SPS_STDIO, 1, 1, 0, 0, "fresh");
    peer_put(&w->conn, &x, sizeof x, NULL, 0);
    assert_true(SEEN_WAIT(&w->s, w->s.exits));
    assert_int_equal(w->s.exits, 1);
    assert_int_equal(w->s.x[1].takens, 0);
    assert_int_equal(w->s.x[1].out[0].len, 5);
    assert_memory_equal(w->s.x[1].out[0].p, "fresh", 5);
    assert_int_equal(w->s.x[2].out[0].len, 5);
}

static void lost_signals_are_told_and_kill_is_repeated(void **state)
{
    world *w = *state;
    sps_message m;

    claim(w);
    assert_ok(link_signal(w->box, &(signal_spec){.exec = 4, .cookie = 40, .signo = SIGTERM}));
    assert_ok(link_signal(w->box, &(signal_spec){.exec = 5, .cookie = 50, .signo = SIGKILL}));
    expect(w, SP_SIGNAL, &m);
    expect(w, SP_SIGNAL, &m);
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.signals == 1));
    assert_int_equal(w->s.x[4].signal_errnum, ECONNRESET);
    assert_int_equal(w->s.x[4].cookie, 40);
    expect(w, SP_SIGNAL, &m);
    assert_int_equal(id_of(&m), 5);
    peer_put_hdr(&w->conn, SP_DONE, ESRCH, 5);
    assert_true(SEEN_WAIT(&w->s, w->s.signals == 2));
    assert_int_equal(w->s.x[5].cookie, 50);
    assert_int_equal(w->s.x[5].signal_errnum, ESRCH);
}

/* Without an answer of their own, and not lost with the stream all the same. */
static void unheard_acks_and_sizes_are_said_again(void **state)
{
    world *w = *state;
    sps_message m;

    claim(w);
    link_ack(w->box, 1, 15);
    assert_ok(link_resize(w->box, 2, 24, 80));
    expect(w, SP_ACK, &m);
    expect(w, SPS_RESIZE, &m);
    reattach(w);
    expect(w, SP_ACK, &m);
    expect(w, SPS_RESIZE, &m);
    run(w, 3, false);
    expect(w, SP_SPAWN, &m);
    peer_put_started(&w->conn, SP_STARTED, 3, SP_F_NOSTDIN); /* in order: they were heard */
    assert_true(SEEN_WAIT(&w->s, w->s.x[3].starts == 1));
    reattach(w);
    expect_silence(w);
}

static void many_acks_are_asked_after(void **state)
{
    world *w = *state;
    sps_message m;
    unsigned acks = 0;

    claim(w);
    for (uint64_t id = 1; id <= 100; id++)
        link_ack(w->box, id, 15);
    while (peer_next(&w->conn, &m, 200) == SP_ACK)
        acks++;
    assert_int_equal(m.type, SPS_PING);
    assert_true(acks >= 64);
}

static void at_most_64_are_unanswered(void **state)
{
    world *w = *state;
    sps_message m;
    unsigned n = 0;

    claim(w);
    for (uint64_t id = 1; id <= 100; id++)
        assert_ok(link_fetch(w->box, id));
    while (peer_next(&w->conn, &m, 200) == SP_FETCH)
        n++;
    assert_int_equal(n, SP_UNANSWERED);
    peer_put_started(&w->conn, SP_FDS, 1, 0);
    expect(w, SP_FETCH, &m);
    assert_int_equal(id_of(&m), 65);
}

static void exec_by_descriptor_runs_the_kit_by_its_path(void **state)
{
    world *w = *state;
    sps_message m;
    spine_spawn q;
    static char *argv[] = {"bothy-kit", "stat", NULL};
    exec_spec s = command(argv);

    claim(w);
    s.exec_fd = 0;
    assert_ok(link_exec(w->box, 1, &s, -1));
    expect(w, SP_SPAWN, &m);
    const struct sp_spawn *r = m.record;
    assert_false(r->flags & (SP_F_EXECFD | SP_F_KEEP));
    assert_ok(spine_decode_spawn(r, r + 1, m.size - sizeof *r, &q));
    assert_string_equal(q.argv[0], KIT);
    assert_string_equal(q.argv[1], "stat");
    spine_spawn_done(&q);
}

static void large_arguments_travel_behind_the_record(void **state)
{
    world *w = *state;
    sps_message m;
    CLEANUP(freep) char *big = xcalloc(1, 200000);
    char *argv[] = {"/bin/echo", big, NULL};
    exec_spec s = command(argv);

    claim(w);
    memset(big, 'x', 199999);
    assert_ok(link_exec(w->box, 1, &s, -1));
    expect(w, SP_SPAWN, &m);
    assert_true(m.nextra > 199999);
}

/* ---- stdin ---- */

static void stdin_goes_as_far_as_init_takes_it(void **state)
{
    world *w = *state;
    sps_message m;
    static const char bytes[8192];

    claim(w);
    run(w, 1, true);
    expect(w, SP_SPAWN, &m);
    peer_put_started(&w->conn, SP_STARTED, 1, 0);
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].starts == 1));
    err *full = link_stdin_write(w->box, 1, 0, bytes, sizeof bytes, false);
    assert_non_null(full);
    assert_int_equal(full->errnum, EAGAIN);
    err_free(full);
    assert_ok(link_stdin_write(w->box, 1, 0, bytes, 4096, false));
    expect(w, SPS_STDIN, &m);
    assert_int_equal(m.nextra, 4096);
    put_data(w, SPS_TAKEN, 1, 0, 8192, 4096, NULL);
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].taken == 4096));
    assert_ok(link_stdin_write(w->box, 1, 4096, bytes, 8192, false));
    expect(w, SPS_STDIN, &m);
    assert_ok(link_stdin_write(w->box, 1, 12288, NULL, 0, true)); /* the end needs no room */
    expect(w, SPS_STDIN, &m);
    assert_int_equal(((const struct sps_data *)m.record)->a, SPS_STDIN_EOF);
}

/* After a cut: from what TAKEN says, and no piece of before. */
static void stdin_begins_again_where_init_is(void **state)
{
    world *w = *state;
    sps_message m;

    claim(w);
    run(w, 1, true);
    expect(w, SP_SPAWN, &m);
    peer_put_started(&w->conn, SP_STARTED, 1, 0);
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].starts == 1));
    assert_ok(link_stdin_write(w->box, 1, 0, "abcdef", 6, false));
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 2));
    assert_err(link_stdin_write(w->box, 1, 6, "ghi", 3, false), ERR_UNAVAILABLE);
    assert_ok(link_fetch(w->box, 1));
    expect(w, SP_FETCH, &m);
    peer_put_started(&w->conn, SP_FDS, 1, 0);
    put_data(w, SPS_TAKEN, 1, 0, 100, 3, NULL);
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].taken == 3));
    assert_err(link_stdin_write(w->box, 1, 6, "ghi", 3, false), ERR_UNAVAILABLE);
    assert_ok(link_stdin_write(w->box, 1, 3, "def", 3, false));
    expect(w, SPS_STDIN, &m);
    assert_int_equal(((const struct sps_data *)m.record)->offset, 3);
}

/* ---- what is not believed ---- */

static void expect_condemned(world *w)
{
    assert_true(SEEN_WAIT(&w->s, w->s.gone == 1));
    assert_int_equal(w->s.distrusted, 1);
    assert_int_equal(w->wire.condemned, 1);
    assert_err(link_fetch(w->box, 1), ERR_SANDBOX_GONE);
}

static void malformed_under_a_right_seal_ends_the_box(void **state)
{
    world *w = *state;
    struct sp_exit x = {.h = {SP_EXIT, 0, 1}, .r = {.id = 2, .state = SP_EXITED, .pid = 7}};

    claim(w);
    peer_put(&w->conn, &x, sizeof x, NULL, 0);
    expect_condemned(w);
}

static void an_answer_that_was_not_asked_ends_the_box(void **state)
{
    world *w = *state;

    claim(w);
    peer_put_started(&w->conn, SP_STARTED, 9, 0);
    expect_condemned(w);
}

static void a_second_hello_ends_the_box(void **state)
{
    world *w = *state;

    claim(w);
    peer_hello(&w->conn, &w->init);
    expect_condemned(w);
}

static void a_pong_without_ping_ends_the_box(void **state)
{
    world *w = *state;

    claim(w);
    put_data(w, SPS_PONG, 0, 0, 0, 0, NULL);
    expect_condemned(w);
}

static void a_duplicated_answer_ends_the_box(void **state)
{
    world *w = *state;
    sps_message m;

    claim(w);
    run(w, 1, false);
    expect(w, SP_SPAWN, &m);
    peer_put_started(&w->conn, SP_STARTED, 1, SP_F_NOSTDIN);
    peer_put_started(&w->conn, SP_STARTED, 1, SP_F_NOSTDIN);
    expect_condemned(w);
    assert_int_equal(w->s.x[1].starts, 1);
}

/* Frames may be repeated: the receiver drops what it has. */
static void a_duplicated_frame_changes_nothing(void **state)
{
    world *w = *state;

    claim(w);
    put_data(w, SPS_STDIO, 1, 1, 0, 0, "abc");
    put_data(w, SPS_STDIO, 1, 1, 0, 0, "abc");
    put_data(w, SPS_STDIO, 1, 1, 0, 3, "d");
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].out[0].len == 4));
    assert_memory_equal(w->s.x[1].out[0].p, "abcd", 4);
    assert_int_equal(w->s.gone, 0);
}

/* Between us and init sits a tenant: it repeats, changes, leaves out. The stream ends, and the box
 * lives on over the next one. */
static void forged_bytes_end_the_stream_only(void **state)
{
    world *w = *state;
    static const char *const how[] = {"changed", "repeated", "left out"};

    claim(w);
    for (unsigned i = 0; i < ARRAY_LEN(how); i++) {
        struct sps_data d = {{SPS_STDIO, 0, 1}, 1, 0, 0};
        uint64_t out[2][16] = {{0}};
        size_t n[2];
        n[0] = spl_put(&w->conn.end, out[0], &d, sizeof d, "forged!!", 8);
        n[1] = spl_put(&w->conn.end, out[1], &d, sizeof d, "forged!!", 8);
        if (i == 0)
            ((char *)out[0])[8 + sizeof d] ^= 1;
        if (i == 1)
            memcpy(out[1], out[0], n[0]);
        unsigned first = i == 2;
        assert_int_equal(write(w->conn.fd, out[first], n[first]), n[first]);
        if (i == 1)
            assert_int_equal(write(w->conn.fd, out[1], n[1]), n[1]);
        reattach(w);
        assert_true(SEEN_WAIT(&w->s, w->s.attached == 2 + i));
    }
    link_stats st;
    link_host_stats(w->host, &st);
    assert_int_equal(st.forged, 3);
    assert_int_equal(w->s.gone, 0);
    assert_int_equal(w->s.x[1].out[0].len, 8); /* the one that was repeated, once */
    assert_int_equal(w->wire.condemned, 0);
}

/* A tenant that answers the dial itself, without the secret. */
static void an_impostor_is_not_believed(void **state)
{
    world *w = *state;
    peer_conn evil;
    peer_init pretend = {.owned = true, .instance = 77, .claimed = true};
    sps_message m;

    claim(w);
    peer_close(&w->conn);
    assert_true(peer_open(&w->wire, &evil, 5000));
    peer_greet(&evil, &pretend);
    assert_int_equal(peer_next(&evil, &m, 5000), SPS_ATTACH);
    evil.end.phase = SPL_OPEN; /* it cannot know the keys: zeros */
    peer_hello(&evil, &pretend);
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 2));
    assert_int_equal(w->s.gone, 0);
    peer_close(&evil);
}

/* REFUSED is not sealed: of a box that is claimed it ends the stream only. */
static void a_refusal_is_not_believed_of_a_box(void **state)
{
    world *w = *state;
    uint64_t out[SPL_REFUSED_ROOM / 8 + 1];
    sps_message m;

    claim(w);
    peer_close(&w->conn);
    assert_true(peer_open(&w->wire, &w->conn, 5000));
    peer_greet(&w->conn, &w->init);
    assert_int_equal(next(w, &m), SPS_ATTACH);
    size_t n = spl_refuse(&w->conn.end, EACCES, out);
    assert_int_equal(write(w->conn.fd, out, n), n);
    reattach(w);
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 2));
}

/* ---- slow ---- */

static void bytes_that_come_one_by_one_are_put_together(void **state)
{
    world *w = *state;
    struct sps_data d = {{SPS_STDIO, 0, 1}, 1, 0, 0};
    uint64_t out[32];

    claim(w);
    size_t n = spl_put(&w->conn.end, out, &d, sizeof d, "slowly", 6);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(write(w->conn.fd, (char *)out + i, 1), 1);
        usleep(200);
    }
    assert_true(SEEN_WAIT(&w->s, w->s.x[1].out[0].len == 6));
}

/* An init that does not read: requests wait on our side, in order, and none is lost. */
static void requests_wait_for_a_stream_that_is_full(void **state)
{
    world *w = *state;
    CLEANUP(freep) char *big = xcalloc(1, 100001);
    char *argv[] = {"/bin/echo", big, NULL};
    exec_spec s = command(argv);
    sps_message m;

    claim(w);
    memset(big, 'x', 100000);
    for (uint64_t id = 1; id <= 40; id++)
        assert_ok(link_exec(w->box, id, &s, -1));
    for (uint64_t id = 1; id <= 40; id++) {
        expect(w, SP_SPAWN, &m);
        assert_int_equal(id_of(&m), id);
    }
}

/* ---- held, gone, away ---- */

static void held_box_sends_nothing_and_silence_is_no_sign(void **state)
{
    world *w = *state;
    sps_message m;

    with_beats(w);
    claim(w);
    link_hold(w->box, true);
    run(w, 1, false);
    link_ack(w->box, 9, 15);
    assert_int_equal(peer_next(&w->conn, &m, 2 * (PING_MS + PONG_MS)), 0); /* no PING either */
    assert_int_equal(peer_dials(&w->wire), 1);
    link_hold(w->box, false);
    expect(w, SP_SPAWN, &m);
    expect(w, SP_ACK, &m);
}

static void held_box_is_not_dialled_until_it_goes_on(void **state)
{
    world *w = *state;

    claim(w);
    link_hold(w->box, true);
    peer_close(&w->conn);
    assert_false(peer_open(&w->wire, &w->conn, 400));
    link_hold(w->box, false);
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 2));
}

static void gone_is_told_once(void **state)
{
    world *w = *state;

    claim(w);
    link_gone(w->box, "killed by the memory limit");
    link_gone(w->box, "again");
    link_died(w->host, HANDLE, "and again");
    assert_true(SEEN_WAIT(&w->s, w->s.gone == 1));
    assert_string_equal(w->s.why, "killed by the memory limit");
    sps_message m;
    assert_int_equal(next(w, &m), -1);
    assert_err(link_fetch(w->box, 1), ERR_SANDBOX_GONE);
    usleep(20000);
    assert_int_equal(w->s.gone, 1);
}

static void commands_are_refused_while_the_engine_is_away(void **state)
{
    world *w = *state;
    static char *argv[] = {"/bin/true", NULL};
    exec_spec s = command(argv);
    link_options o = options(w);
    sps_message m;

    o.away_ms = 1500;
    link_host_free(w->host);
    assert_ok(link_host_new(&o, &w->host));
    claim(w);
    peer_wire_fail(&w->wire, true, ERR_UNAVAILABLE);
    peer_close(&w->conn);
    usleep(100000);
    run(w, 1, false); /* a cut is not seen */
    usleep(2400000);
    assert_err(link_exec(w->box, 2, &s, -1), ERR_UNAVAILABLE);
    assert_ok(link_signal(w->box, &(signal_spec){.exec = 1, .signo = SIGTERM}));
    peer_wire_fail(&w->wire, false, 0);
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    expect(w, SP_SPAWN, &m);
    expect(w, SP_SIGNAL, &m);
    run(w, 3, false);
    expect(w, SP_SPAWN, &m);
}

static void box_without_users_lives_on_in_silence(void **state)
{
    world *w = *state;
    sps_message m;

    claim(w);
    link_box_ref(w->box);
    link_box_unref(w->box);
    run(w, 1, false);
    expect(w, SP_SPAWN, &m);
    link_box_unref(TAKE_PTR(w->box));
    assert_int_equal(next(w, &m), -1);
    assert_int_equal(w->s.gone, 0);
    assert_int_equal(peer_dials(&w->wire), 1);
}

static void box_outlives_its_host(void **state)
{
    world *w = *state;

    claim(w);
    link_host_free(TAKE_PTR(w->host));
    assert_err(link_fetch(w->box, 1), ERR_SANDBOX_GONE);
    link_gone(w->box, "nobody hears it");
    assert_int_equal(w->s.gone, 0);
}

static void stats_count_what_is_here(void **state)
{
    world *w = *state;
    link_stats st;

    warm_up(w);
    link_host_stats(w->host, &st);
    assert_int_equal(st.warm, 1);
    assert_int_equal(st.ready, 1);
    assert_int_equal(st.boxes, 0);
    assert_int_equal(st.dials, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LINK_TEST(exec_runs_and_its_bytes_are_credited),
        LINK_TEST(refused_exec_is_told),
        LINK_TEST(unanswered_spawns_are_sent_again_in_order_and_answered_once),
        LINK_TEST(what_flows_before_the_answer_to_fetch_is_dropped),
        LINK_TEST(lost_signals_are_told_and_kill_is_repeated),
        LINK_TEST(unheard_acks_and_sizes_are_said_again),
        LINK_TEST(many_acks_are_asked_after),
        LINK_TEST(at_most_64_are_unanswered),
        LINK_TEST(exec_by_descriptor_runs_the_kit_by_its_path),
        LINK_TEST(large_arguments_travel_behind_the_record),
        LINK_TEST(stdin_goes_as_far_as_init_takes_it),
        LINK_TEST(stdin_begins_again_where_init_is),
        LINK_TEST(malformed_under_a_right_seal_ends_the_box),
        LINK_TEST(an_answer_that_was_not_asked_ends_the_box),
        LINK_TEST(a_second_hello_ends_the_box),
        LINK_TEST(a_pong_without_ping_ends_the_box),
        LINK_TEST(a_duplicated_answer_ends_the_box),
        LINK_TEST(a_duplicated_frame_changes_nothing),
        LINK_TEST(forged_bytes_end_the_stream_only),
        LINK_TEST(an_impostor_is_not_believed),
        LINK_TEST(a_refusal_is_not_believed_of_a_box),
        LINK_TEST(bytes_that_come_one_by_one_are_put_together),
        LINK_TEST(requests_wait_for_a_stream_that_is_full),
        LINK_TEST(held_box_sends_nothing_and_silence_is_no_sign),
        LINK_TEST(held_box_is_not_dialled_until_it_goes_on),
        LINK_TEST(gone_is_told_once),
        LINK_TEST(commands_are_refused_while_the_engine_is_away),
        LINK_TEST(box_without_users_lives_on_in_silence),
        LINK_TEST(box_outlives_its_host),
        LINK_TEST(stats_count_what_is_here),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
