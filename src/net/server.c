/* Listeners, the worker threads, the sweeper, and the server's start and stop. */
#include "net/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/str.h"
#include "net/internal.h"

#define WORKER_IDLE_MS 30000 /* idle time after which a surplus worker leaves */
#define WORKERS_SPARE  4
#define ACCEPT_BATCH   64
#define UNSENT_MAX     (128 * 1024)
#define ROOM_NS        NS_PER_S
#define WAITING_MAX    4096     /* in a listener's queue; the kernel's own limit is the same */
#define SHED_NS        NS_PER_S /* minimum idle time of a connection to be shed */

static const char *const NONE[] = {"none", NULL};
static const char *const CLASSES[] = {"1xx", "2xx", "3xx", "4xx", "5xx", NULL};
static const char *const KINDS[] = {"answer", "wait",     "output", "input",
                                    "files",  "terminal", "port",   NULL};
_Static_assert(ARRAY_LEN(KINDS) == STREAM_KINDS + 1, "a name for each kind");
static const char *code_names[ERR_CODES + 1];

/* server_new() fills in the labels for doors and operations, which the daemon chooses. */
metric NET_METRICS[M_COUNT] = {
    [M_REQUESTS] =
        METRIC_COUNTER_BY2("bothy_http_requests_total",
                           "Answers, by the door of the request and the class of their status.",
                           "door", NONE, "class", CLASSES),
    [M_ERRORS] = METRIC_COUNTER_BY("bothy_http_errors_total",
                                   "Answers that are errors, by their code.", "code", code_names),
    [M_SECONDS] = METRIC_HISTOGRAM_BY(
        "bothy_http_request_seconds",
        "From the end of a request's head to the head of its answer, by operation. Waiting for a "
        "slot, a pull or a command that is run to its end counts.",
        "operation", NONE, .sparse = true),
    [M_THREAD_SECONDS] =
        METRIC_HISTOGRAM("bothy_http_thread_seconds",
                         "Time a request held a thread, until its answer or the relay has it."),
    [M_CONNECTIONS] = METRIC_GAUGE("bothy_http_connections", "Open connections."),
    [M_THREADS] = METRIC_GAUGE("bothy_http_threads", "Threads for requests."),
    [M_RELAYS] = METRIC_GAUGE("bothy_http_relays", "Connections driven by the relay."),
    [M_STREAMS] =
        METRIC_GAUGE_BY("bothy_http_streams",
                        "Connections driven by the relay, by what goes over them.", "kind", KINDS),
    [M_SENT] = METRIC_COUNTER_BY2("bothy_http_sent_bytes_total",
                                  "Bytes sent to callers, with heads, by door and kind.", "door",
                                  NONE, "kind", KINDS),
    [M_RECEIVED] = METRIC_COUNTER_BY2(
        "bothy_http_received_bytes_total",
        "Bytes of bodies, WebSocket frames and tunnels received from callers, by door and kind.",
        "door", NONE, "kind", KINDS),
    [M_REFUSED] =
        METRIC_COUNTER("bothy_http_refused_total", "Requests and connections refused at a limit."),
    [M_STALLED] =
        METRIC_COUNTER("bothy_http_stalled_total", "Times a relay's peer took no byte for 60 s."),
};

const char *server_operation(const server *s, size_t operation)
{
    return s->o.operations ? s->o.operations[operation] : NONE[0];
}

static void register_metrics(const server_options *o)
{
    for (size_t i = 0; i < ERR_CODES; i++)
        code_names[i] = err_info_of((err_code)i)->name;
    if (o->doors && !NET_METRICS[M_SENT].cells)
        NET_METRICS[M_REQUESTS].label_values = NET_METRICS[M_SENT].label_values =
            NET_METRICS[M_RECEIVED].label_values = o->doors;
    if (o->operations && !NET_METRICS[M_SECONDS].cells)
        NET_METRICS[M_SECONDS].label_values = o->operations;
    metric_register(NET_METRICS, M_COUNT);
}

/* ---- making ---- */

server_times server_times_default(void)
{
    return (server_times){
        .head = 10 * NS_PER_S,
        .body_idle = 60 * NS_PER_S,
        .keep_alive = 650 * NS_PER_S,
        .linger = 2 * NS_PER_S,
        .stall = 60 * NS_PER_S,
        .stop = 5 * NS_PER_S,
    };
}

void server_set_times(server *s, const server_times *t)
{
    s->times = *t;
}

static err *open_fds(server *s)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &s->quit};

    s->quit.kind = SOURCE_QUIT;
    s->epfd = epoll_create1(EPOLL_CLOEXEC);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (s->epfd < 0 || s->stop_fd < 0 || s->quit_fd < 0 ||
        epoll_ctl(s->epfd, EPOLL_CTL_ADD, s->quit_fd, &ev))
        return err_sys(ERR_INTERNAL, errno, "cannot make the server's descriptors");
    return NULL;
}

err *server_new(const server_options *o, server **ret_server)
{
    server *s = xcalloc(1, sizeof *s);

    s->o = *o;
    s->o.threads = o->threads ? o->threads : 512;
    s->o.connections = o->connections ? o->connections : 20000;
    s->o.relay_threads = o->relay_threads ? o->relay_threads : (unsigned)get_nprocs();
    s->times = server_times_default();
    if (o->stall_ns)
        s->times.stall = o->stall_ns;
    s->epfd = s->stop_fd = s->quit_fd = s->spare_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->conns_lock, NULL);
    pthread_mutex_init(&s->party_lock, NULL);
    party_limits(s);
    cond_init(&s->changed);
    cond_init(&s->room);
    id_random(s->id_prefix, sizeof s->id_prefix - 1);
    register_metrics(o);
    access_init(o->access);
    err *e = open_fds(s);
    if (e) {
        server_free(s);
        return e;
    }
    *ret_server = s;
    return NULL;
}

static void server_rearm(server *s, listener *l, int op)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = &l->src};

    epoll_ctl(s->epfd, op, l->fd, &ev);
}

void server_listen(server *s, int fd, bool is_unix)
{
    listener *l = xcalloc(1, sizeof *l);

    l->src.kind = SOURCE_LISTENER;
    l->fd = fd;
    l->is_unix = is_unix;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    pthread_mutex_lock(&s->conns_lock);
    l->next = s->listeners;
    s->listeners = l;
    server_rearm(s, l, EPOLL_CTL_ADD);
    pthread_mutex_unlock(&s->conns_lock);
}

void server_hand_down(server *s)
{
    s->handed_down = true;
}

/* ---- accepting ---- */

/* Sets options of a TCP connection. Keepalive detects peers that vanish within two minutes. The
 * limit of unsent bytes shows progress of a slow peer long before a third of the send buffer is
 * free. */
static void tune_tcp(int fd)
{
    int on = 1, idle = 60, interval = 15, count = 4, unsent = UNSENT_MAX;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

/* The request id is "-": there is no request yet. */
#define REFUSAL                                                                             \
    "{\"error\":{\"code\":\"unavailable\",\"message\":\"no connection is free\",\"cause\":" \
    "\"too many connections or open files\",\"remedy\":\"Try again in a moment; keep "      \
    "connections open and use them again.\",\"retryable\":true,\"request_id\":\"-\"}}\n"

static void refuse_connection(int fd)
{
    static const char ANSWER[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Content-Length: 222\r\nConnection: close\r\nRetry-After: 1\r\n\r\n" REFUSAL;
    _Static_assert(sizeof REFUSAL - 1 == 222, "Content-Length");

    metric_add(&NET_METRICS[M_REFUSED], 0, 1);
    (void)!send(fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    close(fd);
}

/* Refuses a connection when descriptors are exhausted: the peer must not hang in the backlog, nor
 * may this thread spin. */
static void refuse_without_fd(server *s, const listener *l)
{
    LOCK_SCOPE(&s->conns_lock);
    if (s->spare_fd >= 0)
        close(s->spare_fd);
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        refuse_connection(fd);
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Closes the connection that has been idle longest, when every place is taken. Shutting it down
 * makes epoll hand it to a worker, as in server_sweep(). Returns false if none is idle. */
static bool shed_idle(server *s)
{
    uint64_t least = now_mono_ns() - SHED_NS;
    conn *oldest = NULL;

    LOCK_SCOPE(&s->conns_lock);
    for (conn *c = s->conns; c; c = c->next) {
        uint64_t parked = atomic_load(&c->parked);
        if (!atomic_load(&c->deadline) || parked >= least)
            continue;
        least = parked;
        oldest = c;
    }
    if (!oldest)
        return false;
    atomic_store(&oldest->parked, NET_SHED);
    shutdown(oldest->fd, SHUT_RDWR);
    return true;
}

/* Returns true for root and bothyd's own user, who are admitted even when every place is taken, so
 * that they can end what takes the places. */
static bool is_root(const listener *l, int fd)
{
    sock_peer peer;

    return l->is_unix && sock_peer_of(fd, &peer) && (peer.uid == 0 || peer.uid == geteuid());
}

static void server_accept(server *s, listener *l)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            refuse_without_fd(s, l);
        else if (fd < 0 && errno != ECONNABORTED && errno != EINTR)
            break;
        if (fd < 0)
            continue;
        if (!l->is_unix)
            tune_tcp(fd);
        if (atomic_load(&s->nconn) >= s->o.connections && !shed_idle(s) && !is_root(l, fd))
            refuse_connection(fd);
        else
            conn_park(conn_new(s, fd, l->is_unix));
    }
    if (!atomic_load(&s->stopping))
        server_rearm(s, l, EPOLL_CTL_MOD);
}

/* ---- workers: all wait in one epoll; who gets a whole request serves it ---- */

/* Counts the calling worker out. Without `must` only if enough others are idle; returns false
 * otherwise. */
static bool worker_leaves(server *s, bool must)
{
    LOCK_SCOPE(&s->lock);
    if (!must && s->total <= s->busy + s->waiting + WORKERS_SPARE)
        return false;
    s->total--;
    metric_add(&NET_METRICS[M_THREADS], 0, -1);
    pthread_cond_broadcast(&s->changed);
    return true;
}

static void *server_worker(void *arg)
{
    server *s = arg;

    pthread_setname_np(pthread_self(), "http");
    for (;;) {
        struct epoll_event ev;
        int n = epoll_wait(s->epfd, &ev, 1, WORKER_IDLE_MS);
        if (n == 0 && worker_leaves(s, false))
            return NULL;
        if (n <= 0)
            continue;
        source *src = ev.data.ptr;
        if (src->kind == SOURCE_QUIT)
            break;
        if (src->kind == SOURCE_LISTENER)
            server_accept(s, (listener *)src);
        else
            conn_event((conn *)src);
    }
    worker_leaves(s, true);
    return NULL;
}

static bool worker_start(server *s)
{
    if (!thread_try_detach(server_worker, s))
        return false;
    metric_add(&NET_METRICS[M_THREADS], 0, 1);
    return true;
}

/* Waits for a free request thread, so that a burst of short requests is served, not refused; later
 * requests wait in their sockets meanwhile. Gives up if no thread came free for a while. Lock
 * held. */
static bool wait_for_room(server *s)
{
    while (s->busy >= s->o.threads && !atomic_load(&s->stopping))
        if (!cond_wait_until(&s->room, &s->lock, s->released_ns + ROOM_NS))
            break;
    return s->busy < s->o.threads;
}

/* Admits a request and keeps one worker more than are busy. If that worker cannot be started the
 * request is refused on this thread, so that epoll is not left unattended for long. */
bool server_admit(server *s)
{
    pthread_mutex_lock(&s->lock);
    bool room = wait_for_room(s);
    bool grow = room && s->total == s->busy + s->waiting + 1;
    s->busy += room;
    s->total += grow;
    pthread_mutex_unlock(&s->lock);
    if (!grow || worker_start(s))
        return room;
    pthread_mutex_lock(&s->lock);
    s->busy--;
    s->total--;
    pthread_mutex_unlock(&s->lock);
    return false;
}

void server_release(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->busy--;
    s->released_ns = now_mono_ns();
    pthread_cond_signal(&s->room);
    if (atomic_load(&s->stopping))
        pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Lock held. */
static void unlink_wait(server *s, body_wait *w)
{
    *(w->prev ? &w->prev->next : &s->first_wait) = w->next;
    *(w->next ? &w->next->prev : &s->last_wait) = w->prev;
    s->waiting--;
    s->busy++;
}

/* Chooses the wait to give up. Prefers a request that waits for a thread of its tenant, because
 * other requests of that tenant are being served; else the longest wait for a body. Lock held. */
static body_wait *to_give_up(const server *s)
{
    for (body_wait *w = s->first_wait; w; w = w->next)
        if (w->turn)
            return w;
    return s->first_wait;
}

void server_wait_begin(server *s, body_wait *w)
{
    LOCK_SCOPE(&s->lock);
    w->next = NULL;
    w->prev = s->last_wait;
    *(w->prev ? &w->prev->next : &s->first_wait) = w;
    s->last_wait = w;
    s->waiting++;
    s->busy--;
    s->released_ns = now_mono_ns();
    pthread_cond_signal(&s->room);
    if (s->waiting <= s->o.threads)
        return;
    body_wait *longest = to_give_up(s);
    atomic_store(&longest->given_up, true);
    unlink_wait(s, longest);
    /* Wakes its poll; the answer can still be sent. Not if unread bytes wait in the socket: the
     * kernel would never reopen the peer's window, and the peer would not see the answer. */
    if (!longest->elsewhere)
        shutdown(longest->conn->fd, SHUT_RD);
}

void server_wait_end(server *s, body_wait *w)
{
    LOCK_SCOPE(&s->lock);
    if (!atomic_load(&w->given_up))
        unlink_wait(s, w);
}

/* ---- running ---- */

/* Ends parked connections past their deadline. Shutting down makes epoll hand them to a worker,
 * which closes them; so there is never a second owner. */
static void server_sweep(server *s, uint64_t now)
{
    LOCK_SCOPE(&s->conns_lock);
    for (conn *c = s->conns; c; c = c->next) {
        uint64_t deadline = atomic_load(&c->deadline);
        if (deadline && deadline <= now)
            shutdown(c->fd, SHUT_RDWR);
    }
}

static int sweep_ms(const server_times *t)
{
    uint64_t least = t->head < t->keep_alive ? t->head : t->keep_alive;

    if (t->linger < least)
        least = t->linger;
    uint64_t ms = least / NS_PER_MS / 4;
    return ms > 1000 ? 1000 : ms < 5 ? 5 : (int)ms;
}

/* Stops accepting. The listeners stay open until server_free(), because a worker may be in
 * accept. */
static void leave_listeners(server *s)
{
    LOCK_SCOPE(&s->conns_lock);
    for (listener *l = s->listeners; l; l = l->next)
        epoll_ctl(s->epfd, EPOLL_CTL_DEL, l->fd, NULL);
}

static unsigned busy_now(server *s)
{
    LOCK_SCOPE(&s->lock);
    return s->busy + s->waiting;
}

/* Waits for the workers that are leaving. Returns how many are stuck in a handler. */
static unsigned workers_left(server *s)
{
    LOCK_SCOPE(&s->lock);
    while (s->total > s->busy + s->waiting)
        cond_wait_until(&s->changed, &s->lock, 0);
    return s->total;
}

static void server_nap(void)
{
    poll(NULL, 0, 5);
}

/* Lets running requests end; new requests are refused with `draining`. If another process holds the
 * listeners, new connections wait there for the successor. */
static void server_drain(server *s, uint64_t until)
{
    if (s->handed_down)
        leave_listeners(s);
    atomic_store(&s->draining, true);
    if (s->o.stopping)
        s->o.stopping(s->o.arg);
    while (busy_now(s) && now_mono_ns() < until)
        server_nap();
    uint64_t now = now_mono_ns();
    relay_stop(s->relay, now < until ? until - now : 0);
}

/* Refuses connections that wait to be accepted: no worker will serve them. On a unix socket later
 * ones cannot be made, and their callers know that no request was received. With TCP this would
 * reset those that wait. */
static void refuse_waiting(server *s)
{
    LOCK_SCOPE(&s->conns_lock);
    for (listener *l = s->listeners; l; l = l->next) {
        if (l->is_unix)
            shutdown(l->fd, SHUT_RD);
        for (int i = 0, fd; i < WAITING_MAX; i++) {
            fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0)
                break;
            refuse_connection(fd);
        }
    }
}

/* Stops in order: running requests, relays, remaining connections, workers. */
static void wind_down(server *s)
{
    uint64_t until = now_mono_ns() + s->times.stop;

    server_drain(s, until);
    atomic_store(&s->stopping, true);
    leave_listeners(s);
    if (!s->handed_down)
        refuse_waiting(s);
    while (atomic_load(&s->nconn) > busy_now(s) && now_mono_ns() < until) {
        server_sweep(s, UINT64_MAX);
        server_nap();
    }
    eventfd_write(s->quit_fd, 1);
    unsigned left = workers_left(s);
    if (left)
        log_warn("stop", "%u requests have not ended", left);
}

void server_run(server *s)
{
    struct pollfd p = {.fd = s->stop_fd, .events = POLLIN};
    int every = sweep_ms(&s->times);

    s->relay = relay_new(s, s->o.relay_threads);
    s->total = 1;
    if (!worker_start(s)) {
        s->total = 0;
        log_error("http", "no room for a single thread");
        return;
    }
    while (poll(&p, 1, every) <= 0)
        server_sweep(s, now_mono_ns());
    wind_down(s);
}

void server_stop(server *s)
{
    eventfd_write(s->stop_fd, 1);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Frees the server, unless a request that did not end in its grace still uses it: the process is
 * about to end then. */
void server_free(server *s)
{
    if (!s || workers_left(s))
        return;
    relay_free(s->relay);
    while (s->conns)
        conn_close(s->conns);
    for (listener *l = s->listeners, *next; l; l = next) {
        next = l->next;
        close(l->fd);
        free(l);
    }
    close_fd(s->epfd);
    close_fd(s->stop_fd);
    close_fd(s->quit_fd);
    close_fd(s->spare_fd);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->conns_lock);
    pthread_mutex_destroy(&s->party_lock);
    map_done(&s->parties);
    pthread_cond_destroy(&s->room);
    pthread_cond_destroy(&s->changed);
    free(s);
}

server_counts server_count(server *s)
{
    return (server_counts){.connections = atomic_load(&s->nconn),
                           .requests = busy_now(s),
                           .relays = atomic_load(&s->nrelay),
                           .accepted = atomic_load(&s->accepted)};
}
