#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/sock.h"

#include "../unit.h"

#define PATIENCE_MS 10000

static void wait_readable(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, PATIENCE_MS) != 1)
        fail_msg("init says nothing");
}

void client_open(client *c, const guest *g)
{
    static union {
        struct sp_hello h;
        char b[SP_HELLO_MAX];
    } rx;
    size_t nfds;

    c->nstash = 0;
    c->fd = guest_connect(g);
    assert_true(c->fd >= 0);
    wait_readable(c->fd);
    ssize_t n = sock_recv(c->fd, &rx, sizeof rx, NULL, 0, &nfds, 0);
    assert_true(n > 0);
    assert_null(spine_check_answer(&rx, (size_t)n, nfds));
    assert_int_equal(rx.h.h.type, SP_HELLO);
    c->hello = rx.h;
    memcpy(c->recs, spine_hello_recs(&rx.h), rx.h.nrec * sizeof *c->recs);
    if (c->next_id <= rx.h.high)
        c->next_id = rx.h.high + 1;
}

void client_close(client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void client_send_raw(client *c, const void *p, size_t n, const int *fds, size_t nfds)
{
    struct iovec v = {(void *)p, n};
    assert_int_equal(sock_send(c->fd, &v, 1, fds, nfds, 0), 0);
}

void client_send(client *c, spine_out *o, const int *fds, size_t nfds)
{
    int all[SOCK_FDS_MAX] = {0};
    size_t n = 0;
    int mem = -1;

    if (o->payload.len) {
        mem = memfd_create("payload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(mem >= 0);
        assert_int_equal(fs_write_all(mem, o->payload.p, o->payload.len), 0);
        all[n++] = mem;
    }
    for (size_t i = 0; i < nfds; i++)
        all[n++] = fds[i];
    client_send_raw(c, o->record.p, o->record.len, all, n);
    if (mem >= 0)
        close(mem);
}

static size_t recv_any(client *c, void *p, size_t max, int *fds, size_t *ret_nfds)
{
    wait_readable(c->fd);
    ssize_t n = sock_recv(c->fd, p, max, fds, SP_FDS_MAX, ret_nfds, 0);
    assert_true(n > 0);
    const char *why = spine_check_answer(p, (size_t)n, *ret_nfds);
    if (why)
        fail_msg("%s", why);
    return (size_t)n;
}

size_t client_recv(client *c, void *p, size_t max, int *fds, size_t *ret_nfds)
{
    for (;;) {
        size_t n = recv_any(c, p, max, fds, ret_nfds);
        const struct sp_hdr *h = p;
        if (h->type != SP_EXIT)
            return n;
        assert_true(c->nstash < STASH);
        memcpy(&c->stash[c->nstash++], p, sizeof(struct sp_exit));
    }
}

struct sp_exit client_exit(client *c, uint64_t id)
{
    union {
        struct sp_exit x;
        char b[256];
    } rx;
    size_t nfds;
    int fds[SP_FDS_MAX];

    for (size_t i = 0; i < c->nstash; i++)
        if (c->stash[i].h.id == id) {
            struct sp_exit x = c->stash[i];
            c->stash[i] = c->stash[--c->nstash];
            return x;
        }
    for (;;) {
        recv_any(c, &rx, sizeof rx, fds, &nfds);
        assert_int_equal(rx.x.h.type, SP_EXIT);
        if (rx.x.h.id == id)
            return rx.x;
        assert_true(c->nstash < STASH);
        c->stash[c->nstash++] = rx.x;
    }
}

static int recv_done(client *c, uint64_t id)
{
    union {
        struct sp_hdr h;
        char b[256];
    } rx;
    int fds[SP_FDS_MAX];
    size_t nfds;

    client_recv(c, &rx, sizeof rx, fds, &nfds);
    assert_int_equal(rx.h.type, SP_DONE);
    assert_int_equal(rx.h.id, id);
    return rx.h.err;
}

int client_claim(client *c, const spine_claim *q)
{
    CLEANUP(spine_out_done) spine_out o = {0};

    assert_ok(spine_encode_claim(q, &o));
    client_send(c, &o, NULL, 0);
    return recv_done(c, 0);
}

int client_op(client *c, struct sp_op op)
{
    client_send_raw(c, &op, sizeof op, NULL, 0);
    return recv_done(c, op.h.id);
}

void client_tell(client *c, struct sp_op op)
{
    client_send_raw(c, &op, sizeof op, NULL, 0);
}

int client_signal(client *c, uint64_t id, int signo, uint32_t scope, uint32_t pid, uint64_t since)
{
    return client_op(c, spine_signal(id, (uint32_t)signo, scope, pid, since));
}

static proc recv_started(client *c, uint32_t type, uint64_t id)
{
    union {
        struct sp_started s;
        char b[256];
    } rx;
    proc p = {.id = id, .fd = {-1, -1, -1, -1}};
    int fds[SP_FDS_MAX];
    size_t nfds, next = 0;

    client_recv(c, &rx, sizeof rx, fds, &nfds);
    assert_int_equal(rx.s.h.type, type);
    assert_int_equal(rx.s.h.id, id);
    p.st = rx.s;
    for (int i = 0; i < SP_FDS_MAX; i++)
        if (rx.s.fds & (1u << i))
            p.fd[i] = fds[next++];
    return p;
}

proc client_spawn(client *c, const spine_spawn *s, const int *fds, size_t nfds)
{
    CLEANUP(spine_out_done) spine_out o = {0};
    spine_spawn q = *s;

    if (!q.id)
        q.id = c->next_id++;
    assert_ok(spine_encode_spawn(&q, &o));
    client_send(c, &o, fds, nfds);
    return recv_started(c, SP_STARTED, q.id);
}

proc client_fetch(client *c, uint64_t id)
{
    struct sp_op op = spine_fetch(id);
    client_send_raw(c, &op, sizeof op, NULL, 0);
    return recv_started(c, SP_FDS, id);
}

void proc_close(proc *p)
{
    for (int i = 0; i < SP_FDS_MAX; i++) {
        if (p->fd[i] >= 0)
            close(p->fd[i]);
        p->fd[i] = -1;
    }
}

void drain(int fd, char *p, size_t max)
{
    size_t at = 0;
    ssize_t n;

    while (fd >= 0 && at < max - 1 && (n = read(fd, p + at, max - 1 - at)) > 0)
        at += (size_t)n;
    p[at] = 0;
}

void wait_for(int fd, const char *text)
{
    char b[4096] = {0};
    size_t at = 0;
    uint64_t end = now_mono_ns() + PATIENCE_MS * NS_PER_MS;

    while (!strstr(b, text) && now_mono_ns() < end && at < sizeof b - 1) {
        struct pollfd p = {fd, POLLIN, 0};
        poll(&p, 1, 100);
        ssize_t n = read(fd, b + at, sizeof b - 1 - at);
        if (n > 0)
            at += (size_t)n;
    }
    if (!strstr(b, text))
        fail_msg("waited for '%s', have '%s'", text, b);
}

const result *client_run(client *c, const spine_spawn *s)
{
    static result r;
    proc p = client_spawn(c, s, NULL, 0);

    memset(&r.rec, 0, sizeof r.rec);
    if (p.st.h.err) {
        r.rec.status = -p.st.h.err;
        return &r;
    }
    r.rec = client_exit(c, p.id).r;
    drain(p.fd[SP_FD_OUT], r.out, sizeof r.out);
    drain(p.fd[SP_FD_ERR], r.err, sizeof r.err);
    client_tell(c, spine_ack(p.id, 15));
    proc_close(&p);
    return &r;
}

const result *client_sh(client *c, const char *user, uint32_t flags, const char *script)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    return client_run(
        c, &(spine_spawn){
               .flags = flags | SP_F_NOSTDIN, .umask = SP_UMASK_CLAIM, .user = user, .argv = argv});
}
