#include "net/gateway.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/internal.h"
#include "wire/gateway.h"

#define UP_MAX      (32 * 1024) /* bytes held for the server; beyond it the caller is not read */
#define STEP_BYTES  (64 * 1024) /* of the answer, per step */
#define CONNECT_NS  (10 * NS_PER_S)
#define AGAIN_NS    (100 * NS_PER_MS) /* before the first retry; then twice as long each time */
#define AGAIN_MAX   NS_PER_S
#define HALF_NS     (60 * NS_PER_S) /* without a byte of the caller, after the server's end */
#define INTERIM_MAX 8               /* 1xx answers before the final one */

enum stage {
    STAGE_ASK,     /* waits for a socket */
    STAGE_CONNECT, /* waits for its connection */
    STAGE_LATER,   /* was refused; will be retried */
    STAGE_HEAD,    /* waits for the head of the answer */
    STAGE_BODY,
    STAGE_RAW, /* bytes, both ways */
    STAGES
};

typedef struct stream {
    _Atomic int refs; /* one of the relay, one of each pending socket request */
    pthread_mutex_t lock;
    relay_job *waiting; /* under the lock: the job to wake; NULL: it has ended */
    bool arrived;
    int arrived_fd;
    err *arrived_failure;
    /* lane thread only from here on */
    relay_job *job;
    gateway_options o;
    const error_form *form;
    enum stage stage;
    bool second_try; /* ::1 */
    int refused;     /* errno of a connect that failed at once */
    uint64_t again;  /* ns before the next retry; 0: was never refused, so not counted as waiting */
    int fd;
    uint64_t touched; /* time of the last byte, or the start of the stage */
    err *failure;     /* invalid request body: the caller's fault */

    buf up; /* bytes for the server, not sent yet */
    size_t up_sent;
    buf early;      /* bytes after a request with an upgrade, held until it is granted */
    bool up_broken; /* the server takes no more bytes */
    bool up_shut;
    http1_framing request;

    http1_guard guard;
    buf head;
    unsigned interim;
    http1_framing answer;
    enum gateway_framing framing;
    bool head_sent, keep, down_ended, down_shut;

    bool is_head, expects;
    gateway_rules rules; /* its strings are below */
    char *prefix, *target, *host, *caller, *upgrade, *outer_host, *where;
    char id[NET_ID_MAX + 1];
    request_hold *hold;
} stream;

static void stream_unref(stream *s)
{
    if (atomic_fetch_sub(&s->refs, 1) > 1)
        return;
    if (s->o.free)
        s->o.free(s->o.arg);
    err_free(s->arrived_failure);
    err_free(s->failure);
    closep(&s->arrived_fd);
    buf_done(&s->up);
    buf_done(&s->early);
    buf_done(&s->head);
    free(s->prefix);
    free(s->target);
    free(s->host);
    free(s->caller);
    free(s->upgrade);
    free(s->outer_host);
    free(s->where);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- the connection inside ---- */

static void socket_came(void *ticket, err *failure, int fd)
{
    stream *s = ticket;

    pthread_mutex_lock(&s->lock);
    closep(&s->arrived_fd);
    s->arrived_failure = failure;
    s->arrived_fd = fd;
    s->arrived = true;
    if (s->waiting)
        relay_wake(s->waiting);
    pthread_mutex_unlock(&s->lock);
    stream_unref(s);
}

static void ask_socket(stream *s)
{
    s->stage = STAGE_ASK;
    atomic_fetch_add(&s->refs, 1);
    s->o.ask(s->o.arg, s->o.port, socket_came, s);
}

static int start_connect(const stream *s)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(s->o.port)};
    struct sockaddr_in old = {.sin_family = AF_INET,
                              .sin_port = htons(s->o.port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, family = 0;
    socklen_t n = sizeof family;

    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    getsockopt(s->fd, SOL_SOCKET, SO_DOMAIN, &family, &n);
    inet_pton(AF_INET6, s->second_try ? "::1" : "::ffff:127.0.0.1", &a.sin6_addr);
    bool v4 = family == AF_INET; /* a kernel without IPv6 */
    if (v4 && s->second_try)
        return ECONNREFUSED;
    const void *to = v4 ? (void *)&old : (void *)&a;
    return connect(s->fd, to, v4 ? sizeof old : sizeof a) && errno != EINPROGRESS ? errno : 0;
}

/* Returns 0 if connected, EINPROGRESS, or why the connect failed. */
static int connect_result(const stream *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    int failed = 0;
    socklen_t n = sizeof failed;

    if (s->refused || s->o.connected)
        return s->refused;
    if (poll(&p, 1, 0) == 0)
        return EINPROGRESS;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &failed, &n);
    return failed;
}

static void close_inner(stream *s)
{
    if (s->fd < 0)
        return;
    relay_unwatch(s->job);
    close(s->fd);
    s->fd = -1;
}

/* ---- errors ---- */

static err *port_closed(const stream *s, const char *why)
{
    return err_because(err_new(ERR_PORT_CLOSED, "%s does not answer", s->where), "%s", why);
}

static err *nothing_listens(const stream *s, int errnum)
{
    err *e = err_new(ERR_PORT_CLOSED, "nothing listens on %s", s->where);

    e = err_because(e, "127.0.0.1 and ::1 inside: %s", strerrordesc_np(errnum));
    return err_remedy(e, "Start a server in the sandbox that listens on this port, on 127.0.0.1 or "
                         "on all addresses, and try again.");
}

static err *took_too_long(const stream *s)
{
    if (s->stage < STAGE_HEAD)
        return port_closed(s, "no connection could be made within 10 s");
    return err_remedy(err_new(ERR_TIMEOUT, "%s has not answered within %llu s", s->where,
                              (unsigned long long)(s->o.answer_ms / 1000)),
                      "Let the server begin its answer earlier, or raise ports.answer_wait.");
}

/* Fails the request. The error is the answer if nothing of the server's was sent yet; otherwise the
 * connection is closed without a proper end. Takes ownership of the error. */
static enum relay_next gateway_fail(stream *s, relay_io *io, err *e)
{
    CLEANUP(err_freep) err *failure = e;
    bool keep = io->keep_alive && http1_body_ended(&s->request) && !s->early.len;

    if (s->head_sent)
        return RELAY_CLOSE;
    http_error_answer_as(io->out, s->form, failure, keep, s->id);
    return keep ? RELAY_DONE : RELAY_CLOSE;
}

/* ---- to the server ---- */

static size_t up_pending(const stream *s)
{
    return s->up.len - s->up_sent;
}

static void gateway_touch(stream *s)
{
    s->touched = now_mono_ns();
}

static void flush_up(stream *s)
{
    while (s->stage >= STAGE_HEAD && up_pending(s) && !s->up_broken) {
        ssize_t n = send(s->fd, s->up.p + s->up_sent, up_pending(s), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            buf_consume(&s->up, s->up_sent); /* while both sides are busy `up` may never be empty */
            s->up_sent = 0;
            return;
        }
        if (n < 0) {
            s->up_broken = true; /* its answer may have come already */
            break;
        }
        s->up_sent += (size_t)n;
        gateway_touch(s);
    }
    if (s->stage >= STAGE_HEAD) {
        buf_done(&s->up); /* many streams wait: free their buffers */
        s->up_sent = 0;
    }
}

/* Returns true if no more bytes are to be read from the caller now. */
static bool is_full(const stream *s)
{
    if (s->stage == STAGE_RAW)
        return up_pending(s) >= UP_MAX;
    if (s->o.tunnel || s->upgrade)
        return s->early.len >= UP_MAX;
    return http1_body_ended(&s->request) || s->up_broken || s->failure || up_pending(s) >= UP_MAX;
}

static void take_body(stream *s, const char *p, size_t n)
{
    CLEANUP(freep) char *decoded = xmalloc(n);
    size_t used = 0, got = 0;

    s->failure = http1_body(&s->request, p, n, decoded, &used, &got);
    if (s->failure)
        return;
    if (s->request.chunked && got)
        http1_write_chunk(&s->up, decoded, got);
    else
        buf_append(&s->up, decoded, got);
    bool ended = http1_body_ended(&s->request);
    if (ended && s->request.chunked)
        http1_write_chunk(&s->up, NULL, 0);
    assert(ended || used == n);
    relay_unread(s->job, p + used, n - used);
}

static bool on_input(void *ctx, const void *p, size_t n)
{
    stream *s = ctx;

    gateway_touch(s);
    if (s->stage == STAGE_RAW)
        buf_append(&s->up, p, n);
    else if (s->o.tunnel || s->upgrade)
        buf_append(&s->early, p, n);
    else if (http1_body_ended(&s->request))
        relay_unread(s->job, p, n);
    else if (!s->failure)
        take_body(s, p, n);
    flush_up(s);
    return !is_full(s);
}

static bool on_second(void *ctx)
{
    stream *s = ctx;

    if (s->stage >= STAGE_HEAD)
        flush_up(s);
    return !is_full(s);
}

/* ---- from the server ---- */

static void put_body(stream *s, relay_io *io, const char *p, size_t n)
{
    if (s->framing == GATEWAY_CHUNKED && n)
        http_chunk(io->out, p, n);
    else
        buf_append(io->out, p, n);
}

static enum relay_next body_done(stream *s, relay_io *io)
{
    if (s->framing == GATEWAY_CHUNKED)
        http_chunk(io->out, NULL, 0);
    return s->keep ? RELAY_DONE : RELAY_CLOSE;
}

/* Handles bytes of an answer's body. */
static enum relay_next take_answer(stream *s, relay_io *io, const char *p, size_t n)
{
    CLEANUP(freep) char *decoded = xmalloc(n + 1);
    size_t used = 0, got = 0;

    if (n && !http1_body_ended(&s->answer)) {
        err *e = http1_body(&s->answer, p, n, decoded, &used, &got);
        if (e)
            return gateway_fail(s, io, e);
        put_body(s, io, decoded, got);
    }
    return http1_body_ended(&s->answer) ? body_done(s, io) : RELAY_MORE;
}

static enum gateway_framing framing_of(const http1_answer *a, bool to_head, bool http11)
{
    if (to_head || a->status == 204 || a->status == 304)
        return GATEWAY_NO_BODY;
    if (!a->body.chunked && !a->body.to_end)
        return GATEWAY_LENGTH;
    return http11 ? GATEWAY_CHUNKED : GATEWAY_TO_END;
}

static void begin_raw(stream *s)
{
    s->head_sent = true;
    s->stage = STAGE_RAW;
    buf_append(&s->up, s->early.p, s->early.len);
    buf_done(&s->early);
    buf_done(&s->head);
    flush_up(s);
}

static enum relay_next switch_protocol(stream *s, relay_io *io, const http1_answer *a,
                                       const char *rest, size_t n)
{
    const char *to = http1_header_get(a, "upgrade");

    if (!s->upgrade || !to)
        return gateway_fail(s, io,
                            port_closed(s, "it switched to a protocol nobody had asked for"));
    gateway_write_answer(io->out, a, &s->rules, s->outer_host, GATEWAY_SWITCHED, true);
    buf_append(io->out, rest, n);
    begin_raw(s);
    return RELAY_MORE;
}

/* Handles a complete head; `rest` is the bytes after it. */
static enum relay_next take_head(stream *s, relay_io *io, const char *rest, size_t n)
{
    CLEANUP(freep) http1_answer *a = xcalloc(1, sizeof *a);
    err *e = http1_parse_answer(s->head.p, s->head.len, s->is_head, a);

    if (e)
        return gateway_fail(s, io, err_wrap(e, "%s", s->where));
    if (a->status == 101)
        return switch_protocol(s, io, a, rest, n);
    s->framing = framing_of(a, s->is_head, io->http11);
    s->keep = io->keep_alive && http1_body_ended(&s->request) && !s->early.len &&
              s->framing != GATEWAY_TO_END;
    gateway_write_answer(io->out, a, &s->rules, s->outer_host, s->framing, s->keep);
    s->head_sent = true;
    s->stage = STAGE_BODY;
    s->rules.upgrade = NULL; /* not granted: the caller's next bytes are its next request */
    free(TAKE_PTR(s->upgrade));
    http1_framing_move(&a->body, &s->answer);
    buf_done(&s->head);
    return take_answer(s, io, rest, n);
}

/* Returns true for an answer of 100 to 199 except 101; these are not passed on. */
static bool is_interim(const stream *s)
{
    const char *p = s->head.p;

    return s->head.len > 12 && p[9] == '1' && memcmp(p + 9, "101", 3) != 0;
}

/* Handles bytes of an answer's head, and bytes after it. */
static enum relay_next feed_head(stream *s, relay_io *io, const char *p, size_t n)
{
    while (n) {
        size_t used = 0;
        enum http1_result r = http1_guard_feed(&s->guard, p, n, &used);
        buf_append(&s->head, p, used);
        p += used;
        n -= used;
        if (r == HTTP1_BAD)
            return gateway_fail(s, io, err_wrap(http1_guard_err(&s->guard), "%s", s->where));
        if (r == HTTP1_DONE && !is_interim(s))
            return take_head(s, io, p, n);
        if (r == HTTP1_DONE) {
            if (++s->interim > INTERIM_MAX)
                return gateway_fail(s, io, port_closed(s, "it sends interim answers without end"));
            s->guard = (http1_guard){.answer = true};
            buf_clear(&s->head);
        }
    }
    return RELAY_MORE;
}

/* Handles the end of the server's side, or its failure (errnum). */
static enum relay_next inner_end(stream *s, relay_io *io, int errnum)
{
    if (s->stage == STAGE_HEAD)
        return gateway_fail(
            s, io,
            port_closed(s, errnum ? strerrordesc_np(errnum)
                                  : "the server ended the connection without an answer"));
    if (s->stage == STAGE_BODY && s->answer.to_end && !errnum)
        return body_done(s, io);
    s->down_ended = true;
    return s->stage == STAGE_RAW && !errnum ? RELAY_MORE : RELAY_CLOSE;
}

/* ---- steps, by stage: called when the caller has taken everything ---- */

/* Ends the waiting for a server that starts. */
static void wait_over(stream *s)
{
    if (s->again && s->o.waiting)
        atomic_fetch_sub(s->o.waiting, 1);
    s->again = 0;
}

/* Sets when to try again. Returns false if the request may not wait: its time is over, or too many
 * wait for this sandbox. */
static bool wait_longer(stream *s, uint64_t now)
{
    if (now >= s->o.patient_until)
        return false;
    if (s->again) {
        s->again = s->again * 2 < AGAIN_MAX ? s->again * 2 : AGAIN_MAX;
        return true;
    }
    if (s->o.waiting && atomic_fetch_add(s->o.waiting, 1) >= GATEWAY_WAITING_MAX) {
        atomic_fetch_sub(s->o.waiting, 1);
        return false;
    }
    s->again = AGAIN_NS;
    return true;
}

/* Handles a refused connection: an error, or, while a server may still be starting, a retry. */
static enum relay_next gateway_refused(stream *s, relay_io *io, int errnum)
{
    if (!wait_longer(s, io->now))
        return gateway_fail(s, io, nothing_listens(s, errnum));
    s->second_try = false;
    s->stage = STAGE_LATER;
    gateway_touch(s);
    return RELAY_WAIT;
}

static enum relay_next step_later(stream *s, relay_io *io)
{
    if (io->now < s->touched + s->again)
        return RELAY_WAIT;
    gateway_touch(s);
    ask_socket(s);
    return RELAY_WAIT;
}

static enum relay_next step_ask(stream *s, relay_io *io)
{
    CLEANUP(err_freep) err *failure = NULL;
    bool arrived;

    {
        LOCK_SCOPE(&s->lock);
        arrived = s->arrived;
        s->arrived = false;
        failure = TAKE_PTR(s->arrived_failure);
        s->fd = TAKE_FD(s->arrived_fd);
    }
    if (!arrived)
        return RELAY_WAIT;
    if (failure && s->o.connected && failure->code == ERR_PORT_CLOSED)
        return gateway_refused(s, io, failure->errnum);
    if (failure)
        return gateway_fail(s, io, TAKE_PTR(failure));
    s->refused = s->o.connected ? 0 : start_connect(s);
    if (!relay_watch(s->job, s->fd))
        return gateway_fail(s, io,
                            err_new(ERR_UNAVAILABLE, "the node has no room for one more stream"));
    s->stage = STAGE_CONNECT;
    gateway_touch(s);
    return RELAY_MORE;
}

static void write_tunnel_head(const stream *s, relay_io *io)
{
    http1_write_status(io->out, 101);
    http1_write_header(io->out, "Upgrade", "tcp");
    http1_write_header(io->out, "Connection", "Upgrade");
    http1_write_header(io->out, "X-Request-Id", s->id);
    buf_append(io->out, "\r\n", 2);
}

static enum relay_next gateway_connected(stream *s, relay_io *io)
{
    gateway_touch(s);
    wait_over(s);
    if (s->o.tunnel) {
        write_tunnel_head(s, io);
        begin_raw(s);
        return RELAY_MORE;
    }
    s->stage = STAGE_HEAD;
    if (s->expects && !s->is_head && !http1_body_ended(&s->request))
        buf_str(io->out, "HTTP/1.1 100 Continue\r\n\r\n");
    flush_up(s);
    return RELAY_MORE;
}

static enum relay_next step_connect(stream *s, relay_io *io)
{
    int errnum = connect_result(s);

    if (errnum == EINPROGRESS)
        return RELAY_WAIT;
    if (!errnum)
        return gateway_connected(s, io);
    close_inner(s);
    if (s->second_try)
        return gateway_refused(s, io, errnum);
    /* Use another socket: one that was refused over IPv4 cannot be used for IPv6. */
    s->second_try = true;
    ask_socket(s);
    return RELAY_WAIT;
}

static enum relay_next gateway_take(stream *s, relay_io *io, const char *p, size_t n)
{
    if (s->stage == STAGE_HEAD)
        return feed_head(s, io, p, n);
    if (s->stage == STAGE_BODY)
        return take_answer(s, io, p, n);
    buf_append(io->out, p, n);
    return RELAY_MORE;
}

/* Returns 0 at a proper end of the server's bytes, or an errno if they were cut off. A socket whose
 * own side was ended as well hangs up in any case. */
static int end_error(const stream *s)
{
    struct pollfd p = {.fd = s->fd};

    if (!s->o.connected || s->up_shut || poll(&p, 1, 0) != 1)
        return 0;
    return p.revents & POLLHUP ? ECONNRESET : 0;
}

/* Reads until no bytes are left, or enough for one step. */
static enum relay_next step_read(stream *s, relay_io *io)
{
    char p[NET_READ];

    while (io->out->len < STEP_BYTES && !s->down_ended) {
        ssize_t n = recv(s->fd, p, sizeof p, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return RELAY_WAIT;
        if (n > 0)
            gateway_touch(s);
        enum relay_next next =
            n > 0 ? gateway_take(s, io, p, (size_t)n) : inner_end(s, io, n ? errno : end_error(s));
        if (next != RELAY_MORE)
            return next;
    }
    return s->down_ended ? RELAY_WAIT : RELAY_MORE;
}

static enum relay_next step_http(stream *s, relay_io *io)
{
    if (s->failure)
        return gateway_fail(s, io, TAKE_PTR(s->failure));
    return step_read(s, io);
}

static enum relay_next step_raw(stream *s, relay_io *io)
{
    enum relay_next next = step_read(s, io);

    if (io->ended && !up_pending(s) && !s->up_shut) {
        s->up_shut = true;
        shutdown(s->fd, SHUT_WR);
    }
    if (next == RELAY_CLOSE || (io->gone && io->ended && !up_pending(s)))
        return RELAY_CLOSE;
    if (!s->down_ended || io->out->len)
        return s->down_ended ? RELAY_MORE : next;
    if (s->up_shut || s->up_broken)
        return RELAY_CLOSE;
    if (!s->down_shut)
        relay_shut(s->job);
    s->down_shut = true;
    return RELAY_WAIT;
}

static uint64_t limit_of(const stream *s)
{
    if (s->stage == STAGE_LATER)
        return s->again;
    if (s->stage < STAGE_HEAD)
        return CONNECT_NS;
    if (s->stage == STAGE_HEAD)
        return s->o.answer_ms * NS_PER_MS;
    return s->down_ended ? HALF_NS : s->o.idle_ms * NS_PER_MS;
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    static enum relay_next (*const STEPS[STAGES])(stream *, relay_io *) = {
        [STAGE_ASK] = step_ask,   [STAGE_CONNECT] = step_connect, [STAGE_LATER] = step_later,
        [STAGE_HEAD] = step_http, [STAGE_BODY] = step_http,       [STAGE_RAW] = step_raw,
    };
    stream *s = ctx;

    bool left = s->o.tunnel ? io->gone : io->ending;
    if (io->stalled || (left && s->stage != STAGE_RAW))
        return RELAY_CLOSE; /* the caller is gone: no one to answer */
    flush_up(s);
    enum relay_next next = STEPS[s->stage](s, io);
    io->full = is_full(s);
    if (next == RELAY_WAIT && !io->out->len && io->now >= s->touched + limit_of(s))
        return gateway_fail(s, io, took_too_long(s));
    io->wake_at = s->touched + limit_of(s);
    return next;
}

/* ---- life ---- */

static void on_start(void *ctx, relay_job *job)
{
    stream *s = ctx;

    s->job = job;
    {
        LOCK_SCOPE(&s->lock);
        s->waiting = job;
    }
    gateway_touch(s);
    ask_socket(s);
}

static void on_free(void *ctx)
{
    stream *s = ctx;

    {
        LOCK_SCOPE(&s->lock);
        s->waiting = NULL;
    }
    wait_over(s);
    close_inner(s);
    request_hold_free(s->hold);
    stream_unref(s);
}

static const relay_ops GATEWAY_OPS = {
    .kind = STREAM_PORT,
    .start = on_start,
    .step = on_step,
    .input = on_input,
    .second = on_second,
    .both_ways = true,
    .free = on_free,
};

static char *caller_address(const request *rq)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char text[INET6_ADDRSTRLEN] = "";

    if (request_is_unix(rq) || getpeername(request_socket(rq), (struct sockaddr *)&a, &n))
        return NULL;
    const void *in = a.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&a)->sin6_addr
                                             : (void *)&((struct sockaddr_in *)&a)->sin_addr;
    return inet_ntop(a.ss_family, in, text, sizeof text) ? xstrdup(text) : NULL;
}

static char *gateway_copy(const char *text)
{
    return text ? xstrdup(text) : NULL;
}

/* Fills the rules. In the path form the prefix is cut off; the route guarantees that the rest
 * begins with a slash. */
static void set_rules(stream *s, const request *rq)
{
    const char *target = rq->h1.target + (s->prefix ? strlen(s->prefix) : 0);

    s->target = xstrdup(target);
    s->host =
        s->prefix || !rq->h1.host ? str_printf("localhost:%u", s->o.port) : xstrdup(rq->h1.host);
    s->outer_host = gateway_copy(rq->h1.host);
    s->caller = caller_address(rq);
    s->upgrade = gateway_copy(gateway_upgrade(&rq->h1));
    s->rules = (gateway_rules){.prefix = s->prefix,
                               .target = s->target,
                               .host = s->host,
                               .caller = s->caller,
                               .id = s->id,
                               .upgrade = s->upgrade};
}

static stream *stream_new(request *rq, const gateway_options *o, request_hold *hold)
{
    stream *s = xcalloc(1, sizeof *s);

    s->refs = 1;
    pthread_mutex_init(&s->lock, NULL);
    s->fd = s->arrived_fd = -1;
    s->o = *o;
    s->hold = hold;
    s->guard.answer = true;
    s->where = xstrdup(o->where);
    s->prefix = gateway_copy(o->prefix);
    s->is_head = request_is_head(rq);
    memcpy(s->id, rq->id, sizeof s->id);
    return s;
}

err *gateway_start(request *rq, response *rs, const gateway_options *o)
{
    request_hold *hold = NULL;
    err *e = request_hold_new(rq, UP_MAX, &hold);

    if (e) {
        o->free(o->arg);
        return e;
    }
    stream *s = stream_new(rq, o, hold);
    s->form = response_form(rs);
    if (!o->tunnel) {
        set_rules(s, rq);
        gateway_write_request(&s->up, &rq->h1, &s->rules);
    }
    request_body_take(rq, &s->request, &s->expects);
    response_relay(rs, &GATEWAY_OPS, s);
    return NULL;
}
