#include "link_peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "base/thread.h"

/* ---- the dialled end ---- */

static ssize_t end_read(void *s, void *p, size_t n)
{
    return recv((int)(intptr_t)s, p, n, MSG_DONTWAIT);
}

static ssize_t end_write(void *s, const void *p, size_t n)
{
    return send((int)(intptr_t)s, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int end_fd(void *s)
{
    return (int)(intptr_t)s;
}

static char *end_why(void *s)
{
    (void)s;
    return xstrdup("the peer said so");
}

static void end_close(void *s)
{
    close((int)(intptr_t)s);
}

static const link_stream_ops END_OPS = {
    .read = end_read, .write = end_write, .fd = end_fd, .why = end_why, .close = end_close};

void peer_wire_init(peer_wire *w)
{
    *w = (peer_wire){0};
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->cond);
}

void peer_wire_done(peer_wire *w)
{
    for (unsigned i = 0; i < w->nwaiting; i++)
        close(w->waiting[i]);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->cond);
}

void peer_wire_fail(peer_wire *w, bool failing, err_code code)
{
    LOCK_SCOPE(&w->lock);
    w->failing = failing;
    w->fail = code;
}

unsigned peer_dials(peer_wire *w)
{
    LOCK_SCOPE(&w->lock);
    return w->dials;
}

err *peer_dial(void *wire, const char *handle, unsigned timeout_ms, link_stream *ret_stream)
{
    peer_wire *w = wire;
    int pair[2];

    (void)timeout_ms;
    LOCK_SCOPE(&w->lock);
    w->dialled_ns[w->dials++ % 64] = now_mono_ns();
    pthread_cond_broadcast(&w->cond);
    if (w->failing)
        return err_because(err_new(w->fail, "cannot dial %s", handle), "the engine is away");
    if (w->nwaiting == 32 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return err_new(ERR_UNAVAILABLE, "no stream");
    w->waiting[w->nwaiting++] = pair[1];
    *ret_stream = (link_stream){&END_OPS, (void *)(intptr_t)pair[0]};
    return NULL;
}

void peer_condemned(void *wire, const char *handle, const char *why)
{
    peer_wire *w = wire;

    (void)handle;
    LOCK_SCOPE(&w->lock);
    w->condemned++;
    snprintf(w->why, sizeof w->why, "%s", why);
}

/* ---- init's end ---- */

bool peer_open(peer_wire *w, peer_conn *c, int ms)
{
    uint64_t until = now_mono_ns() + (uint64_t)ms * NS_PER_MS;

    *c = (peer_conn){.fd = -1};
    LOCK_SCOPE(&w->lock);
    while (!w->nwaiting && now_mono_ns() < until)
        cond_wait_until(&w->cond, &w->lock, until);
    if (!w->nwaiting)
        return false;
    c->fd = w->waiting[0];
    memmove(w->waiting, w->waiting + 1, --w->nwaiting * sizeof *w->waiting);
    return true;
}

void peer_close(peer_conn *c)
{
    closep(&c->fd);
    buf_done(&c->in);
    *c = (peer_conn){.fd = -1};
}

static void put_bytes(peer_conn *c, const void *p, size_t n)
{
    const char *at = p;

    while (n) {
        ssize_t r = send(c->fd, at, n, MSG_NOSIGNAL);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return; /* it hung up: reading tells */
        at += r;
        n -= (size_t)r;
    }
}

void peer_greet(peer_conn *c, const peer_init *i)
{
    uint64_t out[(SPL_GREETING_ROOM + 7) / 8];
    uint8_t nonce[SPL_NONCE];

    random_bytes(nonce, sizeof nonce);
    put_bytes(c, out, spl_begin_init(&c->end, nonce, i->instance, i->owned, out));
}

bool peer_admit(peer_conn *c, peer_init *i)
{
    uint64_t out[(SPL_REFUSED_ROOM + 7) / 8];
    sps_message m;

    if (peer_next(c, &m, 5000) != SPS_ATTACH)
        return false;
    int e = spl_admit(&c->end, m.record, i->secret, &i->owned);
    if (e)
        put_bytes(c, out, spl_refuse(&c->end, e, out));
    return !e;
}

void peer_put(peer_conn *c, const void *record, size_t n, const void *extra, size_t nextra)
{
    CLEANUP(freep) void *out = xmalloc(spl_size(n, nextra));

    put_bytes(c, out, spl_put(&c->end, out, record, n, extra, nextra));
}

void peer_put_hdr(peer_conn *c, uint32_t type, int errnum, uint64_t id)
{
    struct sp_hdr h = {type, errnum, id};

    peer_put(c, &h, sizeof h, NULL, 0);
}

void peer_hello(peer_conn *c, const peer_init *i)
{
    struct {
        struct sp_hello h;
        struct sp_rec recs[PEER_RECS];
    } all = {.h = {.h.type = SP_HELLO,
                   .version = SP_VERSION,
                   .nrec = i->nrecs,
                   .instance = i->instance,
                   .high = i->high,
                   .capacity = SP_MAX_EXEC,
                   .flags = i->claimed ? SP_HELLO_CLAIMED : 0}};

    memcpy(all.recs, i->recs, sizeof all.recs);
    peer_put(c, &all, sizeof all.h + i->nrecs * sizeof *i->recs, i->sandbox,
             i->claimed ? sizeof i->sandbox : 0);
}

bool peer_attach(peer_wire *w, peer_conn *c, peer_init *i)
{
    if (!peer_open(w, c, 5000))
        return false;
    peer_greet(c, i);
    if (!peer_admit(c, i))
        return false;
    peer_hello(c, i);
    return true;
}

int peer_next(peer_conn *c, sps_message *ret_message, int ms)
{
    uint64_t until = now_mono_ns() + (uint64_t)ms * NS_PER_MS;

    buf_consume(&c->in, c->used);
    c->used = 0;
    for (;;) {
        const char *why;
        long n = spl_next(&c->end, c->in.p, c->in.len, ret_message, &why);
        if (n) {
            c->used = n > 0 ? (size_t)n : 0;
            return n > 0 ? (int)ret_message->type : -1;
        }
        uint64_t now = now_mono_ns();
        struct pollfd p = {c->fd, POLLIN, 0};
        if (now >= until || poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) < 1)
            return 0;
        buf_reserve(&c->in, 65536);
        ssize_t r = recv(c->fd, c->in.p + c->in.len, 65536, 0);
        if (r <= 0)
            return -1;
        c->in.len += (size_t)r;
    }
}

int peer_next_asked(peer_conn *c, sps_message *ret_message, int ms)
{
    int type;

    while ((type = peer_next(c, ret_message, ms)) == SPS_PING) {
        struct sps_data d = *(const struct sps_data *)ret_message->record;
        d.h.type = SPS_PONG;
        peer_put(c, &d, sizeof d, NULL, 0);
    }
    return type;
}

void peer_take_claim(peer_conn *c, peer_init *i, const sps_message *m)
{
    const struct sp_claim *q = m->record;
    bool again = i->claimed;

    if (!again) {
        i->claimed = true;
        i->claims++;
        memcpy(i->sandbox, q->sandbox, sizeof i->sandbox);
    }
    peer_put_hdr(c, SP_DONE, again ? EALREADY : 0, 0);
}

void peer_put_started(peer_conn *c, uint32_t type, uint64_t id, uint32_t flags)
{
    struct sp_started st = {.h = {type, 0, id}, .pid = 7, .flags = flags, .start_real = 1};

    peer_put(c, &st, sizeof st, NULL, 0);
}
