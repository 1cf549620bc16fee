/* A tiny backend of the descriptors form, in the test's own process: it plays init. It keeps its
 * copies of every descriptor and every exit until they are acknowledged, also while no hub is
 * there, so a test can forget the daemon's side and attach again. */
#pragma once

#include <poll.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "drive.h"

typedef struct pproc {
    struct pproc *next;
    struct sp_rec rec;
    pid_t pid;
    int fd[SP_FDS_MAX];
    bool acked, told;
} pproc;

struct box {
    backend b;
    const box_events *ev;
    void *arg;
    pthread_mutex_t lock;  /* state */
    pthread_mutex_t order; /* events, one at a time */
    pproc *procs;
    uint64_t high;
    int refuse;                /* errno for the next SPAWNs */
    bool evil;                 /* hand out a descriptor that is not what it should be */
    _Atomic int acks, answers; /* answers under way */
    pthread_t thread;
    bool stop;
};

static inline pproc *pipes_find(box *x, uint64_t id)
{
    for (pproc *p = x->procs; p; p = p->next)
        if (p->rec.id == id)
            return p;
    return NULL;
}

static inline void pipes_pty(pproc *p, int child[3], const exec_spec *s)
{
    struct winsize ws = {.ws_row = s->rows, .ws_col = s->cols};
    int relay[2];

    p->fd[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    grantpt(p->fd[0]);
    unlockpt(p->fd[0]);
    ioctl(p->fd[0], TIOCSWINSZ, &ws);
    assert_int_equal(pipe2(relay, O_CLOEXEC | O_NONBLOCK), 0);
    p->fd[1] = relay[0];
    p->fd[2] = relay[1];
    for (int i = 0; i < 3; i++)
        child[i] = ioctl(p->fd[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static inline void pipes_make(pproc *p, int child[3], const exec_spec *s)
{
    for (int i = 0; i < 3; i++) {
        int raw[2];
        if (i == 0 && !s->stdin_open) {
            child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
            continue;
        }
        if (i == 2 && s->stdio == STDIO_MERGED) {
            child[2] = dup(child[1]);
            continue;
        }
        assert_int_equal(pipe2(raw, O_CLOEXEC), 0);
        p->fd[i] = raw[i == 0];
        child[i] = raw[i != 0];
        fcntl(p->fd[i], F_SETFL, O_NONBLOCK);
    }
}

/* Copies, as SCM_RIGHTS would give. lock held. */
static inline void pipes_copy(box *x, pproc *p, struct sp_started *st, int fd[SP_FDS_MAX])
{
    for (int i = 0; i < SP_FDS_MAX; i++)
        fd[i] = p->fd[i] >= 0 ? fcntl(p->fd[i], F_DUPFD_CLOEXEC, 3) : -1;
    if (x->evil) {
        closep(&fd[1]);
        fd[1] = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    }
    st->pid = (uint32_t)p->pid;
}

struct answer {
    box *x;
    uint64_t id;
    uint32_t type;
    int errnum;
};

/* Events come from a thread of the backend, never from inside a call. */
static inline void *pipes_later(void *arg)
{
    struct answer *a = arg;
    struct sp_started st = {.h = {a->type, a->errnum, a->id}};
    int fd[SP_FDS_MAX] = {-1, -1, -1, -1};

    {
        LOCK_SCOPE(&a->x->order);
        {
            LOCK_SCOPE(&a->x->lock);
            pproc *p = a->errnum ? NULL : pipes_find(a->x, a->id);
            if (p) {
                pipes_copy(a->x, p, &st, fd);
                p->told = true; /* its exit may be told, behind this */
            } else if (!a->errnum) {
                st.h.err = ESRCH;
            }
        }
        a->x->ev->started(a->x->arg, a->id, st.h.err, &st, fd);
    }
    atomic_fetch_sub(&a->x->answers, 1);
    free(a);
    return NULL;
}

static inline void pipes_queue(box *x, uint32_t type, uint64_t id, int errnum)
{
    struct answer *a = xcalloc(1, sizeof *a);

    *a = (struct answer){x, id, type, errnum};
    atomic_fetch_add(&x->answers, 1);
    thread_detach("answer", pipes_later, a);
}

static inline err *pipes_exec(box *x, uint64_t id, const exec_spec *s, int keep)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    int child[3] = {-1, -1, -1};

    if (x->refuse) {
        pipes_queue(x, SP_STARTED, id, x->refuse);
        return NULL;
    }
    pproc *p = xcalloc(1, sizeof *p);
    memset(p->fd, 0xff, sizeof p->fd);
    if (s->stdio == STDIO_PTY)
        pipes_pty(p, child, s);
    else
        pipes_make(p, child, s);
    if (keep >= 0)
        p->fd[SP_FD_KEEP] = fcntl(keep, F_DUPFD_CLOEXEC, 3);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&at);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&at, &none);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&fa, child[i], i);
    int r = posix_spawn(&p->pid, s->argv[0], &fa, &at, s->argv, s->env ? s->env : environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    for (int i = 0; i < 3; i++)
        closep(&child[i]);
    assert_int_equal(r, 0);
    p->rec = (struct sp_rec){
        .id = id, .state = SP_LIVE, .pid = (uint32_t)p->pid, .start_real = now_real_ns()};
    {
        LOCK_SCOPE(&x->lock);
        p->next = x->procs;
        x->procs = p;
        x->high = id;
    }
    pipes_queue(x, SP_STARTED, id, 0);
    return NULL;
}

static inline err *pipes_fetch(box *x, uint64_t id)
{
    pipes_queue(x, SP_FDS, id, 0);
    return NULL;
}

static inline err *pipes_signal(box *x, const signal_spec *s)
{
    LOCK_SCOPE(&x->lock);
    pproc *p = pipes_find(x, s->exec);
    if (p)
        kill(-p->pid, (int)s->signo);
    return NULL;
}

static inline void pipes_close(box *x, uint64_t id, uint32_t mask)
{
    LOCK_SCOPE(&x->lock);
    pproc *p = pipes_find(x, id);
    for (int i = 0; p && i < SP_FDS_MAX; i++)
        if (mask & 1u << i) {
            closep(&p->fd[i]);
            p->fd[i] = -1;
        }
}

static inline void pipes_ack(box *x, uint64_t id, uint32_t mask)
{
    pipes_close(x, id, mask);
    atomic_fetch_add(&x->acks, 1);
    LOCK_SCOPE(&x->lock);
    pproc *p = pipes_find(x, id);
    if (p)
        p->acked = true;
}

static inline void pipes_ref(box *x)
{
    (void)x;
}

/* The entry goes when acknowledged and no descriptor is left. lock held. */
static inline bool pipes_is_over(const pproc *p)
{
    return p->acked && p->fd[0] < 0 && p->fd[1] < 0 && p->fd[2] < 0 && p->fd[3] < 0;
}

/* An exit that is not told yet, or NULL; forgets what is over. lock held. */
static inline pproc *pipes_reap(box *x)
{
    int status;

    for (pproc **at = &x->procs; *at;) {
        pproc *p = *at;
        if (pipes_is_over(p)) {
            *at = p->next;
            free(p);
            continue;
        }
        if (p->rec.state == SP_LIVE && p->told && waitpid(p->pid, &status, WNOHANG) == p->pid) {
            p->rec.state = SP_EXITED;
            p->rec.status = status;
            p->rec.end_real = now_real_ns();
            return p;
        }
        at = &p->next;
    }
    return NULL;
}

static inline void *pipes_run(void *arg)
{
    box *x = arg;

    for (;;) {
        struct sp_rec rec;
        bool found;
        {
            LOCK_SCOPE(&x->lock);
            if (x->stop)
                return NULL;
            pproc *p = pipes_reap(x);
            found = p != NULL;
            if (p)
                rec = p->rec;
        }
        if (!found) {
            usleep(500);
            continue;
        }
        LOCK_SCOPE(&x->order);
        if (x->ev)
            x->ev->exited(x->arg, &rec);
    }
}

static inline void pipes_free(backend *b)
{
    box *x = (box *)b;

    {
        LOCK_SCOPE(&x->lock);
        x->stop = true;
    }
    pthread_join(x->thread, NULL);
    while (atomic_load(&x->answers))
        usleep(100);
}

static const backend_ops PIPES_OPS = {
    .exec = pipes_exec,
    .fetch = pipes_fetch,
    .signal = pipes_signal,
    .close = pipes_close,
    .ack = pipes_ack,
    .box_ref = pipes_ref,
    .box_unref = pipes_ref,
    .free = pipes_free,
};

static inline void pipes_hello(box *x)
{
    struct sp_rec recs[64];
    struct sp_hello h = {.h.type = SP_HELLO, .version = 1, .capacity = 1024};

    {
        LOCK_SCOPE(&x->lock);
        h.high = x->high;
        for (pproc *p = x->procs; p && h.nrec < 64; p = p->next) {
            recs[h.nrec] = p->rec;
            recs[h.nrec].flags |= p->acked ? SP_F_ACKED : 0;
            p->told = true;
            h.nrec++;
        }
    }
    LOCK_SCOPE(&x->order);
    x->ev->attached(x->arg, &h, recs);
}

/* Gives the box a (new) daemon, which knows it by this id. */
static inline void pipes_attach_as(world *w, box *x, const char *id)
{
    assert_ok(exec_hub_new(&w->options, &w->hub));
    assert_ok(exec_table_open_box(w->hub, SANDBOX, id, &w->table));
    x->b.ops = &PIPES_OPS;
    x->b.caps = (backend_caps){.name = "pipes"};
    x->ev = &EXEC_BOX_EVENTS;
    x->arg = w->table;
    x->stop = false;
    w->backend = &x->b;
    w->box = x;
    exec_table_bind(w->table, &x->b, x, world_on_gone, w);
    pipes_hello(x);
    x->thread = thread_start("pipes", pipes_run, x);
}

static inline void pipes_attach(world *w, box *x)
{
    pipes_attach_as(w, x, SANDBOX);
}

static inline void pipes_init(world *w, box *x)
{
    *x = (box){0};
    pthread_mutex_init(&x->lock, NULL);
    pthread_mutex_init(&x->order, NULL);
    world_init(w);
}
