/* One party cannot take what is everybody's. */
#include "fixture.h"

static int begin_body_to(const fixture *f, const char *path, const char *party)
{
    int fd = dial(f);
    CLEANUP(freep)
    char *head = str_printf("POST %s HTTP/1.1\r\nHost: a\r\nX-Party: %s\r\n"
                            "Content-Length: 3\r\n\r\na",
                            path, party);

    say(fd, head);
    return fd;
}

static int begin_body(const fixture *f, const char *party)
{
    return begin_body_to(f, "/echo", party);
}

static bool answers(int fd, const char *status, int ms)
{
    CLEANUP(buf_done) buf in = {0};

    return hear_until(fd, &in, status, ms);
}

/* How many of them were refused, as soon as it is so many; not those whose time was over (504). */
static unsigned refused_of(const int *fd, size_t n, unsigned wanted)
{
    CLEANUP(freep) bool *told = xcalloc(n, sizeof *told);
    unsigned count = 0;

    for (int k = 0; k < 50 && count < wanted; k++) /* a busy machine is late */
        for (size_t i = 0; i < n; i++) {
            CLEANUP(buf_done) buf in = {0};
            if (told[i] || !hear_until(fd[i], &in, "HTTP/1.1 ", 10))
                continue;
            told[i] = true;
            count += !memmem(in.p, in.len, "HTTP/1.1 504", 12);
        }
    return count;
}

/* Of sixteen threads one party may keep two waiting for bodies. */
TEST(slow_bodies_of_one_party_leave_threads_to_others, .threads = 16)
{
    int slow[24], more = -1;
    bool at_once = false;

    for (size_t i = 0; i < ARRAY_LEN(slow); i++)
        slow[i] = begin_body(f, "eve");
    poll(NULL, 0, 1500);
    assert_true(refused_of(slow, ARRAY_LEN(slow), ARRAY_LEN(slow) - 2) >= ARRAY_LEN(slow) - 2);
    /* It has its two: who comes now is told at once. */
    for (int i = 0; i < 10 && !at_once; i++) {
        more = begin_body(f, "eve");
        at_once = answers(more, "HTTP/1.1 429", 500);
        close(more);
    }
    assert_true(at_once);
    /* Others are served, in pieces too. */
    int other = begin_body(f, "bob");
    poll(NULL, 0, 50);
    say(other, "bc");
    assert_true(answers(other, "HTTP/1.1 200", 5000));
    close(other);
    for (size_t i = 0; i < ARRAY_LEN(slow); i++)
        close(slow[i]);
    EVENTUALLY(party_has_room(f->server, "eve", 0, 2));
    more = begin_body(f, "eve");
    say(more, "bc");
    assert_true(answers(more, "HTTP/1.1 200", 5000));
    close(more);
}

static int begin_block(const fixture *f, const char *party)
{
    int fd = dial(f);
    CLEANUP(freep)
    char *head = str_printf("GET /block HTTP/1.1\r\nHost: a\r\nX-Party: %s\r\n\r\n", party);

    say(fd, head);
    return fd;
}

/* Of sixteen threads one party gets at least eight, and three are left to others whatever it asks
 * for; when one of its own is done, whoever waits for a turn is served. */
TEST(handlers_of_one_party_leave_threads_to_others, .threads = 16)
{
    int eve[40], bob[4];
    bool told[ARRAY_LEN(eve)] = {0};
    unsigned refused = 0, hers = 0;

    for (size_t i = 0; i < ARRAY_LEN(eve); i++)
        eve[i] = begin_block(f, "eve");
    for (int k = 0; k < 400 && refused + hers < ARRAY_LEN(eve); k++) { /* each is told or served */
        for (size_t i = 0; i < ARRAY_LEN(eve); i++)
            if (!told[i])
                refused += told[i] = answers(eve[i], "Retry-After", 1);
        hers = atomic_load(&f->demo.blocked);
    }
    assert_int_equal(refused + hers, ARRAY_LEN(eve));
    assert_true(hers >= 8 && hers <= 13);
    for (size_t i = 0; i < ARRAY_LEN(bob) - 1; i++)
        bob[i] = begin_block(f, "bob");
    EVENTUALLY(atomic_load(&f->demo.blocked) == hers + ARRAY_LEN(bob) - 1);
    bob[ARRAY_LEN(bob) - 1] = begin_block(f, "eve"); /* waits for its turn, and gets it */
    poll(NULL, 0, 100);
    atomic_store(&f->demo.open, true);
    assert_true(answers(bob[ARRAY_LEN(bob) - 1], "HTTP/1.1 200", 5000));
    for (size_t i = 0; i < ARRAY_LEN(bob) - 1; i++)
        assert_true(answers(bob[i], "HTTP/1.1 200", 5000));
    for (size_t i = 0; i < ARRAY_LEN(eve); i++)
        close(eve[i]);
    for (size_t i = 0; i < ARRAY_LEN(bob); i++)
        close(bob[i]);
}

/* What takes the body inside decides how long its thread waits: that is its party's, too. */
TEST(bodies_that_nobody_takes_leave_threads_to_others, .threads = 16)
{
    int stuck[24];

    for (size_t i = 0; i < ARRAY_LEN(stuck); i++)
        stuck[i] = begin_body_to(f, "/stuck", "eve");
    poll(NULL, 0, 200);
    int other = dial(f);
    assert_int_equal(ask(other, "/hello"), 200);
    close(other);
    poll(NULL, 0, 1500);
    assert_true(refused_of(stuck, ARRAY_LEN(stuck), ARRAY_LEN(stuck) - 2) >= ARRAY_LEN(stuck) - 2);
    for (size_t i = 0; i < ARRAY_LEN(stuck); i++)
        close(stuck[i]);
    EVENTUALLY(party_has_room(f->server, "eve", 0, 2));
}

/* A byte now and then is as slow as none. */
TEST(a_body_in_drops_counts_as_slow, .threads = 8)
{
    int first = dial(f);

    say(first, "POST /echo HTTP/1.1\r\nHost: a\r\nX-Party: eve\r\nContent-Length: 100\r\n\r\n");
    for (int i = 0; i < 12; i++) {
        poll(NULL, 0, 100);
        say(first, "x");
    }
    EVENTUALLY(!party_has_room(f->server, "eve", 0, 1));
    close(first);
    EVENTUALLY(party_has_room(f->server, "eve", 0, 1));
}

static int ask_big(const fixture *f, const char *party)
{
    int fd = dial(f);
    CLEANUP(freep)
    char *head = str_printf("GET /big?n=3000000 HTTP/1.1\r\nHost: a\r\nX-Party: %s\r\n\r\n", party);

    say(fd, head);
    return fd;
}

static bool comes_whole(int fd)
{
    CLEANUP(buf_done) buf in = {0};

    while (in.len < 3000000 && hear_some(fd, &in, 5000) > 0)
        continue;
    return in.len >= 3000000;
}

/* Returns true once the server has ended an answer of which nothing was read. A reader would take
 * bytes while the server still writes, and leave less to count. */
static bool is_cut(int fd)
{
    struct pollfd w = {.fd = fd, .events = POLLRDHUP};

    return poll(&w, 1, 20000) == 1 && !comes_whole(fd);
}

TEST(answers_that_are_not_read_are_cut_when_they_are_too_many, .threads = 64)
{
    f->server->party_bytes = 8 << 20;
    int fd[6], other, trusted[6];

    for (size_t i = 0; i < 2; i++)
        fd[i] = ask_big(f, "eve");
    EVENTUALLY(server_count(f->server).relays == 2);
    for (size_t i = 2; i < ARRAY_LEN(fd); i++) {
        fd[i] = ask_big(f, "eve");
        assert_true(is_cut(fd[i]));
    }
    for (size_t i = 0; i < ARRAY_LEN(trusted); i++)
        trusted[i] = ask_big(f, "-");
    EVENTUALLY(server_count(f->server).relays == 2 + ARRAY_LEN(trusted));
    other = ask_big(f, "bob");
    for (size_t i = 0; i < 2; i++)
        assert_true(comes_whole(fd[i]));
    assert_true(comes_whole(other));
    for (size_t i = 0; i < ARRAY_LEN(trusted); i++)
        assert_true(comes_whole(trusted[i]));
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        close(fd[i]);
        close(trusted[i]);
    }
    close(other);
    EVENTUALLY(!f->server->parties.count); /* all was given back */
}

static int follow_as(const fixture *f, const char *party)
{
    int fd = dial_tcp(f);
    CLEANUP(freep)
    char *head =
        str_printf("GET /follow?until=9 HTTP/1.1\r\nHost: a\r\nX-Party: %s\r\n\r\n", party);

    say(fd, head);
    return fd;
}

/* Of eight connections one party may leave four with the relay. */
TEST(streams_of_one_party_leave_connections_to_others, .threads = 4, .connections = 8)
{
    int fd[4];

    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        fd[i] = follow_as(f, "eve");
    EVENTUALLY(server_count(f->server).relays == ARRAY_LEN(fd));
    CLEANUP(closep) int more = follow_as(f, "eve"), other = follow_as(f, "bob");
    assert_true(answers(more, "HTTP/1.1 429", 5000));
    assert_true(answers(other, "HTTP/1.1 200", 5000));
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        close(fd[i]);
    EVENTUALLY(server_count(f->server).relays == 1);
    close(TAKE_FD(more));
    more = follow_as(f, "eve");
    assert_true(answers(more, "HTTP/1.1 200", 5000));
}

/* When too many wait, those that wait for a turn go before any body does. */
TEST(who_waits_for_a_turn_pushes_no_body_out, .threads = 2)
{
    body_wait body = {.elsewhere = true}, turn = {.elsewhere = true, .turn = true}, last = body;

    server_wait_begin(f->server, &body);
    server_wait_begin(f->server, &turn);
    server_wait_begin(f->server, &last);
    assert_true(atomic_load(&turn.given_up));
    turn.given_up = false;
    server_wait_begin(f->server, &turn); /* and when it comes last */
    assert_true(atomic_load(&turn.given_up));
    assert_false(atomic_load(&body.given_up));
    assert_false(atomic_load(&last.given_up));
    server_wait_end(f->server, &turn);
    server_wait_end(f->server, &body);
    server_wait_end(f->server, &last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handlers_of_one_party_leave_threads_to_others),
        cmocka_unit_test(who_waits_for_a_turn_pushes_no_body_out),
        cmocka_unit_test(slow_bodies_of_one_party_leave_threads_to_others),
        cmocka_unit_test(bodies_that_nobody_takes_leave_threads_to_others),
        cmocka_unit_test(a_body_in_drops_counts_as_slow),
        cmocka_unit_test(answers_that_are_not_read_are_cut_when_they_are_too_many),
        cmocka_unit_test(streams_of_one_party_leave_connections_to_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
