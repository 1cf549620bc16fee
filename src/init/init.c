/* Pid 1 of a slot: the poll loop, the table of execs, the connection. (Container mode has its loop
 * and its connections in serve.c and shares the table.)
 *
 * fd 0: a bound AF_UNIX SOCK_SEQPACKET socket made by the warden
 * fd 1: anything; becomes /dev/null of the host, which lies in /dev
 * fd 2: anything; likewise
 *
 * Rules this file keeps:
 *  - It never waits for anything the tenant controls: plain fork (a stopped vfork child would stop
 *    pid 1 too), MSG_DONTWAIT everywhere, and no path of the image is ever opened (ptys come from a
 *    descriptor of devpts opened at boot).
 *  - A failure before fork leaves no trace and does not use up the id. After fork there is exactly
 *    one record until it is acknowledged.
 *  - Requests that the daemon sent before it died are carried out. */
#include "init/init.h"

struct state g;

#define SAVED_GID 65533 /* no process has this gid: see init_harden() */
/* The kernel counts descriptors in flight by user and compares the count with the sender's own
 * limit. Children get a limit lower by this much, so that a tenant that parks as many as it may
 * cannot keep pid 1 from passing descriptors. */
#define NOFILE_SPARE 1024
#define NOFILE_SMALL 8192

u64 clock_now(int clock)
{
    struct __kernel_timespec t = {0};
    SYS(clock_gettime, clock, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

/* ---- the table ---- */

struct entry *entry_find(u64 id)
{
    for (u32 i = 0; i < g.top; i++)
        if (g.tab[i].used && g.tab[i].r.id == id)
            return &g.tab[i];
    return NULL;
}

u32 entry_index(const struct entry *e)
{
    return (u32)(e - g.tab);
}

u32 entry_open_mask(const struct entry *e)
{
    u32 mask = 0;
    for (u32 i = 0; i < SP_FDS_MAX; i++)
        if (e->fd[i] >= 0)
            mask |= 1u << i;
    return g.stream ? mask | flow_open_mask(e) : mask;
}

void entry_close(struct entry *e, u32 mask)
{
    for (u32 i = 0; i < SP_FDS_MAX; i++)
        if (mask & (1u << i))
            fd_close(&e->fd[i]);
    if (g.stream)
        flow_close(e, mask);
}

void entry_maybe_free(struct entry *e)
{
    if (!e->acked || entry_open_mask(e))
        return;
    if (g.stream)
        flow_close(e, ~0u);
    e->used = false;
    g.used--;
    while (g.top && !g.tab[g.top - 1].used)
        g.top--;
}

/* Completes the record with the uid and gid from the note and the set of open descriptors. Called
 * before the record is sent. */
const struct sp_rec *entry_record(struct entry *e)
{
    const struct note *n = &g.notes[entry_index(e)];

    e->r.open = entry_open_mask(e);
    e->r.uid = n->uid;
    e->r.gid = n->gid;
    return &e->r;
}

/* ---- the connection ---- */

void conn_drop(void)
{
    fd_close(&g.conn);
    g.want_out = g.paused = false;
}

long conn_send(void *p, size_t n, const int *fds, u32 nfds)
{
    struct k_iovec v = {p, n};
    struct k_rights rights = {
        .len = RIGHTS_HEAD + nfds * sizeof(int), .level = K_SOL_SOCKET, .type = K_SCM_RIGHTS};
    struct k_msghdr m = {.iov = &v, .niov = 1};

    if (g.stream)
        return link_send(p, n);
    if (g.conn < 0)
        return -EPIPE;
    if (nfds) {
        memcpy(rights.fd, fds, nfds * sizeof(int));
        m.control = &rights;
        m.controllen = rights.len;
    }
    /* request_receive() notices a dead peer, after reading what the peer had still queued. */
    long r = SYS(sendmsg, g.conn, &m, K_MSG_DONTWAIT | K_MSG_NOSIGNAL);
    return r < 0 ? r : 0;
}

/* Flow control. Exits may fill a quarter of the send buffer (the kernel's own limit for POLLOUT),
 * answers half of it. Exits therefore never keep pid 1 from reading their acknowledgements, and an
 * answer always fits. With at most SP_UNANSWERED requests under way neither side can block the
 * other. */
bool conn_has_room(int share)
{
    int queued = 0;
    return SYS(ioctl, g.conn, TIOCOUTQ, &queued) < 0 || (long)queued * share <= g.sndbuf;
}

void exits_flush(void)
{
    g.want_out = false;
    if (g.stream)
        flow_flush();
    for (u32 i = 0; i < g.top && g.conn >= 0; i++) {
        struct entry *e = &g.tab[i];
        if (!e->used || e->sent || e->r.state == SP_LIVE)
            continue;
        struct sp_exit x = {.h = {.type = SP_EXIT, .id = e->r.id}, .r = *entry_record(e)};
        long r = conn_has_room(4) ? conn_send(&x, sizeof x, NULL, 0) : -EAGAIN;
        if (r < 0) {
            g.want_out = r == -EAGAIN;
            return;
        }
        e->sent = true;
    }
}

static u32 fill_records(struct sp_rec *recs)
{
    u32 n = 0;
    for (u32 i = 0; i < g.top; i++) {
        struct entry *e = &g.tab[i];
        if (!e->used)
            continue;
        recs[n++] = *entry_record(e);
        e->sent = e->r.state != SP_LIVE;
    }
    return n;
}

void conn_greet(void)
{
    static struct {
        struct sp_hello h;
        struct sp_rec recs[SP_MAX_EXEC];
    } m;
    m.h = (struct sp_hello){
        .h = {.type = SP_HELLO, .id = SP_WALLS(g.walls.tried, g.walls.held)},
        .version = SP_VERSION,
        .instance = g.instance,
        .high = g.high,
        .boot_mono = g.boot_mono,
        .boot_real = g.boot_real,
        .capacity = SP_MAX_EXEC,
        .flags = g.claim.made ? SP_HELLO_CLAIMED | g.walls.again << SP_HELLO_WALLS : 0};
    m.h.nrec = fill_records(m.recs);
    if (conn_send(&m, sizeof m.h + m.h.nrec * sizeof *m.recs, NULL, 0) < 0)
        conn_drop();
}

static void conn_accept(void)
{
    struct k_ucred peer = {.pid = 1};
    u32 len = sizeof peer;
    long r = SYS(accept4, FD_LISTENER, 0, 0, K_SOCK_CLOEXEC | K_SOCK_NONBLOCK);

    if (r < 0)
        return;
    int fd = (int)r;
    SYS(getsockopt, fd, K_SOL_SOCKET, K_SO_PEERCRED, &peer, &len);
    /* A pid other than 0 is visible in our pid namespace, so it is a process of the tenant, which
     * can only connect if the socket leaked. The uid proves nothing: the host's uids appear as
     * overflow ids in here. */
    if (peer.pid != 0 && g.walls.held & WALL_BIT(PIDNS)) { /* without it the warden is visible */
        SYS(close, fd);
        return;
    }
    conn_drop(); /* the newest connection replaces the old one */
    g.conn = fd;
    len = sizeof g.sndbuf;
    SYS(getsockopt, g.conn, K_SOL_SOCKET, K_SO_SNDBUF, &g.sndbuf, &len);
    conn_greet();
}

/* ---- children ---- */

static void record_end(struct entry *e, int status, const struct rusage *ru)
{
    const struct note *n = &g.notes[entry_index(e)];
    struct sp_rec *r = &e->r;

    r->end_mono = clock_now(K_CLOCK_MONOTONIC);
    r->end_real = clock_now(K_CLOCK_REALTIME);
    r->state = n->err ? SP_FAILED : SP_EXITED;
    r->status = n->err ? n->err : status;
    r->stage = n->stage;
    r->utime_us = (u64)ru->ru_utime.tv_sec * 1000000 + (u64)ru->ru_utime.tv_usec;
    r->stime_us = (u64)ru->ru_stime.tv_sec * 1000000 + (u64)ru->ru_stime.tv_usec;
    r->maxrss_kb = (u64)ru->ru_maxrss;
    r->minflt = (u32)ru->ru_minflt;
    r->majflt = (u32)ru->ru_majflt;
}

void children_reap(void)
{
    for (;;) {
        int status = 0;
        struct rusage ru;
        long pid = SYS(wait4, -1, &status, K_WNOHANG | K_WALL, &ru);
        if (pid <= 0)
            break;
        for (u32 i = 0; i < g.top; i++) {
            struct entry *e = &g.tab[i];
            if (e->used && e->r.state == SP_LIVE && e->r.pid == (u32)pid) {
                record_end(e, status, &ru);
                if (g.stream)
                    flow_exited(e);
                break;
            }
        }
    }
}

/* ---- start and loop ---- */

void fatal(int status)
{
    for (;;)
        SYS(exit_group, status);
}

static void init_harden(void)
{
    /* First of all: denies the tenant /proc/1/{fd,mem,exe,root,...} and ptrace. */
    SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    /* prlimit(2) on another process requires equal ids, dumpable or not. With unequal gids no
     * process has equal ids. A failure is fatal in a slot. In an engine's container init may not be
     * root: then a tenant can only harm its own sandbox. */
    if (SYS(setresgid, -1, -1, SAVED_GID) < 0 && !g.stream) {
#ifndef HOSTED
        fatal(101);
#endif
    }
}

/* Resets all signals to default, blocks only `signals` and opens the signalfd; children inherit the
 * dispositions. A blocked signal is queued even for pid 1; an unblocked one without a handler is
 * discarded. */
static void signals_setup(u64 signals)
{
    static const struct k_sigaction dfl;

    for (int s = 1; s <= K_NSIG; s++)
        SYS(rt_sigaction, s, &dfl, 0, K_SIGSET_SIZE);
    SYS(rt_sigprocmask, K_SIG_SETMASK, &signals, 0, K_SIGSET_SIZE);
    g.sigfd = (int)SYS(signalfd4, -1, &signals, K_SIGSET_SIZE, K_SFD_CLOEXEC | K_SFD_NONBLOCK);
}

static void limits_setup(void)
{
    SYS(prlimit64, 0, RLIMIT_NOFILE, 0, &g.nofile);
    struct k_rlimit all = {g.nofile.hard, g.nofile.hard};
    SYS(prlimit64, 0, RLIMIT_NOFILE, &all, 0);
    if (g.nofile.hard >= NOFILE_SMALL)
        g.nofile.hard -= NOFILE_SPARE;
    if (g.nofile.soft > g.nofile.hard)
        g.nofile.soft = g.nofile.hard;
}

/* Opens /dev/null here rather than taking the runtime's: a runtime gives the stdio it passes to the
 * slot's root, and that must never happen to the host's own device. */
static void open_null(void)
{
    long fd = SYS(openat, K_AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);

    if (fd < 0)
        return; /* walls_try() will report it */
    SYS(dup3, fd, FD_NULL, 0);
    SYS(dup3, fd, 2, 0);
    SYS(close, fd);
}

void init_setup(u64 signals)
{
    g.conn = -1; /* not by an initialiser, which would put the whole table into the file */
    init_harden();
    signals_setup(signals);
    limits_setup();
    g.ptsdir = (int)SYS(openat, K_AT_FDCWD, "/dev/pts", O_DIRECTORY | O_CLOEXEC, 0);
    g.procdir = (int)SYS(openat, K_AT_FDCWD, "/proc", O_DIRECTORY | O_CLOEXEC, 0);
    long notes = SYS(mmap, 0, sizeof *g.notes * SP_MAX_EXEC, K_PROT_READ | K_PROT_WRITE,
                     K_MAP_SHARED | K_MAP_ANON, -1, 0);
    if (sys_failed(notes) || g.sigfd < 0)
        fatal(102);
    g.notes = (struct note *)notes;
    SYS(getrandom, &g.instance, sizeof g.instance, 0);
    g.boot_mono = clock_now(K_CLOCK_MONOTONIC);
    g.boot_real = clock_now(K_CLOCK_REALTIME);
}

static void init_init_setup(void)
{
    if (SYS(fcntl, FD_NULL, F_GETFD, 0) < 0 || SYS(fcntl, 2, F_GETFD, 0) < 0)
        fatal(100); /* 0 to 2 must be taken, or pipes would land there */
    open_null();
    init_setup(SIGNAL_BIT(SIGCHLD));
    SYS(fcntl, FD_LISTENER, F_SETFD, FD_CLOEXEC);
    SYS(fcntl, FD_LISTENER, F_SETFL, O_NONBLOCK);
    /* Listens again, as this process: peers that connect from now on see our pid in SO_PEERCRED and
     * SO_PEERPIDFD. */
    if (SYS(listen, FD_LISTENER, 8) < 0)
        fatal(103);
    walls_try(); /* meanwhile the warden connects */
}

static void serve_conn(short revents)
{
    if (revents & POLLOUT) {
        g.paused = false;
        exits_flush();
    }
    if (g.conn < 0 || !(revents & (POLLIN | POLLHUP | POLLERR)))
        return;
    if (revents & (POLLHUP | POLLERR) || conn_has_room(2))
        request_receive();
    else
        g.paused = true;
}

static void loop_once(void)
{
    int in = g.paused ? 0 : POLLIN;
    int out = g.paused || g.want_out ? POLLOUT : 0;
    struct pollfd p[3] = {
        {FD_LISTENER, POLLIN, 0}, {g.sigfd, POLLIN, 0}, {g.conn, (short)(in | out), 0}};

    if (SYS(ppoll, p, 3, 0, 0, K_SIGSET_SIZE) <= 0)
        return;
    if (p[1].revents) {
        char info[K_SIGINFO_SIZE];
        SYS(read, g.sigfd, info, sizeof info);
        children_reap();
        exits_flush();
    }
    serve_conn(p[2].revents);
    if (p[0].revents)
        conn_accept();
}

static void slot_main(void)
{
    init_init_setup();
    for (;;)
        loop_once();
}

/* Runs the mode that argv[1] names; without arguments runs as pid 1 of a slot. */
static void init_choose(int argc, char **argv, char **envp)
{
    if (argc < 2)
        slot_main();
    if (text_equal(argv[1], "serve"))
        serve_main(envp);
    if (text_equal(argv[1], "attach"))
        attach_main();
    if (argc == 3 && text_equal(argv[1], "install"))
        install_main(argv[2]);
    if (argc == 5 && text_equal(argv[1], "reach"))
        reach_main(argv[2], argv[3], argv[4]);
    if (argc == 2 && text_equal(argv[1], "noop")) /* used only to have the image pulled */
        fatal(0);
    fatal(2);
}

#ifdef HOSTED
int main(int argc, char **argv, char **envp)
{
    init_choose(argc, argv, envp);
    return 2;
}
#else
/* The stack is aligned by hand: the kernel's entry is not a call. It begins with argc, argv, NULL,
 * the environment, NULL. */
#    if defined(__x86_64__)
__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n"
        " call init_main\n ud2\n");
#    else
__asm__(".globl _start\n_start:\n mov x29,#0\n mov x30,#0\n mov x0,sp\n bl init_main\n brk #1\n");
#    endif
void init_main(long *stack);
void init_main(long *stack)
{
    char **argv = (char **)(stack + 1);

    init_choose((int)*stack, argv, argv + *stack + 1);
}
#endif
