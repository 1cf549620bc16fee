/* Boxes of the fake backend, and the thread that serves their connections.
 *
 * Requests are appended to the box's buffer and sent at once if the socket takes them. A request
 * that a broken connection had not sent completely is sent again on the next one; SPAWN is repeated
 * until it is answered (the node knows the id). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/fake.h"
#include "backend/fake_proto.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/str.h"
#include "base/thread.h"
#include "wire/spine_codec.h"

#define READ_CHUNK (256u * 1024)

/* ---- boxes ---- */

void fake_box_ref(box *x)
{
    atomic_fetch_add(&x->refs, 1);
}

void fake_pending_free(struct pending *p)
{
    buf_done(&p->message);
    free(p);
}

void fake_box_unref(box *x)
{
    if (!x || atomic_fetch_sub(&x->refs, 1) != 1)
        return;
    while (x->pending) {
        struct pending *p = x->pending;
        x->pending = p->next;
        fake_pending_free(p);
    }
    closep(&x->fd);
    secret_wipe(x->claim.p, x->claim.len);
    buf_done(&x->claim);
    buf_done(&x->in);
    buf_done(&x->out);
    buf_done(&x->hello);
    buf_done(&x->cookies);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

box *fake_box_new(fake *f, const char *id, const box_events *ev, void *arg)
{
    box *x = xcalloc(1, sizeof *x);

    x->refs = 1;
    x->owner = f;
    x->ev = ev;
    x->arg = arg;
    x->fd = -1;
    x->starting = true;
    snprintf(x->id, SANDBOX_ID_LEN + 1, "%s", id);
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

/* ---- sending ---- */

/* Sets EPOLLOUT only while data waits. Lock held. */
static void fake_box_rearm(box *x, bool write)
{
    struct epoll_event e = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = x};

    if (x->want_write == write || x->fd < 0)
        return;
    x->want_write = write;
    epoll_ctl(x->owner->ep, EPOLL_CTL_MOD, x->fd, &e);
}

/* Returns the length of the first message in the buffer. */
static size_t first_message(const buf *b)
{
    uint32_t head[2];

    memcpy(head, b->p, sizeof head);
    return 8 + ((head[0] + 7u) & ~7u) + ((size_t)(head[1] + 7u) & ~(size_t)7);
}

/* The reader of the same socket notices a failed send. Lock held. */
void fake_flush(box *x)
{
    while (x->ready && x->fd >= 0 && x->out.len) {
        ssize_t n =
            send(x->fd, x->out.p + x->sent, x->out.len - x->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        x->sent += (size_t)n;
        size_t whole = 0;
        while (whole < x->out.len) {
            buf rest = {.p = x->out.p + whole, .len = x->out.len - whole};
            size_t m = first_message(&rest);
            if (whole + m > x->sent)
                break;
            whole += m;
        }
        buf_consume(&x->out, whole);
        x->sent -= whole;
    }
    fake_box_rearm(x, x->ready && x->out.len);
}

void fake_post(box *x, const void *record, size_t size, const void *extra, size_t n)
{
    LOCK_SCOPE(&x->lock);
    if (x->gone)
        return;
    sps_put(&x->out, record, size, extra, n);
    fake_flush(x);
}

err *fake_post_checked(box *x, const void *record, size_t size, const void *extra, size_t n)
{
    {
        LOCK_SCOPE(&x->lock);
        if (x->gone)
            return err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id);
    }
    fake_post(x, record, size, extra, n);
    return NULL;
}

/* ---- connections (connection thread) ---- */

/* Lock held. */
void fake_disconnect(box *x)
{
    closep(&x->fd);
    x->fd = -1;
    x->ready = x->want_write = false;
    x->sent = 0;
    buf_clear(&x->in);
    buf_clear(&x->cookies);
}

err *fake_connect(box *x, bool create)
{
    struct fake_request q = {.h.type = FAKE_OPEN, .create = create};
    CLEANUP(freep) char *path = str_printf("%s/" FAKE_SOCKET, x->owner->dir);
    CLEANUP(closep) int fd = -1;
    CLEANUP(buf_done) buf b = {0};

    memcpy(q.id, x->id, sizeof q.id);
    TRY(sock_connect_path(path, SOCK_STREAM, &fd));
    sps_put(&b, &q, sizeof q, NULL, 0);
    if (send(fd, b.p, b.len, MSG_NOSIGNAL) != (ssize_t)b.len)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot talk to the fake node");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    LOCK_SCOPE(&x->lock);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = x};
    if (epoll_ctl(x->owner->ep, EPOLL_CTL_ADD, fd, &e))
        return err_sys(ERR_INTERNAL, errno, "epoll_ctl");
    x->fd = TAKE_FD(fd);
    return NULL;
}

void fake_forget(box *x)
{
    fake *f = x->owner;
    bool found = false;

    {
        LOCK_SCOPE(&f->lock);
        for (box **p = &f->boxes; *p; p = &(*p)->next)
            if (*p == x) {
                *p = x->next;
                found = true;
                break;
            }
    }
    if (found)
        fake_box_unref(x);
}

/* Ends a box: the node does not know it, or is dead. */
static void fake_box_lose(box *x, const char *why)
{
    create_done *done = x->done;

    {
        LOCK_SCOPE(&x->lock);
        if (x->gone)
            return;
        x->gone = true;
        fake_disconnect(x);
    }
    x->done = NULL;
    if (done)
        done(x->arg, err_new(ERR_CREATE_FAILED, "the fake node has no sandbox: %s", why), NULL,
             NULL);
    else
        x->ev->gone(x->arg, why);
    fake_forget(x);
}

static void fake_box_reconnect(box *x)
{
    {
        LOCK_SCOPE(&x->lock);
        fake_disconnect(x);
    }
    err *e = fake_connect(x, x->done != NULL);
    if (e) {
        fake_box_lose(x, "the node does not answer");
        err_free(e);
    }
}

/* ---- messages of the node (connection thread) ---- */

/* Requests that the last connection may not have delivered go first. */
static void resume_sending(box *x)
{
    buf all = {0};

    LOCK_SCOPE(&x->lock);
    for (struct pending *p = x->pending; p; p = p->next)
        buf_append(&all, p->message.p, p->message.len);
    if (x->out.len)
        buf_append(&all, x->out.p, x->out.len);
    buf_done(&x->out);
    x->out = all;
    x->ready = true;
    fake_flush(x);
}

static void tell_attached(box *x, const struct sp_hello *h)
{
    create_done *done = x->done;
    box_timing timing = {.klass = BOX_COLD};

    x->done = NULL;
    x->starting = false;
    resume_sending(x);
    if (done) {
        fake_box_ref(x);
        done(x->arg, NULL, x, &timing);
    }
    x->ev->attached(x->arg, h, spine_hello_recs(h));
}

static void on_hello(box *x, const sps_message *m)
{
    const struct sp_hello *h = m->record;

    x->claiming = false;
    {
        LOCK_SCOPE(&x->lock);
        if (x->claim.len && !(h->flags & SP_HELLO_CLAIMED)) {
            x->claiming = true;
            buf first = {0};
            buf_append(&first, x->claim.p, x->claim.len);
            buf_append(&first, x->out.p, x->out.len);
            buf_done(&x->out);
            x->out = first;
            x->ready = true;
            fake_flush(x);
        }
    }
    if (!x->claiming) {
        tell_attached(x, h);
        return;
    }
    buf_clear(&x->hello);
    buf_append(&x->hello, h, m->size);
}

static void on_claimed(box *x, const struct sp_hdr *h)
{
    x->claiming = false;
    if (h->err && h->err != EALREADY) {
        fake_box_lose(x, "the claim was refused");
        return;
    }
    {
        LOCK_SCOPE(&x->lock);
        secret_wipe(x->claim.p, x->claim.len);
        buf_done(&x->claim);
    }
    tell_attached(x, (const struct sp_hello *)x->hello.p);
}

/* Returns false if this answer came before. */
static bool take_pending(box *x, uint64_t id)
{
    LOCK_SCOPE(&x->lock);
    for (struct pending **p = &x->pending; *p; p = &(*p)->next)
        if ((*p)->id == id) {
            struct pending *found = *p;
            *p = found->next;
            fake_pending_free(found);
            return true;
        }
    return false;
}

static void on_started(box *x, const struct sp_started *st)
{
    int fd[SP_FDS_MAX] = {-1, -1, -1, -1};

    if (st->h.type == SP_FDS || take_pending(x, st->h.id))
        x->ev->started(x->arg, st->h.id, st->h.err, st, fd);
}

/* Returns true if the connection must be cut here (cut_every). */
static bool on_stdio(box *x, const sps_message *m)
{
    const struct sps_data *d = m->record;
    fake *f = x->owner;
    unsigned long n = ++f->frames;

    if (f->cut_every && n % f->cut_every == 0)
        return true;
    x->ev->frame(x->arg, d->h.id, (int)d->a, d->offset, m->extra, m->nextra);
    if (f->repeat_every && n % f->repeat_every == 0)
        x->ev->frame(x->arg, d->h.id, (int)d->a, d->offset, m->extra, m->nextra);
    return false;
}

static uint64_t next_cookie(box *x)
{
    uint64_t cookie = 0;

    LOCK_SCOPE(&x->lock);
    if (x->cookies.len) {
        memcpy(&cookie, x->cookies.p, sizeof cookie);
        buf_consume(&x->cookies, sizeof cookie);
    }
    return cookie;
}

/* Returns false if the connection must not be read any further. */
static bool on_message(box *x, const sps_message *m)
{
    const struct sp_hdr *h = m->record;

    switch (m->type) {
    case SP_HELLO:
        on_hello(x, m);
        return true;
    case SP_DONE:
        if (!h->id) {
            if (x->claiming)
                on_claimed(x, h);
        } else {
            x->ev->signalled(x->arg, h->id, next_cookie(x), h->err);
        }
        return true;
    case SP_STARTED:
    case SP_FDS:
        on_started(x, m->record);
        return true;
    case SP_EXIT:
        x->ev->exited(x->arg, &((const struct sp_exit *)m->record)->r);
        return true;
    case SPS_TAKEN:
        x->ev->stdin_taken(x->arg, h->id, ((const struct sps_data *)m->record)->offset);
        return true;
    case SPS_STDIO:
        if (!on_stdio(x, m))
            return true;
        fake_box_reconnect(x);
        return false;
    case FAKE_REPLY:
        fake_box_lose(x, "the node does not know it");
        return false;
    default:
        fake_box_lose(x, "the node talks nonsense");
        return false;
    }
}

static void read_messages(box *x)
{
    size_t at = 0;
    buf in = x->in;

    x->in = (buf){0}; /* an event may cut the connection: the rest is dropped then */
    while (at < in.len) {
        sps_message m;
        const char *why;
        long n = sps_next(in.p + at, in.len - at, SPS_ANSWERS, &m, &why);
        if (n < 0) {
            log_error("fake", "bad message of the node: %s", why);
            fake_box_lose(x, "the node talks nonsense");
        }
        if (n <= 0)
            break;
        at += (size_t)n;
        if (!on_message(x, &m)) {
            buf_done(&in);
            return;
        }
    }
    buf_consume(&in, at);
    x->in = in;
}

static void fake_box_serve(box *x, uint32_t events)
{
    int fd;

    {
        LOCK_SCOPE(&x->lock);
        fd = x->fd;
        if (fd >= 0 && events & EPOLLOUT)
            fake_flush(x);
    }
    if (fd < 0 || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    buf_reserve(&x->in, READ_CHUNK);
    ssize_t n = recv(fd, x->in.p + x->in.len, READ_CHUNK, MSG_DONTWAIT);
    if (n > 0) {
        x->in.len += (size_t)n;
        read_messages(x);
    } else if (!n || (errno != EAGAIN && errno != EINTR)) {
        fake_box_reconnect(x);
    }
}

static bool fake_box_stopping(fake *f)
{
    LOCK_SCOPE(&f->lock);
    return f->stop;
}

void *fake_run(void *arg)
{
    fake *f = arg;

    while (!fake_box_stopping(f)) {
        struct epoll_event ev;
        /* One event at a time: it may end another box that has an event in the same batch. */
        if (epoll_wait(f->ep, &ev, 1, -1) != 1)
            continue;
        if (!ev.data.ptr)
            continue; /* woken to stop */
        CLEANUP(fake_box_unrefp) box *x = ev.data.ptr;
        fake_box_ref(x);
        fake_box_serve(x, ev.events);
    }
    return NULL;
}
