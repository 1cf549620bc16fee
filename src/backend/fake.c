/* The fake backend: real processes without isolation, kept by bothy-fake-node, bytes as frames. */
#include "backend/fake.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/fake_proto.h"
#include "base/sock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/thread.h"
#include "wire/spine_codec.h"

#define START_MS 10000

static box *fake_find(fake *f, const char *id)
{
    LOCK_SCOPE(&f->lock);
    for (box *x = f->boxes; x; x = x->next)
        if (!strcmp(x->id, id)) {
            fake_box_ref(x);
            return x;
        }
    return NULL;
}

static void fake_enlist(fake *f, box *x)
{
    LOCK_SCOPE(&f->lock);
    fake_box_ref(x);
    x->next = f->boxes;
    f->boxes = x;
}

static err *encode_claim(const box_spec *spec, buf *ret_message)
{
    CLEANUP(spine_out_done) spine_out o = {0};
    CLEANUP(strv_freep) char **env = strv_copy(spec->env);

    /* the sandbox's only form of a hostname */
    if (spec->hostname && !strv_env_get(env, "HOSTNAME"))
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
    CLEANUP(fake_box_unrefp) box *x = fake_find(f, spec->id);

    if (x) {
        done(arg, err_new(ERR_CONFLICT, "sandbox %s is attached already", spec->id), NULL, NULL);
        return;
    }
    x = fake_box_new(f, spec->id, ev, arg);
    err *e = encode_claim(spec, &x->claim);
    if (e) {
        done(arg, e, NULL, NULL);
        return;
    }
    x->done = done;
    fake_enlist(f, x);
    e = fake_connect(x, true);
    if (e) {
        x->done = NULL;
        fake_forget(x);
        done(arg, e, NULL, NULL);
    }
}

static err *fake_attach(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box)
{
    fake *f = (fake *)b;
    box *x = fake_box_new(f, id, ev, arg);

    fake_enlist(f, x);
    err *e = fake_connect(x, false);
    if (e) {
        fake_forget(x);
        fake_box_unref(x);
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

    (void)keep_fd; /* stdin comes in frames */
    /* This stream carries no descriptors. Only the kit is run by descriptor, so use its path. */
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
        fake_pending_free(p);
        return err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id);
    }
    struct pending **at = &x->pending;
    while (*at)
        at = &(*at)->next;
    *at = p;
    buf_append(&x->out, p->message.p, p->message.len);
    fake_flush(x);
    return NULL;
}

static err *fake_fetch(box *x, uint64_t exec)
{
    struct sp_op op = spine_fetch(exec);

    return fake_post_checked(x, &op, sizeof op, NULL, 0);
}

static err *fake_signal(box *x, const signal_spec *s)
{
    struct sp_op op = spine_signal(s->exec, s->signo, s->scope, s->pid, s->since);

    {
        LOCK_SCOPE(&x->lock);
        buf_append(&x->cookies, &s->cookie, sizeof s->cookie);
    }
    return fake_post_checked(x, &op, sizeof op, NULL, 0);
}

static void fake_close(box *x, uint64_t exec, uint32_t mask)
{
    struct sp_op op = spine_close(exec, mask);

    fake_post(x, &op, sizeof op, NULL, 0);
}

static void fake_ack(box *x, uint64_t exec, uint32_t mask)
{
    struct sp_op op = spine_ack(exec, mask);

    fake_post(x, &op, sizeof op, NULL, 0);
}

static void fake_received(box *x, uint64_t exec, int stream, uint64_t offset)
{
    struct sps_data d = {{SPS_RECEIVED, 0, exec}, (uint32_t)stream, 0, offset};

    fake_post(x, &d, sizeof d, NULL, 0);
}

static err *fake_stdin(box *x, uint64_t exec, uint64_t offset, const void *p, size_t n, bool eof)
{
    struct sps_data d = {{SPS_STDIN, 0, exec}, eof ? SPS_STDIN_EOF : 0, 0, offset};

    if (n > SPS_CHUNK_MAX)
        return err_new(ERR_INTERNAL, "a piece of stdin has %zu bytes", n);
    return fake_post_checked(x, &d, sizeof d, p, n);
}

static err *fake_resize(box *x, uint64_t exec, uint16_t rows, uint16_t cols)
{
    struct sps_data d = {{SPS_RESIZE, 0, exec}, rows, cols, 0};

    return fake_post_checked(x, &d, sizeof d, NULL, 0);
}

/* Sends a request to the node on a separate connection and waits for the answer. */
static err *fake_ask(fake *f, const struct fake_request *q, buf *ret_extra)
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
    return fake_ask((fake *)b, &q, NULL);
}

static err *fake_list(backend *b, box_status **ret_list, size_t *ret_n)
{
    struct fake_request q = {.h.type = FAKE_LIST};
    CLEANUP(buf_done) buf extra = {0};

    TRY(fake_ask((fake *)b, &q, &extra));
    size_t n = extra.len / sizeof(struct fake_box);
    const struct fake_box *found = (const void *)extra.p;
    *ret_list = xcalloc(n + 1, sizeof(box_status));
    for (size_t i = 0; i < n; i++)
        snprintf((*ret_list)[i].id, SANDBOX_ID_LEN + 1, "%s", found[i].id);
    *ret_n = n;
    return NULL;
}

static err *fake_no(const char *what)
{
    return err_new(ERR_UNSUPPORTED, "the fake backend has no %s", what);
}

static err *fake_usage(backend *b, const char *id, box_usage *ret_usage)
{
    (void)b, (void)id, (void)ret_usage;
    return fake_no("statistics");
}

static err *fake_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n,
                            box_usage *ret)
{
    (void)b, (void)ids, (void)n, (void)ret;
    return fake_no("statistics");
}

static err *fake_unpack(backend *b, const uint8_t diff_id[32], int format, int blob_fd)
{
    (void)b, (void)diff_id, (void)format, (void)blob_fd;
    return fake_no("images");
}

static err *fake_image(backend *b, const uint8_t image[32], const uint8_t (*diff_ids)[32], size_t n)
{
    (void)b, (void)image, (void)diff_ids, (void)n;
    return fake_no("images");
}

static err *fake_prune(backend *b, const uint8_t (*images)[32], size_t n, bool unclaimed,
                       uint64_t *ret_bytes)
{
    (void)b, (void)images, (void)n, (void)unclaimed;
    *ret_bytes = 0;
    return NULL;
}

/* Opens a socket of the host: the fake backend has no isolation and no network of its own. */
static void fake_socket(backend *b, const char *id, socket_done *done, void *arg)
{
    CLEANUP(fake_box_unrefp) box *x = fake_find((fake *)b, id);
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

/* Boxes may outlive the backend in their holders' hands; without the thread they get no events. */
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
            fake_disconnect(x);
        }
        fake_box_unref(x);
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
    .box_ref = fake_box_ref,
    .box_unref = fake_box_unref,
    .free = fake_free,
};

/* Starts the node. It leaves this process's session and accepts connections before its starter
 * returns. */
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
    if (e && probe < 0) { /* another process may have started it at the same time */
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
                               .memory_limit = CAP_EMULATED, /* for tests: no limit is enforced */
                               .cpu_limit = CAP_EMULATED,
                               .pids_limit = CAP_EMULATED,
                               .setuid = CAP_EMULATED, /* there is no isolation to relax */
                               .frames = true};
    f->dir = xstrdup(o->dir);
    f->program = xstrdup(o->node_program);
    f->cut_every = o->cut_every;
    f->repeat_every = o->repeat_every;
    pthread_mutex_init(&f->lock, NULL);
    TRY(open_loop(f));
    f->thread = thread_start("fake", fake_run, f);
    *ret_backend = &f->b;
    return NULL;
}
