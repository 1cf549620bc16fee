#include "warden/conn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/fifo.h"
#include "warden/ops.h"
#include "warden/privs.h"
#include "warden/warden.h"

#define CONNS_MAX   16
#define SEND_BUFFER (4 << 20)
#define SEND_S      5 /* a bothyd that does not read for so long is disconnected */

struct conn {
    int fd;
    atomic_uint refs;
    atomic_bool closed;
    bool greeted; /* main thread only */
};

void conn_ref(conn *c)
{
    atomic_fetch_add(&c->refs, 1);
}

void conn_unref(conn *c)
{
    if (atomic_fetch_sub(&c->refs, 1) > 1)
        return;
    close(c->fd);
    free(c);
}

bool conn_closed(const conn *c)
{
    return atomic_load(&c->closed);
}

/* ---- answers ---- */

void job_free(job *j)
{
    closep(&j->fd);
    conn_unref(j->c);
    free(j);
}

static void send_answer(job *j, int errnum, const struct iovec *body, size_t nbody, int fd)
{
    struct wp_hdr h = {.type = j->type | WP_ANSWER, .err = errnum, .request = j->request};
    struct iovec iov[3] = {{&h, sizeof h}};

    memcpy(iov + 1, body, nbody * sizeof *body);
    int r = conn_closed(j->c) ? 0 : sock_send(j->c->fd, iov, nbody + 1, &fd, fd >= 0, 0);
    if (r) {
        log_warn("answer", "%s: cannot answer: errno %d", wp_type_name(j->type), -r);
        shutdown(j->c->fd, SHUT_RDWR); /* the main thread sees the end and cleans up */
    }
}

void job_answer(job *j, const void *a, size_t na, const void *b, size_t nb, int fd)
{
    const struct iovec body[] = {{(void *)a, na}, {(void *)b, nb}};

    send_answer(j, 0, body, 2, fd);
    job_free(j);
}

int job_errnum(const err *e)
{
    if (e->code == ERR_WALL_FAILED)
        return WP_EWALL;
    if (e->errnum)
        return e->errnum;
    switch (e->code) {
    case ERR_NOT_FOUND:
        return ENOENT;
    case ERR_CONFLICT:
        return EEXIST;
    case ERR_TIMEOUT:
        return ETIMEDOUT;
    case ERR_UNSUPPORTED:
        return ENOTSUP;
    case ERR_DISK_FULL:
        return ENOSPC;
    case ERR_INVALID_REQUEST:
        return EINVAL;
    default:
        return EIO;
    }
}

void job_end(job *j, err *e)
{
    struct wp_error head = {0};
    char text[WP_ERROR_TEXT];
    struct iovec body[] = {{&head, 0}, {text, 0}};

    if (e) {
        head.retry_after = e->retry_after > 0 ? (uint32_t)e->retry_after : 0;
        body[0].iov_len = sizeof head;
        body[1].iov_len = (size_t)snprintf(text, sizeof text, "%s%s%s", e->message,
                                           e->cause ? ": " : "", str_or(e->cause, ""));
        if (body[1].iov_len >= sizeof text)
            body[1].iov_len = sizeof text - 1;
    }
    send_answer(j, e ? job_errnum(e) : 0, body, 2, -1);
    err_free(e);
    job_free(j);
}

/* ---- frames ---- */

static job *job_new(conn *c, const struct wp_hdr *h, const void *body, size_t n, int fd)
{
    job *j = xmalloc(sizeof *j + n);

    *j = (job){.c = c,
               .type = h->type,
               .request = h->request,
               .received_ns = now_mono_ns(),
               .fd = fd,
               .n = n};
    memcpy(j->body, body, n);
    conn_ref(c);
    return j;
}

/* Returns the reason to refuse a frame, or NULL. */
static err *warden_conn_refuse(conn *c, const job *j, size_t nfds)
{
    if (j->type == 0 || j->type >= WP_TYPES)
        return err_sys(ERR_UNSUPPORTED, ENOSYS, "no request of type %u", j->type);
    if (nfds != wp_request_fds(j->type) || !wp_request_ok(j->type, j->body, j->n))
        return err_sys(ERR_INVALID_REQUEST, EINVAL, "malformed %s frame", wp_type_name(j->type));
    if (j->type != WP_HELLO && !c->greeted)
        return err_sys(ERR_INVALID_REQUEST, EPROTO, "HELLO comes first");
    return NULL;
}

static void take_frame(warden *w, conn *c, const char *frame, size_t n, const int *fds, size_t nfds)
{
    struct wp_hdr h;

    memcpy(&h, frame, sizeof h);
    job *j = job_new(c, &h, frame + sizeof h, n - sizeof h, nfds ? fds[0] : -1);
    for (size_t i = 1; i < nfds; i++)
        close(fds[i]);
    err *e = h.err ? err_sys(ERR_INVALID_REQUEST, EINVAL, "a request has no error")
                   : warden_conn_refuse(c, j, nfds);
    if (e) {
        job_end(j, e);
        return;
    }
    c->greeted = true;
    ops_take(w, j);
}

/* Receives one frame. Returns false when the connection is over. */
static bool conn_receive(warden *w, conn *c)
{
    static char frame[WP_FRAME_MAX]; /* main thread only */
    int fds[SOCK_FDS_MAX];
    size_t nfds;
    ssize_t n = sock_recv(c->fd, frame, sizeof frame, fds, SOCK_FDS_MAX, &nfds, MSG_DONTWAIT);

    if (n == -EAGAIN)
        return true;
    if (n >= (ssize_t)sizeof(struct wp_hdr)) {
        take_frame(w, c, frame, (size_t)n, fds, nfds);
        return true;
    }
    for (size_t i = 0; n >= 0 && i < nfds; i++)
        close(fds[i]);
    return false;
}

/* ---- the server ---- */

typedef struct server {
    warden *w;
    int listener, signals;
    conn *conns[CONNS_MAX];
} server;

static void warden_conn_drop(server *sv, size_t i)
{
    conn *c = sv->conns[i];

    sv->conns[i] = NULL;
    atomic_store(&c->closed, true);
    shutdown(c->fd, SHUT_RDWR);
    fifo_drop_of(sv->w, c);
    layers_let_go(sv->w->layers, c);
    conn_unref(c);
}

static size_t free_place(server *sv)
{
    for (size_t i = 0; i < CONNS_MAX; i++)
        if (!sv->conns[i])
            return i;
    warden_conn_drop(sv, 0); /* the oldest of too many */
    memmove(sv->conns, sv->conns + 1, sizeof sv->conns - sizeof(conn *));
    return CONNS_MAX - 1;
}

static void accept_one(server *sv)
{
    CLEANUP(closep) int fd = accept4(sv->listener, NULL, NULL, SOCK_CLOEXEC);
    const struct timeval patience = {.tv_sec = SEND_S};
    int size = SEND_BUFFER;
    sock_peer peer;

    if (fd < 0)
        return;
    if (!sock_peer_of(fd, &peer) || (peer.uid != sv->w->o.uid && peer.uid != 0)) {
        log_warn("refused", "a process of uid %u may not connect", peer.uid);
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    conn *c = xcalloc(1, sizeof *c);
    c->fd = TAKE_FD(fd);
    atomic_init(&c->refs, 1);
    sv->conns[free_place(sv)] = c;
}

static void warden_conn_serve(server *sv)
{
    for (;;) {
        struct pollfd p[2 + CONNS_MAX] = {{sv->signals, POLLIN, 0}, {sv->listener, POLLIN, 0}};
        for (size_t i = 0; i < CONNS_MAX; i++)
            p[2 + i] = (struct pollfd){sv->conns[i] ? sv->conns[i]->fd : -1, POLLIN, 0};
        if (poll(p, 2 + CONNS_MAX, -1) < 0 && errno != EINTR && errno != ENOMEM)
            abort();
        if (p[0].revents)
            return;
        /* Frames that a dead bothyd left unread are dropped with its connection: if one of its
         * claims began after its successor's LIST, the sandbox would be an orphan. */
        for (size_t i = 0; i < CONNS_MAX; i++)
            if (p[2 + i].revents & (POLLHUP | POLLERR) ||
                (p[2 + i].revents && !conn_receive(sv->w, sv->conns[i])))
                warden_conn_drop(sv, i);
        if (p[1].revents)
            accept_one(sv);
    }
}

err *conn_serve(warden *w)
{
    server sv = {.w = w};
    CLEANUP(closep) int listener = -1;
    sigset_t ends;

    TRY(sock_bind_path(w->o.socket, SOCK_SEQPACKET, 0660, &listener));
    /* lchown does not follow a link: bothyd's user may own the directory. */
    if (lchown(w->o.socket, 0, w->o.gid) || listen(listener, 16))
        return err_sys(ERR_INTERNAL, errno, "cannot listen at %s", w->o.socket);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    CLEANUP(closep) int signals = signalfd(-1, &ends, SFD_CLOEXEC);
    if (signals < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot receive signals");
    sv.listener = listener;
    sv.signals = signals;
    log_info("ready", "listening at %s", w->o.socket);
    privs_reader();
    warden_conn_serve(&sv);
    unlink(w->o.socket);
    return NULL;
}
