#include <sys/stat.h>

#include "net/client.h"

#include "fixture.h"

static fixture fx;

static int up(void **state)
{
    server_times t = fixture_times(false);

    (void)state;
    fixture_up(&fx, (server_options){0}, &t);
    return 0;
}

static int down(void **state)
{
    (void)state;
    fixture_down(&fx);
    return 0;
}

static client *over_unix(const char *key)
{
    CLEANUP(freep) char *url = str_printf("unix:%s", fx.path);
    client *c;

    assert_ok(client_new(url, key, &c));
    return c;
}

static void json_comes_and_goes(void **state)
{
    (void)state;
    CLEANUP(client_freep) client *c = over_unix(NULL);
    CLEANUP(json_decrefp)
    json_t *j = NULL, *sent = json_pack("{s:[i,i]}", "list", 1, 2), *back = NULL;

    assert_ok(client_json(c, &(client_call){.method = "GET", .path = "/seen/x?b=%41"}, &j));
    assert_string_equal(json_str(j, "b"), "A");
    assert_ok(
        client_json(c, &(client_call){.method = "POST", .path = "/echo", .json = sent}, &back));
    assert_true(json_equal(sent, back));
    json_decref(back);
    assert_ok(client_json(c, &(client_call){.method = "DELETE", .path = "/nothing"}, &back));
    assert_true(json_is_null(back));
}

static void tcp_works_and_connections_are_kept(void **state)
{
    (void)state;
    CLEANUP(freep) char *url = str_printf("http://127.0.0.1:%u/", fx.port);
    CLEANUP(client_freep) client *c = NULL;

    assert_ok(client_new(url, "e2b_key", &c));
    for (int i = 0; i < 5; i++) {
        CLEANUP(client_answer_done) client_answer a = {0};
        assert_ok(client_do(c, &(client_call){.method = "GET", .path = "/hello"}, &a));
        assert_int_equal(a.status, 200);
        assert_string_equal(buf_cstr(&a.body), "{\"hello\":\"world\"}\n");
    }
    assert_int_equal(server_count(fx.server).connections, 1);
}

static void bytes_are_sent_without_asking_first(void **state)
{
    (void)state;
    CLEANUP(client_freep) client *c = over_unix(NULL);
    CLEANUP(freep) char *p = xcalloc(1, 500000);
    uint64_t took = UINT64_MAX;

    /* With an Expect header curl would wait a second for the answer 100, each time. */
    for (int i = 0; i < 10 && took >= 900 * NS_PER_MS; i++) {
        CLEANUP(client_answer_done) client_answer a = {0};
        uint64_t begun = now_mono_ns();
        assert_ok(client_do(
            c, &(client_call){.method = "POST", .path = "/echo", .bytes = p, .nbytes = 500000},
            &a));
        took = now_mono_ns() - begun;
        assert_int_equal(a.body.len, 500000);
    }
    assert_true(took < 900 * NS_PER_MS);
}

static void errors_come_back_as_they_were(void **state)
{
    (void)state;
    CLEANUP(client_freep) client *c = over_unix(NULL);
    client_answer a;
    err *e = client_do(c, &(client_call){.method = "GET", .path = "/fail"}, &a);

    assert_non_null(e);
    assert_int_equal(e->code, ERR_POOL_EXHAUSTED);
    assert_string_equal(e->message, "no slot");
    assert_int_equal(e->retry_after, 7);
    err_free(e);
    assert_err(client_do(c, &(client_call){.method = "GET", .path = "/nowhere"}, &a),
               ERR_NOT_FOUND);
    assert_ok(
        client_do(c, &(client_call){.method = "GET", .path = "/fail", .any_status = true}, &a));
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(buf_cstr(&a.body), "no slot"));
    client_answer_done(&a);
    json_t *j;
    assert_err(client_json(c, &(client_call){.method = "GET", .path = "/slow/x"}, &j),
               ERR_INTERNAL); /* not JSON */
}

static void unreachable_is_unavailable(void **state)
{
    (void)state;
    CLEANUP(client_freep) client *c = NULL;
    client_answer a;

    assert_ok(client_new("unix:/nowhere/at/all.sock", NULL, &c));
    err *e = client_do(c, &(client_call){.method = "GET", .path = "/"}, &a);
    assert_int_equal(e ? e->errnum : 0, ENOENT);
    assert_err(e, ERR_UNAVAILABLE);
    client *bad;
    assert_err(client_new("ftp://x", NULL, &bad), ERR_INVALID_REQUEST);
    assert_err(client_new("http://x", "a\r\nb", &bad), ERR_INVALID_REQUEST);
}

static void timeouts_are_kept(void **state)
{
    (void)state;
    CLEANUP(client_freep) client *c = over_unix(NULL);
    client_answer a;
    uint64_t took = UINT64_MAX;

    for (int i = 0; i < 10 && took >= 600 * NS_PER_MS; i++) { /* a busy machine is late at times */
        uint64_t begun = now_mono_ns();
        assert_err(
            client_do(c,
                      &(client_call){.method = "GET", .path = "/slow/x?ms=700", .timeout_ms = 100},
                      &a),
            ERR_TIMEOUT);
        took = now_mono_ns() - begun;
    }
    assert_true(took < 600 * NS_PER_MS);
}

typedef struct events {
    sse_decoder d;
    unsigned n, limit;
} events;

static bool on_event(void *arg, const sse_event *e)
{
    events *v = arg;

    assert_string_equal(e->event, "tick");
    return ++v->n != v->limit;
}

static bool on_bytes(void *arg, const void *p, size_t n)
{
    events *v = arg;

    assert_ok(sse_feed(&v->d, p, n, on_event, v));
    return !v->d.stopped;
}

static void streams_are_delivered_and_can_be_left(void **state)
{
    (void)state;
    CLEANUP(client_freep) client *c = over_unix(NULL);
    client_answer a;

    for (unsigned limit = 0; limit < 10; limit += 4) {
        events v = {.limit = limit};
        assert_ok(client_do(c,
                            &(client_call){.method = "GET",
                                           .path = limit ? "/ticks?n=100000&ms=1" : "/ticks?n=20",
                                           .accept = "text/event-stream",
                                           .on_bytes = on_bytes,
                                           .arg = &v},
                            &a));
        assert_int_equal(v.n, limit ? limit : 20);
        assert_int_equal(a.status, 200);
        client_answer_done(&a);
        sse_decoder_done(&v.d);
    }
    /* An error is no stream. */
    events v = {0};
    assert_err(
        client_do(
            c, &(client_call){.method = "GET", .path = "/nowhere", .on_bytes = on_bytes, .arg = &v},
            &a),
        ERR_NOT_FOUND);
    assert_int_equal(v.n, 0);
    EVENTUALLY(server_count(fx.server).relays == 0);
}

static void a_cut_stream_is_an_error(void **state)
{
    (void)state;
    CLEANUP(client_freep) client *c = over_unix(NULL);
    client_answer a;
    events v = {0};

    assert_err(client_do(c,
                         &(client_call){.method = "GET",
                                        .path = "/ticks?n=100000&ms=1",
                                        .on_bytes = on_bytes,
                                        .arg = &v,
                                        .timeout_ms = 1000},
                         &a),
               ERR_TIMEOUT);
    assert_true(v.n > 0);
    sse_decoder_done(&v.d);
}

/* 108 bytes are all an address has. */
static void long_socket_paths_work(void **state)
{
    (void)state;
    char dir[256], path[300];
    int fd;

    snprintf(dir, sizeof dir, "%s/%0150d", fx.dir, 7);
    assert_false(mkdir(dir, 0700));
    snprintf(path, sizeof path, "%s/s", dir);
    assert_ok(sock_bind_path(path, SOCK_STREAM, 0600, &fd));
    assert_false(listen(fd, 16));
    server_listen(fx.server, fd, true); /* while it runs */
    CLEANUP(freep) char *url = str_printf("unix:%s", path);
    CLEANUP(client_freep) client *c = NULL;
    CLEANUP(json_decrefp) json_t *j = NULL;
    assert_ok(client_new(url, NULL, &c));
    assert_ok(client_json(c, &(client_call){.method = "GET", .path = "/hello"}, &j));
    unlink(path);
    rmdir(dir);
}

static _Atomic int posts;

/* Answers a GET; takes a POST, and is gone. */
static void *serve_dying(void *arg)
{
    static const char GOOD[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    CLEANUP(closep) int fd = (int)(intptr_t)arg;
    char text[4096];
    ssize_t n;

    while ((n = recv(fd, text, sizeof text, 0)) > 0 && text[0] == 'G')
        assert_int_equal(send(fd, GOOD, sizeof GOOD - 1, MSG_NOSIGNAL), sizeof GOOD - 1);
    atomic_fetch_add(&posts, n > 0);
    return NULL;
}

static void *accept_dying(void *arg)
{
    int fd;

    while ((fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        thread_detach("dying", serve_dying,
                      (void *)(intptr_t)fd); /* NOLINT(performance-no-int-to-ptr) */
    return NULL;
}

static void a_post_is_sent_once(void **state)
{
    (void)state;
    char path[200];
    int fd;

    snprintf(path, sizeof path, "%s/dying", fx.dir);
    assert_ok(sock_bind_path(path, SOCK_STREAM, 0600, &fd));
    assert_false(listen(fd, 16));
    pthread_t thread = thread_start("dying", accept_dying, &fd);
    CLEANUP(freep) char *url = str_printf("unix:%s", path);
    CLEANUP(client_freep) client *c = NULL;
    CLEANUP(client_answer_done) client_answer got = {0}, none = {0};
    assert_ok(client_new(url, NULL, &c));
    assert_ok(client_do(c, &(client_call){.method = "GET", .path = "/"}, &got)); /* is kept */
    err *e = client_do(c, &(client_call){.method = "POST", .path = "/"}, &none);
    assert_non_null(e);
    assert_int_equal(e->errnum, 0); /* it was connected */
    assert_err(e, ERR_UNAVAILABLE);
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&posts), 1);
    close(fd);
    unlink(path);
}

static void text_is_escaped(void **state)
{
    (void)state;
    CLEANUP(freep) char *s = client_escape("a b/c?d=\xc3\xa9~-._%");

    assert_string_equal(s, "a%20b%2Fc%3Fd%3D%C3%A9~-._%25");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(json_comes_and_goes, up, down),
        cmocka_unit_test_setup_teardown(tcp_works_and_connections_are_kept, up, down),
        cmocka_unit_test_setup_teardown(bytes_are_sent_without_asking_first, up, down),
        cmocka_unit_test_setup_teardown(errors_come_back_as_they_were, up, down),
        cmocka_unit_test_setup_teardown(unreachable_is_unavailable, up, down),
        cmocka_unit_test_setup_teardown(timeouts_are_kept, up, down),
        cmocka_unit_test_setup_teardown(streams_are_delivered_and_can_be_left, up, down),
        cmocka_unit_test_setup_teardown(a_cut_stream_is_an_error, up, down),
        cmocka_unit_test_setup_teardown(long_socket_paths_work, up, down),
        cmocka_unit_test_setup_teardown(a_post_is_sent_once, up, down),
        cmocka_unit_test(text_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
