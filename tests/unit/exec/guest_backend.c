#include "guest_backend.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/link.h"
#include "base/sock.h"
#include "base/str.h"
#include "base/thread.h"

#include "guest.h"

#define HANDLE "guest"

enum {
    START = 's',
    ATTACH = 'a',
    STOP = 'k'
};

static int control = -1; /* to the process that starts things */
static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;
static bool alive; /* control_lock */

typedef struct gbackend {
    backend b;
    link_host *links;
    unsigned cut_every;
    _Atomic unsigned long reads;
} gbackend;

typedef struct gstream {
    gbackend *b;
    int fd;
} gstream;

/* ---- the process that starts things ---- */

static int attach(const guest *g)
{
    char *argv[] = {"/init", "attach", NULL};
    guest_serve as = {0};
    pid_t pid;
    int fd = guest_exec(g, &as, argv, &pid);

    waitpid(pid, NULL, 0);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    return fd;
}

static void starter(const char *init_program, int fd)
{
    guest g = {0};
    guest_serve as = {0};
    char c;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    while (recv(fd, &c, 1, 0) == 1) {
        int sent = -1;
        struct iovec v = {&c, 1};
        if (c == START)
            guest_start_serve(&g, init_program, &as);
        else if (c == ATTACH)
            sent = attach(&g);
        else
            guest_stop(&g);
        sock_send(fd, &v, 1, &sent, sent >= 0, 0);
        closep(&sent);
    }
    if (g.pid)
        guest_stop(&g);
    _exit(0);
}

bool guest_backend_prepare(const char *init_program, const char **ret_why)
{
    int pair[2];

    if (!guest_possible(ret_why))
        return false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        abort();
    pid_t pid = fork();
    if (pid < 0)
        abort();
    if (!pid) {
        close(pair[0]);
        starter(init_program, pair[1]);
    }
    close(pair[1]);
    control = pair[0];
    return true;
}

/* control_lock held. The descriptor that came back, or -1. */
static int ask(char what)
{
    int fds[SOCK_FDS_MAX];
    size_t nfds = 0;

    if (send(control, &what, 1, MSG_NOSIGNAL) != 1 ||
        sock_recv_all(control, &what, 1, fds, &nfds, 0) != 1)
        abort();
    return nfds ? fds[0] : -1;
}

/* ---- streams ---- */

static ssize_t stream_read(void *s, void *p, size_t n)
{
    gstream *x = s;
    unsigned long count = ++x->b->reads;

    if (x->b->cut_every && count % (x->b->cut_every * 8) == 0)
        return 0;
    return recv(x->fd, p, n, MSG_DONTWAIT);
}

static ssize_t stream_write(void *s, const void *p, size_t n)
{
    return send(((gstream *)s)->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int stream_fd(void *s)
{
    return ((gstream *)s)->fd;
}

static void stream_close(void *s)
{
    close(((gstream *)s)->fd);
    free(s);
}

static const link_stream_ops STREAM = {
    .read = stream_read, .write = stream_write, .fd = stream_fd, .close = stream_close};

static err *dial(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream)
{
    (void)handle;
    (void)timeout_ms;
    LOCK_SCOPE(&control_lock);
    if (!alive)
        return err_because(err_new(ERR_NOT_FOUND, "no guest"), "it was destroyed");
    gstream *s = xcalloc(1, sizeof *s);
    s->b = arg;
    s->fd = ask(ATTACH);
    *ret_stream = (link_stream){&STREAM, s};
    return NULL;
}

/* ---- the contract, as far as the exec layer asks for it ---- */

static const link_container CONTAINER = {.handle = HANDLE, .nonce = {7}};

static void guest_create(backend *b, const box_spec *spec, const box_events *ev, void *arg,
                         create_done *done)
{
    static const link_warm_events none = {0};
    static sandbox_spec plain;
    box_spec with = *spec;
    gbackend *g = (gbackend *)b;
    link_warm *w;

    {
        LOCK_SCOPE(&control_lock);
        ask(START);
        alive = true;
    }
    with.spec = &plain;
    err *e = link_warm_new(g->links, &CONTAINER, &none, NULL, &w);
    if (!e)
        e = link_claim(w, &with, 20000, ev, arg, done, arg);
    if (e)
        done(arg, e, NULL, NULL);
}

static err *guest_attach(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box)
{
    return link_attach(((gbackend *)b)->links, id, &CONTAINER, ev, arg, ret_box);
}

static err *guest_destroy(backend *b, const char *id)
{
    (void)id;
    {
        LOCK_SCOPE(&control_lock);
        if (alive)
            ask(STOP);
        alive = false;
    }
    link_died(((gbackend *)b)->links, HANDLE, "destroyed");
    return NULL;
}

static void guest_free(backend *b)
{
    link_host_free(((gbackend *)b)->links);
    free(b);
}

static const backend_ops OPS = {.create = guest_create,
                                .attach = guest_attach,
                                .destroy = guest_destroy,
                                .free = guest_free,
                                LINK_BOX_OPS};

err *guest_backend_new(unsigned cut_every, backend **ret_backend)
{
    gbackend *g = xcalloc(1, sizeof *g);
    link_options o = {.name = "guest", .dial = dial, .arg = g, .key = {3}};

    g->b = (backend){.ops = &OPS, .caps = {.name = "guest", .frames = true}};
    g->cut_every = cut_every;
    err *e = link_host_new(&o, &g->links);
    if (e)
        free(g);
    else
        *ret_backend = &g->b;
    return e;
}
