/* A server with handlers of every sort, for the tests of src/net. */
#pragma once

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "net/gateway.h"
#include "net/internal.h"
#include "net/router.h"
#include "wire/sse.h"

#define DEMO_FOLLOWERS 20000

/* What followers wait for: a number that grows. */
typedef struct demo {
    pthread_mutex_t lock;
    unsigned value;
    relay_job *job[DEMO_FOLLOWERS];
    size_t njobs;
    atomic_uint freed, stalls, inputs, steps;
    _Atomic uint64_t patient_until; /* of gates */
    atomic_uint asks, waiting;      /* likewise: sockets asked for, requests that are retried */
    atomic_bool lapsed;             /* callers with ?key may not be served any more */
    atomic_int
        connected; /* gates get one end of a pair: 1, and then the other; -1: nobody listens */
    atomic_int send_buffer; /* of sockets to servers; 0: as the kernel likes */
    atomic_uint blocked;    /* handlers in /block */
    atomic_bool open;       /* lets them go */
} demo;

static inline err *demo_hello(request *rq, response *rs)
{
    (void)rq;
    response_json(rs, 200, json_pack("{s:s}", "hello", "world"));
    return NULL;
}

/* {"method","path","a","b","id"}: what the handler saw. */
static inline err *demo_seen(request *rq, response *rs)
{
    const char *b = request_query(rq, "b");

    response_header(rs, "X-Seen", "%s", str_or(request_header(rq, "x-seen"), "-"));
    response_json(rs, 200,
                  json_pack("{s:s,s:s,s:s,s:s,s:s}", "method", request_method(rq), "path",
                            request_path(rq), "a", str_or(request_param(rq, 0), "-"), "b",
                            str_or(b, "-"), "id", request_id(rq)));
    return NULL;
}

static inline err *demo_echo(request *rq, response *rs)
{
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, 1 << 20, &body));
    response_bytes(rs, "application/octet-stream", body.p, body.len);
    return NULL;
}

static inline err *demo_upload(request *rq, response *rs)
{
    char p[65536];
    size_t n = 0, total = 0;

    do {
        TRY(request_body_read(rq, p, sizeof p, &n));
        total += n;
    } while (n);
    response_json(rs, 200, json_pack("{s:I}", "bytes", (json_int_t)total));
    return NULL;
}

/* Somebody who is given the body and takes nothing. */
static inline err *demo_stuck(request *rq, response *rs)
{
    (void)rs;
    for (int i = 0; i < 40; i++)
        TRY(request_wait(rq, -1, 100));
    return err_new(ERR_TIMEOUT, "nobody took it");
}

static inline err *demo_slow(request *rq, response *rs)
{
    uint64_t ms = 0;

    str_to_u64(str_or(request_query(rq, "ms"), "0"), 10000, &ms);
    poll(NULL, 0, (int)ms);
    response_bytes(rs, "text/plain", request_path(rq), strlen(request_path(rq)));
    return NULL;
}

static inline err *demo_block(request *rq, response *rs)
{
    demo *d = request_door(rq);

    atomic_fetch_add(&d->blocked, 1);
    while (!atomic_load(&d->open))
        poll(NULL, 0, 2);
    atomic_fetch_sub(&d->blocked, 1);
    return demo_hello(rq, rs);
}

static inline err *demo_big(request *rq, response *rs)
{
    uint64_t n = 0;

    str_to_u64(str_or(request_query(rq, "n"), "0"), 256 << 20, &n);
    CLEANUP(freep) char *p = xmalloc(n + 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 26);
    response_bytes(rs, "text/plain", p, n);
    return NULL;
}

static inline err *demo_fail(request *rq, response *rs)
{
    response_header(rs, "X-Gone", "yes");
    (void)rq;
    return err_retry_after(err_new(ERR_POOL_EXHAUSTED, "no slot"), 7);
}

static inline err *demo_nothing(request *rq, response *rs)
{
    (void)rq;
    (void)rs;
    return NULL;
}

/* ---- relays ---- */

/* A number of events, one every so many ms. */
typedef struct ticks {
    unsigned n, sent;
    uint64_t every;
    uint64_t next;
    bool chunked, begun;
    char id[NET_ID_MAX + 1];
} ticks;

static inline void ticks_head(ticks *t, relay_io *io)
{
    t->chunked = io->http11;
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "text/event-stream",
                                          .length = -1,
                                          .chunked = t->chunked,
                                          .keep_alive = io->keep_alive,
                                          .request_id = t->id});
    t->begun = true;
    t->next = io->now + t->every;
}

static inline enum relay_next ticks_step(void *ctx, relay_io *io)
{
    ticks *t = ctx;
    CLEANUP(buf_done) buf event = {0};
    char text[16];

    if (!t->begun)
        ticks_head(t, io);
    if (t->sent < t->n && io->now < t->next) {
        io->wake_at = t->next;
        return RELAY_WAIT;
    }
    if (t->sent < t->n) {
        int k = snprintf(text, sizeof text, "%u", t->sent++);
        t->next = io->now + t->every;
        sse_write(&event, "tick", text, text, (size_t)k);
        if (t->chunked)
            http_chunk(io->out, event.p, event.len);
        else
            buf_append(io->out, event.p, event.len);
        return RELAY_MORE;
    }
    if (!t->chunked)
        return RELAY_CLOSE;
    http_chunk(io->out, NULL, 0);
    return RELAY_DONE;
}

static inline err *demo_ticks(request *rq, response *rs)
{
    static const relay_ops OPS = {.step = ticks_step, .free = free};
    ticks *t = xcalloc(1, sizeof *t);
    uint64_t n = 0, ms = 0;

    str_to_u64(str_or(request_query(rq, "n"), "3"), 1000000, &n);
    str_to_u64(str_or(request_query(rq, "ms"), "1"), 60000, &ms);
    t->n = (unsigned)n;
    t->every = ms * NS_PER_MS;
    snprintf(t->id, sizeof t->id, "%s", request_id(rq));
    response_relay(rs, &OPS, t);
    return NULL;
}

/* Answers, and meets an error when nobody can be told of it any more. */
static inline enum relay_next regret_step(void *ctx, relay_io *io)
{
    bool *answered = ctx;
    CLEANUP(buf_done) buf nobody = {0};

    if (!*answered) {
        buf_printf(io->out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        *answered = true;
        return RELAY_MORE;
    }
    CLEANUP(err_freep) err *e = err_new(ERR_UNAVAILABLE, "a regret");
    http_error_answer(&nobody, e, true, "r");
    return RELAY_DONE;
}

static inline err *demo_regret(request *rq, response *rs)
{
    static const relay_ops OPS = {.step = regret_step, .free = free};

    (void)rq;
    response_relay(rs, &OPS, xcalloc(1, sizeof(bool)));
    return NULL;
}

/* Wants to be woken at a time that is over, for ever; "whole": answers with 16 MiB at once. */
static inline enum relay_next restless_step(void *ctx, relay_io *io)
{
    atomic_fetch_add(&((demo *)ctx)->steps, 1);
    io->wake_at = 1;
    return RELAY_WAIT;
}

static inline enum relay_next whole_step(void *ctx, relay_io *io)
{
    size_t n = 16 << 20;

    atomic_fetch_add(&((demo *)ctx)->steps, 1);
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "text/plain",
                                          .length = (int64_t)n,
                                          .keep_alive = io->keep_alive});
    buf_reserve(io->out, n);
    memset(io->out->p + io->out->len, 'w', n);
    io->out->len += n;
    return RELAY_DONE;
}

static inline err *demo_steps(request *rq, response *rs)
{
    static const relay_ops RESTLESS = {.step = restless_step}, WHOLE = {.step = whole_step};

    response_relay(rs, request_query(rq, "whole") ? &WHOLE : &RESTLESS, request_door(rq));
    return NULL;
}

static inline bool demo_has_lapsed(void *d)
{
    return atomic_load(&((demo *)d)->lapsed);
}

static inline void demo_lapse_freed(void *d)
{
    atomic_fetch_add(&((demo *)d)->freed, 100);
}

/* Follows demo.value until it is `until`; "flood" pours out letters without end; "full" takes no
 * bytes of the peer before the value is 1. */
typedef struct follow {
    demo *demo;
    relay_job *job;
    size_t slot;
    unsigned seen, until;
    bool begun, flood, stubborn, full;
} follow;

static inline void follow_start(void *ctx, relay_job *job)
{
    follow *f = ctx;

    LOCK_SCOPE(&f->demo->lock);
    assert(f->demo->njobs < DEMO_FOLLOWERS);
    f->slot = f->demo->njobs++;
    f->demo->job[f->slot] = job;
    f->job = job;
}

static inline enum relay_next follow_step(void *ctx, relay_io *io)
{
    follow *f = ctx;
    char line[32];

    if (!f->begun)
        http_head_write(io->out, &(http_head){.status = 200,
                                              .type = "text/plain",
                                              .length = -1,
                                              .chunked = true,
                                              .keep_alive = io->keep_alive});
    f->begun = true;
    if (io->stalled) {
        atomic_fetch_add(&f->demo->stalls, 1);
        return f->stubborn ? RELAY_MORE : RELAY_CLOSE;
    }
    if (f->flood) {
        char many[32768];
        memset(many, 'f', sizeof many);
        http_chunk(io->out, many, sizeof many);
        return RELAY_MORE;
    }
    pthread_mutex_lock(&f->demo->lock);
    unsigned value = f->demo->value;
    pthread_mutex_unlock(&f->demo->lock);
    if (value != f->seen) {
        int n = snprintf(line, sizeof line, "%u\n", value);
        http_chunk(io->out, line, (size_t)n);
        f->seen = value;
    }
    io->full = f->full && !value;
    if (value < f->until)
        return RELAY_WAIT;
    http_chunk(io->out, NULL, 0);
    return RELAY_DONE;
}

static inline bool follow_input(void *ctx, const void *p, size_t n)
{
    follow *f = ctx;

    (void)p;
    atomic_fetch_add(&f->demo->inputs, (unsigned)n);
    return !f->full;
}

static inline void follow_free(void *ctx)
{
    follow *f = ctx;
    demo *d = f->demo;

    pthread_mutex_lock(&d->lock);
    if (f->job)
        d->job[f->slot] = NULL;
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_add(&d->freed, 1);
    free(f);
}

/* Wakes every follower, from the calling thread. */
static inline void demo_set(demo *d, unsigned value)
{
    LOCK_SCOPE(&d->lock);
    d->value = value;
    for (size_t i = 0; i < d->njobs; i++)
        if (d->job[i])
            relay_wake(d->job[i]);
}

static inline err *demo_follow(request *rq, response *rs)
{
    static const relay_ops OPS = {.start = follow_start, .step = follow_step, .free = follow_free};
    static const relay_ops TALK = {
        .start = follow_start, .step = follow_step, .input = follow_input, .free = follow_free};
    follow *f = xcalloc(1, sizeof *f);
    uint64_t until = 1;

    f->demo = request_door(rq);
    str_to_u64(str_or(request_query(rq, "until"), "1"), 1000000, &until);
    f->until = (unsigned)until;
    f->flood = request_query(rq, "flood") != NULL;
    f->stubborn = request_query(rq, "stubborn") != NULL;
    f->full = request_query(rq, "full") != NULL;
    response_relay(rs, request_query(rq, "talk") ? &TALK : &OPS, f);
    return NULL;
}

/* "/late": served when demo.value is 1, "twice": again when it is 2; "fail": with an error. Says
 * how often it was dispatched, and its body. */
typedef struct late {
    demo *demo;
    unsigned passes, until;
    size_t slot;
    relay_job *job;
} late;

static inline void late_start(void *ctx, relay_job *job)
{
    late *l = ctx;

    LOCK_SCOPE(&l->demo->lock);
    l->slot = l->demo->njobs++;
    l->demo->job[l->slot] = l->job = job;
}

static inline bool late_is_due(late *l)
{
    LOCK_SCOPE(&l->demo->lock);
    return l->demo->value >= l->until;
}

static inline enum relay_next late_step(void *ctx, relay_io *io)
{
    (void)io;
    return late_is_due(ctx) ? RELAY_AGAIN : RELAY_WAIT;
}

static inline void late_end(void *ctx)
{
    late *l = ctx;

    LOCK_SCOPE(&l->demo->lock);
    if (l->job)
        l->demo->job[l->slot] = NULL;
    l->job = NULL;
}

static inline void late_free(void *kept)
{
    atomic_fetch_add(&((late *)kept)->demo->freed, 1);
    free(kept);
}

static inline late *late_of(request *rq)
{
    late *l = request_kept(rq);

    if (!l) {
        l = xcalloc(1, sizeof *l);
        l->demo = request_door(rq);
        request_keep(rq, l, late_free);
    }
    return l;
}

static inline err *demo_late(request *rq, response *rs)
{
    static const relay_ops OPS = {
        .again = true, .start = late_start, .step = late_step, .free = late_end};
    CLEANUP(buf_done) buf body = {0};
    late *l = late_of(rq);

    if (l->passes++ < (request_query(rq, "twice") ? 2 : 1)) {
        l->until = l->passes;
        response_relay(rs, &OPS, l);
        return NULL;
    }
    if (request_query(rq, "fail"))
        return err_new(ERR_CONFLICT, "not made");
    TRY(request_body(rq, 1 << 20, &body));
    response_header(rs, "X-Passes", "%u", l->passes);
    response_bytes(rs, "application/octet-stream", body.p, body.len);
    return NULL;
}

/* Hands over, then fails: the job must be freed, the error told. */
static inline err *demo_change_mind(request *rq, response *rs)
{
    TRY(demo_follow(rq, rs));
    return err_new(ERR_CONFLICT, "changed my mind");
}

/* As where somebody else connects: the server is the test, at the other end of a pair. */
static inline void gate_ask_connected(demo *d, gateway_socket *done, void *ticket)
{
    int pair[2];

    if (atomic_load(&d->connected) < 0) {
        done(ticket, err_sys(ERR_PORT_CLOSED, ECONNREFUSED, "nobody"), -1);
        return;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        abort();
    fcntl(pair[0], F_SETFL, 0);
    atomic_store(&d->connected, pair[0]);
    done(ticket, NULL, pair[1]);
}

/* A server on this machine's loopback, as if it were in a sandbox. */
static inline void gate_ask(void *arg, uint16_t port, gateway_socket *done, void *ticket)
{
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int small = atomic_load(&((demo *)arg)->send_buffer);

    (void)port;
    atomic_fetch_add(&((demo *)arg)->asks, 1);
    if (atomic_load(&((demo *)arg)->connected)) {
        close(fd);
        gate_ask_connected(arg, done, ticket);
        return;
    }
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (small)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    done(ticket, NULL, fd);
}

static inline void gate_free(void *arg)
{
    atomic_fetch_add(&((demo *)arg)->freed, 1);
}

static inline err *demo_gate(request *rq, response *rs)
{
    uint64_t port = 0;
    demo *d = request_door(rq);
    bool tunnel = str_starts(request_path(rq), "/tunnel");
    CLEANUP(freep) char *prefix = str_printf("/gate/%s", request_param(rq, 0));

    str_to_u64(request_param(rq, 0), UINT16_MAX, &port);
    return gateway_start(rq, rs,
                         &(gateway_options){.ask = gate_ask,
                                            .connected = atomic_load(&d->connected) != 0,
                                            .free = gate_free,
                                            .arg = d,
                                            .port = (uint16_t)port,
                                            .where = "the port",
                                            .tunnel = tunnel,
                                            .prefix = tunnel ? NULL : prefix,
                                            .answer_ms = 20000,
                                            .idle_ms = 20000,
                                            .patient_until = atomic_load(&d->patient_until),
                                            .waiting = &d->waiting});
}

static const route DEMO_ROUTES[] = {
    {"*", "/gate/{port}/{x*}", demo_gate, ROLE_ANYONE, "gate"},
    {"GET", "/tunnel/{port}", demo_gate, ROLE_ANYONE, "tunnel"},
    {"GET", "/hello", demo_hello, ROLE_ANYONE, "hello"},
    {"GET", "/seen/{a}", demo_seen, ROLE_ANYONE, "seen"},
    {"POST", "/seen/{a}", demo_seen, ROLE_ANYONE, "seenPost"},
    {"GET", "/rest/{x*}", demo_seen, ROLE_ANYONE, "rest"},
    {"POST", "/echo", demo_echo, ROLE_ANYONE, "echo"},
    {"POST", "/upload", demo_upload, ROLE_ANYONE, "upload"},
    {"POST", "/stuck", demo_stuck, ROLE_ANYONE, "stuck"},
    {"GET", "/slow/{x}", demo_slow, ROLE_ANYONE, "slow"},
    {"GET", "/block", demo_block, ROLE_ANYONE, "block"},
    {"GET", "/big", demo_big, ROLE_ANYONE, "big"},
    {"GET", "/fail", demo_fail, ROLE_ANYONE, "fail"},
    {"DELETE", "/nothing", demo_nothing, ROLE_ANYONE, "nothing"},
    {"GET", "/ticks", demo_ticks, ROLE_ANYONE, "ticks"},
    {"GET", "/regret", demo_regret, ROLE_ANYONE, "regret"},
    {"GET", "/steps", demo_steps, ROLE_ANYONE, "steps"},
    {"GET", "/follow", demo_follow, ROLE_ANYONE, "follow"},
    {"POST", "/late", demo_late, ROLE_ANYONE, "late"},
    {"GET", "/mind", demo_change_mind, ROLE_ANYONE, "mind"},
};

static inline err *demo_dispatch(void *arg, request *rq, response *rs)
{
    const char *party = request_header(rq, "x-party");
    const route *r;

    (void)arg;
    if (party)
        TRY(request_set_party(rq, str_eq(party, "-") ? NULL : party));
    if (request_query(rq, "key"))
        request_set_lapse(rq, request_door(rq), demo_has_lapsed, demo_lapse_freed);
    TRY(router_match(DEMO_ROUTES, ARRAY_LEN(DEMO_ROUTES), rq, rs, &r));
    return r->handle(rq, rs);
}
