#include "link_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "wire/spine_stream.h"

#include "../unit.h"

#define PATIENCE_NS (20 * NS_PER_S)
#define CREDIT      (128u * 1024)

void lc_init(lclient *c, const guest *g, const guest_serve *as)
{
    memset(c, 0, sizeof *c);
    c->g = g;
    c->as = *as;
    c->fd = -1;
    c->next_id = 1;
    c->cut_after = -1;
    random_bytes(c->secret, sizeof c->secret);
}

static void proc_done(lproc *p)
{
    spine_out_done(&p->spawn);
    buf_done(&p->out[0]);
    buf_done(&p->out[1]);
}

void lc_free(lclient *c)
{
    lc_cut(c);
    for (size_t i = 0; i < c->nprocs; i++)
        proc_done(&c->procs[i]);
    buf_done(&c->in);
}

void lc_cut(lclient *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->open = false;
    buf_clear(&c->in);
    spl_end_wipe(&c->end);
}

/* ---- sending ---- */

static void send_bytes(lclient *c, const void *p, size_t n)
{
    for (size_t at = 0; c->fd >= 0 && at < n;) {
        ssize_t r = send(c->fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return; /* the reader finds the end */
        at += (size_t)r;
    }
}

void lc_send(lclient *c, const void *record, size_t size, const void *extra, size_t nextra)
{
    CLEANUP(freep) void *out = xmalloc(spl_size(size, nextra));

    if (c->open)
        send_bytes(c, out, spl_put(&c->end, out, record, size, extra, nextra));
}

static void send_spawn(lclient *c, const lproc *p)
{
    lc_send(c, p->spawn.record.p, p->spawn.record.len, p->spawn.payload.p, p->spawn.payload.len);
}

static void send_received(lclient *c, lproc *p, int i)
{
    struct sps_data d = {{SPS_RECEIVED, 0, p->id}, (uint32_t)i + 1, p->credit, p->out[i].len};

    spl_window_grant(&p->win[i], d.offset, d.b);
    lc_send(c, &d, sizeof d, NULL, 0);
}

/* ---- taking ---- */

static lproc *find(lclient *c, uint64_t id)
{
    for (size_t i = 0; i < c->nprocs; i++)
        if (c->procs[i].id == id)
            return &c->procs[i];
    if (id > c->forgotten)
        fail_msg("a message for an exec nobody has");
    static lproc nobody;
    nobody = (lproc){0};
    return &nobody;
}

static void on_stdio(lclient *c, const sps_message *m)
{
    const struct sps_data *d = m->record;
    lproc *p = find(c, d->h.id);
    int i = (int)d->a - 1;

    if (!p->id)
        return;
    if (p->fetching)
        fail_msg("output before the answer to FETCH");
    enum spl_take took = spl_window_take(&p->win[i], d->offset, m->nextra);
    if (took != SPL_TAKE_OK || d->offset != p->out[i].len)
        fail_msg("exec %llu: %s at %llu, have %zu, limit %llu", (unsigned long long)p->id,
                 took == SPL_TAKE_OVER ? "too much" : "gap or repetition",
                 (unsigned long long)d->offset, p->out[i].len, (unsigned long long)p->win[i].limit);
    if (!m->nextra) {
        p->eof[i] = true;
        return;
    }
    assert_false(p->eof[i]);
    buf_append(&p->out[i], m->extra, m->nextra);
    if (p->credit)
        send_received(c, p, i);
}

static void on_answer(lclient *c, const sps_message *m)
{
    const struct sp_hdr *h = m->record;
    lproc *p;

    switch (m->type) {
    case SP_STARTED:
    case SP_FDS:
        p = find(c, h->id);
        p->st = *(const struct sp_started *)m->record;
        p->answered = true;
        p->fetching = false;
        break;
    case SP_EXIT:
        p = find(c, h->id);
        p->rec = ((const struct sp_exit *)m->record)->r;
        p->exited = true;
        break;
    case SP_DONE:
        c->last_done = *h;
        c->done++;
        break;
    case SPS_TAKEN:
        p = find(c, h->id);
        p->taken = ((const struct sps_data *)m->record)->offset;
        p->in_limit = p->taken + ((const struct sps_data *)m->record)->b;
        break;
    case SPS_PONG:
        c->last_pong = *(const struct sps_data *)m->record;
        c->pongs++;
        break;
    case SPS_STDIO:
        on_stdio(c, m);
        break;
    default:
        fail_msg("message %u", m->type);
    }
}

static void on_hello(lclient *c, const sps_message *m)
{
    const struct sp_hello *h = m->record;

    c->hello = *h;
    memcpy(c->recs, spine_hello_recs(h), h->nrec * sizeof *c->recs);
    if (c->next_id <= h->high)
        c->next_id = h->high + 1;
    c->open = true;
}

static void on_message(lclient *c, const sps_message *m)
{
    uint8_t out[SPL_ATTACH_ROOM];
    const char *why;

    if (m->type == SPS_GREETING) {
        c->greeting = *(const struct spl_greeting *)m->record;
        send_bytes(c, out, spl_attach(&c->end, c->secret, out));
        return;
    }
    if (m->type == SPS_REFUSED) {
        c->refused = ((const struct sp_hdr *)m->record)->err;
        return;
    }
    why = sps_check(m, SPS_ANSWERS);
    if (why)
        fail_msg("%s", why);
    if (m->type == SP_HELLO)
        on_hello(c, m);
    else
        on_answer(c, m);
}

static void parse(lclient *c)
{
    size_t at = 0;

    while (c->fd >= 0) {
        sps_message m;
        const char *why;
        long n = spl_next(&c->end, c->in.p + at, c->in.len - at, &m, &why);
        if (n < 0 && !c->refused)
            fail_msg("%s", why);
        if (n <= 0)
            break;
        on_message(c, &m);
        at += (size_t)n;
    }
    if (c->fd >= 0)
        buf_consume(&c->in, at);
}

bool lc_pump(lclient *c, int ms)
{
    struct pollfd p = {c->fd, POLLIN, 0};
    size_t want = 65536;

    if (c->fd < 0)
        return false;
    if (poll(&p, 1, ms) != 1)
        return true;
    if (c->cut_after >= 0 && (size_t)c->cut_after < want)
        want = c->cut_after ? (size_t)c->cut_after : 1;
    buf_reserve(&c->in, want);
    ssize_t n = recv(c->fd, c->in.p + c->in.len, want, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) {
        lc_cut(c);
        return false;
    }
    c->in.len += (size_t)n;
    parse(c);
    if (c->cut_after < 0 || (c->cut_after -= n) > 0)
        return c->fd >= 0;
    c->cut_after = -1;
    c->cuts++;
    lc_cut(c);
    return false;
}

/* ---- connections ---- */

static void ask_again(lclient *c)
{
    for (size_t i = 0; i < c->nprocs; i++) {
        lproc *p = &c->procs[i];
        struct sp_op fetch = spine_fetch(p->id);
        if (!p->answered) {
            send_spawn(c, p);
            continue;
        }
        if (p->st.h.err)
            continue;
        bool there = false;
        for (uint32_t k = 0; k < c->hello.nrec; k++)
            there |= c->recs[k].id == p->id;
        if (!there)
            continue;
        p->fetching = true;
        for (int k = 0; k < 2; k++) {
            p->win[k] = (spl_window){p->out[k].len, p->out[k].len + SPL_CREDIT};
            p->eof[k] = false;
            send_received(c, p, k);
        }
        lc_send(c, &fetch, sizeof fetch, NULL, 0);
    }
}

bool lc_dial(lclient *c)
{
    char *argv[] = {"/init", "attach", NULL};
    uint8_t nonce[SPL_NONCE];
    uint64_t end = now_mono_ns() + PATIENCE_NS;
    pid_t pid;

    lc_cut(c);
    c->refused = 0;
    random_bytes(nonce, sizeof nonce);
    spl_begin_link(&c->end, nonce);
    c->fd = guest_exec(c->g, &c->as, argv, &pid);
    waitpid(pid, NULL, 0);
    while (waitpid(-1, NULL, WNOHANG) > 0) /* attach processes of before: we are their reaper */
        continue;
    while (!c->open && lc_pump(c, 200))
        if (now_mono_ns() > end)
            fail_msg("no HELLO");
    if (c->open)
        ask_again(c);
    return c->open;
}

/* ---- requests ---- */

static int until_done(lclient *c, uint64_t id)
{
    uint64_t before = c->done, end = now_mono_ns() + PATIENCE_NS;

    while (c->done == before && now_mono_ns() < end)
        if (!lc_pump(c, 200))
            fail_msg("the connection has ended before DONE");
    assert_true(c->done > before);
    assert_int_equal(c->last_done.id, id);
    return c->last_done.err;
}

int lc_claim(lclient *c, const spine_claim *q)
{
    CLEANUP(spine_out_done) spine_out o = {0};

    assert_ok(spine_encode_claim(q, &o));
    lc_send(c, o.record.p, o.record.len, o.payload.p, o.payload.len);
    return until_done(c, 0);
}

int lc_signal(lclient *c, uint64_t id, int signo, uint32_t scope)
{
    struct sp_op op = spine_signal(id, (uint32_t)signo, scope, 0, 0);

    lc_send(c, &op, sizeof op, NULL, 0);
    return until_done(c, id);
}

lproc *lc_spawn(lclient *c, const spine_spawn *s)
{
    spine_spawn q = *s;

    assert_true(c->nprocs < LPROCS);
    lproc *p = &c->procs[c->nprocs++];
    q.id = p->id = c->next_id++;
    assert_ok(spine_encode_spawn(&q, &p->spawn));
    p->credit = CREDIT;
    p->win[0].limit = p->win[1].limit = SPL_CREDIT;
    p->in_limit = SPL_STDIN_CREDIT;
    send_spawn(c, p);
    return p;
}

lproc *lc_sh(lclient *c, const char *user, uint32_t flags, const char *script)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};

    return lc_spawn(
        c, &(spine_spawn){.flags = flags, .umask = SP_UMASK_CLAIM, .user = user, .argv = argv});
}

void lc_stdin(lclient *c, lproc *p, uint64_t offset, const void *bytes, size_t n, bool eof)
{
    struct sps_data d = {{SPS_STDIN, 0, p->id}, eof ? SPS_STDIN_EOF : 0, 0, offset};

    lc_send(c, &d, sizeof d, bytes, n);
}

void lc_ack(lclient *c, lproc *p, uint32_t mask)
{
    struct sp_op op = spine_ack(p->id, mask);

    lc_send(c, &op, sizeof op, NULL, 0);
}

void lc_forget_all(lclient *c)
{
    for (size_t i = 0; i < c->nprocs; i++) {
        lc_ack(c, &c->procs[i], 15);
        proc_done(&c->procs[i]);
    }
    c->forgotten = c->next_id - 1;
    c->nprocs = 0;
    memset(c->procs, 0, sizeof c->procs);
}

#define UNTIL(c, what)                                       \
    do {                                                     \
        uint64_t end_ = now_mono_ns() + PATIENCE_NS;         \
        while (!(what)) {                                    \
            if (now_mono_ns() > end_)                        \
                fail_msg("waited for %s", #what);            \
            if (!lc_pump(c, 100) && !lc_dial(c))             \
                fail_msg("dialled in vain: %d", c->refused); \
        }                                                    \
    } while (0)

void lc_until_started(lclient *c, lproc *p)
{
    UNTIL(c, p->answered);
}

void lc_until_exit(lclient *c, lproc *p)
{
    UNTIL(c, p->exited || p->st.h.err);
}

void lc_until_bytes(lclient *c, lproc *p, int stream, size_t n)
{
    UNTIL(c, p->out[stream - 1].len >= n);
}

void lc_until_text(lclient *c, lproc *p, const char *text)
{
    UNTIL(c, p->out[0].len && memmem(p->out[0].p, p->out[0].len, text, strlen(text)));
}
