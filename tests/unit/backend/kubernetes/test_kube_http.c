/* Answers of an API server, recorded, and calls to a server that gives them: what becomes of them.
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/kubernetes/kube_http.h"
#include "backend/kubernetes/kube_lease.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#include "../../unit.h"

/* ---- answers ---- */

static err *answer(long status, const char *body, bool patch)
{
    return kube_reply_err(
        &(kube_reply){.status = status, .body = body, .nbody = strlen(body), .json_patch = patch},
        "PATCH", "/api/v1/namespaces/n/pods/p?secret=1");
}

#define STATUS(reason, message, more)                                                    \
    "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\"," \
    "\"message\":\"" message "\",\"reason\":\"" reason "\"" more "}"

static void statuses_become_errors(void **state)
{
    static const struct {
        long status;
        const char *body;
        bool patch;
        err_code code;
        const char *kind;
        bool retryable;
    } ROWS[] = {
        {404, STATUS("NotFound", "pods \\\"p\\\" not found", ""), 0, ERR_NOT_FOUND, KUBE_NOT_FOUND,
         0},
        {409, STATUS("AlreadyExists", "pods \\\"p\\\" already exists", ""), 0, ERR_CONFLICT,
         KUBE_EXISTS, 0},
        {409, STATUS("Conflict", "Operation cannot be fulfilled", ""), 0, ERR_CONFLICT,
         KUBE_CONFLICT, 0},
        {410, STATUS("Expired", "The provided continue parameter is too old", ""), 0, ERR_CONFLICT,
         KUBE_EXPIRED, 0},
        {422,
         STATUS("Invalid", "the server rejected our request due to an error in our request",
                ",\"details\":{},\"code\":422"),
         1, ERR_CONFLICT, KUBE_TEST_FAILED, 0},
        {422,
         STATUS("Invalid", "is invalid: spec.replicas",
                ",\"details\":{\"causes\":[{\"field\":\"spec.replicas\"}]},\"code\":422"),
         1, ERR_INVALID_REQUEST, KUBE_INVALID, 0},
        {422,
         STATUS("Invalid", "metadata.uid: field is immutable",
                ",\"details\":{\"causes\":[{\"field\":\"metadata.uid\"}]},\"code\":422"),
         0, ERR_CONFLICT, KUBE_CONFLICT, 0},
        {403,
         STATUS("Forbidden",
                "pods \\\"p\\\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=8, "
                "limited: pods=8",
                ""),
         0, ERR_QUOTA_EXCEEDED, KUBE_QUOTA, 1},
        {403,
         STATUS("Forbidden",
                "pods \\\"p\\\" is forbidden: maximum memory usage per Container is 1Gi", ""),
         0, ERR_QUOTA_EXCEEDED, KUBE_QUOTA, 1},
        {403, STATUS("Forbidden", "User \\\"x\\\" cannot list resource", ""), 0, ERR_FORBIDDEN,
         KUBE_FORBIDDEN, 0},
        {401, STATUS("Unauthorized", "Unauthorized", ""), 0, ERR_UNAVAILABLE, "Unauthorized", 1},
        {429, "Too many requests, please try again later.\n", 0, ERR_UNAVAILABLE, KUBE_BUSY, 1},
        {500, "container not found (\"c\")\n", 0, ERR_UNAVAILABLE, "InternalError", 1},
        {503, "<html>", 0, ERR_UNAVAILABLE, "InternalError", 1},
        {504, STATUS("Timeout", "Too large resource version", ""), 0, ERR_TIMEOUT, "Timeout", 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(err_freep) err *e = answer(ROWS[i].status, ROWS[i].body, ROWS[i].patch);
        if (e->code != ROWS[i].code || !kube_is(e, ROWS[i].kind))
            print_error("row %zu: %s, %s\n", i, err_info_of(e->code)->name, e->kind);
        assert_int_equal(e->code, ROWS[i].code);
        assert_string_equal(e->kind, ROWS[i].kind);
        assert_int_equal(e->retryable, ROWS[i].retryable);
        assert_null(strstr(e->message, "secret"));
    }
}

static void the_cause_is_the_servers(void **state)
{
    CLEANUP(err_freep)
    err *e = answer(
        429, STATUS("TooManyRequests", "wait", ",\"details\":{\"retryAfterSeconds\":9}"), false);
    CLEANUP(err_freep) err *text = answer(500, "container not found (\"c\")\n", false);
    CLEANUP(err_freep) err *bad = answer(500, "\x1b[31m", false);

    (void)state;
    assert_string_equal(e->cause, "wait");
    assert_int_equal(e->retry_after, 9);
    assert_string_equal(text->cause, "container not found (\"c\")");
    assert_null(bad->cause); /* nobody's terminal */
}

/* ---- a server ---- one answer a request, the last one for ever */

typedef struct server {
    int fd, port;
    pthread_t thread;
    const char *const *answers;
    buf heads;
} server;

static void serve_one(server *s, int fd, const char *text)
{
    char head[8192];
    size_t n = 0;

    while (n < sizeof head - 1) {
        ssize_t got = recv(fd, head + n, sizeof head - 1 - n, 0);
        if (got <= 0)
            return;
        n += (size_t)got;
        head[n] = 0;
        if (strstr(head, "\r\n\r\n"))
            break;
    }
    buf_append(&s->heads, head, n);
    if (str_eq(text, "hang"))
        usleep(1500 * 1000);
    else
        send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void *run(void *arg)
{
    server *s = arg;
    int fd;

    for (size_t i = 0; (fd = accept(s->fd, NULL, NULL)) >= 0; i += s->answers[i + 1] ? 1 : 0) {
        serve_one(s, fd, s->answers[i]);
        close(fd);
    }
    return NULL;
}

static void start(server *s, const char *const *answers)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;

    *s = (server){.answers = answers};
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    getsockname(s->fd, (struct sockaddr *)&a, &n);
    s->port = ntohs(a.sin_port);
    s->thread = thread_start("server", run, s);
}

static void stop(server *s)
{
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
    buf_done(&s->heads);
}

static kube *client(const server *s, const char *token_file)
{
    CLEANUP(freep) char *url = str_printf("http://127.0.0.1:%d", s->port);
    kube *k = NULL;

    assert_ok(kube_new(&(kube_config){.server = url, .token_file = (char *)token_file}, &k));
    return k;
}

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\n{\"a\": 1}"
#define BUSY \
    "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
#define DENY "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
#define CUT  "HTTP/1.1 200 OK\r\nContent-Length: 80\r\nConnection: close\r\n\r\n{\"a\":"

/* A busy server is asked again when it said, unless the call does not want that. */
static void busy_is_waited_out(void **state)
{
    static const char *const ANSWERS[] = {BUSY, OK, BUSY, NULL};
    server s;

    (void)state;
    start(&s, ANSWERS);
    CLEANUP(kube_freep) kube *k = client(&s, NULL);
    uint64_t began = now_mono_ns();
    assert_ok(kube_get(k, "/x", NULL));
    assert_true(now_mono_ns() - began >= NS_PER_S);
    CLEANUP(err_freep)
    err *e = kube_do(k, &(kube_call){.method = "GET", .path = "/x", .once = true}, NULL);
    assert_true(kube_is(e, KUBE_BUSY));
    assert_int_equal(e->retry_after, 1);
    stop(&s);
}

/* Its time is always the same: only the server tells that it has changed. */
static void put_token(const char *path, const char *token)
{
    const struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fputs(token, f);
    fflush(f);
    assert_int_equal(futimens(fileno(f), then), 0);
    fclose(f);
}

/* 401: the file may have changed since. */
static void a_refused_token_is_read_again(void **state)
{
    static const char *const ANSWERS[] = {OK, DENY, OK, NULL};
    char path[] = "/tmp/kube-token-XXXXXX";
    server s;

    (void)state;
    close(mkstemp(path));
    put_token(path, "one\n");
    start(&s, ANSWERS);
    CLEANUP(kube_freep) kube *k = client(&s, path);
    assert_ok(kube_get(k, "/x", NULL));
    assert_non_null(strstr(buf_cstr(&s.heads), "Authorization: Bearer one\r\n"));
    put_token(path, "two\n");
    assert_ok(kube_get(k, "/x", NULL));
    assert_non_null(strstr(buf_cstr(&s.heads), "Authorization: Bearer two\r\n"));
    unlink(path);
    assert_ok(kube_get(k, "/x", NULL)); /* the one that was still does */
    stop(&s);
}

static void slow_and_cut(void **state)
{
    static const char *const ANSWERS[] = {"hang", CUT, NULL};
    server s;

    (void)state;
    start(&s, ANSWERS);
    CLEANUP(kube_freep) kube *k = client(&s, NULL);
    assert_err(kube_do(k, &(kube_call){.method = "GET", .path = "/x", .timeout_ms = 300}, NULL),
               ERR_TIMEOUT);
    assert_err(kube_get(k, "/x", NULL), ERR_UNAVAILABLE);
    stop(&s);
}

/* ---- paths and patches ---- */

static void paths(void **state)
{
    CLEANUP(freep) char *pod = kube_path(&KUBE_PODS, "n", "p", "status");
    CLEANUP(freep) char *lease = kube_path(&KUBE_LEASES, "n", "../x", NULL);
    CLEANUP(freep) char *all = kube_path(&KUBE_PODS, NULL, NULL, NULL);
    CLEANUP(freep) char *key = kube_pointer("bothy.dev/a~b");

    (void)state;
    assert_string_equal(pod, "/api/v1/namespaces/n/pods/p/status");
    assert_string_equal(lease, "/apis/coordination.k8s.io/v1/namespaces/n/leases/..%2Fx");
    assert_string_equal(all, "/api/v1/pods");
    assert_string_equal(key, "bothy.dev~1a~0b");
}

/* ---- the lease's decisions ---- */

static void lease(kube_lease_seen *seen, const char *holder, const char *version, uint64_t now)
{
    CLEANUP(json_decrefp)
    json_t *o =
        json_pack("{s:{s:s}, s:{s:s, s:i, s:i}}", "metadata", "resourceVersion", version, "spec",
                  "holderIdentity", holder, "leaseDurationSeconds", 15, "leaseTransitions", 4);

    kube_lease_look(seen, o, now);
}

static void a_lease_ends_by_our_clock(void **state)
{
    kube_lease_seen seen = {0};

    (void)state;
    kube_lease_look(&seen, NULL, 0);
    assert_int_equal(kube_lease_decide(&seen, "me", 0), KUBE_LEASE_CREATE);
    lease(&seen, "other", "1", 100 * NS_PER_S);
    assert_int_equal(kube_lease_decide(&seen, "me", 114 * NS_PER_S), KUBE_LEASE_WAIT);
    lease(&seen, "other", "2", 114 * NS_PER_S); /* it was renewed */
    assert_int_equal(kube_lease_decide(&seen, "me", 120 * NS_PER_S), KUBE_LEASE_WAIT);
    lease(&seen, "other", "2", 128 * NS_PER_S);
    assert_int_equal(kube_lease_decide(&seen, "me", 128 * NS_PER_S), KUBE_LEASE_WAIT);
    assert_int_equal(kube_lease_decide(&seen, "me", 129 * NS_PER_S), KUBE_LEASE_TAKE);
    assert_int_equal(seen.transitions, 4);
    lease(&seen, "", "3", 130 * NS_PER_S);
    assert_int_equal(kube_lease_decide(&seen, "me", 130 * NS_PER_S), KUBE_LEASE_TAKE);
    lease(&seen, "me", "4", 130 * NS_PER_S);
    assert_int_equal(kube_lease_decide(&seen, "me", 130 * NS_PER_S), KUBE_LEASE_RENEW);
}

static void times_have_six_digits(void **state)
{
    char text[KUBE_TIME_MAX];

    (void)state;
    kube_time(UINT64_C(1136214245) * NS_PER_S + 7000, text);
    assert_string_equal(text, "2006-01-02T15:04:05.000007Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_become_errors),
        cmocka_unit_test(the_cause_is_the_servers),
        cmocka_unit_test(busy_is_waited_out),
        cmocka_unit_test(a_refused_token_is_read_again),
        cmocka_unit_test(slow_and_cut),
        cmocka_unit_test(paths),
        cmocka_unit_test(a_lease_ends_by_our_clock),
        cmocka_unit_test(times_have_six_digits),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
