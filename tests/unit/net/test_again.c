/* Requests whose handler needs something first, and that are served again when it is there. */
#include "fixture.h"

#define MANY 40

static unsigned relays(fixture *f)
{
    return server_count(f->server).relays;
}

static unsigned freed(fixture *f)
{
    return atomic_load(&f->demo.freed);
}

static void post(int fd, const char *query, const char *lines, size_t n)
{
    CLEANUP(freep)
    char *s = str_printf("POST /late%s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n", query,
                         lines, n);
    say(fd, s);
}

static size_t jobs(fixture *f)
{
    LOCK_SCOPE(&f->demo.lock);
    return f->demo.njobs;
}

TEST(a_request_is_served_again_with_its_body, .threads = 2)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};
    int64_t before = metric_get(&NET_METRICS[M_REQUESTS], 1);

    post(fd, "?twice", "X-Party: p\r\nX-Request-Id: mine\r\n", 10);
    say(fd, "first");
    EVENTUALLY(jobs(f) == 1);
    say(fd, " half");
    get(fd, "/slow/next");
    demo_set(&f->demo, 1);
    EVENTUALLY(jobs(f) == 2 && relays(f) == 1); /* and waits once more */
    demo_set(&f->demo, 2);
    assert_true(hear_until(fd, &in, "/slow/next", 20000));
    assert_non_null(memmem(in.p, in.len, "X-Passes: 3\r\n", 13));
    assert_non_null(memmem(in.p, in.len, "X-Request-Id: mine\r\n", 20));
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_string_equal(buf_cstr(&body), "first half");
    assert_int_equal(metric_get(&NET_METRICS[M_REQUESTS], 1) - before, 2); /* with the next one */
    EVENTUALLY(freed(f) == 1);
}

TEST(a_large_body_waits_in_its_socket, 0)
{
    CLEANUP(closep) int fd = dial_tcp(f);
    CLEANUP(buf_done) buf in = {0}, body = {0}, sent = {0};

    for (size_t i = 0; i < 4 * NET_PIPELINE; i++)
        buf_char(&sent, (char)('a' + i % 23));
    post(fd, "", "", sent.len);
    say_n(fd, sent.p, sent.len);
    EVENTUALLY(jobs(f) == 1);
    poll(NULL, 0, 50);
    demo_set(&f->demo, 1);
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_int_equal(body.len, sent.len);
    assert_memory_equal(body.p, sent.p, sent.len);
    assert_int_equal(ask(fd, "/hello"), 200);
}

TEST(who_asks_first_is_told_to_send_when_it_is_read, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    post(fd, "", "Expect: 100-continue\r\n", 4);
    EVENTUALLY(jobs(f) == 1);
    assert_true(hear_some(fd, &in, 50) < 0);
    demo_set(&f->demo, 1);
    assert_true(hear_until(fd, &in, "100 Continue\r\n\r\n", 20000));
    buf_clear(&in);
    say(fd, "body");
    assert_int_equal(hear(fd, &in, &body), 200);
    assert_string_equal(buf_cstr(&body), "body");
}

TEST(what_cannot_be_is_answered_as_usual, 0)
{
    CLEANUP(closep) int fd = dial(f);
    CLEANUP(buf_done) buf in = {0}, body = {0};

    post(fd, "?fail", "", 4);
    EVENTUALLY(jobs(f) == 1);
    say(fd, "body");
    demo_set(&f->demo, 1);
    assert_int_equal(hear(fd, &in, &body), 409);
    assert_non_null(strstr(buf_cstr(&body), "not made"));
    assert_int_equal(ask(fd, "/hello"), 200); /* the body is not taken for a request */
}

TEST(who_goes_takes_its_request_along, 0)
{
    int fd = dial(f);

    post(fd, "", "", 4);
    EVENTUALLY(jobs(f) == 1);
    close(fd);
    EVENTUALLY(relays(f) == 0 && freed(f) == 1);
    demo_set(&f->demo, 1);
}

TEST(many_wait_without_threads, .threads = 8)
{
    CLEANUP(buf_done) buf in = {0};
    int fd[MANY];

    for (size_t i = 0; i < MANY; i++) {
        fd[i] = dial(f);
        post(fd[i], "", "", 0);
    }
    EVENTUALLY(relays(f) == MANY);
    EVENTUALLY(server_count(f->server).requests == 0);
    demo_set(&f->demo, 1);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(hear(fd[i], &in, NULL), 200);
        close(fd[i]);
    }
    EVENTUALLY(freed(f) == MANY);
}

/* While six of eight threads are taken, one party may have four of them. */
TEST(what_waits_is_no_thread_of_its_party, .threads = 8)
{
    CLEANUP(buf_done) buf in = {0};
    int fd[11];

    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        fd[i] = dial(f);
    for (size_t i = 0; i < 4; i++) {
        post(fd[i], "", "X-Party: p\r\n", 0);
        EVENTUALLY(relays(f) == i + 1);
    }
    for (size_t i = 4; i < 10; i++)
        get(fd[i], "/block");
    EVENTUALLY(atomic_load(&f->demo.blocked) == 6);
    say(fd[10], "GET /hello HTTP/1.1\r\nHost: a\r\nX-Party: p\r\n\r\n");
    assert_int_equal(hear(fd[10], &in, NULL), 200);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        close(fd[i]);
}

TEST(stopping_ends_what_waits, 0)
{
    CLEANUP(closep) int fd = dial(f);

    post(fd, "", "", 4);
    EVENTUALLY(jobs(f) == 1);
    server_stop(f->server);
    assert_true(closes(fd, 20000));
    EVENTUALLY(freed(f) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_served_again_with_its_body),
        cmocka_unit_test(a_large_body_waits_in_its_socket),
        cmocka_unit_test(who_asks_first_is_told_to_send_when_it_is_read),
        cmocka_unit_test(what_cannot_be_is_answered_as_usual),
        cmocka_unit_test(who_goes_takes_its_request_along),
        cmocka_unit_test(many_wait_without_threads),
        cmocka_unit_test(what_waits_is_no_thread_of_its_party),
        cmocka_unit_test(stopping_ends_what_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
