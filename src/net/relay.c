/* Connections that only wait or move bytes. A lane is a thread with an epoll, a queue of woken jobs
 * and a heap of timers; a job stays on its lane for life. The lane's lock guards only the queue and
 * is never held while a job's functions run. */
#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/relay_internal.h"

#define LANE_EVENTS 128
#define LANE_QUEUE  256      /* woken jobs between two calls of epoll */
#define JOB_STEPS   8        /* in a row, then other jobs have a turn */
#define JOB_KEEP    512      /* capacity kept of an empty buffer: thousands of jobs may wait */
#define ANSWER_NS   NS_PER_S /* on shutdown: time for requests whose response has not begun */

/* ---- the queue ---- */

static void signal_lane(lane *l)
{
    eventfd_write(l->evfd, 1);
}

/* Queues a job. Returns true if the lane must be signalled: no one has done it yet. Lock held. */
static bool relay_enqueue(lane *l, relay_job *j)
{
    if (j->queued)
        return false;
    j->queued = true;
    j->queue_prev = l->last;
    j->queue_next = NULL;
    if (l->last)
        l->last->queue_next = j;
    else
        l->first = j;
    l->last = j;
    bool first = !l->signalled;
    l->signalled = true;
    return first;
}

static void relay_unqueue(lane *l, relay_job *j)
{
    if (!j->queued)
        return;
    j->queued = false;
    if (j->queue_prev)
        j->queue_prev->queue_next = j->queue_next;
    else
        l->first = j->queue_next;
    if (j->queue_next)
        j->queue_next->queue_prev = j->queue_prev;
    else
        l->last = j->queue_prev;
}

void relay_wake(relay_job *j)
{
    lane *l = j->lane;

    pthread_mutex_lock(&l->lock);
    bool tell = relay_enqueue(l, j);
    pthread_mutex_unlock(&l->lock);
    /* The job may be freed by now; the lane is not. */
    if (tell)
        signal_lane(l);
}

static relay_job *relay_dequeue(lane *l)
{
    LOCK_SCOPE(&l->lock);
    relay_job *j = l->first;
    if (j)
        relay_unqueue(l, j);
    return j;
}

/* ---- a job ---- */

/* Charges the tenant for output that the peer has not taken. Returns false if that exceeds its
 * limit. */
static bool job_hold(relay_job *j)
{
    uint64_t more = j->out.cap > j->held ? j->out.cap - j->held : 0;

    if (more && !party_take(j->lane->relay->server, j->party, more, 0)) {
        metric_add(&NET_METRICS[M_REFUSED], 0, 1);
        return false;
    }
    j->held += more;
    return true;
}

static void job_release(relay_job *j)
{
    party_give(j->lane->relay->server, j->party, j->held, 0);
    j->held = 0;
}

static void job_free(relay_job *j)
{
    if (j->request)
        request_close(j->request);
    lapse_done(&j->lapse);
    free(j->party);
    buf_done(&j->out);
    free(j);
}

static void job_unlink(relay_job *j)
{
    lane *l = j->lane;

    relay_timer_clear(j);
    if (j->prev)
        j->prev->following = j->following;
    else
        l->jobs = j->following;
    if (j->following)
        j->following->prev = j->prev;
    if (j->lapse.lapsed)
        l->nlapses--;
    epoll_ctl(l->epfd, EPOLL_CTL_DEL, j->conn->fd, NULL);
    assert(j->second < 0);
}

enum job_fate {
    FATE_REUSE, /* the connection serves its next request */
    FATE_AGAIN, /* the connection serves this request again */
    FATE_FINISH,
    FATE_CUT, /* the peer has gone, or is cut off */
};

static void job_count(const relay_job *j, int by)
{
    metric_add(&NET_METRICS[M_RELAYS], 0, by);
    metric_add(&NET_METRICS[M_STREAMS], j->kind, by);
    atomic_fetch_add(&j->lane->relay->server->nrelay, (unsigned)by);
}

/* Returns everything charged to the job's tenant. */
static void job_settle(relay_job *j)
{
    job_release(j);
    if (j->ops)
        party_give_relay(j->lane->relay->server, j->party);
}

/* Ends a job. Calls ops->free() first: after it no other thread may wake the job, so it cannot be
 * queued again. */
static void job_end(relay_job *j, enum job_fate fate)
{
    lane *l = j->lane;
    conn *c = j->conn;

    if (j->ops && j->ops->free)
        j->ops->free(j->ctx);
    job_unlink(j);
    pthread_mutex_lock(&l->lock);
    relay_unqueue(l, j);
    pthread_mutex_unlock(&l->lock);
    log_debug("relay", "%s", fate == FATE_CUT ? "cut" : "done");
    bool discard = j->discard;
    job_settle(j);
    j->over = true;
    j->following = l->over;
    l->over = j;
    job_count(j, -1);
    if (fate == FATE_AGAIN)
        c->again = TAKE_PTR(j->request);
    if (fate == FATE_AGAIN || (fate == FATE_REUSE && !discard))
        conn_park(c);
    else if (fate == FATE_CUT)
        conn_close(c);
    else
        conn_finish(c);
}

/* Cuts the answer after its head, for a HEAD request served by a GET handler. */
static void cut_body(relay_job *j)
{
    char *end = j->out.len ? memmem(j->out.p, j->out.len, "\r\n\r\n", 4) : NULL;

    if (!end)
        return;
    j->out.len = (size_t)(end - j->out.p) + 4;
    if (j->next != RELAY_CLOSE)
        j->next = RELAY_DONE;
}

static void count_answer(relay_job *j)
{
    if (j->counted || j->out.len < sizeof "HTTP/1.1 200")
        return;
    j->counted = true;
    j->answer.status = (int)strtol(j->out.p + 9, NULL, 10);
    access_answered(&j->answer);
}

static void job_step(relay_job *j, uint64_t now, bool stalled)
{
    relay_io io = {
        .out = &j->out,
        .now = now,
        .keep_alive = j->keep_alive && !atomic_load(&j->lane->relay->server->draining),
        .http11 = j->http11,
        .stalled = stalled,
        .ending = j->ending,
        .ended = j->ended,
        .gone = j->gone,
    };

    j->woken = false;
    j->next = j->ops->step(j->ctx, &io);
    assert(j->ops->again ? !j->out.len : j->next != RELAY_AGAIN);
    j->wake_at = io.wake_at;
    if (j->ops->input)
        j->full = io.full;
    buf_cstr(&j->out);
    count_answer(j);
    if (j->head_only)
        cut_body(j);
}

/* Sends output. Returns 1 if all is sent, 0 if the peer takes no more now, -1 if it is gone. */
static int job_flush(relay_job *j, uint64_t now)
{
    while (j->sent < j->out.len) {
        ssize_t n = send(j->conn->fd, j->out.p + j->sent, j->out.len - j->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (!j->stall_at)
                j->stall_at = now + j->lane->relay->server->times.stall;
            return 0;
        }
        if (n < 0)
            return -1;
        net_count_bytes(M_SENT, j->answer.door, j->kind, (size_t)n);
        j->sent += (size_t)n;
        j->stall_at = 0;
    }
    j->stall_at = 0;
    j->sent = 0;
    if (j->out.cap > JOB_KEEP)
        buf_done(&j->out); /* thousands of jobs may wait */
    else
        buf_clear(&j->out);
    return 1;
}

static bool job_pending(const relay_job *j)
{
    return j->sent < j->out.len;
}

/* Returns true if only sending is left: the job is not stepped again. */
static bool job_has_said_all(const relay_job *j)
{
    return j->next == RELAY_DONE || j->next == RELAY_CLOSE || j->next == RELAY_AGAIN;
}

static enum job_fate job_fate(const relay_job *j)
{
    if (j->next == RELAY_AGAIN)
        return FATE_AGAIN;
    return j->next == RELAY_DONE && j->keep_alive ? FATE_REUSE : FATE_FINISH;
}

static bool both_ways(const relay_job *j)
{
    return j->ops && j->ops->both_ways;
}

/* Returns the events to wait for. epoll reports a peer's end again and again; a both_ways job that
 * does not read now would spin, so it uses edges and sees it once. */
static uint32_t job_wants(const relay_job *j)
{
    uint32_t want = job_pending(j) ? EPOLLOUT : 0;

    if (!j->deaf)
        want |= EPOLLRDHUP | (j->full ? 0 : EPOLLIN);
    if (both_ways(j) && (j->deaf || j->full))
        want |= EPOLLET;
    return want;
}

/* Returns when the timer is due, 0: none. A time in the past becomes a moment later, so that other
 * jobs have a turn. */
static uint64_t job_due(const relay_job *j, uint64_t now)
{
    uint64_t due = job_pending(j) ? j->stall_at : j->next == RELAY_WAIT ? j->wake_at : 0;

    return due && due <= now ? now + 1 : due;
}

/* Sets epoll and the timer to the job's needs. */
static void job_arm(relay_job *j, uint64_t now)
{
    uint32_t want = job_wants(j);

    relay_timer_set(j, job_due(j, now));
    if (want == j->interest)
        return;
    struct epoll_event ev = {.events = want, .data.ptr = j};
    epoll_ctl(j->lane->epfd, EPOLL_CTL_MOD, j->conn->fd, &ev);
    j->interest = want;
}

/* Sends and steps until the peer or the source has had enough. May free the job. */
static void job_run(relay_job *j, uint64_t now)
{
    for (int i = 0; i < JOB_STEPS; i++) {
        int r = job_flush(j, now);
        if (r < 0 || (r == 0 && !job_hold(j))) {
            job_end(j, FATE_CUT);
            return;
        }
        if (r && j->held)
            job_release(j);
        if (r == 0 || (j->next == RELAY_WAIT && !j->woken)) {
            job_arm(j, now);
            return;
        }
        if (job_has_said_all(j)) {
            job_end(j, job_fate(j));
            return;
        }
        job_step(j, now, false);
    }
    job_arm(j, now);
    relay_wake(j);
}

static void job_timer(relay_job *j, uint64_t now)
{
    if (!job_pending(j)) {
        j->woken = true;
        job_run(j, now);
        return;
    }
    metric_add(&NET_METRICS[M_STALLED], 0, 1);
    j->stall_at = now + j->lane->relay->server->times.stall;
    if (job_has_said_all(j)) {
        job_end(j, FATE_CUT);
        return;
    }
    job_step(j, now, true);
    if (j->next == RELAY_CLOSE)
        job_end(j, FATE_CUT);
    else
        job_arm(j, now);
}

/* Reads bytes of the peer: input of an upgraded connection, the next request, or the rest of an
 * unwanted body. Returns false if the job must end. */
static bool job_input(relay_job *j)
{
    char p[NET_READ];
    ssize_t n = recv(j->conn->fd, p, sizeof p, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
        /* The peer sends no more. It may still read an answer that is only sent (no ops), or the
         * output of a job that works both ways. For any other job it has disconnected. */
        j->deaf = !j->ops || both_ways(j);
        j->ended = j->woken = j->deaf;
        return j->deaf;
    }
    j->input += (size_t)n;
    if (j->ops && j->ops->input) {
        net_count_bytes(M_RECEIVED, j->answer.door, j->kind, (size_t)n);
        j->full = !j->ops->input(j->ctx, p, (size_t)n);
        j->woken = true;
        return true;
    }
    if (!j->discard)
        buf_append(&j->conn->in, p, (size_t)n);
    j->full = j->input >= NET_PIPELINE;
    return true;
}

/* Like job_input(), for jobs that handle the peer's end themselves. */
static bool job_input_both(relay_job *j, uint32_t events)
{
    j->ending |= (events & (EPOLLRDHUP | EPOLLHUP)) != 0;
    j->gone |= (events & EPOLLHUP) != 0;
    j->woken |= j->ending;
    if (j->deaf || j->full || !(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)))
        return true;
    return job_input(j);
}

static void job_event(relay_job *j, uint32_t events, uint64_t now)
{
    if (events & EPOLLERR) {
        job_end(j, FATE_CUT);
        return;
    }
    bool gone = false;
    if (both_ways(j)) {
        gone = !job_input_both(j, events);
    } else {
        gone = events & EPOLLHUP; /* both sides are closed: output has no reader */
        if (!j->deaf && j->full)
            gone |= (events & EPOLLRDHUP) != 0;
        else if (!j->deaf && events & (EPOLLIN | EPOLLRDHUP))
            gone |= !job_input(j);
    }
    if (gone)
        job_end(j, FATE_CUT);
    else
        job_run(j, now);
}

/* ---- a second descriptor ---- */

#define SECOND ((uintptr_t)1) /* tags its events: jobs lie at even addresses */

bool relay_watch(relay_job *j, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                             .data.ptr = (void *)((uintptr_t)j | SECOND)};

    assert(j->second < 0 && j->ops->second);
    if (epoll_ctl(j->lane->epfd, EPOLL_CTL_ADD, fd, &ev))
        return false;
    j->second = fd;
    return true;
}

void relay_unwatch(relay_job *j)
{
    if (j->second >= 0)
        epoll_ctl(j->lane->epfd, EPOLL_CTL_DEL, j->second, NULL);
    j->second = -1;
}

void relay_unread(relay_job *j, const void *p, size_t n)
{
    buf_append(&j->conn->in, p, n);
}

void relay_shut(relay_job *j)
{
    shutdown(j->conn->fd, SHUT_WR);
}

size_t relay_unacked(const relay_job *j)
{
    int kernel = 0;

    if (ioctl(j->conn->fd, SIOCOUTQ, &kernel) || kernel < 0)
        kernel = 0;
    return j->out.len - j->sent + (size_t)kernel;
}

static void job_second(relay_job *j, uint64_t now)
{
    if (j->second < 0) /* the event is older than relay_unwatch() */
        return;
    j->full = !j->ops->second(j->ctx);
    j->woken = true;
    job_run(j, now);
}

/* Prepares the lane's thread to work on a job. */
static void job_turn(relay_job *j)
{
    log_lend(&j->ids);
    access_forget();
}

static void lane_event(const struct epoll_event *ev, uint64_t now)
{
    bool second = (uintptr_t)ev->data.ptr & SECOND;
    relay_job *j = (relay_job *)((uintptr_t)ev->data.ptr & ~SECOND);

    if (j->over)
        return;
    job_turn(j);
    if (second)
        job_second(j, now);
    else
        job_event(j, ev->events, now);
}

/* ---- lanes ---- */

static void job_start(relay_job *j)
{
    lane *l = j->lane;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = j};

    j->started = true;
    j->interest = ev.events;
    j->following = l->jobs;
    if (j->following)
        j->following->prev = j;
    l->jobs = j;
    if (j->lapse.lapsed && !l->nlapses++)
        l->lapses_at = now_mono_ns() + NET_LAPSE;
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, j->conn->fd, &ev)) {
        job_end(j, FATE_CUT);
        return;
    }
    if (j->ops && j->ops->start)
        j->ops->start(j->ctx, j);
    if (j->ops && j->ops->input && j->conn->in.len) {
        CLEANUP(buf_done) buf in = j->conn->in;
        j->conn->in = (buf){0}; /* the job may give some of it back */
        j->full = !j->ops->input(j->ctx, in.p, in.len);
    }
    job_run(j, now_mono_ns());
}

static void lane_queue(lane *l)
{
    for (int i = 0; i < LANE_QUEUE; i++) {
        relay_job *j = relay_dequeue(l);
        if (!j)
            return;
        j->woken = true;
        job_turn(j);
        if (!j->started)
            job_start(j);
        else
            job_run(j, now_mono_ns());
    }
}

static void lane_timers(lane *l)
{
    uint64_t now = now_mono_ns();

    /* A job that ends leaves the heap, which the analyzer does not see. */
    while (l->nheap && l->heap[1]->due <= now) { // NOLINT(clang-analyzer-unix.Malloc)
        relay_job *j = l->heap[1];
        relay_timer_clear(j);
        job_turn(j);
        job_timer(j, now);
    }
}

/* Cuts the jobs whose callers may no longer be served. */
static void lane_lapses(lane *l)
{
    uint64_t now = l->nlapses ? now_mono_ns() : 0;

    if (!now || now < l->lapses_at)
        return;
    l->lapses_at = now + NET_LAPSE;
    for (relay_job *j = l->jobs, *next; j; j = next) {
        next = j->following;
        if (!j->lapse.lapsed || !j->lapse.lapsed(j->lapse.arg))
            continue;
        job_turn(j);
        log_debug("relay", "the caller's key is not valid any more");
        job_end(j, FATE_CUT);
    }
}

/* Returns how long epoll may sleep. Clears the flag that keeps wakers from signalling. */
static int lane_timeout(lane *l)
{
    bool more;

    pthread_mutex_lock(&l->lock);
    more = l->first != NULL;
    uint64_t now = now_mono_ns(), due = 0;
    if (l->stopping)
        due = now < l->answer_at ? l->answer_at : l->stop_at;
    l->signalled = more;
    pthread_mutex_unlock(&l->lock);
    if (more)
        return 0;
    if (l->nheap && (!due || l->heap[1]->due < due))
        due = l->heap[1]->due;
    if (l->nlapses && (!due || l->lapses_at < due))
        due = l->lapses_at;
    if (!due)
        return -1;
    uint64_t ms = due > now ? (due - now + NS_PER_MS - 1) / NS_PER_MS : 0;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* Handles a stop of the server: ends streams that have nothing to send now, the others when all is
 * sent or the grace is over. Waits briefly for answers that have not begun. Returns true if no job
 * is left. */
static bool lane_stop(lane *l)
{
    pthread_mutex_lock(&l->lock);
    uint64_t now = now_mono_ns();
    bool stopping = l->stopping, late = stopping && now >= l->stop_at, soon = now < l->answer_at;
    pthread_mutex_unlock(&l->lock);
    if (!stopping)
        return false;
    for (relay_job *j = l->jobs, *next; j; j = next) {
        next = j->following;
        if (late || (!job_pending(j) && (j->counted || !soon)))
            job_end(j, FATE_CUT);
    }
    return !l->jobs;
}

static void free_over(lane *l)
{
    log_lend(NULL); /* the lent ids are freed with the jobs */
    for (relay_job *j = l->over, *next; j; j = next) {
        next = j->following;
        job_free(j);
    }
    l->over = NULL;
}

static void *lane_run(void *arg)
{
    lane *l = arg;
    struct epoll_event ev[LANE_EVENTS];

    for (;;) {
        int n = epoll_wait(l->epfd, ev, LANE_EVENTS, lane_timeout(l));
        uint64_t now = now_mono_ns();
        for (int i = 0; i < n; i++) {
            eventfd_t ignored;
            if (ev[i].data.ptr)
                lane_event(&ev[i], now);
            else
                eventfd_read(l->evfd, &ignored);
        }
        lane_queue(l);
        lane_timers(l);
        lane_lapses(l);
        bool last = lane_stop(l);
        free_over(l);
        if (last)
            return NULL;
    }
}

static void lane_open(lane *l, relay *r)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    char name[16];

    l->relay = r;
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    l->evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(l->epfd >= 0 && l->evfd >= 0);
    epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->evfd, &ev);
    pthread_mutex_init(&l->lock, NULL);
    snprintf(name, sizeof name, "relay-%u", (unsigned)(l - r->lanes));
    l->thread = thread_start(name, lane_run, l);
}

relay *relay_new(server *s, unsigned lanes)
{
    relay *r = xcalloc(1, sizeof *r);

    r->server = s;
    r->nlanes = lanes;
    r->lanes = xcalloc(lanes, sizeof *r->lanes);
    for (unsigned i = 0; i < lanes; i++)
        lane_open(&r->lanes[i], r);
    return r;
}

/* Ends a job that came after its lane's end, from a request that outlived the grace. */
static void job_refuse(relay_job *j)
{
    if (j->ops && j->ops->free)
        j->ops->free(j->ctx);
    job_count(j, -1);
    conn_close(j->conn);
    job_settle(j);
    job_free(j);
}

void relay_add(relay *r, const relay_start *start)
{
    relay_job *j = xcalloc(1, sizeof *j);
    lane *l = &r->lanes[atomic_fetch_add(&r->turn, 1) % r->nlanes];

    j->lane = l;
    j->second = -1;
    j->conn = start->conn;
    j->ops = start->ops;
    j->ctx = start->ctx;
    j->out = start->out;
    j->next = start->ops ? RELAY_MORE : RELAY_DONE;
    j->keep_alive = start->keep_alive;
    j->http11 = start->http11;
    j->head_only = start->head_only;
    j->discard = start->discard;
    j->counted = start->counted;
    j->answer = start->answer;
    j->kind = start->ops ? start->ops->kind : STREAM_ANSWER;
    j->ids = *log_ids_now();
    j->party = start->party ? xstrdup(start->party) : NULL;
    j->request = start->request;
    j->lapse = start->lapse;
    job_count(j, 1);
    pthread_mutex_lock(&l->lock);
    bool late = l->stopping, tell = !late && relay_enqueue(l, j);
    pthread_mutex_unlock(&l->lock);
    if (late)
        job_refuse(j);
    else if (tell)
        signal_lane(l);
}

void relay_stop(relay *r, uint64_t grace_ns)
{
    if (!r || r->stopped)
        return;
    r->stopped = true;
    for (unsigned i = 0; i < r->nlanes; i++) {
        lane *l = &r->lanes[i];
        pthread_mutex_lock(&l->lock);
        l->stopping = true;
        uint64_t now = now_mono_ns();
        l->stop_at = now + grace_ns;
        l->answer_at = now + (grace_ns < ANSWER_NS ? grace_ns : ANSWER_NS);
        pthread_mutex_unlock(&l->lock);
        signal_lane(l);
    }
    for (unsigned i = 0; i < r->nlanes; i++)
        pthread_join(r->lanes[i].thread, NULL);
}

void relay_free(relay *r)
{
    if (!r)
        return;
    relay_stop(r, 0);
    for (unsigned i = 0; i < r->nlanes; i++) {
        lane *l = &r->lanes[i];
        for (relay_job *j; (j = relay_dequeue(l));) /* never started */
            job_refuse(j);
        close(l->epfd);
        close(l->evfd);
        free(l->heap);
        pthread_mutex_destroy(&l->lock);
    }
    free(r->lanes);
    free(r);
}
