/* The warden's client: one SEQPACKET connection, one thread, numbered requests.
 *
 * The list of requests is in the order of their numbers; those not yet sent on the present
 * connection are always its tail. When the connection breaks (the warden restarted) the whole list
 * becomes that tail, and is sent again after the next HELLO. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/oci.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/thread.h"

#define BACKOFF_MIN_MS 20
#define BACKOFF_MAX_MS 1000
#define HELLO_MS       5000
#define LOOK_MS        5000 /* the latest time at which an expired request is noticed */
#define PING_AFTER_MS  1000 /* a request is unanswered, and nothing else was received for so long */
#define SILENT_MS      2000 /* this long after the ping without an answer: the warden is silent */
#define LOOKS_MAX      16   /* calls that may wait for their whole time; more wait CROWD_MS */
#define CROWD_MS       250

typedef struct request {
    struct request *prev, *next;
    uint64_t id;
    uint32_t type;
    buf frame;
    int fd;
    uint64_t expires_ns;  /* 0: never */
    uint64_t deadline_ns; /* CLAIM */
    bool once, prompt;
    warden_done *done;
    void *arg;
} request;

struct oci_warden {
    char *path;
    pthread_t thread;
    int wake; /* eventfd */
    pthread_mutex_t lock;
    pthread_cond_t greeted;
    /* under the lock */
    bool stop, connected;
    uint32_t caps;
    char release[WP_RELEASE_MAX];
    err *failure;               /* of the last attempt to connect */
    struct wp_watermarks marks; /* flags 0: the warden's own */
    int fd;
    bool want_out;
    uint64_t looks_ns; /* when the thread next checks time limits by itself */
    uint64_t heard_ns; /* when the last frame came, or the first request after it was sent */
    uint64_t ping_ns;  /* when the unanswered ping was sent; 0: none is under way */
    bool silent;       /* the ping was not answered: prompt calls fail at once */
    unsigned looks;    /* prompt calls that wait now */
    uint64_t next_id;
    map by_id;
    request *head, *tail, *unsent;
    char rx[WP_FRAME_MAX] __attribute__((aligned(8))); /* warden thread only */
};

/* ---- the list (lock held) ---- */

static void list_append(oci_warden *w, request *r)
{
    r->prev = w->tail;
    if (w->tail)
        w->tail->next = r;
    else
        w->head = r;
    w->tail = r;
    if (!w->unsent)
        w->unsent = r;
    map_put_u64(&w->by_id, r->id, r);
}

static void list_remove(oci_warden *w, request *r)
{
    if (w->unsent == r)
        w->unsent = r->next;
    *(r->prev ? &r->prev->next : &w->head) = r->next;
    *(r->next ? &r->next->prev : &w->tail) = r->prev;
    map_take_u64(&w->by_id, r->id);
}

static void request_free(request *r)
{
    closep(&r->fd);
    buf_done(&r->frame);
    free(r);
}

/* ---- sending (lock held) ---- */

/* Writes the rest of the deadline into the frame: the warden counts from its receipt. */
static void refresh_deadline(request *r)
{
    char *body = r->frame.p + sizeof(struct wp_hdr);
    uint64_t *ms = r->type == WP_CLAIM      ? &((struct wp_claim *)body)->deadline_ms
                   : r->type == WP_SNAPSHOT ? &((struct wp_snapshot *)body)->deadline_ms
                                            : NULL;
    uint64_t now = now_mono_ns();

    if (ms)
        *ms = r->deadline_ns > now ? (r->deadline_ns - now) / NS_PER_MS : 1;
}

static void send_unsent(oci_warden *w)
{
    w->want_out = false;
    while (w->connected && w->unsent) {
        request *r = w->unsent;
        refresh_deadline(r);
        struct iovec v = {r->frame.p, r->frame.len};
        int e = sock_send(w->fd, &v, 1, &r->fd, r->fd >= 0, MSG_DONTWAIT);
        if (e) {
            w->want_out = e == -EAGAIN;
            if (!w->want_out) /* no event would say when to continue: reconnect */
                shutdown(w->fd, SHUT_RDWR);
            return;
        }
        w->unsent = r->next;
    }
}

/* Asks the warden for its release, which its reading thread answers without a lock or the disk.
 * Uses request number 0, which no request has. Lock held. */
static void warden_ping(oci_warden *w, uint64_t now)
{
    struct wp_hdr h = {.type = WP_RELEASE};
    struct iovec v = {&h, sizeof h};

    w->ping_ns = now;
    /* Fails if the socket is full: then the warden has not read for long. */
    (void)sock_send(w->fd, &v, 1, NULL, 0, MSG_DONTWAIT);
}

/* Pings a warden that has not answered for a while, and sets `silent` if the ping has no answer
 * either. Returns when to call it again, 0 for not before the next request. Lock held. */
static uint64_t warden_watch(oci_warden *w, uint64_t now)
{
    if (!w->connected || !w->head || w->silent || !(w->caps & WP_CAP_RELEASE))
        return 0;
    if (!w->ping_ns && now < w->heard_ns + PING_AFTER_MS * NS_PER_MS)
        return w->heard_ns + PING_AFTER_MS * NS_PER_MS;
    if (!w->ping_ns)
        warden_ping(w, now);
    w->silent = now >= w->ping_ns + SILENT_MS * NS_PER_MS;
    if (w->silent)
        log_warn("warden", "the warden is silent: what only it can answer is refused");
    return w->silent ? 0 : w->ping_ns + SILENT_MS * NS_PER_MS;
}

/* Notes that the warden is alive. Lock held. */
static void warden_heard(oci_warden *w)
{
    w->heard_ns = now_mono_ns();
    w->ping_ns = 0;
    w->silent = false;
}

/* Returns when a request times out, 0 for never. While disconnected, a claim times out at its queue
 * deadline; the extra time for the claim itself starts only once the warden has it. Lock held. */
static uint64_t end_of(const oci_warden *w, const request *r)
{
    bool nobody_has_it = r->type == WP_CLAIM && !w->connected;

    if (r->prompt && w->silent)
        return 1;
    return nobody_has_it && r->deadline_ns < r->expires_ns ? r->deadline_ns : r->expires_ns;
}

static void oci_warden_wake(oci_warden *w)
{
    uint64_t one = 1;
    (void)!write(w->wake, &one, sizeof one);
}

void oci_warden_send(oci_warden *w, const warden_ask *ask, warden_done *done, void *arg)
{
    request *r = xcalloc(1, sizeof *r);
    struct wp_hdr h = {.type = ask->type};
    uint64_t now = now_mono_ns();

    r->type = ask->type;
    r->fd = ask->fd >= 0 ? fcntl(ask->fd, F_DUPFD_CLOEXEC, 3) : -1;
    r->once = ask->once;
    r->prompt = ask->prompt;
    r->done = done;
    r->arg = arg;
    r->expires_ns = ask->timeout_ms ? now + ask->timeout_ms * NS_PER_MS : 0;
    r->deadline_ns = now + ask->deadline_ms * NS_PER_MS;
    buf_append(&r->frame, &h, sizeof h);
    for (size_t i = 0; i < ARRAY_LEN(ask->body); i++)
        if (ask->body[i].iov_len)
            buf_append(&r->frame, ask->body[i].iov_base, ask->body[i].iov_len);
    LOCK_SCOPE(&w->lock);
    r->id = ((struct wp_hdr *)r->frame.p)->request = ++w->next_id;
    if (!w->head)
        w->heard_ns = now; /* until now there was nothing to answer */
    list_append(w, r);
    if (w->unsent == r) /* nothing else is queued before it */
        send_unsent(w);
    if (w->want_out || (r->expires_ns && end_of(w, r) < w->looks_ns) ||
        now + PING_AFTER_MS * NS_PER_MS < w->looks_ns)
        oci_warden_wake(w);
}

/* ---- answers ---- */

static void oci_warden_finish(request *r, warden_answer *a)
{
    r->done(r->arg, a);
    closep(&a->fd);
    request_free(r);
}

static void finish_locally(request *r, int errnum, const char *text)
{
    oci_warden_finish(r, &(warden_answer){.errnum = errnum, .local = true, .text = text, .fd = -1});
}

static void oci_warden_deliver(oci_warden *w, size_t n, int fd)
{
    struct wp_hdr *h = (struct wp_hdr *)w->rx;
    char text[WP_ERROR_TEXT + 1] = "";
    warden_answer a = {
        .text = text, .body = w->rx + sizeof *h, .n = n - sizeof *h, .fd = fd, .errnum = h->err};
    request *r;

    pthread_mutex_lock(&w->lock);
    warden_heard(w);
    r = map_get_u64(&w->by_id, h->request);
    if (r)
        list_remove(w, r);
    pthread_mutex_unlock(&w->lock);
    if (!r) { /* timed out before, or the answer to the watermarks */
        if (h->err && h->type == (WP_POOL | WP_ANSWER))
            log_warn("warden", "the configured watermarks of the pool are refused");
        closep(&fd);
        return;
    }
    if (h->err && wp_error_ok(a.body, a.n)) {
        const struct wp_error *told = a.body;
        a.retry_after = told->retry_after;
        memcpy(text, told + 1, a.n - sizeof *told);
    } else if (h->err) {
        a.text = "the warden gave no reason";
    } else if (h->type != (r->type | WP_ANSWER) || !wp_answer_ok(r->type, a.body, a.n)) {
        a.errnum = EPROTO;
        a.text = "the warden's answer is malformed";
    }
    oci_warden_finish(r, &a);
}

/* Returns false if the connection has ended. */
static bool oci_warden_receive(oci_warden *w, int fd)
{
    for (;;) {
        int got;
        /* An answer that lost its descriptor fails only its own request, not the connection. */
        ssize_t n = sock_recv_lost(fd, w->rx, sizeof w->rx, &got, MSG_DONTWAIT);
        if (n == -EAGAIN)
            return true;
        if (n < (ssize_t)sizeof(struct wp_hdr)) {
            closep(&got);
            return false;
        }
        oci_warden_deliver(w, (size_t)n, got);
    }
}

/* Ends requests that have timed out. Returns the time until the next one does, in ms. */
static int oci_warden_expire(oci_warden *w)
{
    uint64_t now = now_mono_ns(), next = now + LOOK_MS * NS_PER_MS;
    request *late = NULL, *r, *following;

    pthread_mutex_lock(&w->lock);
    uint64_t watch = warden_watch(w, now);
    next = watch && watch < next ? watch : next;
    for (r = w->head; r; r = following) {
        following = r->next;
        uint64_t end = end_of(w, r);
        if (!end)
            continue;
        if (end > now) {
            next = end < next ? end : next;
            continue;
        }
        list_remove(w, r);
        r->next = late;
        late = r;
    }
    w->looks_ns = next;
    pthread_mutex_unlock(&w->lock);
    for (; late; late = following) {
        following = late->next;
        finish_locally(late, ETIMEDOUT, "the warden does not answer");
    }
    return (int)((next - now) / NS_PER_MS) + 1;
}

/* ---- the thread ---- */

static err *other_version(const struct wp_hdr *h, size_t n)
{
    err *e = err_new(ERR_UNSUPPORTED, "the warden speaks another version of its frames");

    if (h->err && wp_error_ok(h + 1, n))
        e = err_because(e, "%.*s", (int)(n - sizeof(struct wp_error)),
                        (const char *)(h + 1) + sizeof(struct wp_error));
    return err_remedy(e, "Run bothyd and bothy-warden of one release; upgrade bothyd first.");
}

/* Sends one frame and reads its answer into w->rx, *ret_n bytes; before others use the
 * connection. */
static err *ask_first(oci_warden *w, int fd, const void *frame, size_t n, size_t *ret_n)
{
    const struct wp_hdr *asked = frame, *h = (const struct wp_hdr *)w->rx;
    struct iovec v = {(void *)frame, n};
    struct pollfd p = {fd, POLLIN, 0};
    size_t nfds;
    int e = sock_send(fd, &v, 1, NULL, 0, 0);

    if (e)
        return err_sys(ERR_UNAVAILABLE, -e, "cannot greet the warden");
    if (poll(&p, 1, HELLO_MS) != 1)
        return err_new(ERR_UNAVAILABLE, "the warden does not answer");
    ssize_t got = sock_recv(fd, w->rx, sizeof w->rx, NULL, 0, &nfds, MSG_DONTWAIT);
    if (got < (ssize_t)sizeof *h || h->type != (asked->type | WP_ANSWER))
        return err_new(ERR_UNAVAILABLE, "the warden's greeting is malformed");
    *ret_n = (size_t)got - sizeof *h;
    return NULL;
}

static err *oci_warden_greet(oci_warden *w, int fd, uint32_t *ret_caps)
{
    struct {
        struct wp_hdr h;
        struct wp_hello hello;
    } m = {.h = {.type = WP_HELLO}, .hello = {.min = WP_VERSION_MIN, .max = WP_VERSION}};
    const struct wp_hdr *h = (const struct wp_hdr *)w->rx;
    const struct wp_hello *said = (const struct wp_hello *)(h + 1);
    size_t n = 0;

    TRY(ask_first(w, fd, &m, sizeof m, &n));
    if (h->err || !wp_answer_ok(WP_HELLO, said, n) || said->min < WP_VERSION_MIN ||
        said->min > WP_VERSION)
        return other_version(h, n);
    *ret_caps = said->caps;
    return NULL;
}

/* Asks for the release, "" if the warden does not say. It cannot change during a connection. */
static err *ask_release(oci_warden *w, int fd, uint32_t caps, char ret_release[WP_RELEASE_MAX])
{
    struct wp_hdr ask = {.type = WP_RELEASE};
    const struct wp_hdr *h = (const struct wp_hdr *)w->rx;
    size_t n = 0;

    *ret_release = 0;
    if (!(caps & WP_CAP_RELEASE))
        return NULL;
    TRY(ask_first(w, fd, &ask, sizeof ask, &n));
    if (!h->err && wp_answer_ok(WP_RELEASE, h + 1, n))
        snprintf(ret_release, WP_RELEASE_MAX, "%.*s", (int)n, (const char *)(h + 1));
    return NULL;
}

/* Sends the configured watermarks as request number 0, so the answer has no receiver. Lock held. */
static void send_marks(oci_warden *w)
{
    struct {
        struct wp_hdr h;
        struct wp_watermarks marks;
    } m = {.h = {.type = WP_POOL}, .marks = w->marks};
    struct iovec v = {&m, sizeof m};

    if (w->marks.flags)
        (void)sock_send(w->fd, &v, 1, NULL, 0, MSG_DONTWAIT); /* the first on this connection */
}

static err *connect_once(oci_warden *w)
{
    CLEANUP(closep) int fd = -1;
    uint32_t caps = 0;
    char release[WP_RELEASE_MAX];

    TRY(sock_connect_path(w->path, SOCK_SEQPACKET, &fd));
    TRY(oci_warden_greet(w, fd, &caps));
    TRY(ask_release(w, fd, caps, release));
    LOCK_SCOPE(&w->lock);
    w->fd = TAKE_FD(fd);
    w->caps = caps;
    memcpy(w->release, release, sizeof release);
    w->connected = true;
    warden_heard(w);
    w->unsent = w->head;
    send_marks(w);
    send_unsent(w);
    pthread_cond_broadcast(&w->greeted);
    return NULL;
}

static void wait_wake(oci_warden *w, int fd, int timeout_ms, short *ret_events)
{
    struct pollfd p[2] = {{w->wake, POLLIN, 0}, {fd, POLLIN, 0}};
    uint64_t n;

    pthread_mutex_lock(&w->lock);
    if (w->want_out)
        p[1].events |= POLLOUT;
    pthread_mutex_unlock(&w->lock);
    poll(p, fd >= 0 ? 2 : 1, timeout_ms);
    if (p[0].revents)
        (void)!read(w->wake, &n, sizeof n);
    *ret_events = p[1].revents;
}

static bool oci_warden_stopping(oci_warden *w)
{
    LOCK_SCOPE(&w->lock);
    return w->stop;
}

/* After the connection ended: takes out the requests that must not be sent again. Lock held. */
static request *take_lost(oci_warden *w)
{
    request *lost = NULL, *following;

    for (request *r = w->head; r && r != w->unsent; r = following) {
        following = r->next;
        if (!r->once)
            continue;
        list_remove(w, r);
        r->next = lost;
        lost = r;
    }
    return lost;
}

static void hang_up(oci_warden *w)
{
    request *lost, *following;

    pthread_mutex_lock(&w->lock);
    close(w->fd);
    w->fd = -1;
    w->connected = w->want_out = w->silent = false;
    lost = take_lost(w);
    w->unsent = w->head;
    pthread_mutex_unlock(&w->lock);
    for (; lost; lost = following) {
        following = lost->next;
        finish_locally(lost, ECONNRESET, "the warden went away");
    }
}

/* Runs until the connection ends. */
static void oci_warden_serve(oci_warden *w)
{
    short events;

    while (!oci_warden_stopping(w)) {
        wait_wake(w, w->fd, oci_warden_expire(w), &events);
        if (events & POLLOUT) {
            LOCK_SCOPE(&w->lock);
            send_unsent(w);
        }
        if (events & (POLLIN | POLLHUP | POLLERR) && !oci_warden_receive(w, w->fd))
            break;
    }
    hang_up(w);
}

/* Stores the error; wakes a waiting oci_warden_new() at once if the warden's version is
 * unsupported. */
static void note_failure(oci_warden *w, err *e)
{
    LOCK_SCOPE(&w->lock);
    err_free(w->failure);
    w->failure = e;
    if (e->code == ERR_UNSUPPORTED)
        pthread_cond_broadcast(&w->greeted);
}

static bool is_refused(const oci_warden *w)
{
    return w->failure && w->failure->code == ERR_UNSUPPORTED;
}

static void *oci_warden_run(void *arg)
{
    oci_warden *w = arg;
    int backoff = BACKOFF_MIN_MS;
    short events;

    while (!oci_warden_stopping(w)) {
        err *e = connect_once(w);
        if (!e) {
            backoff = BACKOFF_MIN_MS;
            oci_warden_serve(w);
            continue;
        }
        if (backoff >= BACKOFF_MAX_MS)
            log_warn("warden", "%s: %s", e->message, str_or(e->cause, "-"));
        note_failure(w, e);
        uint64_t until = now_mono_ns() + (uint64_t)backoff * NS_PER_MS, now;
        while (!oci_warden_stopping(w) && (now = now_mono_ns()) < until) {
            int limit = oci_warden_expire(w), rest = (int)((until - now) / NS_PER_MS) + 1;
            wait_wake(w, -1, limit < rest ? limit : rest, &events);
        }
        backoff = backoff * 2 < BACKOFF_MAX_MS ? backoff * 2 : BACKOFF_MAX_MS;
    }
    return NULL;
}

void oci_warden_remember(oci_warden *w, const struct wp_watermarks *marks)
{
    LOCK_SCOPE(&w->lock);
    w->marks = *marks;
}

err *oci_warden_new(const char *socket, const struct wp_watermarks *marks, uint64_t wait_ms,
                    oci_warden **ret_warden)
{
    oci_warden *w = xcalloc(1, sizeof *w);
    uint64_t until = now_mono_ns() + wait_ms * NS_PER_MS;

    w->path = xstrdup(socket);
    w->marks = marks ? *marks : (struct wp_watermarks){0};
    w->fd = -1;
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->greeted);
    w->thread = thread_start("warden", oci_warden_run, w);
    pthread_mutex_lock(&w->lock);
    bool there = true;
    while (!w->connected && !is_refused(w) && there)
        there = cond_wait_until(&w->greeted, &w->lock, until);
    there = w->connected;
    err *refused = is_refused(w) && !there ? err_copy(w->failure) : NULL;
    pthread_mutex_unlock(&w->lock);
    if (there) {
        *ret_warden = w;
        return NULL;
    }
    oci_warden_free(w);
    if (refused)
        return refused;
    return err_remedy(err_new(ERR_UNAVAILABLE, "no warden answers at %s", socket),
                      "Start bothy-warden, or correct the path of its socket.");
}

uint32_t oci_warden_caps(oci_warden *w)
{
    LOCK_SCOPE(&w->lock);
    return w->caps;
}

void oci_warden_release(oci_warden *w, char ret_release[WP_RELEASE_MAX])
{
    LOCK_SCOPE(&w->lock);
    snprintf(ret_release, WP_RELEASE_MAX, "%s", w->connected ? w->release : "");
}

void oci_warden_free(oci_warden *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    oci_warden_wake(w);
    pthread_join(w->thread, NULL);
    while (w->head) {
        request *r = w->head;
        list_remove(w, r);
        finish_locally(r, ECANCELED, "the daemon ends");
    }
    closep(&w->fd);
    close(w->wake);
    map_done(&w->by_id);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->greeted);
    err_free(w->failure);
    free(w->path);
    free(w);
}

/* ---- waiting for an answer ---- */

typedef struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool ready;
    warden_reply *reply;
} waiting;

static void call_done(void *arg, warden_answer *a)
{
    waiting *c = arg;
    warden_reply *r = c->reply;

    LOCK_SCOPE(&c->lock);
    r->errnum = a->errnum;
    r->local = a->local;
    r->retry_after = a->retry_after;
    strncpy(r->text, a->text, sizeof r->text - 1);
    if (a->n)
        buf_append(&r->body, a->body, a->n);
    r->fd = TAKE_FD(a->fd);
    c->ready = true;
    pthread_cond_signal(&c->cond);
}

/* Returns false, with the reply, if the warden is disconnected or silent. Shortens the timeout when
 * many calls wait already: a healthy warden answers within it, and a hung one blocks no more
 * threads. */
static bool call_begin(oci_warden *w, warden_ask *ask, warden_reply *ret_reply)
{
    LOCK_SCOPE(&w->lock);

    *ret_reply = (warden_reply){.fd = -1};
    if (ask->now && !w->connected)
        *ret_reply = (warden_reply){
            .errnum = ENOTCONN, .local = true, .text = "no warden is there", .fd = -1};
    else if (ask->prompt && w->silent)
        *ret_reply = (warden_reply){
            .errnum = ENOTCONN, .local = true, .text = "the warden does not answer", .fd = -1};
    if (ret_reply->errnum)
        return false;
    if (ask->prompt && w->looks++ >= LOOKS_MAX && ask->timeout_ms <= OCI_LOOK_MS)
        ask->timeout_ms = CROWD_MS;
    return true;
}

static void call_end(oci_warden *w, const warden_ask *ask)
{
    LOCK_SCOPE(&w->lock);
    w->looks -= ask->prompt;
}

void oci_warden_call(oci_warden *w, const warden_ask *asked, warden_reply *ret_reply)
{
    waiting c = {.reply = ret_reply};
    warden_ask copy = *asked, *ask = &copy;

    if (!call_begin(w, ask, ret_reply))
        return;
    pthread_mutex_init(&c.lock, NULL);
    cond_init(&c.cond);
    oci_warden_send(w, ask, call_done, &c);
    pthread_mutex_lock(&c.lock);
    while (!c.ready)
        cond_wait_until(&c.cond, &c.lock, 0);
    pthread_mutex_unlock(&c.lock);
    call_end(w, ask);
    pthread_mutex_destroy(&c.lock);
    pthread_cond_destroy(&c.cond);
}

void warden_reply_done(warden_reply *r)
{
    buf_done(&r->body);
    closep(&r->fd);
    r->fd = -1;
}
