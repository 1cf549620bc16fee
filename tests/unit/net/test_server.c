#include "fixture.h"

TEST(a_small_answer_comes_in_one_piece, 0)
{
    CLEANUP(closep) int fd = dial(f);
    char p[4096];

    get(fd, "/hello");
    ssize_t n = recv(fd, p, sizeof p - 1, 0);
    assert_true(n > 0);
    p[n] = 0;
    assert_true(str_starts(p, "HTTP/1.1 200 OK\r\nDate: "));
    assert_non_null(strstr(p, "\r\nContent-Type: application/json\r\nContent-Length: 18\r\n"));
    assert_non_null(strstr(p, "\r\nX-Request-Id: "));
    assert_null(strstr(p, "Connection"));
    assert_true(str_ends(p, "\r\n\r\n{\"hello\":\"world\"}\n"));
    assert_int_equal(ask(fd, "/hello"), 200); /* and the connection goes on */
}

TEST(requests_are_seen_as_sent, 0)
{
    CLEANUP(closep) int fd = dial_tcp(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    say(fd, "GET /seen/a%2Fb?b=x%20y+z&b=2 HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-1\r\n"
            "x-SEEN: kept\r\n\r\n");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_string_equal(body.p, "{\"method\":\"GET\",\"path\":\"/seen/a/b\",\"a\":\"a/b\","
                                "\"b\":\"x y+z\",\"id\":\"mine-1\"}\n");
    say(fd, "GET /rest/a/b//c HTTP/1.1\r\nHost: a\r\nX-Request-Id: not valid\r\n\r\n");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_non_null(strstr(body.p, "\"a\":\"a/b//c\""));
    assert_null(strstr(body.p, "not valid"));
}

TEST(errors_are_told, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    get(fd, "/fail");
    assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
    assert_non_null(memmem(in.p, in.len, "\r\nRetry-After: 7\r\n", 18));
    assert_null(memmem(in.p, in.len, "X-Gone", 6));
    assert_int_equal(hear(fd, &in, &body), 503);
    assert_non_null(strstr(body.p, "\"code\":\"pool_exhausted\""));
    assert_non_null(strstr(body.p, "\"request_id\":\""));
    say(fd, "PUT /seen/x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
    assert_non_null(memmem(in.p, in.len, "\r\nAllow: GET, HEAD, POST\r\n", 26));
    assert_int_equal(hear(fd, &in, &body), 405);
    assert_int_equal(ask(fd, "/nowhere"), 404);
    assert_int_equal(ask(fd, "/seen/%zz"), 400);
    assert_int_equal(ask(fd, "/seen/a?x=%00"), 400);
    assert_int_equal(ask(fd, "/mind"), 409);
    assert_int_equal(atomic_load(&f->demo.freed), 1);
    assert_int_equal(ask(fd, "/hello"), 200);
}

TEST(head_and_empty_answers, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear_until(fd, &in, "world", 20000));
    const char *second = memmem(in.p + 1, in.len - 1, "HTTP/1.1", 8);
    assert_non_null(second);
    assert_memory_equal(second - 4, "\r\n\r\n", 4); /* no body between */
    assert_non_null(memmem(in.p, (size_t)(second - in.p), "Content-Length: 18", 18));
    buf_clear(&in);
    say(fd, "DELETE /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear_until(fd, &in, "\r\n\r\n", 20000));
    assert_true(str_starts(buf_cstr(&in), "HTTP/1.1 204 No Content\r\n"));
    assert_null(strcasestr(in.p, "content-length"));
}

TEST(pipelined_requests_are_answered_in_order, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0}, out = {0}, body = {0};
    char want[32];

    for (int i = 0; i < 200; i++)
        buf_printf(&out, "GET /slow/%d?ms=%d HTTP/1.1\r\nHost: a\r\n\r\n", i, i % 50 == 0 ? 5 : 0);
    say_n(fd, out.p, out.len);
    for (int i = 0; i < 200; i++) {
        snprintf(want, sizeof want, "/slow/%d", i);
        assert_int_equal(hear(fd, &in, &body), 200);
        assert_string_equal(body.p, want);
    }
}

TEST(bodies_are_read_in_both_framings, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_string_equal(body.p, "hello");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_string_equal(body.p, "abcde");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_int_equal(body.len, 0);
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX");
    assert_int_equal(hear(fd, &in, &body), 400);
    assert_true(closes(fd, 20000));
}

static void *upload(void *arg)
{
    int fd = *(int *)arg;
    CLEANUP(freep) char *p = xcalloc(1, 1 << 20);

    for (int i = 0; i < 64; i++)
        for (size_t at = 0; at < 1 << 20;) {
            ssize_t n = send(fd, p + at, (1 << 20) - at, MSG_NOSIGNAL);
            if (n <= 0)
                return NULL;
            at += (size_t)n;
        }
    return NULL;
}

TEST(large_uploads_stream, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    say(fd, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 67108864\r\n\r\n");
    pthread_t t = thread_start("up", upload, &fd);
    assert_int_equal(hear(fd, &in, &body), 200);
    pthread_join(t, NULL);
    assert_string_equal(body.p, "{\"bytes\":67108864}\n");
    assert_int_equal(ask(fd, "/hello"), 200);
}

/* The answer arrives though the peer goes on sending: no reset. */
TEST_BRIEF(a_refused_upload_still_gets_its_answer, 0)
{
    CLEANUP(closep) int fd = dial_tcp(f);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 67108864\r\n\r\n");
    pthread_t t = thread_start("up", upload, &fd);
    assert_true(hear_until(fd, &in, "too_large", 20000));
    assert_non_null(memmem(in.p, in.len, "\r\nConnection: close\r\n", 21));
    pthread_join(t, NULL);
}

TEST(an_unread_small_body_keeps_the_connection, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "POST /seen/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
            "POST /nowhere HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            "2\r\nab\r\n0\r\n\r\n");
    assert_int_equal(hear(fd, &in, NULL), 200);
    assert_int_equal(hear(fd, &in, NULL), 404);
    assert_int_equal(ask(fd, "/hello"), 200);
}

TEST(continue_is_sent_only_to_who_asks_and_is_read, 0)
{
    CLEANUP(closep) int fd = dial(f), other = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_true(hear_until(fd, &in, "HTTP/1.1 100 Continue\r\n\r\n", 20000));
    buf_clear(&in);
    say(fd, "hello");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_string_equal(body.p, "hello");
    assert_int_equal(ask(fd, "/hello"), 200);
    /* A handler that does not want the body says so at once, and the connection ends. */
    say(other, "POST /nowhere HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
               "Content-Length: 5\r\n\r\n");
    assert_int_equal(hear(other, &in, NULL), 404);
    assert_true(closes(other, 20000));
}

TEST(a_half_closed_peer_gets_its_answers, 0)
{
    CLEANUP(closep) int fd = dial(f), big = dial_tcp(f);
    CLEANUP(buf_done) buf in = {0};

    say(fd, "GET /slow/1?ms=50 HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    shutdown(fd, SHUT_WR);
    assert_int_equal(hear(fd, &in, NULL), 200);
    assert_int_equal(hear(fd, &in, NULL), 200);
    assert_true(closes(fd, 20000));
    get(big, "/big?n=8000000");
    shutdown(big, SHUT_WR);
    assert_int_equal(hear(big, &in, NULL), 200);
}

/* Fifty peers drop their heads byte by byte; two threads serve others meanwhile. */
TEST_BRIEF(slow_heads_hold_no_thread_and_are_ended, .threads = 2)
{
    int fd[50];
    CLEANUP(closep) int good = dial(f);

    assert_int_equal(ask(good, "/hello"), 200); /* before the time of its first head is over */
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        fd[i] = i % 2 ? dial(f) : dial_tcp(f);
    for (int k = 0; k < 5; k++) {
        for (size_t i = 0; i < ARRAY_LEN(fd); i++)
            say_n(fd[i], &"GET /"[k], 1);
        assert_int_equal(ask(good, "/hello"), 200);
    }
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        assert_true(closes(fd[i], 20000));
        close(fd[i]);
    }
    EVENTUALLY(server_count(f->server).connections == 1);
    assert_int_equal(ask(good, "/hello"), 200); /* between requests another time counts */
}

TEST_BRIEF(silent_connections_are_ended, 0)
{
    CLEANUP(closep) int fd = dial(f);

    assert_true(closes(fd, 20000));
}

TEST_BRIEF(silent_bodies_are_ended, 0)
{
    CLEANUP(closep) int fd = dial(f), cut = -1;
    CLEANUP(buf_done) buf in = {0};

    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    assert_int_equal(hear(fd, &in, NULL), 504);
    assert_true(closes(fd, 20000));
    cut = dial(f);
    say(cut, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    shutdown(cut, SHUT_WR);
    assert_int_equal(hear(cut, &in, NULL), 400);
}

/* More bodies than threads do not come; others are served, and the longest wait is given up. */
TEST(bodies_that_do_not_come_hold_nobody_up, .threads = 2)
{
    int fd[5];
    CLEANUP(closep) int good = dial(f);
    CLEANUP(buf_done) buf in = {0};

    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        fd[i] = i % 2 ? dial(f) : dial_tcp(f);
        say(fd[i], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
        EVENTUALLY(server_count(f->server).requests >= 1);
        assert_int_equal(ask(good, "/hello"), 200);
    }
    /* Each is answered: it made room (503; 429: its party had too many first), its time was over
     * (504), or the rest came in time. Which ones is the scheduler's choice. */
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        (void)!send(fd[i], "lo", 2, MSG_NOSIGNAL);
        int status = hear(fd[i], &in, NULL);
        if (status != 200 && status != 503 && status != 429 && status != 504)
            fail_msg("body %zu was answered with %d", i, status);
        close(fd[i]);
    }
    EVENTUALLY(server_count(f->server).requests == 0);
}

TEST(huge_heads_are_refused, 0)
{
    CLEANUP(closep) int fd = dial_tcp(f);
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(freep) char *p = xmalloc(1 << 20);

    memset(p, 'a', 1 << 20);
    say(fd, "GET /hello HTTP/1.1\r\nHost: a\r\nX: ");
    (void)!send(fd, p, 1 << 20, MSG_NOSIGNAL);
    assert_int_equal(hear(fd, &in, NULL), 413);
}

/* Two threads are held; the third request is told to come back, and then everything goes on. */
TEST(over_the_limit_is_503_with_retry_after, .threads = 2)
{
    CLEANUP(closep) int a = dial(f), b = dial(f), c = dial(f);
    CLEANUP(buf_done) buf in = {0};

    get(a, "/block");
    get(b, "/block");
    EVENTUALLY(atomic_load(&f->demo.blocked) == 2);
    get(c, "/hello");
    assert_true(hear_until(c, &in, "\r\n\r\n", 20000));
    assert_non_null(memmem(in.p, in.len, "\r\nRetry-After: 1\r\n", 18));
    assert_int_equal(hear(c, &in, NULL), 503);
    assert_int_equal(server_count(f->server).requests, 2);
    atomic_store(&f->demo.open, true);
    assert_int_equal(hear(a, &in, NULL), 200);
    assert_int_equal(hear(b, &in, NULL), 200);
    EVENTUALLY(server_count(f->server).requests == 0);
    assert_int_equal(ask(c, "/hello"), 200);
}

/* One that came free a moment ago is a reason to wait for the next. */
TEST(over_the_limit_waits_while_threads_come_free, .threads = 2)
{
    CLEANUP(closep) int a = dial(f), b = dial(f), c = dial(f);
    CLEANUP(buf_done) buf in = {0};

    get(a, "/block");
    EVENTUALLY(atomic_load(&f->demo.blocked) == 1);
    assert_int_equal(ask(c, "/hello"), 200);
    EVENTUALLY(server_count(f->server).requests == 1); /* answered before it is over */
    get(b, "/block");
    EVENTUALLY(atomic_load(&f->demo.blocked) == 2);
    get(c, "/hello");
    struct pollfd p = {.fd = c, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 50), 0);
    atomic_store(&f->demo.open, true);
    assert_int_equal(hear(c, &in, NULL), 200);
    assert_int_equal(hear(a, &in, NULL), 200);
    assert_int_equal(hear(b, &in, NULL), 200);
}

TEST(the_pool_grows_to_its_limit, .threads = 64)
{
    int fd[64];
    CLEANUP(buf_done) buf in = {0};

    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        fd[i] = dial(f);
        get(fd[i], "/block");
    }
    EVENTUALLY(atomic_load(&f->demo.blocked) == 64);
    atomic_store(&f->demo.open, true);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        assert_int_equal(hear(fd[i], &in, NULL), 200);
        close(fd[i]);
    }
}

TEST(connections_have_a_limit, .connections = 3)
{
    int fd[3];
    CLEANUP(closep) int over = -1;
    CLEANUP(buf_done) buf in = {0};

    for (int i = 0; i < 3; i++) {
        fd[i] = dial_tcp(f);
        assert_int_equal(ask(fd[i], "/hello"), 200);
    }
    over = dial_tcp(f);
    assert_int_equal(hear(over, &in, NULL), 503);
    CLEANUP(closep) int own = dial(f); /* who may end what takes the places comes in */
    assert_int_equal(ask(own, "/hello"), 200);
    close(TAKE_FD(own));
    EVENTUALLY(server_count(f->server).connections == 3);
    close(fd[0]);
    EVENTUALLY(server_count(f->server).connections == 2);
    CLEANUP(closep) int again = dial(f);
    assert_int_equal(ask(again, "/hello"), 200);
    close(fd[1]);
    close(fd[2]);
}

/* Idle ones do not keep others out. */
TEST(the_longest_idle_connection_makes_room, .connections = 3)
{
    CLEANUP(closep) int idle = dial_tcp(f), later = dial_tcp(f), held = dial_tcp(f);

    get(held, "/follow?until=5");
    EVENTUALLY(server_count(f->server).relays == 1);
    assert_int_equal(ask(idle, "/hello"), 200);
    poll(NULL, 0, 50);
    assert_int_equal(ask(later, "/hello"), 200);
    poll(NULL, 0, 1100);
    CLEANUP(closep) int again = dial_tcp(f);
    assert_int_equal(ask(again, "/hello"), 200);
    assert_true(closes(idle, 5000));
    assert_int_equal(ask(later, "/hello"), 200);
    assert_int_equal(server_count(f->server).relays, 1);
}

/* One thread and a peer that does not read: the thread is free for others all the same. */
TEST(a_slow_reader_holds_no_thread, .threads = 1)
{
    CLEANUP(closep) int slow = dial(f), other = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    get(slow, "/big?n=4000000");
    get(slow, "/hello"); /* waits behind it */
    EVENTUALLY(server_count(f->server).relays == 1);
    EVENTUALLY(server_count(f->server).requests == 0);
    assert_int_equal(ask(other, "/hello"), 200);
    assert_int_equal(hear(slow, &in, &body), 200);
    assert_int_equal(body.len, 4000000);
    for (size_t i = 0; i < body.len; i++)
        if (body.p[i] != (char)('a' + i % 26))
            fail_msg("byte %zu", i);
    assert_int_equal(hear(slow, &in, &body), 200);
    EVENTUALLY(server_count(f->server).relays == 0);
}

TEST_BRIEF(a_reader_that_stopped_is_cut, 0)
{
    CLEANUP(closep) int fd = dial(f);

    get(fd, "/big?n=4000000");
    EVENTUALLY(server_count(f->server).relays == 1);
    EVENTUALLY(server_count(f->server).connections == 0);
}

TEST(old_clients_and_close, 0)
{
    CLEANUP(closep) int a = dial(f), b = dial(f);
    CLEANUP(buf_done) buf in = {0};

    say(a, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_true(hear_until(a, &in, "\r\nConnection: close\r\n", 20000));
    assert_true(closes(a, 20000));
    buf_clear(&in);
    say(b, "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_true(hear_until(b, &in, "\r\nConnection: close\r\n", 20000));
    assert_true(closes(b, 20000));
}

TEST(stopping_lets_requests_end, .threads = 4)
{
    CLEANUP(closep) int fd = dial(f), idle = dial(f);
    CLEANUP(buf_done) buf in = {0};

    assert_int_equal(ask(idle, "/hello"), 200);
    EVENTUALLY(server_count(f->server).requests == 0);
    get(fd, "/slow/1?ms=300");
    EVENTUALLY(server_count(f->server).requests == 1);
    server_stop(f->server);
    assert_true(closes(idle, 20000));
    assert_true(hear_until(fd, &in, "\r\nConnection: close\r\n", 20000));
    assert_int_equal(hear(fd, &in, NULL), 200);
    assert_true(closes(fd, 20000));
}

static void open_the_gate(void *arg)
{
    atomic_store(&((demo *)arg)->open, true);
}

/* It waits for what will not come any more. */
TEST(stopping_lets_handlers_go_that_wait, .threads = 4, .stopping = open_the_gate)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0};

    get(fd, "/block");
    EVENTUALLY(atomic_load(&f->demo.blocked) == 1);
    assert_false(atomic_load(&f->demo.open));
    server_stop(f->server);
    assert_true(hear_until(fd, &in, "\r\nConnection: close\r\n", 20000));
    assert_int_equal(hear(fd, &in, NULL), 200);
}

/* A handler that outlives the grace keeps the server's memory, not server_run(). */
static void a_stuck_handler_does_not_keep_the_server(void **state)
{
    fixture *f = xcalloc(1, sizeof *f);
    server_times t = fixture_times(false);

    (void)state;
    t.stop = 100 * NS_PER_MS;
    fixture_up(f, (server_options){0}, &t);
    CLEANUP(closep) int fd = dial(f);
    get(fd, "/block");
    EVENTUALLY(atomic_load(&f->demo.blocked) == 1);
    server_stop(f->server);
    pthread_join(f->thread, NULL);
    assert_int_equal(server_count(f->server).requests, 1);
    server_free(f->server); /* does nothing yet */
    atomic_store(&f->demo.open, true);
    EVENTUALLY(server_count(f->server).requests == 0);
    server_free(f->server);
    unlink(f->path);
    rmdir(f->dir);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_answer_comes_in_one_piece),
        cmocka_unit_test(requests_are_seen_as_sent),
        cmocka_unit_test(errors_are_told),
        cmocka_unit_test(head_and_empty_answers),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(bodies_are_read_in_both_framings),
        cmocka_unit_test(large_uploads_stream),
        cmocka_unit_test(a_refused_upload_still_gets_its_answer),
        cmocka_unit_test(an_unread_small_body_keeps_the_connection),
        cmocka_unit_test(continue_is_sent_only_to_who_asks_and_is_read),
        cmocka_unit_test(a_half_closed_peer_gets_its_answers),
        cmocka_unit_test(slow_heads_hold_no_thread_and_are_ended),
        cmocka_unit_test(silent_connections_are_ended),
        cmocka_unit_test(silent_bodies_are_ended),
        cmocka_unit_test(bodies_that_do_not_come_hold_nobody_up),
        cmocka_unit_test(huge_heads_are_refused),
        cmocka_unit_test(over_the_limit_is_503_with_retry_after),
        cmocka_unit_test(over_the_limit_waits_while_threads_come_free),
        cmocka_unit_test(the_pool_grows_to_its_limit),
        cmocka_unit_test(connections_have_a_limit),
        cmocka_unit_test(the_longest_idle_connection_makes_room),
        cmocka_unit_test(a_slow_reader_holds_no_thread),
        cmocka_unit_test(a_reader_that_stopped_is_cut),
        cmocka_unit_test(old_clients_and_close),
        cmocka_unit_test(stopping_lets_requests_end),
        cmocka_unit_test(stopping_lets_handlers_go_that_wait),
        cmocka_unit_test(a_stuck_handler_does_not_keep_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
