/* Container mode: pid 1 of a container that an engine has made (`bothy-init serve`).
 *
 * Pid 1 is handed no socket here. It listens on an abstract name in the container's network
 * namespace, and `bothy-init attach`, which the engine starts for bothyd, connects its stdio to it.
 * Any process of the tenant can connect as well. A peer is greeted and must prove the secret
 * (wire/spine_link.h). Until then it is one of a few peers, and only for a few seconds. The newest
 * proved connection replaces the one before.
 *
 * The rules of init.c hold here too. The walls are the engine's and are not tried. */
#include "init/init.h"
#include "wire/spine_link.h"

#define TX_MAX  (512u * 1024)
#define TX_HIGH (96u * 1024)  /* limit for output and exits */
#define TX_READ (320u * 1024) /* above this requests wait, because their answers must fit */
#define RX_STEP (64u * 1024)
#define RX_KEEP (1u << 20) /* beyond this, after a large request, returned to the kernel */
#define BACKLOG 64
#define NS_MS   1000000ul

_Static_assert(TX_HIGH + SPL_SIZE(sizeof(struct sps_data), SPS_CHUNK_MAX) < TX_READ, "pieces fit");
_Static_assert(SPL_SIZE(SP_HELLO_MAX, SPS_SANDBOX) < TX_READ && TX_READ + 4096 < TX_MAX,
               "answers fit");

struct peer { /* a peer that has not proved the secret yet */
    int fd;   /* 0: none */
    bool outside;
    u32 pid;
    u64 since;
    spl_end end;
    size_t have;
    u64 in[SPL_ATTACH_ROOM / sizeof(u64)];
};

static struct {
    int listener;
    bool owned;
    uint8_t secret[SPL_SECRET];
    struct peer waiting[SPL_UNPROVED_MAX];
} serve;

static struct { /* the proved connection */
    int fd;     /* 0: none */
    u32 pid;
    spl_end end;
    char *rx, *tx;
    size_t have, high;    /* of rx */
    size_t at, len, open; /* of tx: sent, filled; start of the message being built */
} lnk;

/* ---- the connection ---- */

static void link_drop(void)
{
    if (lnk.fd)
        SYS(close, lnk.fd);
    lnk.fd = 0;
    lnk.pid = 0;
    lnk.have = lnk.at = lnk.len = 0;
    spl_end_wipe(&lnk.end);
}

u32 link_peer(void)
{
    return lnk.pid;
}

bool link_has_room(void)
{
    return lnk.fd && lnk.len - lnk.at < TX_HIGH;
}

/* Copies forward; the ranges may overlap, `to` before `from`. */
static void move_down(char *to, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

void *link_begin(const void *record, size_t n, size_t nextra)
{
    if (lnk.at == lnk.len)
        lnk.at = lnk.len = 0;
    if (!lnk.fd || lnk.len + spl_size(n, nextra) > TX_MAX)
        return NULL;
    lnk.open = lnk.len;
    return spl_put_begin(lnk.tx + lnk.len, record, n, nextra);
}

void link_end(void)
{
    lnk.len += spl_put_end(&lnk.end, lnk.tx + lnk.open);
}

/* Sends a record. After a claim HELLO also carries the sandbox id. */
long link_send(const void *record, size_t n)
{
    bool tells = ((const struct sp_hdr *)record)->type == SP_HELLO && g.claim.made;
    size_t nextra = tells ? sizeof g.claim.sandbox : 0;

    if (!lnk.fd)
        return -EPIPE;
    void *extra = link_begin(record, n, nextra);
    if (!extra)
        return -EAGAIN;
    memcpy(extra, g.claim.sandbox, nextra);
    link_end();
    return 0;
}

/* Sends what the socket takes. A dead peer is noticed by the reading side. */
static void link_write(void)
{
    while (lnk.fd && lnk.at < lnk.len) {
        long n = SYS(sendto, lnk.fd, lnk.tx + lnk.at, lnk.len - lnk.at,
                     K_MSG_DONTWAIT | K_MSG_NOSIGNAL, 0, 0);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            break;
        lnk.at += (size_t)n;
    }
    if (lnk.at > TX_MAX / 4) { /* whole 8 bytes only, so that the records in tx stay aligned */
        size_t whole = lnk.at & ~(size_t)7;
        move_down(lnk.tx, lnk.tx + whole, lnk.len - whole);
        lnk.at -= whole;
        lnk.len -= whole;
    }
}

/* ---- messages ---- */

/* Returns the number behind "oom_kill " at the beginning of a line. */
static u32 oom_count(const char *p)
{
    static const char KEY[] = "oom_kill ";
    size_t n = 0;
    u32 count = 0;

    while (*p && n < sizeof KEY - 1) {
        n = *p == KEY[n] ? n + 1 : 0;
        if (!n)
            while (*p && *p != '\n')
                p++;
        p += *p != 0;
    }
    while (n == sizeof KEY - 1 && *p >= '0' && *p <= '9')
        count = count * 10 + (u32)(*p++ - '0');
    return count;
}

/* Returns the OOM kills of our own cgroup as the container shows it (v2, then v1). The engine
 * mounts these files. Where it mounts none a tenant may have put anything there, so nothing here
 * may block. */
static u32 oom_kills(void)
{
    static const char *const FILES[] = {"/sys/fs/cgroup/memory.events",
                                        "/sys/fs/cgroup/memory/memory.oom_control"};
    char b[1024];

    for (u32 i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        long fd = SYS(openat, K_AT_FDCWD, FILES[i],
                      O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY, 0);
        if (fd < 0)
            continue;
        long n = SYS(read, fd, b, sizeof b - 1);
        SYS(close, fd);
        b[n > 0 ? n : 0] = 0;
        return oom_count(b);
    }
    return 0;
}

static void serve_pong(const struct sps_data *ping)
{
    struct sps_data d = {
        {.type = SPS_PONG, .id = ping->h.id}, .a = oom_kills(), .offset = ping->offset};

    link_send(&d, sizeof d);
}

/* Returns false if the peer violated the protocol. */
static bool on_message(const sps_message *m)
{
    switch (m->type) {
    case SPS_RECEIVED:
    case SPS_STDIN:
    case SPS_RESIZE:
        return flow_message(m);
    case SPS_PING:
        if (m->size == sizeof(struct sps_data))
            serve_pong(m->record);
        return m->size == sizeof(struct sps_data);
    default:
        if (m->type > SP_CLAIM)
            return false;
        request_take(m->record, m->size, m->extra, m->nextra);
        if (m->type == SP_CLAIM)
            seal_wipe((void *)m->record, m->size + m->nextra); /* secrets: only the claim stays */
        return true;
    }
}

static bool link_may_read(void)
{
    return lnk.fd && lnk.len - lnk.at < TX_READ;
}

/* Handles the complete messages. Returns true if bytes remain because answers lack room. */
static bool link_parse(void)
{
    size_t at = 0;
    long n = 1;

    while (n > 0 && link_may_read()) {
        sps_message m;
        const char *why;
        n = spl_next(&lnk.end, lnk.rx + at, lnk.have - at, &m, &why);
        if (n < 0 || (n > 0 && !on_message(&m))) {
            link_drop();
            return false;
        }
        at += (size_t)n;
    }
    lnk.have -= at;
    if (at)
        move_down(lnk.rx, lnk.rx + at, lnk.have);
    if (!lnk.have && lnk.high > RX_KEEP) {
        SYS(madvise, lnk.rx, lnk.high, K_MADV_DONTNEED);
        lnk.high = 0;
    }
    return n > 0 && lnk.have;
}

static void link_read(void)
{
    size_t room = SPL_REQUEST_MAX - lnk.have;
    long n = SYS(recvfrom, lnk.fd, lnk.rx + lnk.have, room < RX_STEP ? room : RX_STEP,
                 K_MSG_DONTWAIT, 0, 0);

    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0) {
        link_drop();
        return;
    }
    lnk.have += (size_t)n;
    if (lnk.high < lnk.have)
        lnk.high = lnk.have;
}

/* Sends answers, output and exits as far as they go. Repeats when everything was sent, because then
 * no poll event would wake us for what had no room before. */
static void link_serve(void)
{
    bool cut;

    do {
        cut = link_parse();
        cut |= flow_flush();
        link_write();
    } while (cut && lnk.fd && lnk.at == lnk.len);
}

/* ---- who has not proved anything yet ---- */

static void peer_drop(struct peer *p)
{
    if (p->fd)
        SYS(close, p->fd);
    seal_wipe(p, sizeof *p);
}

static void peer_proved(struct peer *p)
{
    link_drop();
    lnk.fd = p->fd;
    lnk.pid = p->pid;
    lnk.end = p->end;
    p->fd = 0;
    peer_drop(p);
    flow_hold_all();
    conn_greet();
}

static void peer_refuse(struct peer *p, int errnum)
{
    char out[SPL_REFUSED_ROOM];
    size_t n = spl_refuse(&p->end, errnum, out);

    SYS(sendto, p->fd, out, n, K_MSG_DONTWAIT | K_MSG_NOSIGNAL, 0, 0);
    peer_drop(p);
}

/* Reads no byte beyond ATTACH: nothing may follow it before its answer. */
static void peer_read(struct peer *p)
{
    sps_message m;
    const char *why;
    size_t left = SPL_ATTACH_ROOM - sizeof(u64) - p->have; /* ATTACH has no seal */
    long n = SYS(recvfrom, p->fd, (char *)p->in + p->have, left, K_MSG_DONTWAIT, 0, 0);

    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n > 0)
        p->have += (size_t)n;
    long r = n > 0 ? spl_next(&p->end, p->in, p->have, &m, &why) : -1;
    if (r < 0)
        peer_drop(p);
    if (r <= 0)
        return;
    int errnum = spl_admit(&p->end, m.record, serve.secret, &serve.owned);
    if (errnum)
        peer_refuse(p, errnum);
    else
        peer_proved(p);
}

/* Returns true if the peer was started from outside this pid namespace: then it has no parent in
 * it. That proves nothing, but a tenant that keeps connecting must not keep bothyd's process
 * waiting. */
static bool is_from_outside(u32 pid)
{
    u32 parent;

    return !pid || (signal_parent_of(pid, &parent) && !parent);
}

static struct peer *peer_room(bool outside)
{
    struct peer *oldest = NULL;

    for (u32 i = 0; i < SPL_UNPROVED_MAX; i++) {
        struct peer *p = &serve.waiting[i];
        if (!p->fd)
            return p;
        if (!outside)
            continue;
        if (!oldest || (oldest->outside && !p->outside) ||
            (oldest->outside == p->outside && p->since < oldest->since))
            oldest = p;
    }
    if (oldest)
        peer_drop(oldest);
    return oldest;
}

static void peer_accept(void)
{
    struct k_ucred cred = {.pid = 0};
    u32 len = sizeof cred;
    uint8_t nonce[SPL_NONCE];
    char out[SPL_GREETING_ROOM];
    long fd = SYS(accept4, serve.listener, 0, 0, K_SOCK_CLOEXEC | K_SOCK_NONBLOCK);

    if (fd < 0)
        return;
    SYS(getsockopt, fd, K_SOL_SOCKET, K_SO_PEERCRED, &cred, &len);
    bool outside = is_from_outside((u32)cred.pid);
    struct peer *p = peer_room(outside);
    if (!p || SYS(getrandom, nonce, sizeof nonce, 0) != (long)sizeof nonce) {
        SYS(close, fd);
        return;
    }
    *p = (struct peer){.fd = (int)fd,
                       .outside = outside,
                       .pid = (u32)cred.pid,
                       .since = clock_now(K_CLOCK_MONOTONIC)};
    size_t n = spl_begin_init(&p->end, nonce, g.instance, serve.owned, out);
    if (SYS(sendto, fd, out, n, K_MSG_DONTWAIT | K_MSG_NOSIGNAL, 0, 0) != (long)n)
        peer_drop(p);
}

/* Drops peers whose time for the proof is over. Returns true if any are still waiting. */
static bool peers_expire(void)
{
    u64 now = clock_now(K_CLOCK_MONOTONIC);
    bool any = false;

    for (u32 i = 0; i < SPL_UNPROVED_MAX; i++) {
        struct peer *p = &serve.waiting[i];
        if (p->fd && now - p->since >= SPL_PROOF_MS * NS_MS)
            peer_drop(p);
        any |= p->fd != 0;
    }
    return any;
}

/* ---- signals ---- */

/* Signals with which engines stop a container: TERM, or the one the image names. */
#define ENDING                                                                             \
    (SIGNAL_BIT(SIGTERM) | SIGNAL_BIT(SIGINT) | SIGNAL_BIT(SIGQUIT) | SIGNAL_BIT(SIGHUP) | \
     SIGNAL_BIT(SIGUSR1) | SIGNAL_BIT(SIGUSR2) | SIGNAL_BIT(SIGPWR) | SIGNAL_BIT(SIGWINCH))

struct k_signalfd {
    u32 signo;
    int err, code;
    u32 pid;
    char rest[K_SIGINFO_SIZE - 16];
};

/* Ends init on an engine's signal; reaps children. A signal from the tenant comes from a pid that
 * is visible here and is ignored. The exit status is that of a process killed by the signal: a pod
 * whose container ends with 0 has succeeded, and the kubelet forgets that it evicted it. All
 * processes of the namespace die with pid 1; the engine must reap a process it started before pid 1
 * is gone. */
static void on_signals(void)
{
    struct k_signalfd s;

    while (SYS(read, g.sigfd, &s, sizeof s) == (long)sizeof s)
        if (s.signo != SIGCHLD && !s.pid)
            fatal(128 + (int)s.signo);
    children_reap();
}

/* ---- start and loop ---- */

/* Replaces the engine's stdio, which goes to its log, with /dev/null; commands get stdio of their
 * own. */
static void stdio_setup(void)
{
    long fd;

    do
        fd = SYS(openat, K_AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
    while (fd >= 0 && fd <= 2);
    if (fd < 0)
        fatal(100);
    SYS(dup3, fd, 0, 0);
    SYS(dup3, fd, FD_NULL, 0);
#ifndef HOSTED /* sanitizers report on stderr */
    SYS(dup3, fd, 2, 0);
#endif
    SYS(close, fd);
}

long serve_name(char ret[SERVE_NAME_MAX])
{
    static const char prefix[] = "bothy-init.";
    char target[64];
    size_t n = 1 + sizeof prefix - 1;
    long len = SYS(readlinkat, K_AT_FDCWD, "/proc/self/ns/pid", target, sizeof target);

    if (len < 0)
        return len;
    ret[0] = 0;
    memcpy(ret + 1, prefix, sizeof prefix - 1);
    for (long i = 0; i < len && n < SERVE_NAME_MAX; i++) /* pid:[4026531836] */
        if (target[i] >= '0' && target[i] <= '9')
            ret[n++] = target[i];
    return (long)n;
}

static void listen_setup(void)
{
    struct k_unix name = {.family = K_AF_UNIX};
    long n = serve_name(name.path);
    long fd = SYS(socket, K_AF_UNIX, K_SOCK_STREAM | K_SOCK_CLOEXEC | K_SOCK_NONBLOCK, 0);

    if (n < 0 || fd < 0 || SYS(bind, fd, &name, offsetof(struct k_unix, path) + (size_t)n) < 0 ||
        SYS(listen, fd, BACKLOG) < 0)
        fatal(103);
    serve.listener = (int)fd;
}

static void serve_setup(char **envp)
{
    u64 signals = ENDING | SIGNAL_BIT(SIGCHLD);

    /* First of all: pid 1 loses a signal that comes before this. */
    SYS(rt_sigprocmask, K_SIG_SETMASK, &signals, 0, K_SIGSET_SIZE);
    g.stream = true;
    stdio_setup();
    init_setup(signals);
    g.env = envp;
    while (envp[g.envc])
        g.envc++;
    /* The image's WORKDIR, taken from where the engine put us: nothing else may know it. The root
     * directory does not count as a WORKDIR. */
    if (SYS(getcwd, g.cwd, sizeof g.cwd) < 0 || g.cwd[0] != '/' || !g.cwd[1])
        g.cwd[0] = 0;
    lnk.rx = map_anon_lazy(SPL_REQUEST_MAX);
    lnk.tx = map_anon_lazy(TX_MAX);
    if (!lnk.rx || !lnk.tx)
        fatal(102);
    listen_setup();
}

enum {
    P_LISTENER,
    P_SIGNALS,
    P_LINK,
    P_WAITING,
    P_FLOW = P_WAITING + SPL_UNPROVED_MAX
};

static u32 fill_polls(struct pollfd *p)
{
    short in = link_may_read() ? POLLIN : 0, out = lnk.at < lnk.len ? POLLOUT : 0;

    p[P_LISTENER] = (struct pollfd){serve.listener, POLLIN, 0};
    p[P_SIGNALS] = (struct pollfd){g.sigfd, POLLIN, 0};
    p[P_LINK] = (struct pollfd){lnk.fd ? lnk.fd : -1, (short)(in | out), 0};
    for (u32 i = 0; i < SPL_UNPROVED_MAX; i++) {
        int fd = serve.waiting[i].fd;
        p[P_WAITING + i] = (struct pollfd){fd ? fd : -1, POLLIN, 0};
    }
    return P_FLOW + flow_poll(p + P_FLOW);
}

static void serve_once(void)
{
    static struct pollfd p[P_FLOW + FLOW_POLLS];
    struct __kernel_timespec second = {.tv_sec = 1};
    bool waiting = peers_expire();
    u32 n = fill_polls(p);

    if (SYS(ppoll, p, n, waiting ? &second : NULL, 0, K_SIGSET_SIZE) <= 0)
        return;
    /* Bytes before exits, exits before requests. Nothing here creates an entry that a request could
     * not find, and flow_polled() compares the descriptors with those it polled. */
    flow_polled(p + P_FLOW);
    if (p[P_SIGNALS].revents)
        on_signals();
    if (lnk.fd && p[P_LINK].revents & (POLLIN | POLLHUP | POLLERR) && link_may_read())
        link_read();
    for (u32 i = 0; i < SPL_UNPROVED_MAX; i++)
        if (p[P_WAITING + i].revents && serve.waiting[i].fd == p[P_WAITING + i].fd)
            peer_read(&serve.waiting[i]);
    if (p[P_LISTENER].revents)
        peer_accept();
    link_serve();
}

void serve_main(char **envp)
{
    serve_setup(envp);
    for (;;)
        serve_once();
}
