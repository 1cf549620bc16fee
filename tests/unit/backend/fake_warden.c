#include "fake_warden.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sock.h"
#include "base/thread.h"
#include "wire/spine.h"

typedef struct answer {
    int errnum;
    uint32_t retry_after;
    const char *text;
    char body[WP_FRAME_MAX - 64];
    size_t n;
    int fd;
} answer;

static fake_slot *find(fake_warden *w, const struct wp_id *id)
{
    for (size_t i = 0; i < w->nslots; i++)
        if (!memcmp(&w->slot[i].sandbox, id, sizeof *id))
            return &w->slot[i];
    return NULL;
}

static void put(answer *a, const void *p, size_t n)
{
    memcpy(a->body + a->n, p, n);
    a->n += n;
}

static void put_hello(answer *a, const void *hello, size_t n)
{
    struct wp_claimed c = {.slot = 1, .uid_base = 1 << 28, .hello = (uint32_t)n, .build_ns = 7};
    put(a, &c, sizeof c);
    put(a, hello, n);
}

static void do_claim(fake_warden *w, const struct wp_claim *c, answer *a)
{
    static char hello[SP_HELLO_MAX] __attribute__((aligned(8)));
    static const struct wp_id none;
    size_t nfds;

    w->last_deadline = c->deadline_ms;
    if (w->claim_errnum) {
        a->errnum = w->claim_errnum;
        a->text = w->claim_text;
        a->retry_after = w->claim_retry;
        return;
    }
    if (w->give_fd >= 0) {
        a->fd = TAKE_FD(w->give_fd);
        put_hello(a, w->give_hello, w->give_n);
        return;
    }
    if (find(w, &c->sandbox)) {
        a->errnum = EEXIST;
        return;
    }
    fake_slot *s = find(w, &none);
    if (!s) {
        a->errnum = EAGAIN;
        a->text = "no slot is free";
        a->retry_after = 3;
        return;
    }
    s->sandbox = c->sandbox;
    a->fd = guest_connect(&s->vm);
    ssize_t n = sock_recv(a->fd, hello, sizeof hello, NULL, 0, &nfds, 0);
    put_hello(a, hello, n > 0 ? (size_t)n : 0);
}

static void do_attach(fake_warden *w, const struct wp_id *id, answer *a)
{
    if (w->attach_fails) {
        w->attach_fails--;
        a->errnum = w->attach_errnum;
        return;
    }
    if (w->give_fd >= 0) {
        a->fd = TAKE_FD(w->give_fd);
        return;
    }
    fake_slot *s = find(w, id);
    int fd = s ? guest_connect(&s->vm) : -ENOENT;
    if (fd < 0)
        a->errnum = -fd;
    else
        a->fd = fd;
}

static void do_destroy(fake_warden *w, const struct wp_id *id, answer *a)
{
    fake_slot *s = find(w, id);

    if (!s) {
        a->errnum = ENOENT;
        return;
    }
    kill(s->vm.pid, SIGKILL);
    waitpid(s->vm.pid, NULL, 0);
    s->vm.pid = 0;
    memset(&s->sandbox, 0xff, sizeof s->sandbox); /* never again */
}

/* One box an answer: the list has pages. */
static void do_list(fake_warden *w, const struct wp_list *q, answer *a)
{
    struct wp_list l = {0};
    struct wp_box b = {0};
    uint32_t i = q->from;

    while (i < w->nslots && (w->slot[i].sandbox.id[0] <= 0))
        i++;
    if (i < w->nslots) {
        l.n = 1;
        l.next = i + 1;
        b = (struct wp_box){
            .sandbox = w->slot[i].sandbox, .slot = i, .uid_base = 1 << 28, .pid = 9};
    }
    put(a, &l, sizeof l);
    if (l.n)
        put(a, &b, sizeof b);
}

static void do_stats(fake_warden *w, const struct wp_stats *q, answer *a)
{
    const struct wp_id *id = (const struct wp_id *)(q + 1);

    if (w->old && q->size) {
        a->errnum = EINVAL;
        return;
    }
    put(a, q, sizeof *q);
    for (uint32_t i = 0; i < q->n; i++) {
        struct wp_usage u = {.sandbox = id[i], .memory = 4096, .pids = 3, .io_written = 8192};
        if (!find(w, &id[i]))
            u.flags = WP_USAGE_UNKNOWN;
        put(a, &u, q->size ? q->size : WP_USAGE_FIRST);
    }
}

static void do_pool(fake_warden *w, const struct wp_watermarks *q, answer *a)
{
    if (q->flags & WP_POOL_SET)
        w->marks = *q;
    struct wp_pool p = {.low = w->marks.low,
                        .high = w->marks.high,
                        .ready = 1,
                        .refills_failed = 3,
                        .why = 999,
                        .refill_ns = 40000000,
                        .last_error = "crun ended with status 1"};
    if (q->high > 1000)
        a->errnum = EINVAL;
    else
        put(a, &p, sizeof p);
}

static void serve(fake_warden *w, uint32_t type, const void *body, answer *a)
{
    struct wp_hello h = {.min = 1,
                         .max = 1,
                         .caps = WP_CAP_DISK_LIMIT |
                                 (w->old ? 0 : WP_CAP_USAGE | WP_CAP_RELEASE | WP_CAP_FATE)};

    switch (type) {
    case WP_HELLO:
        put(a, &h, sizeof h);
        break;
    case WP_CLAIM:
        do_claim(w, body, a);
        if (w->lose_fd) {
            closep(&a->fd);
            a->fd = -1;
        }
        w->lose_fd = false;
        break;
    case WP_ATTACH:
        do_attach(w, body, a);
        break;
    case WP_RELEASE:
        put(a, "1.0", 3);
        break;
    case WP_DESTROY:
        do_destroy(w, body, a);
        break;
    case WP_LIST:
        do_list(w, body, a);
        break;
    case WP_STATS:
        do_stats(w, body, a);
        break;
    case WP_METRICS:
        put(a, "warden_up 1\n", 12);
        break;
    case WP_POOL:
        do_pool(w, body, a);
        break;
    case WP_FREEZE:
        a->errnum = w->freeze_errnum;
        a->text = "as it was told";
        break;
    case WP_THAW:
        break;
    default:
        a->errnum = ENOSYS;
    }
}

static void respond(int fd, const struct wp_hdr *q, const answer *a)
{
    struct wp_hdr h = {q->type | WP_ANSWER, a->errnum, q->request};
    struct wp_error e = {.retry_after = a->retry_after};
    struct iovec v[3] = {{&h, sizeof h}, {(void *)a->body, a->n}, {0}};

    if (a->errnum) {
        v[1] = (struct iovec){&e, sizeof e};
        v[2] = (struct iovec){(void *)a->text, strlen(a->text)};
    }
    sock_send(fd, v, 3, &a->fd, a->fd >= 0, 0);
}

/* False: cut. */
static bool one_request(fake_warden *w, int fd)
{
    static char rx[WP_FRAME_MAX] __attribute__((aligned(8)));
    static answer a;
    int got = -1;
    size_t ngot;
    ssize_t n = sock_recv(fd, rx, sizeof rx, &got, 1, &ngot, 0);
    const struct wp_hdr *h = (const struct wp_hdr *)rx;

    if (ngot)
        close(got);
    if (n < (ssize_t)sizeof *h || h->type >= WP_TYPES ||
        !wp_request_ok(h->type, h + 1, (size_t)n - sizeof *h))
        return false;
    LOCK_SCOPE(&w->lock);
    w->requests[h->type]++;
    bool cut = w->cut_on == h->type;
    if (cut) {
        w->cut_on = 0;
        usleep(20000); /* time that a deadline must lose */
        if (!w->cut_after)
            return false;
    }
    a.errnum = 0;
    a.retry_after = 0;
    a.n = 0;
    a.fd = -1;
    a.text = "";
    serve(w, h->type, h + 1, &a);
    if (!cut)
        respond(fd, h, &a);
    closep(&a.fd);
    return !cut;
}

static bool stopping(fake_warden *w)
{
    LOCK_SCOPE(&w->lock);
    return w->stop;
}

static bool is_mute(fake_warden *w)
{
    LOCK_SCOPE(&w->lock);
    return w->mute;
}

static void *run(void *arg)
{
    fake_warden *w = arg;
    int listener, conn = -1;
    err *e = sock_bind_path(w->path, SOCK_SEQPACKET, 0600, &listener);

    if (e || listen(listener, 4))
        abort();
    if (write(w->wake[1], "r", 1) != 1)
        abort();
    while (!stopping(w)) {
        struct pollfd p[2] = {{listener, POLLIN, 0}, {conn, POLLIN, 0}};
        poll(p, conn >= 0 && !is_mute(w) ? 2 : 1, 20);
        if (p[0].revents) {
            closep(&conn);
            conn = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            LOCK_SCOPE(&w->lock);
            w->connections++;
        } else if (conn >= 0 && p[1].revents && !is_mute(w) && !one_request(w, conn)) {
            close(conn);
            conn = -1;
        }
    }
    closep(&conn);
    close(listener);
    return NULL;
}

void fake_warden_start(fake_warden *w, const char *init_program, size_t n)
{
    char c;

    *w = (fake_warden){.nslots = n, .give_fd = -1, .claim_text = ""};
    for (size_t i = 0; i < n; i++)
        guest_start(&w->slot[i].vm, init_program);
    snprintf(w->dir, sizeof w->dir, "/tmp/bothy-warden-XXXXXX");
    if (!mkdtemp(w->dir) || pipe2(w->wake, O_CLOEXEC))
        abort();
    snprintf(w->path, sizeof w->path, "%s/w", w->dir);
    pthread_mutex_init(&w->lock, NULL);
    w->thread = thread_start("fakewarden", run, w);
    if (read(w->wake[0], &c, 1) != 1)
        abort();
}

void fake_warden_stop(fake_warden *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    for (size_t i = 0; i < w->nslots; i++)
        guest_stop(&w->slot[i].vm);
    close(w->wake[0]);
    close(w->wake[1]);
    closep(&w->give_fd);
    unlink(w->path);
    rmdir(w->dir);
}

unsigned fake_warden_count(fake_warden *w, uint32_t type)
{
    LOCK_SCOPE(&w->lock);
    return w->requests[type];
}
