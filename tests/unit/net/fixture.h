/* A running demo server on a unix socket and on loopback, and a client of bare bytes. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"

#include "demo.h"
#include "unit.h"

typedef struct fixture {
    demo demo;
    server *server;
    pthread_t thread;
    char dir[32];
    char path[64];
    uint16_t port;
} fixture;

static inline void *fixture_run(void *arg)
{
    server_run(arg);
    return NULL;
}

static inline int fixture_tcp(uint16_t *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 4096));
    assert_false(getsockname(fd, (struct sockaddr *)&a, &n));
    *ret_port = ntohs(a.sin_port);
    return fd;
}

/* Short ones for tests that wait for them; the others may run on a machine that is very busy. */
static inline server_times fixture_times(bool brief)
{
    uint64_t ns = brief ? 400 * NS_PER_MS : 20 * NS_PER_S;
    server_times t = server_times_default();

    t.head = ns;
    t.body_idle = ns;
    t.linger = ns;
    t.stall = ns;
    return t;
}

static inline void fixture_up(fixture *f, server_options o, const server_times *times)
{
    struct rlimit r;
    int fd;

    memset(f, 0, sizeof *f);
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    log_set_plain();
    pthread_mutex_init(&f->demo.lock, NULL);
    o.dispatch = demo_dispatch;
    o.arg = &f->demo;
    assert_ok(server_new(&o, &f->server));
    server_set_times(f->server, times);
    strcpy(f->dir, "/tmp/bothy-net-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/s", f->dir);
    assert_ok(sock_bind_path(f->path, SOCK_STREAM, 0600, &fd));
    assert_false(listen(fd, 4096));
    server_listen(f->server, fd, true);
    server_listen(f->server, fixture_tcp(&f->port), false);
    f->thread = thread_start("server", fixture_run, f->server);
}

static inline void fixture_down(fixture *f)
{
    atomic_store(&f->demo.open, true);
    server_stop(f->server);
    pthread_join(f->thread, NULL);
    assert_int_equal(server_count(f->server).connections, 0);
    assert_int_equal(server_count(f->server).relays, 0);
    server_free(f->server);
    unlink(f->path);
    rmdir(f->dir);
    pthread_mutex_destroy(&f->demo.lock);
}

static inline void with_server(bool brief, server_options o, void (*test)(fixture *))
{
    fixture *f = xcalloc(1, sizeof *f);
    server_times t = fixture_times(brief);

    fixture_up(f, o, &t);
    test(f);
    fixture_down(f);
    free(f);
}

/* TEST(name, options of the server) { uses f } */
#define TEST_WITH(name, brief, ...)                                     \
    static void name##_body(fixture *f);                                \
    static void name(void **state)                                      \
    {                                                                   \
        (void)state;                                                    \
        with_server(brief, (server_options){__VA_ARGS__}, name##_body); \
    }                                                                   \
    static void name##_body(fixture *f)
#define TEST(name, ...)       TEST_WITH(name, false, __VA_ARGS__)
#define TEST_BRIEF(name, ...) TEST_WITH(name, true, __VA_ARGS__)

/* ---- a client of bare bytes ---- */

static inline int dial(const fixture *f)
{
    int fd;

    assert_ok(sock_connect_path(f->path, SOCK_STREAM, &fd));
    return fd;
}

static inline int dial_tcp(const fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(f->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a));
    return fd;
}

static inline void say_n(int fd, const void *p, size_t n)
{
    assert_int_equal(send(fd, p, n, MSG_NOSIGNAL), n);
}

static inline void say(int fd, const char *s)
{
    say_n(fd, s, strlen(s));
}

static inline void get(int fd, const char *target)
{
    CLEANUP(freep) char *s = str_printf("GET %s HTTP/1.1\r\nHost: a\r\n\r\n", target);
    say(fd, s);
}

/* One read within ms: bytes, 0 at the end, -1 when nothing came or the connection broke. */
static inline ssize_t hear_some(int fd, buf *in, int ms)
{
    struct pollfd w = {.fd = fd, .events = POLLIN};
    char p[65536];

    if (poll(&w, 1, ms) <= 0)
        return -1;
    ssize_t n = recv(fd, p, sizeof p, 0);
    if (n > 0)
        buf_append(in, p, (size_t)n);
    return n;
}

/* Reads until `end` is seen (NULL: until the peer closes) or ms have passed. True if so. */
static inline bool hear_until(int fd, buf *in, const char *end, int ms)
{
    uint64_t until = now_mono_ns() + (uint64_t)ms * NS_PER_MS;

    for (;;) {
        if (end && in->len && memmem(in->p, in->len, end, strlen(end)))
            return true;
        uint64_t now = now_mono_ns();
        ssize_t n = now < until ? hear_some(fd, in, (int)((until - now) / NS_PER_MS) + 1) : -1;
        if (n <= 0)
            return !end && n == 0;
    }
}

/* One answer with a Content-Length, taken off the front of in. */
static inline int hear(int fd, buf *in, buf *ret_body)
{
    assert_true(hear_until(fd, in, "\r\n\r\n", 20000));
    const char *end = memmem(in->p, in->len, "\r\n\r\n", 4);
    size_t head = (size_t)(end - in->p) + 4;
    CLEANUP(freep) char *text = xstrndup(in->p, head);
    const char *length = strcasestr(text, "content-length: ");
    size_t n = length ? strtoul(length + 16, NULL, 10) : 0;
    int status = atoi(text + 9);

    uint64_t until = now_mono_ns() + 20 * NS_PER_S;
    while (in->len < head + n && now_mono_ns() < until && hear_some(fd, in, 5000) > 0)
        continue;
    assert_true(in->len >= head + n);
    if (ret_body) {
        buf_clear(ret_body);
        buf_append(ret_body, in->p + head, n);
        buf_cstr(ret_body);
    }
    buf_consume(in, head + n);
    return status;
}

static inline int ask(int fd, const char *target)
{
    CLEANUP(buf_done) buf in = {0};

    get(fd, target);
    return hear(fd, &in, NULL);
}

/* The peer closes (cleanly) within ms. */
static inline bool closes(int fd, int ms)
{
    CLEANUP(buf_done) buf in = {0};

    return hear_until(fd, &in, NULL, ms);
}

#define EVENTUALLY(x)                                    \
    do {                                                 \
        uint64_t until_ = now_mono_ns() + 20 * NS_PER_S; \
        while (!(x) && now_mono_ns() < until_)           \
            poll(NULL, 0, 2);                            \
        assert_true(x);                                  \
    } while (0)
