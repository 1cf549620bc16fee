/* bothy-fake-node DIR: the node of the fake backend. It accepts connections on DIR/node.sock before
 * its starter returns, runs until SIGTERM or until DIR is gone, and then kills all it started. A
 * sandbox is the directory DIR/box/<id>, used as HOME and working directory. */
#include "backend/fake_node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/str.h"

#define READ_CHUNK (64u * 1024)
#define CHECK_MS   1000

static struct {
    const char *dir;
    int dirfd, listener, signals;
    nbox *boxes;
    conn *conns;
    ino_t socket_ino;
    bool stop;
} node;

/* ---- boxes ---- */

static nbox *box_find(const char *id)
{
    for (nbox *b = node.boxes; b; b = b->next)
        if (!strcmp(b->id, id))
            return b;
    return NULL;
}

static nbox *box_make(const char *id)
{
    CLEANUP(freep) char *dir = str_printf("%s/box/%s", node.dir, id);
    err *e = fs_mkdirs(dir, 0755);

    if (e) {
        err_drop(e, "box");
        return NULL;
    }
    nbox *b = xcalloc(1, sizeof *b);
    snprintf(b->id, SANDBOX_ID_LEN + 1, "%s", id);
    b->dir = TAKE_PTR(dir);
    random_bytes(&b->instance, sizeof b->instance);
    b->umask = 022;
    b->boot_mono = now_mono_ns();
    b->boot_real = now_real_ns();
    b->next = node.boxes;
    node.boxes = b;
    return b;
}

static void box_destroy(nbox *b)
{
    struct sp_op all = spine_signal(0, SIGKILL, SP_TO_ALL, 0, 0);
    CLEANUP(freep) char *name = str_printf("box/%s", b->id);

    tree_signal(b, NULL, &all);
    for (nbox **p = &node.boxes; *p; p = &(*p)->next)
        if (*p == b) {
            *p = b->next;
            break;
        }
    if (b->conn)
        b->conn->dead = true;
    for (conn *c = node.conns; c; c = c->next)
        if (c->box == b)
            c->box = NULL;
    while (b->procs) {
        proc *p = b->procs;
        b->procs = p->next;
        proc_free(p);
    }
    err_drop(fs_remove(node.dirfd, name), "box");
    strv_free(b->env);
    free(b->dir);
    free(b);
}

static void sweep_procs(nbox *b)
{
    for (proc **at = &b->procs; *at;) {
        proc *p = *at;
        if (!proc_is_done(p)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        proc_free(p);
    }
}

/* ---- answering ---- */

static void put_hdr(conn *c, uint32_t type, int errnum, uint64_t id)
{
    struct sp_hdr h = {type, errnum, id};

    sps_put(&c->out, &h, sizeof h, NULL, 0);
}

static void put_started(conn *c, uint32_t type, int errnum, uint64_t id, const proc *p)
{
    struct sp_started st = {.h = {type, errnum, id}};

    if (p) {
        st.pid = p->rec.pid;
        st.flags = p->rec.flags;
        st.start_mono = p->rec.start_mono;
        st.start_real = p->rec.start_real;
    }
    sps_put(&c->out, &st, sizeof st, NULL, 0);
}

static void put_hello(conn *c, nbox *b)
{
    CLEANUP(buf_done) buf r = {0};
    struct sp_hello h = {.h.type = SP_HELLO,
                         .version = SP_VERSION,
                         .instance = b->instance,
                         .high = b->high,
                         .boot_mono = b->boot_mono,
                         .boot_real = b->boot_real,
                         .capacity = SP_MAX_EXEC,
                         .flags = b->claimed ? SP_HELLO_CLAIMED : 0};

    for (proc *p = b->procs; p; p = p->next)
        h.nrec++;
    buf_append(&r, &h, sizeof h);
    for (proc *p = b->procs; p; p = p->next) {
        struct sp_rec rec = p->rec;
        if (!rec.end_mono && rec.state == SP_FAILED) {
            rec.state = SP_LIVE; /* not reaped yet */
            rec.status = 0;
            rec.stage = 0;
        }
        if (p->acked)
            rec.flags |= SP_F_ACKED;
        for (int i = 0; i < 2; i++)
            rec.open |= p->out[i].fd >= 0 || p->out[i].bytes.len ? 2u << i : 0;
        buf_append(&r, &rec, sizeof rec);
    }
    sps_put(&c->out, r.p, r.len, NULL, 0);
}

static void serve_conn(conn *c);

/* Attaches a connection to a box. It replaces the old one, whose pending requests are served
 * first. */
static void open_box(conn *c, const struct fake_request *q)
{
    nbox *b = box_find(q->id);

    if (!b && q->create)
        b = box_make(q->id);
    if (!b) {
        put_hdr(c, FAKE_REPLY, ENOENT, 0);
        return;
    }
    conn *old = b->conn;
    if (old && old != c) {
        serve_conn(old);
        old->dead = true;
        old->box = NULL;
    }
    for (proc *p = b->procs; p; p = p->next)
        p->flowing = false;
    b->conn = c;
    c->box = b;
    put_hello(c, b);
}

static void on_spawn(conn *c, const sps_message *m)
{
    const struct sp_spawn *q = m->record;
    bool apart = q->flags & SP_F_MEMFD;
    nbox *b = c->box;
    proc *p = proc_find(b, q->h.id);
    spine_spawn s;
    size_t n = 0;

    for (proc *o = b->procs; o; o = o->next)
        n++;
    if (p || q->h.id <= b->high || n >= SP_MAX_EXEC) {
        put_started(c, SP_STARTED, p ? 0 : q->h.id <= b->high ? ESTALE : ENOSPC, q->h.id, p);
        return;
    }
    err *e = spine_decode_spawn(q, apart ? m->extra : (const void *)(q + 1),
                                apart ? m->nextra : m->size - sizeof *q, &s);
    if (e) {
        err_drop(e, "spawn");
        put_started(c, SP_STARTED, EINVAL, q->h.id, NULL);
        return;
    }
    int errnum = proc_spawn(b, &s, &p);
    put_started(c, SP_STARTED, errnum, q->h.id, p);
    spine_spawn_done(&s);
}

static void on_claim(conn *c, const sps_message *m)
{
    const struct sp_claim *q = m->record;
    bool apart = q->flags & SP_F_MEMFD;
    spine_claim k;

    if (c->box->claimed) {
        put_hdr(c, SP_DONE, EALREADY, 0);
        return;
    }
    err *e = spine_decode_claim(q, apart ? m->extra : (const void *)(q + 1),
                                apart ? m->nextra : m->size - sizeof *q, &k);
    if (e) {
        err_drop(e, "claim");
        put_hdr(c, SP_DONE, EINVAL, 0);
        return;
    }
    c->box->env = strv_copy(k.env);
    c->box->umask = k.umask;
    c->box->claimed = true;
    spine_claim_done(&k);
    put_hdr(c, SP_DONE, 0, 0);
}

static void on_fetch(conn *c, proc *p, uint64_t id)
{
    put_started(c, SP_FDS, p ? 0 : ESRCH, id, p);
    if (!p)
        return;
    struct sps_data d = {{SPS_TAKEN, 0, id}, 0, 0, p->in_over ? UINT64_MAX : p->in_base};
    sps_put(&c->out, &d, sizeof d, NULL, 0);
    p->taken_told = d.offset;
    p->flowing = true;
    p->exit_sent = false;
    for (int i = 0; i < 2; i++) {
        p->out[i].sent = p->out[i].base;
        p->out[i].eof_sent = false;
    }
}

static void on_received(proc *p, const struct sps_data *d)
{
    stream *s = &p->out[d->a - 1];
    uint64_t end = s->base + s->bytes.len, to = d->offset < end ? d->offset : end;

    if (to <= s->base)
        return;
    buf_consume(&s->bytes, (size_t)(to - s->base));
    s->base = to;
    if (s->sent < to)
        s->sent = to;
}

static void on_stdin(proc *p, const struct sps_data *d, const char *bytes, size_t n)
{
    uint64_t have = p->in_base + p->in.len;

    if (d->offset > have || p->in_fd < 0 || p->in.len > IN_MAX)
        return;
    if (d->offset + n > have)
        buf_append(&p->in, bytes + (have - d->offset), (size_t)(d->offset + n - have));
    if (d->a & SPS_STDIN_EOF && d->offset + n == p->in_base + p->in.len)
        p->in_eof = true;
    proc_write(p);
}

static void on_box_message(conn *c, const sps_message *m)
{
    const struct sp_hdr *h = m->record;
    const struct sp_op *op = m->record;
    proc *p = proc_find(c->box, h->id);

    switch (m->type) {
    case SP_SPAWN:
        on_spawn(c, m);
        return;
    case SP_CLAIM:
        on_claim(c, m);
        return;
    case SP_FETCH:
        on_fetch(c, p, h->id);
        return;
    case SP_SIGNAL:
        put_hdr(c, SP_DONE, tree_signal(c->box, p, op), h->id);
        return;
    default:
        break;
    }
    if (!p)
        return;
    if (m->type == SP_ACK && p->rec.end_mono)
        p->acked = true;
    if (m->type == SP_ACK || m->type == SP_CLOSE)
        proc_close(p, op->mask);
    else if (m->type == SPS_RECEIVED)
        on_received(p, m->record);
    else if (m->type == SPS_STDIN)
        on_stdin(p, m->record, m->extra, m->nextra);
    else if (m->type == SPS_RESIZE && p->flags & SP_F_PTY) {
        const struct sps_data *d = m->record;
        struct winsize ws = {.ws_row = (uint16_t)d->a, .ws_col = (uint16_t)d->b};
        ioctl(p->out[0].fd, TIOCSWINSZ, &ws);
    }
}

static void put_list(conn *c)
{
    CLEANUP(buf_done) buf list = {0};
    struct sp_hdr h = {.type = FAKE_REPLY};

    for (nbox *b = node.boxes; b; b = b->next) {
        struct fake_box f = {{0}};
        memcpy(f.id, b->id, sizeof f.id);
        buf_append(&list, &f, sizeof f);
    }
    sps_put(&c->out, &h, sizeof h, list.p, list.len);
}

static void on_message(conn *c, const sps_message *m)
{
    const struct fake_request *q = m->record;

    if (m->type < SPS_PRIVATE) {
        if (c->box)
            on_box_message(c, m);
        else
            c->dead = true;
        return;
    }
    if (m->size != sizeof *q || q->id[SANDBOX_ID_LEN] || strchr(q->id, '/') || q->id[0] == '.') {
        c->dead = true;
        return;
    }
    if (m->type == FAKE_OPEN && q->id[0]) {
        open_box(c, q);
    } else if (m->type == FAKE_DESTROY) {
        nbox *b = box_find(q->id);
        if (b)
            box_destroy(b);
        put_hdr(c, FAKE_REPLY, 0, 0);
    } else if (m->type == FAKE_LIST) {
        put_list(c);
    } else {
        c->dead = true;
    }
}

/* ---- connections ---- */

static void read_messages(conn *c)
{
    size_t at = 0;

    while (at < c->in.len && !c->dead) {
        sps_message m;
        const char *why;
        long n = sps_next(c->in.p + at, c->in.len - at, SPS_REQUESTS, &m, &why);
        if (n < 0) {
            log_error("node", "bad message: %s", why);
            c->dead = true;
        }
        if (n <= 0)
            break;
        on_message(c, &m);
        at += (size_t)n;
    }
    buf_consume(&c->in, at);
}

/* Reads all available requests, also those of a peer that has left. ECONNRESET is reported once
 * before them. */
static void serve_conn(conn *c)
{
    bool reset = false;

    while (!c->dead) {
        buf_reserve(&c->in, READ_CHUNK);
        ssize_t n = recv(c->fd, c->in.p + c->in.len, READ_CHUNK, MSG_DONTWAIT);
        if (n > 0) {
            c->in.len += (size_t)n;
            read_messages(c);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == ECONNRESET && !reset) {
            reset = true;
            continue;
        }
        if (n == 0 || errno != EAGAIN)
            c->dead = true;
        return;
    }
}

static void send_out(conn *c)
{
    while (c->out.len && !c->dead) {
        ssize_t n = send(c->fd, c->out.p, c->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                buf_clear(&c->out); /* the reader notices the end, after pending requests */
            return;
        }
        buf_consume(&c->out, (size_t)n);
    }
}

static void accept_conn(void)
{
    int fd = accept4(node.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    conn *c = xcalloc(1, sizeof *c);
    c->fd = fd;
    c->next = node.conns;
    node.conns = c;
}

static void sweep_conns(void)
{
    for (conn **at = &node.conns; *at;) {
        conn *c = *at;
        if (!c->dead) {
            at = &c->next;
            continue;
        }
        if (c->box && c->box->conn == c)
            c->box->conn = NULL;
        *at = c->next;
        close(c->fd);
        buf_done(&c->in);
        buf_done(&c->out);
        free(c);
    }
}

/* ---- the loop ---- */

static proc *by_pid(pid_t pid)
{
    for (nbox *b = node.boxes; b; b = b->next)
        for (proc *p = b->procs; p; p = p->next)
            if (p->pid == pid && !p->rec.end_mono)
                return p;
    return NULL;
}

static void on_signal(void)
{
    struct signalfd_siginfo si;
    struct rusage u;
    int status;
    pid_t pid;

    while (read(node.signals, &si, sizeof si) == (ssize_t)sizeof si)
        node.stop |= si.ssi_signo == SIGTERM;
    while ((pid = wait4(-1, &status, WNOHANG, &u)) > 0) {
        proc *p = by_pid(pid);
        if (p)
            proc_reaped(p, status, &u);
    }
}

enum what {
    W_LISTEN,
    W_SIGNAL,
    W_CONN,
    W_OUT,
    W_ERR,
    W_IN
};
struct watched {
    enum what what;
    void *of;
};

static buf fds, whats;

static void fake_node_add(int fd, short events, enum what what, void *of)
{
    struct pollfd p = {fd, events, 0};
    struct watched w = {what, of};

    buf_append(&fds, &p, sizeof p);
    buf_append(&whats, &w, sizeof w);
}

static void add_proc(proc *p)
{
    for (int i = 0; i < 2; i++) {
        const stream *s = &p->out[i];
        if (s->fd >= 0 && s->bytes.len < OUT_MAX && (!s->hung_up || p->rec.end_mono))
            fake_node_add(s->fd, POLLIN, i ? W_ERR : W_OUT, p);
    }
    if (p->in_fd >= 0 && p->in.len)
        fake_node_add(p->in_fd, POLLOUT, W_IN, p);
}

static void fake_node_collect(void)
{
    buf_clear(&fds);
    buf_clear(&whats);
    fake_node_add(node.listener, POLLIN, W_LISTEN, NULL);
    fake_node_add(node.signals, POLLIN, W_SIGNAL, NULL);
    for (conn *c = node.conns; c; c = c->next)
        fake_node_add(c->fd, (short)(POLLIN | (c->out.len ? POLLOUT : 0)), W_CONN, c);
    for (nbox *b = node.boxes; b; b = b->next)
        for (proc *p = b->procs; p; p = p->next)
            add_proc(p);
}

/* Call it for procs before connections: a request may free a proc, but a proc's event frees
 * nothing. */
static void fake_node_dispatch(enum what first, enum what last)
{
    const struct pollfd *p = (const void *)fds.p;
    const struct watched *w = (const void *)whats.p;

    for (size_t i = 0; i < fds.len / sizeof *p; i++) {
        if (!p[i].revents || w[i].what < first || w[i].what > last)
            continue;
        if (w[i].what == W_LISTEN)
            accept_conn();
        else if (w[i].what == W_SIGNAL)
            on_signal();
        else if (w[i].what == W_CONN)
            serve_conn(w[i].of);
        else if (w[i].what == W_IN)
            proc_write(w[i].of);
        else
            proc_read(w[i].of, w[i].what == W_ERR);
    }
}

static void fake_node_settle(void)
{
    for (nbox *b = node.boxes; b; b = b->next) {
        for (proc *p = b->procs; p; p = p->next)
            proc_flush(p);
        sweep_procs(b);
    }
    for (conn *c = node.conns; c; c = c->next)
        send_out(c);
    sweep_conns();
}

static bool is_ours(void)
{
    struct stat st;

    return !fstatat(node.dirfd, FAKE_SOCKET, &st, AT_SYMLINK_NOFOLLOW) &&
           st.st_ino == node.socket_ino;
}

static void fake_node_loop(void)
{
    uint64_t checked = now_mono_ns();

    while (!node.stop) {
        fake_node_collect();
        poll((struct pollfd *)fds.p, fds.len / sizeof(struct pollfd), CHECK_MS);
        fake_node_dispatch(W_OUT, W_IN);
        fake_node_dispatch(W_LISTEN, W_CONN);
        fake_node_settle();
        if (now_mono_ns() - checked >= CHECK_MS * NS_PER_MS) {
            checked = now_mono_ns();
            node.stop |= !is_ours();
        }
    }
    while (node.boxes)
        box_destroy(node.boxes);
    tree_kill_rest();
}

static err *fake_node_prepare(void)
{
    CLEANUP(closep) int lock = -1;
    struct stat st;
    sigset_t set;

    node.dirfd = open(node.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (node.dirfd < 0)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot open %s", node.dir);
    TRY(fs_lock(node.dirfd, FAKE_LOCK, &lock));
    /* tells others which process to end */
    if (ftruncate(lock, 0) || dprintf(lock, "%d\n", getpid()) < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot write %s", FAKE_LOCK);
    lock = -1; /* held until the process ends */
    TRY(sock_bind(node.dirfd, FAKE_SOCKET, SOCK_STREAM, 0600, &node.listener));
    if (listen(node.listener, 1024) || fstatat(node.dirfd, FAKE_SOCKET, &st, 0))
        return err_sys(ERR_INTERNAL, errno, "cannot listen");
    node.socket_ino = st.st_ino;
    fcntl(node.listener, F_SETFL, O_NONBLOCK);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    node.signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return NULL;
}

/* Forks; the parent exits once the node accepts connections, with status 0 if it does. */
static void leave_starter(const int ready[2])
{
    char ok = 0;

    pid_t pid = fork();
    if (pid < 0)
        _exit(1);
    if (!pid) {
        close(ready[0]);
        setsid();
        return;
    }
    close(ready[1]);
    _exit(read(ready[0], &ok, 1) == 1 ? 0 : 1);
}

int main(int argc, char **argv)
{
    int ready[2];

    if (argc != 2 || argv[1][0] != '/') {
        fprintf(stderr, "usage: bothy-fake-node DIR (absolute)\n");
        return 2;
    }
    log_init("bothy-fake-node", LOG_WARN);
    node.dir = argv[1];
    if (pipe2(ready, O_CLOEXEC))
        return 1;
    leave_starter(ready);
    err *e = fake_node_prepare();
    if (e) {
        err_drop(e, "start");
        return 1;
    }
    if (write(ready[1], "y", 1) != 1)
        return 1;
    close(ready[1]);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    fake_node_loop();
    return 0;
}
