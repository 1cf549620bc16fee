/* The fake backend: real processes without walls, kept by bothy-fake-node, bytes as frames.
 *
 * One thread serves the connections of all boxes. Requests are put into the box's buffer and sent
 * at once if the socket takes them; what a cut connection had not taken whole is sent again on the
 * next one, and SPAWN until it is answered (the node knows the id). */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/fake_proto.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/thread.h"
#include "wire/spine_codec.h"

#define READ_CHUNK (256u * 1024)
#define START_MS   10000

typedef struct fake fake;

struct pending { /* a SPAWN without its answer */
    struct pending *next;
    uint64_t id;
    buf message;
};

struct box {
    _Atomic unsigned refs;
    fake *owner;
    char id[SANDBOX_ID_LEN + 1];
    const box_events *ev;
    void *arg;
    box *next; /* owner->lock */

    /* the thread's own */
    buf in;
    create_done *done; /* a create under way */
    bool claiming;
    bool starting; /* no event was delivered yet */
    buf hello;     /* kept until the claim is answered */

    pthread_mutex_t lock;
    int fd;                  /* lock; changed by the thread */
    bool ready;              /* lock: HELLO came on this connection */
    bool gone;               /* lock */
    bool want_write;         /* lock: EPOLLOUT is on */
    buf out;                 /* lock: whole messages */
    size_t sent;             /* lock: bytes of the first message that this connection took */
    buf claim;               /* lock: the CLAIM message until it is sent; wiped */
    struct pending *pending; /* lock, oldest first */
};

struct fake {
    backend b;
    char *dir, *program, *kit;
    unsigned cut_every, repeat_every;
    unsigned long frames; /* the thread's own */
    int ep, wake;
    pthread_t thread;
    pthread_mutex_t lock;
    box *boxes; /* lock; each is referenced */
    bool stop;  /* lock */
};

/* ---- boxes ---- */

static void box_ref(box *x)
{
    atomic_fetch_add(&x->refs, 1);
}

static void pending_free(struct pending *p)
{
    buf_done(&p->message);
    free(p);
}

static void box_unref(box *x)
{
    if (!x || atomic_fetch_sub(&x->refs, 1) != 1)
        return;
    while (x->pending) {
        struct pending *p = x->pending;
        x->pending = p->next;
        pending_free(p);
    }
    closep(&x->fd);
    secret_wipe(x->claim.p, x->claim.len);
    buf_done(&x->claim);
    buf_done(&x->in);
    buf_done(&x->out);
    buf_done(&x->hello);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
DEFINE_CLEANUP(box, box_unref)

static box *box_new(fake *f, const char *id, const box_events *ev, void *arg)
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

/* lock held. EPOLLOUT only while something waits. */
static void rearm(box *x, bool write)
{
    struct epoll_event e = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = x};

    if (x->want_write == write || x->fd < 0)
        return;
    x->want_write = write;
    epoll_ctl(x->owner->ep, EPOLL_CTL_MOD, x->fd, &e);
}

/* The length of the first message in the buffer. */
static size_t first_message(const buf *b)
{
    uint32_t head[2];

    memcpy(head, b->p, sizeof head);
    return 8 + ((head[0] + 7u) & ~7u) + ((size_t)(head[1] + 7u) & ~(size_t)7);
}

/* lock held. A failed send is noticed by the reader of the same socket. */
static void flush(box *x)
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
    rearm(x, x->ready && x->out.len);
}

static void post(box *x, const void *record, size_t size, const void *extra, size_t n)
{
    LOCK_SCOPE(&x->lock);
    if (x->gone)
        return;
    sps_put(&x->out, record, size, extra, n);
    flush(x);
}

static err *post_checked(box *x, const void *record, size_t size, const void *extra, size_t n)
{
    {
        LOCK_SCOPE(&x->lock);
        if (x->gone)
            return err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id);
    }
    post(x, record, size, extra, n);
    return NULL;
}

/* ---- connections (the thread) ---- */

/* lock held */
static void disconnect(box *x)
{
    closep(&x->fd);
    x->fd = -1;
    x->ready = x->want_write = false;
    x->sent = 0;
    buf_clear(&x->in);
}

static err *connect_box(box *x, bool create)
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

static void forget(box *x)
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
        box_unref(x);
}

/* The node does not know it, or is dead itself. */
static void lose(box *x, const char *why)
{
    create_done *done = x->done;

    {
        LOCK_SCOPE(&x->lock);
        if (x->gone)
            return;
        x->gone = true;
        disconnect(x);
    }
    x->done = NULL;
    if (done)
        done(x->arg, err_new(ERR_CREATE_FAILED, "the fake node has no sandbox: %s", why), NULL,
             NULL);
    else
        x->ev->gone(x->arg, why);
    forget(x);
}

static void reconnect(box *x)
{
    {
        LOCK_SCOPE(&x->lock);
        disconnect(x);
    }
    err *e = connect_box(x, x->done != NULL);
    if (e) {
        lose(x, "the node does not answer");
        err_free(e);
    }
}

/* ---- what the node says (the thread) ---- */

/* Everything the last connection may not have brought over goes first. */
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
    flush(x);
}

static void tell_attached(box *x, const struct sp_hello *h)
{
    create_done *done = x->done;
    box_timing timing = {0};

    x->done = NULL;
    x->starting = false;
    resume_sending(x);
    if (done) {
        box_ref(x);
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
            flush(x);
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
        lose(x, "the claim was refused");
        return;
    }
    {
        LOCK_SCOPE(&x->lock);
        secret_wipe(x->claim.p, x->claim.len);
        buf_done(&x->claim);
    }
    tell_attached(x, (const struct sp_hello *)x->hello.p);
}

/* False: this answer was given before. */
static bool take_pending(box *x, uint64_t id)
{
    LOCK_SCOPE(&x->lock);
    for (struct pending **p = &x->pending; *p; p = &(*p)->next)
        if ((*p)->id == id) {
            struct pending *found = *p;
            *p = found->next;
            pending_free(found);
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

/* True: cut here. */
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

/* False: the connection is not to be read any further. */
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
            x->ev->signalled(x->arg, h->id, 0, h->err);
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
        reconnect(x);
        return false;
    case FAKE_REPLY:
        lose(x, "the node does not know it");
        return false;
    default:
        lose(x, "the node talks nonsense");
        return false;
    }
}

static void read_messages(box *x)
{
    size_t at = 0;
    buf in = x->in;

    x->in = (buf){0}; /* an event may cut the connection: what is read then is nobody's */
    while (at < in.len) {
        sps_message m;
        const char *why;
        long n = sps_next(in.p + at, in.len - at, SPS_ANSWERS, &m, &why);
        if (n < 0) {
            log_error("fake", "bad message of the node: %s", why);
            lose(x, "the node talks nonsense");
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

static void serve(box *x, uint32_t events)
{
    int fd;

    {
        LOCK_SCOPE(&x->lock);
        fd = x->fd;
        if (fd >= 0 && events & EPOLLOUT)
            flush(x);
    }
    if (fd < 0 || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    buf_reserve(&x->in, READ_CHUNK);
    ssize_t n = recv(fd, x->in.p + x->in.len, READ_CHUNK, MSG_DONTWAIT);
    if (n > 0) {
        x->in.len += (size_t)n;
        read_messages(x);
    } else if (!n || (errno != EAGAIN && errno != EINTR)) {
        reconnect(x);
    }
}

static bool stopping(fake *f)
{
    LOCK_SCOPE(&f->lock);
    return f->stop;
}

static void *run(void *arg)
{
    fake *f = arg;

    while (!stopping(f)) {
        struct epoll_event ev;
        /* One at a time: an event may end another box whose event would be in the same batch. */
        if (epoll_wait(f->ep, &ev, 1, -1) != 1)
            continue;
        if (!ev.data.ptr)
            continue; /* woken to stop */
        CLEANUP(box_unrefp) box *x = ev.data.ptr;
        box_ref(x);
        serve(x, ev.events);
    }
    return NULL;
}

/* ---- the contract ---- */

static box *find(fake *f, const char *id)
{
    LOCK_SCOPE(&f->lock);
    for (box *x = f->boxes; x; x = x->next)
        if (!strcmp(x->id, id)) {
            box_ref(x);
            return x;
        }
    return NULL;
}

static void enlist(fake *f, box *x)
{
    LOCK_SCOPE(&f->lock);
    box_ref(x);
    x->next = f->boxes;
    f->boxes = x;
}

static err *encode_claim(const box_spec *spec, buf *ret_message)
{
    CLEANUP(spine_out_done) spine_out o = {0};
    CLEANUP(strv_freep) char **env = strv_copy(spec->env);

    if (spec->hostname && !strv_env_get(env, "HOSTNAME")) /* it has no other */
        strv_env_set(&env, "HOSTNAME", spec->hostname);
    TRY(spine_encode_claim(&(spine_claim){.user = str_or(spec->user, ""),
                                          .cwd = str_or(spec->cwd, ""),
                                          .env = env,
                                          .umask = spec->umask},
                           &o));
    buf_reserve(ret_message, o.record.len + o.payload.len + 64);
    sps_put(ret_message, o.record.p, o.record.len, o.payload.p, o.payload.len);
    return NULL;
}

static void fake_create(backend *b, const box_spec *spec, const box_events *ev, void *arg,
                        create_done *done)
{
    fake *f = (fake *)b;
    CLEANUP(box_unrefp) box *x = find(f, spec->id);

    if (x) {
        done(arg, err_new(ERR_CONFLICT, "sandbox %s is attached already", spec->id), NULL, NULL);
        return;
    }
    x = box_new(f, spec->id, ev, arg);
    err *e = encode_claim(spec, &x->claim);
    if (e) {
        done(arg, e, NULL, NULL);
        return;
    }
    x->done = done;
    enlist(f, x);
    e = connect_box(x, true);
    if (e) {
        x->done = NULL;
        forget(x);
        done(arg, e, NULL, NULL);
    }
}

static err *fake_attach(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box)
{
    fake *f = (fake *)b;
    box *x = box_new(f, id, ev, arg);

    enlist(f, x);
    err *e = connect_box(x, false);
    if (e) {
        forget(x);
        box_unref(x);
        return e;
    }
    *ret_box = x;
    return NULL;
}

static char **with_program(char *const *argv, char *program)
{
    size_t n = 0;

    while (argv[n])
        n++;
    char **copy = xcalloc(n + 1, sizeof(char *));
    memcpy(copy, argv, n * sizeof(char *));
    copy[0] = program;
    return copy;
}

static err *fake_exec(box *x, uint64_t exec, const exec_spec *spec, int keep_fd)
{
    CLEANUP(spine_out_done) spine_out o = {0};
    spine_spawn s = {.id = exec,
                     .umask = SP_UMASK_CLAIM,
                     .rows = spec->rows,
                     .cols = spec->cols,
                     .user = str_or(spec->user, ""),
                     .cwd = str_or(spec->cwd, ""),
                     .argv = spec->argv,
                     .env = spec->env};

    (void)keep_fd; /* stdin comes by frames */
    /* Descriptors do not travel here: what is run so is the kit, and it has a path. */
    CLEANUP(freep) char **argv = NULL;
    if (spec->exec_fd >= 0) {
        if (!x->owner->kit)
            return err_sys(ERR_UNSUPPORTED, ENOSYS, "the fake backend was given no kit");
        argv = with_program(spec->argv, x->owner->kit);
        s.argv = argv;
    }
    s.flags = (spec->stdio == STDIO_PTY ? SP_F_PTY : 0) |
              (spec->stdio == STDIO_MERGED ? SP_F_MERGE : 0) |
              (spec->stdin_open || spec->stdio == STDIO_PTY ? 0 : SP_F_NOSTDIN);
    TRY(spine_encode_spawn(&s, &o));
    struct pending *p = xcalloc(1, sizeof *p);
    p->id = exec;
    sps_put(&p->message, o.record.p, o.record.len, o.payload.p, o.payload.len);
    LOCK_SCOPE(&x->lock);
    if (x->gone) {
        pending_free(p);
        return err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id);
    }
    struct pending **at = &x->pending;
    while (*at)
        at = &(*at)->next;
    *at = p;
    buf_append(&x->out, p->message.p, p->message.len);
    flush(x);
    return NULL;
}

static err *fake_fetch(box *x, uint64_t exec)
{
    struct sp_op op = spine_fetch(exec);

    return post_checked(x, &op, sizeof op, NULL, 0);
}

static err *fake_signal(box *x, const signal_spec *s)
{
    struct sp_op op = spine_signal(s->exec, s->signo, s->scope, s->pid, s->since);

    return post_checked(x, &op, sizeof op, NULL, 0);
}

static void fake_close(box *x, uint64_t exec, uint32_t mask)
{
    struct sp_op op = spine_close(exec, mask);

    post(x, &op, sizeof op, NULL, 0);
}

static void fake_ack(box *x, uint64_t exec, uint32_t mask)
{
    struct sp_op op = spine_ack(exec, mask);

    post(x, &op, sizeof op, NULL, 0);
}

static void fake_received(box *x, uint64_t exec, int stream, uint64_t offset)
{
    struct sps_data d = {{SPS_RECEIVED, 0, exec}, (uint32_t)stream, 0, offset};

    post(x, &d, sizeof d, NULL, 0);
}

static err *fake_stdin(box *x, uint64_t exec, uint64_t offset, const void *p, size_t n, bool eof)
{
    struct sps_data d = {{SPS_STDIN, 0, exec}, eof ? SPS_STDIN_EOF : 0, 0, offset};

    if (n > SPS_CHUNK_MAX)
        return err_new(ERR_INTERNAL, "a piece of stdin has %zu bytes", n);
    return post_checked(x, &d, sizeof d, p, n);
}

static err *fake_resize(box *x, uint64_t exec, uint16_t rows, uint16_t cols)
{
    struct sps_data d = {{SPS_RESIZE, 0, exec}, rows, cols, 0};

    return post_checked(x, &d, sizeof d, NULL, 0);
}

/* Asks the node on a connection of its own and waits for the answer. */
static err *ask(fake *f, const struct fake_request *q, buf *ret_extra)
{
    CLEANUP(freep) char *path = str_printf("%s/" FAKE_SOCKET, f->dir);
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(closep) int fd = -1;
    struct timeval limit = {.tv_sec = 10};
    sps_message m;
    const char *why = "the connection ended";
    long whole = 0;

    TRY(sock_connect_path(path, SOCK_STREAM, &fd));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sps_put(&b, q, sizeof *q, NULL, 0);
    if (send(fd, b.p, b.len, MSG_NOSIGNAL) != (ssize_t)b.len)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot talk to the fake node");
    buf_clear(&b);
    while (!whole) {
        buf_reserve(&b, 65536);
        ssize_t n = recv(fd, b.p + b.len, 65536, 0);
        if (n <= 0)
            break;
        b.len += (size_t)n;
        whole = sps_next(b.p, b.len, SPS_ANSWERS, &m, &why);
    }
    if (whole <= 0 || m.type != FAKE_REPLY)
        return err_because(err_new(ERR_UNAVAILABLE, "the fake node did not answer"), "%s", why);
    if (ret_extra && m.nextra)
        buf_append(ret_extra, m.extra, m.nextra);
    return NULL;
}

static err *fake_destroy(backend *b, const char *id)
{
    struct fake_request q = {.h.type = FAKE_DESTROY};

    snprintf(q.id, SANDBOX_ID_LEN + 1, "%s", id);
    return ask((fake *)b, &q, NULL);
}

static err *fake_list(backend *b, box_status **ret_list, size_t *ret_n)
{
    struct fake_request q = {.h.type = FAKE_LIST};
    CLEANUP(buf_done) buf extra = {0};

    TRY(ask((fake *)b, &q, &extra));
    size_t n = extra.len / sizeof(struct fake_box);
    const struct fake_box *found = (const void *)extra.p;
    *ret_list = xcalloc(n + 1, sizeof(box_status));
    for (size_t i = 0; i < n; i++)
        snprintf((*ret_list)[i].id, SANDBOX_ID_LEN + 1, "%s", found[i].id);
    *ret_n = n;
    return NULL;
}

static err *no(const char *what)
{
    return err_new(ERR_UNSUPPORTED, "the fake backend has no %s", what);
}

static err *fake_usage(backend *b, const char *id, box_usage *ret_usage)
{
    (void)b, (void)id, (void)ret_usage;
    return no("statistics");
}

static err *fake_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n,
                            box_usage *ret)
{
    (void)b, (void)ids, (void)n, (void)ret;
    return no("statistics");
}

static err *fake_unpack(backend *b, const uint8_t diff_id[32], int format, int blob_fd)
{
    (void)b, (void)diff_id, (void)format, (void)blob_fd;
    return no("images");
}

static err *fake_image(backend *b, const uint8_t image[32], const uint8_t (*diff_ids)[32], size_t n)
{
    (void)b, (void)image, (void)diff_ids, (void)n;
    return no("images");
}

static err *fake_prune(backend *b, const uint8_t (*images)[32], size_t n, bool unclaimed,
                       uint64_t *ret_bytes)
{
    (void)b, (void)images, (void)n, (void)unclaimed;
    *ret_bytes = 0;
    return NULL;
}

/* No walls, no networks: a port of a sandbox is one of the host's. */
static void fake_socket(backend *b, const char *id, socket_done *done, void *arg)
{
    CLEANUP(box_unrefp) box *x = find((fake *)b, id);
    int off = 0, fd = -1;

    if (!x) {
        done(arg, err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", id), -1);
        return;
    }
    fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    else
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    done(arg, fd < 0 ? err_sys(ERR_INTERNAL, errno, "cannot make a socket") : NULL, fd);
}

/* Boxes outlive us in their holders' hands; without the thread they are silent. */
static void fake_free(backend *b)
{
    fake *f = (fake *)b;

    {
        LOCK_SCOPE(&f->lock);
        f->stop = true;
    }
    eventfd_write(f->wake, 1);
    pthread_join(f->thread, NULL);
    for (box *x = f->boxes, *next; x; x = next) {
        next = x->next;
        {
            LOCK_SCOPE(&x->lock);
            x->gone = true;
            disconnect(x);
        }
        box_unref(x);
    }
    close(f->ep);
    close(f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f->dir);
    free(f->program);
    free(f->kit);
    free(f);
}

static const backend_ops FAKE_OPS = {
    .create = fake_create,
    .attach = fake_attach,
    .exec = fake_exec,
    .fetch = fake_fetch,
    .signal = fake_signal,
    .close = fake_close,
    .ack = fake_ack,
    .received = fake_received,
    .stdin_write = fake_stdin,
    .resize = fake_resize,
    .destroy = fake_destroy,
    .list = fake_list,
    .usage = fake_usage,
    .usage_many = fake_usage_many,
    .unpack = fake_unpack,
    .image = fake_image,
    .prune = fake_prune,
    .socket = fake_socket,
    .box_ref = box_ref,
    .box_unref = box_unref,
    .free = fake_free,
};

/* The node leaves this process's session and answers before its starter is told. */
static err *start_node(const char *program, const char *dir)
{
    char *argv[] = {(char *)program, (char *)dir, NULL};
    const int fds[] = {-1, -1, 2};
    int status;
    pid_t pid;

    TRY(spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 3}, &pid));
    TRY(spawn_wait(pid, START_MS, &status));
    if (status)
        return err_new(ERR_UNAVAILABLE, "the fake node did not start (status %x)", status);
    return NULL;
}

static err *open_loop(fake *f)
{
    struct epoll_event e = {.events = EPOLLIN};

    f->ep = epoll_create1(EPOLL_CLOEXEC);
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->ep < 0 || f->wake < 0 || epoll_ctl(f->ep, EPOLL_CTL_ADD, f->wake, &e))
        return err_sys(ERR_INTERNAL, errno, "cannot start the fake backend");
    return NULL;
}

err *backend_fake_new(const fake_options *o, backend **ret_backend)
{
    CLEANUP(freep) char *path = str_printf("%s/" FAKE_SOCKET, o->dir);
    CLEANUP(closep) int probe = -1;
    err *e = sock_connect_path(path, SOCK_STREAM, &probe);

    if (e) {
        err_free(e);
        e = start_node(o->node_program, o->dir);
    }
    if (e && probe < 0) { /* somebody else may have started it at the same time */
        err *still = sock_connect_path(path, SOCK_STREAM, &probe);
        if (still) {
            err_free(still);
            return e;
        }
        err_free(e);
    }
    fake *f = xcalloc(1, sizeof *f);
    f->b.ops = &FAKE_OPS;
    f->kit = o->kit && *o->kit ? xstrdup(o->kit) : NULL;
    f->b.caps = (backend_caps){.name = "fake",
                               .socket = CAP_EMULATED,
                               .files = f->kit ? CAP_NATIVE : CAP_EMULATED,
                               .frames = true};
    f->dir = xstrdup(o->dir);
    f->program = xstrdup(o->node_program);
    f->cut_every = o->cut_every;
    f->repeat_every = o->repeat_every;
    pthread_mutex_init(&f->lock, NULL);
    TRY(open_loop(f));
    f->thread = thread_start("fake", run, f);
    *ret_backend = &f->b;
    return NULL;
}
