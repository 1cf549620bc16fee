/* The life of a connection: parked, read, served, parked again or closed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "net/internal.h"

conn *conn_new(server *s, int fd, bool is_unix)
{
    conn *c = xcalloc(1, sizeof *c);

    c->src.kind = SOURCE_CONN;
    c->fd = fd;
    c->is_unix = is_unix;
    c->server = s;
    c->since = now_mono_ns(); /* the time limit of the first head starts here */
    pthread_mutex_lock(&s->conns_lock);
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    pthread_mutex_unlock(&s->conns_lock);
    atomic_fetch_add(&s->nconn, 1);
    atomic_fetch_add(&s->accepted, 1);
    metric_add(&NET_METRICS[M_CONNECTIONS], 0, 1);
    return c;
}

void conn_close(conn *c)
{
    server *s = c->server;

    pthread_mutex_lock(&s->conns_lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    pthread_mutex_unlock(&s->conns_lock);
    /* Remove it explicitly: a child that is just being spawned may hold a copy of the descriptor,
     * and then close() would leave the entry with its pointer in epoll. */
    if (c->in_epoll)
        epoll_ctl(s->epfd, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    if (c->again)
        request_close(c->again);
    buf_done(&c->in);
    free(c);
    metric_add(&NET_METRICS[M_CONNECTIONS], 0, -1);
    atomic_fetch_sub(&s->nconn, 1); /* last, because server_run waits for it */
}

static uint64_t deadline_of(const conn *c)
{
    const server_times *t = &c->server->times;

    if (c->lingering)
        return c->since + t->linger;
    return c->since ? c->since + t->head : now_mono_ns() + t->keep_alive;
}

/* Arms epoll. ThreadSanitizer's wrapper knows that an ADD happens before epoll_wait() returns the
 * event, but not that a MOD does, and would report the next owner's close() as a race. So MOD
 * bypasses the wrapper; `deadline` orders the two owners. */
static int conn_arm(int epfd, int op, int fd, struct epoll_event *ev)
{
    if (op == EPOLL_CTL_ADD)
        return epoll_ctl(epfd, op, fd, ev);
    return (int)syscall(SYS_epoll_ctl, epfd, op, fd, ev);
}

/* Gives a connection back to epoll. Buffered bytes must wake a worker even if the socket stays
 * silent: then being writable is the event, which answering needs anyway. */
void conn_park(conn *c)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = &c->src};
    int op = c->in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    int epfd = c->server->epfd, fd = c->fd;

    if (atomic_load(&c->server->stopping) && !c->lingering) {
        conn_close(c);
        return;
    }
    if (c->again || c->scanned < c->in.len)
        ev.events |= EPOLLOUT;
    else if (!c->in.len)
        buf_done(&c->in); /* thousands may be parked */
    c->in_epoll = true;
    atomic_store(&c->parked, c->since ? c->since : now_mono_ns());
    atomic_store(&c->deadline, deadline_of(c));
    /* From here on the connection belongs to the worker that epoll wakes, unless arming fails. */
    if (conn_arm(epfd, op, fd, &ev)) { /* out of memory or of watches */
        c->in_epoll = op == EPOLL_CTL_MOD;
        conn_close(c);
    }
}

/* Lingers: closing with unread bytes would reset the connection, and the peer might lose the
 * answer. */
static void conn_linger(conn *c)
{
    c->lingering = true;
    c->since = now_mono_ns();
    c->discarded = 0;
    buf_done(&c->in);
    c->scanned = 0;
    if (shutdown(c->fd, SHUT_WR))
        conn_close(c);
    else
        conn_park(c);
}

static void linger_read(conn *c)
{
    char scratch[NET_READ];

    for (int i = 0; i < 8; i++) {
        ssize_t n = recv(c->fd, scratch, sizeof scratch, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0 || (c->discarded += (size_t)n) > NET_LINGER) {
            conn_close(c);
            return;
        }
    }
    conn_park(c);
}

void conn_finish(conn *c)
{
    char one;

    if (c->in.len || recv(c->fd, &one, 1, MSG_DONTWAIT | MSG_PEEK) > 0)
        conn_linger(c);
    else
        conn_close(c);
}

ssize_t conn_fill(conn *c)
{
    char tmp[NET_READ];
    ssize_t n;

    do
        n = recv(c->fd, tmp, sizeof tmp, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    buf_append(&c->in, tmp, (size_t)n);
    return n;
}

/* ---- one request ---- */

static access_answer answer_of(const request *rq)
{
    return (access_answer){.door = rq->door,
                           .operation = rq->operation,
                           .operation_name = server_operation(rq->server, rq->operation),
                           .begun = rq->begun};
}

static void tell_thread(const request *rq)
{
    metric_observe_ns(&NET_METRICS[M_THREAD_SECONDS], 0, now_mono_ns() - rq->taken_up);
}

static void conn_tell(const request *rq, int status)
{
    access_answer a = answer_of(rq);

    a.status = status;
    access_answered(&a);
    tell_thread(rq);
}

static size_t send_some(conn *c, const buf *out)
{
    ssize_t n;

    do
        n = send(c->fd, out->p, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n > 0 ? (size_t)n : 0; /* the relay meets the error again */
}

/* Sends an answer. Bytes that the socket does not take at once go to the relay: no thread waits for
 * a slow peer. */
static bool answer_bytes(request *rq, const response *rs, bool keep, bool settled)
{
    CLEANUP(buf_done) buf out = {0};
    conn *c = rq->conn;

    response_render(rs, rq, keep, &out);
    conn_tell(rq, rs->status ? rs->status : 204);
    size_t sent = send_some(c, &out);
    net_count_bytes(M_SENT, rq->door, STREAM_ANSWER, sent);
    if (sent < out.len) {
        buf_consume(&out, sent);
        relay_start j = {.conn = c,
                         .keep_alive = keep,
                         .discard = !settled,
                         .counted = true,
                         .answer = answer_of(rq),
                         .party = rq->party,
                         .out = out};
        out = (buf){0};
        relay_add(c->server->relay, &j);
        return false;
    }
    if (!keep && settled)
        conn_finish(c);
    else if (!keep)
        conn_linger(c);
    return keep;
}

static void refuse_relay(response *rs)
{
    CLEANUP(err_freep)
    err *e = err_new(ERR_QUOTA_EXCEEDED, "too many of your connections wait for something");

    metric_add(&NET_METRICS[M_REFUSED], 0, 1);
    e = err_retry_after(e, NET_RETRY_AFTER);
    response_error(rs, e); /* frees the job as well */
}

/* Parks the request in the relay; it is dispatched again from the start when the job returns
 * RELAY_AGAIN. */
static void set_aside(request *rq, response *rs)
{
    CLEANUP(freep) char *party = rq->party;
    relay_start j = {.conn = rq->conn,
                     .ops = TAKE_PTR(rs->ops),
                     .ctx = TAKE_PTR(rs->ctx),
                     .answer = answer_of(rq),
                     .party = party,
                     .request = rq,
                     .lapse = request_take_lapse(rq)};

    tell_thread(rq);
    request_rest(rq);
    rq->party = xstrdup("");
    relay_add(rq->server->relay, &j);
}

/* Hands the connection to the relay, which writes the rest of the answer. */
static void hand_over(request *rq, response *rs, bool keep, bool settled)
{
    relay_start j = {.conn = rq->conn,
                     .ops = TAKE_PTR(rs->ops),
                     .ctx = TAKE_PTR(rs->ctx),
                     .keep_alive = keep,
                     .http11 = rq->h1.http11,
                     .head_only = request_is_head(rq),
                     .discard = !settled,
                     .answer = answer_of(rq),
                     .party = rq->party,
                     .lapse = request_take_lapse(rq)};

    tell_thread(rq);
    relay_add(rq->server->relay, &j);
}

/* Answers and frees the request. Returns true if this worker still owns the connection, to serve
 * its next request. */
static bool conn_answer(request *rq, response *rs)
{
    bool refused = rs->ops && !party_take_relay(rq->server, rq->party), ours = false;

    if (refused)
        refuse_relay(rs);
    if (rs->ops && rs->ops->again) {
        set_aside(rq, rs);
        return false;
    }
    bool settled = request_settle(rq);
    if (refused)
        settled &= !rq->taken; /* no job reads the body now */
    bool keep = settled && rq->h1.keep_alive && !atomic_load(&rq->server->draining);
    if (rs->ops)
        hand_over(rq, rs, keep, settled);
    else
        ours = answer_bytes(rq, rs, keep, settled);
    request_close(rq);
    return ours;
}

/* Returns an error for a request that is not dispatched, in the form of its door. */
static err *net_conn_refuse(request *rq, response *rs, err *why)
{
    const server *s = rq->server;

    if (s->o.form)
        s->o.form(s->o.arg, rq, rs);
    return err_retry_after(why, NET_RETRY_AFTER);
}

static err *conn_dispatch(request *rq, response *rs, bool *ret_admitted)
{
    server *s = rq->server;

    if (atomic_load(&s->draining))
        return net_conn_refuse(rq, rs, err_new(ERR_DRAINING, "bothyd is being stopped"));
    *ret_admitted = server_admit(s);
    if (!*ret_admitted) {
        metric_add(&NET_METRICS[M_REFUSED], 0, 1);
        return net_conn_refuse(
            rq, rs, err_new(ERR_UNAVAILABLE, "all %u request threads are busy", s->o.threads));
    }
    return s->o.dispatch(s->o.arg, rq, rs);
}

/* Moves a complete head from the buffer to the request. */
static void take_head(conn *c, request *rq)
{
    if (c->scanned == c->in.len) {
        rq->head = c->in;
        c->in = (buf){0};
    } else {
        buf_append(&rq->head, c->in.p, c->scanned);
        buf_consume(&c->in, c->scanned);
    }
    c->scanned = 0;
    c->since = 0;
    c->guard = (http1_guard){0};
}

static request *new_request(conn *c)
{
    request *rq = xcalloc(1, sizeof *rq);

    rq->conn = c;
    rq->server = c->server;
    rq->begun = now_mono_ns();
    rq->party = xstrdup(""); /* not identified yet */
    return rq;
}

/* Serves a request. failure: why its head is invalid, or NULL; takes ownership. */
static bool net_conn_serve(request *rq, err *failure)
{
    server *s = rq->server;
    response rs = {.id = rq->id};
    bool admitted = false;

    access_forget();
    log_id(LOG_REQUEST, rq->id);
    rq->taken_up = now_mono_ns();
    err *e = failure ? failure : conn_dispatch(rq, &rs, &admitted);
    if (e)
        response_error(&rs, e);
    err_free(e);
    bool ours = conn_answer(rq, &rs);
    response_done(&rs);
    log_ids_clear();
    if (admitted)
        server_release(s);
    return ours;
}

static bool conn_serve(conn *c)
{
    request *rq = new_request(c);

    take_head(c, rq);
    err *e = http1_parse(rq->head.p, rq->head.len, &rq->h1);
    if (e) { /* do not use headers of an invalid head */
        rq->h1.nheader = 0;
        rq->broken = true;
    }
    request_set_id(rq);
    return net_conn_serve(rq, e ? e : request_open(rq));
}

/* Answers a head that the guard refuses; the connection then closes. */
static void conn_refuse(conn *c)
{
    request *rq = new_request(c);

    rq->broken = true;
    request_set_id(rq);
    net_conn_serve(rq, http1_guard_err(&c->guard));
}

/* Scans the buffer for the next head. Returns true if the caller is to call it again. */
static bool conn_next(conn *c)
{
    size_t used;
    enum http1_result r =
        http1_guard_feed(&c->guard, c->in.p + c->scanned, c->in.len - c->scanned, &used);

    c->scanned += used;
    if (r == HTTP1_DONE)
        return conn_serve(c);
    if (r == HTTP1_BAD) {
        conn_refuse(c);
        return false;
    }
    if (c->in.len && !c->since)
        c->since = now_mono_ns();
    conn_park(c);
    return false;
}

void conn_event(conn *c)
{
    /* Pairs with the store in conn_park(): makes all writes of the last owner visible. */
    atomic_exchange(&c->deadline, 0);
    if (c->lingering) {
        linger_read(c);
        return;
    }
    if (c->again) {
        if (!net_conn_serve(TAKE_PTR(c->again), NULL))
            return;
    } else if (c->scanned == c->in.len) {
        ssize_t n = conn_fill(c);
        if (n == -EAGAIN) {
            conn_park(c);
            return;
        }
        if (n <= 0) {
            conn_close(c);
            return;
        }
    }
    while (conn_next(c))
        continue;
}
