#include <fcntl.h>

#include "fixture.h"

static unsigned relays(fixture *f)
{
    return server_count(f->server).relays;
}

TEST(timers_drive_a_stream, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};
    uint64_t took = UINT64_MAX;

    for (int i = 0; i < 10 && took >= 2000 * NS_PER_MS; i++) { /* a busy machine is late at times */
        uint64_t begun = now_mono_ns();
        buf_clear(&in);
        get(fd, "/ticks?n=10&ms=20");
        assert_true(hear_until(fd, &in, "\r\n0\r\n\r\n", 20000));
        took = now_mono_ns() - begun;
        assert_true(took >= 200 * NS_PER_MS);
    }
    assert_true(took < 2000 * NS_PER_MS);
    assert_non_null(memmem(in.p, in.len, "event: tick\nid: 9\ndata: 9\n\n", 27));
    assert_int_equal(ask(fd, "/hello"), 200); /* the connection came back */
}

TEST(the_next_request_waits_behind_a_stream, .relay_threads = 1)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    /* All at once: the second is in the buffer when the first is handed over. */
    say(fd, "GET /ticks?n=3&ms=5 HTTP/1.1\r\nHost: a\r\n\r\n"
            "GET /slow/after HTTP/1.1\r\nHost: a\r\n\r\n"
            "GET /ticks?n=1&ms=5 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear_until(fd, &in, "/slow/after", 20000));
    /* And while the relay has the connection: the bytes come to the relay. */
    assert_true(hear_until(fd, &in, "/slow/afterHTTP/1.1 200", 20000));
    get(fd, "/slow/last");
    assert_true(hear_until(fd, &in, "/slow/last", 20000));
}

/* One lane: what a job left unsaid is not told of the next one's answer. */
TEST(an_error_is_told_of_its_own_answer, .relay_threads = 1)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};
    int p[2], was = dup(STDERR_FILENO);
    char text[4096] = "";

    assert_false(pipe2(p, O_NONBLOCK | O_CLOEXEC));
    dup2(p[1], STDERR_FILENO);
    int status = ask(fd, "/regret");
    get(fd, "/ticks?n=1");
    bool heard = hear_until(fd, &in, "\r\n0\r\n\r\n", 20000);
    dup2(was, STDERR_FILENO);
    ssize_t n = read(p[0], text, sizeof text - 1);
    close(was);
    close(p[0]);
    close(p[1]);
    assert_int_equal(status, 200);
    assert_true(heard);
    assert_true(n <= 0 || !strstr(text, "a regret"));
}

TEST(old_clients_get_no_chunks, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "GET /ticks?n=2 HTTP/1.0\r\n\r\n");
    assert_true(hear_until(fd, &in, NULL, 20000));
    assert_null(memmem(in.p, in.len, "chunked", 7));
    assert_non_null(memmem(in.p, in.len, "\r\nConnection: close\r\n", 21));
    assert_true(str_ends(buf_cstr(&in), "data: 1\n\n"));
}

TEST(head_of_a_stream_has_no_body, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "HEAD /ticks?n=2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
    assert_int_equal(ask(fd, "/hello"), 200);
    assert_true(str_ends(buf_cstr(&in), "\r\n\r\n"));
}

TEST(a_disconnect_is_noticed_while_waiting, 0)
{
    int fd = dial(f), tcp = dial_tcp(f), half = dial(f);
    CLEANUP(buf_done) buf in = {0};

    get(fd, "/follow");
    get(tcp, "/follow");
    get(half, "/follow");
    assert_true(hear_until(half, &in, "\r\n\r\n", 20000));
    EVENTUALLY(relays(f) == 3);
    close(fd);
    EVENTUALLY(relays(f) == 2);
    close(tcp);
    EVENTUALLY(relays(f) == 1);
    shutdown(half, SHUT_WR); /* a stream nobody could say more about */
    EVENTUALLY(relays(f) == 0);
    close(half);
    assert_int_equal(atomic_load(&f->demo.freed), 3);
}

TEST(bytes_of_the_peer_reach_input, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "GET /follow?talk&until=5 HTTP/1.1\r\nHost: a\r\n\r\nearly");
    assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
    EVENTUALLY(atomic_load(&f->demo.inputs) == 5);
    say(fd, "late");
    EVENTUALLY(atomic_load(&f->demo.inputs) == 9);
    demo_set(&f->demo, 5);
    assert_true(hear_until(fd, &in, "0\r\n\r\n", 20000));
    assert_int_equal(ask(fd, "/hello"), 200);
}

/* What cannot be taken stays with the peer: it is pushed back, and its leaving is still seen. */
TEST(a_full_job_reads_no_more, 0)
{
    int fd = dial(f);
    char p[4096] = {0};
    size_t sent = 0;

    get(fd, "/follow?talk&full&until=9");
    EVENTUALLY(relays(f) == 1);
    for (ssize_t n; sent < 64 << 20 && (n = send(fd, p, sizeof p, MSG_DONTWAIT)) > 0;)
        sent += (size_t)n;
    assert_true(sent < 64 << 20); /* the kernel's buffers, and no more */
    unsigned taken = atomic_load(&f->demo.inputs);
    assert_true(taken <= NET_READ);
    demo_set(&f->demo, 1); /* from now on each piece is one step */
    EVENTUALLY(atomic_load(&f->demo.inputs) == sent);
    demo_set(&f->demo, 0);
    close(fd);
    EVENTUALLY(relays(f) == 0);
}

/* Ctrl-C has to come through while output pours out. */
TEST(input_is_heard_while_output_waits, 0)
{
    CLEANUP(closep) int fd = dial(f);

    get(fd, "/follow?talk&flood");
    EVENTUALLY(relays(f) == 1);
    poll(NULL, 0, 50); /* nobody reads: its output is stuck by now */
    say(fd, "stop");
    EVENTUALLY(atomic_load(&f->demo.inputs) == 4);
}

TEST_BRIEF(a_stalled_peer_is_told_of, 0)
{
    CLEANUP(closep) int cut = dial(f), kept = -1;

    get(cut, "/follow?flood");
    EVENTUALLY(atomic_load(&f->demo.stalls) == 1);
    EVENTUALLY(relays(f) == 0);
    kept = dial(f);
    get(kept, "/follow?flood&stubborn");
    EVENTUALLY(atomic_load(&f->demo.stalls) >= 3);
    assert_int_equal(relays(f), 1);
}

/* A second answer behind the first would be taken for the next request's. */
TEST_BRIEF(an_answer_that_is_complete_is_not_given_again, 0)
{
    CLEANUP(closep) int fd = dial(f);

    get(fd, "/steps?whole");
    EVENTUALLY(atomic_load(&f->demo.steps) == 1);
    EVENTUALLY(relays(f) == 0);
    assert_int_equal(atomic_load(&f->demo.steps), 1);
}

TEST(a_time_that_is_over_does_not_starve_others, .relay_threads = 1)
{
    CLEANUP(closep) int restless = dial(f), fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    get(restless, "/steps");
    EVENTUALLY(atomic_load(&f->demo.steps) > 2);
    get(fd, "/ticks?n=5&ms=1");
    assert_true(hear_until(fd, &in, "\r\n0\r\n\r\n", 20000));
}

TEST(a_flood_does_not_starve_others, .relay_threads = 1)
{
    CLEANUP(closep) int flood = dial(f), fd = dial(f);
    CLEANUP(buf_done) buf in = {0};
    char p[65536];

    get(flood, "/follow?flood");
    get(fd, "/ticks?n=5&ms=1");
    for (int i = 0; i < 200; i++)
        assert_true(recv(flood, p, sizeof p, 0) > 0);
    assert_true(hear_until(fd, &in, "\r\n0\r\n\r\n", 20000));
}

typedef struct waker {
    fixture *f;
    unsigned n;
} waker;

static void *wake_all(void *arg)
{
    waker *w = arg;

    for (unsigned i = 1; i <= w->n; i++)
        demo_set(&w->f->demo, i);
    return NULL;
}

/* Wakers, ends and disconnects at the same time. */
TEST(wakes_come_from_any_thread, 0)
{
    int fd[64];
    CLEANUP(buf_done) buf in = {0};
    waker w = {f, 500};

    for (int round = 0; round < 3; round++) {
        demo_set(&f->demo, 0);
        for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
            fd[i] = dial(f);
            get(fd[i], "/follow?until=500");
        }
        EVENTUALLY(relays(f) == ARRAY_LEN(fd));
        pthread_t a = thread_start("a", wake_all, &w), b = thread_start("b", wake_all, &w);
        for (size_t i = 0; i < ARRAY_LEN(fd); i += 2) /* some leave in the middle */
            close(fd[i]);
        pthread_join(a, NULL);
        pthread_join(b, NULL);
        for (size_t i = 1; i < ARRAY_LEN(fd); i += 2) {
            buf_clear(&in);
            assert_true(hear_until(fd[i], &in, "500\n\r\n0\r\n\r\n", 20000));
            close(fd[i]);
        }
        EVENTUALLY(relays(f) == 0);
    }
    assert_int_equal(atomic_load(&f->demo.freed), 3 * ARRAY_LEN(fd));
}

/* The size is bounded by descriptors: the peer's ends are ours too. */
TEST(thousands_of_followers_wait_without_threads, 0)
{
    struct rlimit r;
    size_t n = 2000;

    getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < 2 * n + 100)
        n = r.rlim_cur / 2 - 50;
    CLEANUP(freep) int *fd = xcalloc(n, sizeof *fd);
    CLEANUP(buf_done) buf in = {0};
    for (size_t i = 0; i < n; i++) {
        fd[i] = dial(f);
        get(fd[i], "/follow?until=2");
    }
    EVENTUALLY(relays(f) == n);
    EVENTUALLY(server_count(f->server).requests == 0);
    demo_set(&f->demo, 1);
    for (size_t i = 0; i < n; i++) {
        buf_clear(&in);
        assert_true(hear_until(fd[i], &in, "1\n\r\n", 20000));
    }
    demo_set(&f->demo, 2);
    for (size_t i = 0; i < n; i++) {
        buf_clear(&in);
        assert_true(hear_until(fd[i], &in, "0\r\n\r\n", 20000));
    }
    EVENTUALLY(relays(f) == 0);
    for (size_t i = 0; i < n; i++) {
        if (i % 100 == 0)
            assert_int_equal(ask(fd[i], "/hello"), 200);
        close(fd[i]);
    }
}

TEST(stopping_ends_relays, 0)
{
    CLEANUP(closep) int idle = dial(f), flood = dial(f);

    get(idle, "/follow");
    get(flood, "/follow?flood&stubborn");
    EVENTUALLY(relays(f) == 2);
    server_stop(f->server);
    assert_true(closes(idle, 2000));
    /* The other takes nothing; fixture_down() joins, and finds no relay left. */
}

/* Two streams with a key, of which one is paused, and one without. */
TEST(streams_end_with_the_right_to_them, .relay_threads = 1)
{
    CLEANUP(closep) int with = dial(f), parked = dial(f), without = dial(f);
    CLEANUP(buf_done) buf in = {0}, other = {0};

    get(with, "/follow?key");
    assert_true(hear_until(with, &in, "\r\n\r\n", 20000));
    get(without, "/follow");
    assert_true(hear_until(without, &other, "\r\n\r\n", 20000));
    say(parked, "POST /late?key HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    EVENTUALLY(relays(f) == 3);
    poll(NULL, 0, 1200); /* they are asked about, and stay */
    assert_int_equal(relays(f), 3);
    atomic_store(&f->demo.lapsed, true);
    assert_true(hear_until(with, &in, NULL, 20000));
    assert_true(hear_until(parked, &in, NULL, 20000));
    EVENTUALLY(relays(f) == 1);
    EVENTUALLY(atomic_load(&f->demo.freed) == 202); /* both jobs, both rights */
    demo_set(&f->demo, 1);
    assert_true(hear_until(without, &other, "\r\n0\r\n\r\n", 20000));
}

/* A sender that never stops, and one that sends nothing. */
TEST(bodies_end_with_the_right_to_them, 0)
{
    CLEANUP(closep) int busy = dial(f), idle = dial(f);
    CLEANUP(buf_done) buf in = {0}, other = {0};

    say(busy, "POST /upload?key HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    say(idle, "POST /upload?key HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    atomic_store(&f->demo.lapsed, true);
    for (int i = 0; i < 1000 && !in.len; i++) {
        (void)!send(busy, "x", 1, MSG_NOSIGNAL);
        hear_until(busy, &in, "\r\n\r\n", 20);
    }
    assert_non_null(memmem(in.p, in.len, "HTTP/1.1 401 ", 13));
    assert_true(hear_until(idle, &other, "\r\n\r\n", 20000));
    assert_non_null(memmem(other.p, other.len, "HTTP/1.1 401 ", 13));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_drive_a_stream),
        cmocka_unit_test(the_next_request_waits_behind_a_stream),
        cmocka_unit_test(an_error_is_told_of_its_own_answer),
        cmocka_unit_test(old_clients_get_no_chunks),
        cmocka_unit_test(head_of_a_stream_has_no_body),
        cmocka_unit_test(a_disconnect_is_noticed_while_waiting),
        cmocka_unit_test(bytes_of_the_peer_reach_input),
        cmocka_unit_test(a_full_job_reads_no_more),
        cmocka_unit_test(input_is_heard_while_output_waits),
        cmocka_unit_test(a_stalled_peer_is_told_of),
        cmocka_unit_test(an_answer_that_is_complete_is_not_given_again),
        cmocka_unit_test(a_time_that_is_over_does_not_starve_others),
        cmocka_unit_test(a_flood_does_not_starve_others),
        cmocka_unit_test(wakes_come_from_any_thread),
        cmocka_unit_test(thousands_of_followers_wait_without_threads),
        cmocka_unit_test(stopping_ends_relays),
        cmocka_unit_test(streams_end_with_the_right_to_them),
        cmocka_unit_test(bodies_end_with_the_right_to_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
