/* Requests handed on to a server, which is the test itself. */
#include <malloc.h>

#include "fixture.h"

#define MANY (64u << 20)

typedef struct inner {
    int listener;
    uint16_t port;
} inner;

static inner inner_up(void)
{
    inner i = {0};

    i.listener = fixture_tcp(&i.port);
    return i;
}

static int inner_accept(const inner *i)
{
    struct pollfd p = {.fd = i->listener, .events = POLLIN};

    assert_int_equal(poll(&p, 1, 20000), 1);
    return accept4(i->listener, NULL, NULL, SOCK_CLOEXEC);
}

static int open_gate(const fixture *f, const inner *i, const char *method, const char *lines)
{
    int fd = dial(f);
    CLEANUP(freep)
    char *head = str_printf("%s /gate/%u/a HTTP/1.1\r\nHost: a\r\n%s\r\n", method, i->port, lines);

    say(fd, head);
    return fd;
}

static int open_tunnel(const fixture *f, const inner *i, int *ret_inner)
{
    int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(freep) char *head = str_printf("GET /tunnel/%u HTTP/1.1\r\nHost: a\r\n\r\n", i->port);

    say(fd, head);
    *ret_inner = inner_accept(i);
    assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
    assert_non_null(memmem(in.p, in.len, " 101 ", 5));
    return fd;
}

/* As much as goes without anybody reading. */
static size_t pour(int fd)
{
    char p[65536] = {0};
    size_t sent = 0;

    for (int quiet = 0; sent < MANY && quiet < 20;) {
        ssize_t n = send(fd, p, sizeof p, MSG_DONTWAIT | MSG_NOSIGNAL);
        quiet = n > 0 ? 0 : quiet + 1;
        sent += n > 0 ? (size_t)n : 0;
        if (n <= 0)
            poll(NULL, 0, 10);
    }
    return sent;
}

static size_t drain(int fd, size_t want)
{
    CLEANUP(buf_done) buf in = {0};
    size_t got = 0;

    for (ssize_t n; got < want && (n = hear_some(fd, &in, 5000)) > 0; got += (size_t)n)
        buf_clear(&in);
    return got;
}

TEST(an_answer_comes_back_and_the_connection_goes_on, 0)
{
    inner i = inner_up();
    CLEANUP(closep) int fd = open_gate(f, &i, "GET", "X-Api-Key: secret\r\n");
    CLEANUP(closep) int at = inner_accept(&i);
    CLEANUP(buf_done) buf got = {0};
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(buf_done) buf body = {0};

    assert_true(hear_until(at, &got, "\r\n\r\n", 20000));
    assert_non_null(memmem(got.p, got.len, "GET /a HTTP/1.1\r\n", 17));
    assert_null(memmem(got.p, got.len, "secret", 6));
    say(at, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyesHTTP/1.1 200 OK\r\n\r\n");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_string_equal(body.p, "yes");
    assert_int_equal(ask(fd, "/hello"), 200);
    close(i.listener);
}

TEST(a_server_that_does_not_read_pushes_the_caller_back, 0)
{
    inner i = inner_up();
    int fd = open_gate(f, &i, "POST", "Content-Length: 99999999999\r\n"), at = inner_accept(&i);
    size_t sent = pour(fd);

    assert_true(sent < MANY); /* what the kernel holds, and a little of ours */
    assert_true(drain(at, sent) >= sent);
    close(at);
    close(fd);
    EVENTUALLY(server_count(f->server).relays == 0);
    close(i.listener);
}

TEST(a_caller_that_does_not_read_pushes_the_server_back, 0)
{
    inner i = inner_up();
    int fd = open_gate(f, &i, "GET", ""), at = inner_accept(&i);

    say(at, "HTTP/1.1 200 OK\r\n\r\n");
    size_t sent = pour(at);
    assert_true(sent < MANY);
    assert_true(drain(fd, sent) >= sent);
    close(at);
    close(fd);
    EVENTUALLY(server_count(f->server).relays == 0);
    close(i.listener);
}

/* Both sides have bytes all the time: what was sent on must not stay in memory. */
static size_t trickle(int from, int to, size_t all)
{
    char p[65536] = {0};
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd, most = before;

    for (size_t got = 0; got < all;) {
        ssize_t n = send(from, p, sizeof p, MSG_DONTWAIT | MSG_NOSIGNAL);
        ssize_t k = recv(to, p, 700, MSG_DONTWAIT);
        got += k > 0 ? (size_t)k : 0;
        if (n <= 0 && k <= 0)
            poll(NULL, 0, 1);
        size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
        most = now > most ? now : most;
    }
    return most - before;
}

TEST(a_server_that_reads_slowly_costs_no_memory, 0)
{
    inner i = inner_up();
    int at = -1, window = 4096;

    atomic_store(&f->demo.send_buffer, 4096); /* a kernel short of memory gives no more */
    setsockopt(i.listener, SOL_SOCKET, SO_RCVBUF, &window, sizeof window);
    int fd = open_tunnel(f, &i, &at);
    assert_true(trickle(fd, at, 8u << 20) < 1u << 20);
    close(at);
    close(fd);
    EVENTUALLY(server_count(f->server).relays == 0);
    close(i.listener);
}

TEST(each_side_of_a_tunnel_ends_by_itself, 0)
{
    inner i = inner_up();
    int at = -1, fd = open_tunnel(f, &i, &at);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "question");
    shutdown(fd, SHUT_WR);
    assert_true(hear_until(at, &in, NULL, 20000));
    assert_int_equal(in.len, 8);
    say(at, "answer");
    close(at);
    buf_clear(&in);
    assert_true(hear_until(fd, &in, NULL, 20000));
    assert_int_equal(in.len, 6);
    close(fd);
    /* The other way round. */
    fd = open_tunnel(f, &i, &at);
    shutdown(at, SHUT_WR);
    assert_true(closes(fd, 20000));
    say(fd, "still");
    close(fd);
    buf_clear(&in);
    assert_true(hear_until(at, &in, NULL, 20000));
    assert_int_equal(in.len, 5);
    close(at);
    EVENTUALLY(server_count(f->server).relays == 0);
    close(i.listener);
}

/* Events of both descriptors in one turn of the lane: the job is gone after the first. */
TEST(both_sides_leave_at_once, .relay_threads = 1)
{
    inner i = inner_up();

    for (int n = 0; n < 300; n++) {
        int at = -1, fd = open_tunnel(f, &i, &at);
        struct linger reset = {1, 0};
        say(fd, "x");
        say(at, "y");
        if (n % 3 == 0)
            setsockopt(at, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(n % 2 ? fd : at);
        close(n % 2 ? at : fd);
    }
    EVENTUALLY(server_count(f->server).relays == 0);
    assert_int_equal(atomic_load(&f->demo.freed), 300);
    close(i.listener);
}

/* Of two connections one party may leave one with the relay. The other's body, which nobody reads
 * then, must not be taken for a request. */
TEST(a_refused_job_leaves_no_body_behind, .connections = 2)
{
    inner i = inner_up();
    int first = open_gate(f, &i, "GET", "X-Party: eve\r\n"), at = inner_accept(&i);
    CLEANUP(closep)
    int fd = open_gate(f, &i, "POST", "X-Party: eve\r\nContent-Length: 500\r\n");
    CLEANUP(buf_done) buf in = {0};

    get(fd, "/hello");
    assert_true(hear_until(fd, &in, NULL, 20000));
    buf_cstr(&in);
    assert_non_null(strstr(in.p, " 429 "));
    assert_null(strstr(in.p, "world"));
    close(first);
    close(at);
    close(i.listener);
}

/* Where such a body ends is anybody's guess, and with it where the next request begins. */
TEST(a_body_that_ends_wrong_ends_the_connection, 0)
{
    static const char *const ENDS[] = {"0\r\n\rX", "0\r\nX\r\n", "0\r\n\r\r\n",
                                       "0\r\nA: b\r\n\r\n"};
    inner i = inner_up();

    for (size_t n = 0; n < ARRAY_LEN(ENDS); n++) {
        CLEANUP(closep) int fd = open_gate(f, &i, "POST", "Transfer-Encoding: chunked\r\n");
        CLEANUP(closep) int at = inner_accept(&i);
        CLEANUP(buf_done) buf in = {0};
        assert_true(at >= 0);
        say(fd, ENDS[n]);
        assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
        static const char NEXT[] = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
        ssize_t sent = send(fd, NEXT, sizeof NEXT - 1, MSG_NOSIGNAL); /* or it is closed already */
        assert_true(sent > 0 || errno == EPIPE || errno == ECONNRESET);
        hear_until(fd, &in, NULL, 20000);
        assert_non_null(strstr(buf_cstr(&in), " 400 "));
        assert_null(strstr(in.p, "world"));
    }
    close(i.listener);
}

/* An answer to HEAD is a head: behind a 101 this would be bytes for somebody else. */
TEST(head_cannot_become_another_protocol, 0)
{
    inner i = inner_up();
    CLEANUP(closep)
    int fd = open_gate(f, &i, "HEAD", "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    CLEANUP(closep) int at = inner_accept(&i);
    CLEANUP(buf_done) buf got = {0};
    CLEANUP(buf_done) buf in = {0};

    assert_true(hear_until(at, &got, "\r\n\r\n", 20000));
    assert_null(strstr(buf_cstr(&got), "Upgrade"));
    say(at,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
    assert_non_null(strstr(buf_cstr(&in), " 502 "));
    close(i.listener);
}

/* The next request came while the answer that is no 101 was under way. */
TEST(a_request_behind_a_refused_upgrade_is_served, 0)
{
    inner i = inner_up();
    CLEANUP(closep)
    int fd = open_gate(f, &i, "GET", "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    CLEANUP(closep) int at = inner_accept(&i);
    CLEANUP(buf_done) buf got = {0};
    CLEANUP(buf_done) buf in = {0};

    assert_true(hear_until(at, &got, "\r\n\r\n", 20000));
    say(at, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
    assert_true(hear_until(fd, &in, "ab", 20000));
    get(fd, "/hello");
    poll(NULL, 0, 50); /* to be read while the answer goes on */
    say(at, "cd");
    assert_true(hear_until(fd, &in, "world", 20000));
    close(i.listener);
}

TEST(nothing_listens, 0)
{
    inner i = inner_up();

    close(i.listener);
    CLEANUP(closep) int fd = open_gate(f, &i, "GET", "");
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(buf_done) buf body = {0};
    assert_int_equal(hear(fd, &in, &body), 502);
    assert_non_null(strstr(body.p, "port_closed"));
    assert_int_equal(ask(fd, "/hello"), 200);
}

/* The port is ours, and nothing listens on it yet. */
static inner inner_bound(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    inner i = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};

    assert_false(bind(i.listener, (struct sockaddr *)&a, n));
    assert_false(getsockname(i.listener, (struct sockaddr *)&a, &n));
    i.port = ntohs(a.sin_port);
    return i;
}

TEST(a_server_that_still_starts_is_waited_for, 0)
{
    inner i = inner_bound();
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(buf_done) buf body = {0};

    atomic_store(&f->demo.patient_until, now_mono_ns() + 60 * NS_PER_S);
    CLEANUP(closep) int fd = open_gate(f, &i, "POST", "Content-Length: 4\r\n");
    say(fd, "body");
    assert_false(hear_until(fd, &in, "HTTP", 500)); /* no answer while nothing listens */
    assert_int_equal(in.len, 0);
    assert_false(listen(i.listener, 8));
    CLEANUP(closep) int at = inner_accept(&i);
    CLEANUP(buf_done) buf got = {0};
    assert_true(hear_until(at, &got, "\r\n\r\nbody", 20000));
    say(at, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_int_equal(ask(fd, "/hello"), 200);
    close(i.listener);
}

TEST(a_server_that_never_starts_is_not_waited_for_for_ever, 0)
{
    inner i = inner_bound();
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(buf_done) buf body = {0};
    uint64_t begun = now_mono_ns();

    atomic_store(&f->demo.patient_until, begun + 500 * NS_PER_MS);
    CLEANUP(closep) int fd = open_gate(f, &i, "GET", "");
    assert_int_equal(hear(fd, &in, &body), 502);
    assert_true(now_mono_ns() - begun >= 500 * NS_PER_MS);
    assert_non_null(strstr(body.p, "nothing listens on the port"));
    close(i.listener);
}

TEST(a_refused_request_is_retried_less_and_less_often, 0)
{
    inner i = inner_bound();

    atomic_store(&f->demo.patient_until, now_mono_ns() + 60 * NS_PER_S);
    CLEANUP(closep) int fd = open_gate(f, &i, "GET", "");
    poll(NULL, 0, 3000);
    unsigned asks = atomic_load(&f->demo.asks);
    assert_in_range(asks, 4, 14); /* two each, after 0, 0.1, 0.3, 0.7, 1.5 and 2.5 s */
    assert_int_equal(atomic_load(&f->demo.waiting), 1);
    close(TAKE_FD(fd));
    EVENTUALLY(atomic_load(&f->demo.waiting) == 0);
    close(i.listener);
}

TEST(only_so_many_requests_wait_for_a_server_that_starts, 0)
{
    inner i = inner_bound();
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(buf_done) buf body = {0};

    atomic_store(&f->demo.patient_until, now_mono_ns() + 60 * NS_PER_S);
    atomic_store(&f->demo.waiting, GATEWAY_WAITING_MAX);
    CLEANUP(closep) int fd = open_gate(f, &i, "GET", "");
    assert_int_equal(hear(fd, &in, &body), 502);
    assert_non_null(strstr(body.p, "nothing listens on the port"));
    assert_int_equal(atomic_load(&f->demo.waiting), GATEWAY_WAITING_MAX);
    close(i.listener);
}

/* A gate whose server is the other end of a pair, and a request that it has. */
static int open_connected(fixture *f, int *ret_server)
{
    inner none = {.port = 80};
    CLEANUP(buf_done) buf got = {0};

    atomic_store(&f->demo.connected, 1);
    int fd = open_gate(f, &none, "GET", "");
    EVENTUALLY(atomic_load(&f->demo.connected) > 2);
    *ret_server = atomic_load(&f->demo.connected);
    assert_true(hear_until(*ret_server, &got, "\r\n\r\n", 20000));
    return fd;
}

TEST(an_answer_over_a_connected_socket_is_whole_or_cut_off, 0)
{
    static const char TO_END[] = "HTTP/1.1 200 OK\r\n\r\nall of it";
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(buf_done) buf cut = {0};
    int at = -1, fd = open_connected(f, &at);

    say(at, TO_END);
    shutdown(at, SHUT_WR);
    assert_true(hear_until(fd, &in, "all of it\r\n0\r\n\r\n", 20000)); /* with the last chunk */
    close(at);
    close(fd);
    fd = open_connected(f, &at);
    say(at, TO_END);
    close(at); /* as a tunnel does whose command was killed */
    while (hear_some(fd, &cut, 5000) > 0)
        continue;
    assert_non_null(memmem(cut.p, cut.len, "all of it", 9));
    assert_null(memmem(cut.p, cut.len, "\r\n0\r\n", 5)); /* without */
    close(fd);
}

TEST(a_connect_that_was_refused_elsewhere_reads_the_same, 0)
{
    inner none = {.port = 80};
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(buf_done) buf body = {0};

    atomic_store(&f->demo.connected, -1);
    CLEANUP(closep) int fd = open_gate(f, &none, "GET", "");
    assert_int_equal(hear(fd, &in, &body), 502);
    assert_non_null(strstr(body.p, "nothing listens on the port"));
    assert_non_null(strstr(body.p, "Connection refused"));
}

TEST(stopping_ends_streams, 0)
{
    inner i = inner_up();
    int at = -1, fd = open_tunnel(f, &i, &at);

    server_stop(f->server);
    assert_true(closes(fd, 5000));
    assert_true(closes(at, 5000));
    close(fd);
    close(at);
    close(i.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_back_and_the_connection_goes_on),
        cmocka_unit_test(a_server_that_does_not_read_pushes_the_caller_back),
        cmocka_unit_test(a_caller_that_does_not_read_pushes_the_server_back),
        cmocka_unit_test(a_server_that_reads_slowly_costs_no_memory),
        cmocka_unit_test(each_side_of_a_tunnel_ends_by_itself),
        cmocka_unit_test(both_sides_leave_at_once),
        cmocka_unit_test(a_refused_job_leaves_no_body_behind),
        cmocka_unit_test(a_body_that_ends_wrong_ends_the_connection),
        cmocka_unit_test(head_cannot_become_another_protocol),
        cmocka_unit_test(a_request_behind_a_refused_upgrade_is_served),
        cmocka_unit_test(nothing_listens),
        cmocka_unit_test(a_server_that_still_starts_is_waited_for),
        cmocka_unit_test(a_server_that_never_starts_is_not_waited_for_for_ever),
        cmocka_unit_test(a_refused_request_is_retried_less_and_less_often),
        cmocka_unit_test(only_so_many_requests_wait_for_a_server_that_starts),
        cmocka_unit_test(an_answer_over_a_connected_socket_is_whole_or_cut_off),
        cmocka_unit_test(a_connect_that_was_refused_elsewhere_reads_the_same),
        cmocka_unit_test(stopping_ends_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
