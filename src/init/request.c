/* Handles the daemon's requests: SPAWN, FETCH, SIGNAL, CLOSE, ACK, CLAIM. */
#include "init/init.h"

#define SPAWN_FLAGS \
    (SP_F_PTY | SP_F_MERGE | SP_F_NOSTDIN | SP_F_MEMFD | SP_F_KEEP | SP_F_EXECFD | SP_F_SETUID)

union request {
    struct sp_hdr h;
    struct sp_spawn spawn;
    struct sp_claim claim;
    struct sp_op op;
    char bytes[SP_INLINE_MAX];
};
static union request rx __attribute__((aligned(16)));

/* Descriptors that came with a request. A taken one is set to -1; the rest are closed. A stream
 * carries none: there the payload's bytes follow the record in `extra`. */
struct attached {
    int fd[RIGHTS_MAX];
    u32 n;
    const char *extra;
    size_t nextra;
};

static void answer_done(u64 id, long r)
{
    struct sp_hdr h = {.type = SP_DONE, .err = (int32_t)-r, .id = id};
    conn_send(&h, sizeof h, NULL, 0);
}

static void answer_refused(u32 type, u64 id, long r)
{
    struct sp_started s = {.h = {.type = type, .err = (int32_t)-r, .id = id}};
    conn_send(&s, sizeof s, NULL, 0);
}

static void answer_started(u32 type, const struct entry *e)
{
    struct sp_started s = {.h = {.type = type, .id = e->r.id},
                           .pid = e->r.pid,
                           .flags = e->r.flags & ~SP_F_ACKED,
                           .fds = g.stream ? 0 : entry_open_mask(e),
                           .start_mono = e->r.start_mono,
                           .start_real = e->r.start_real};
    int fds[SP_FDS_MAX];
    u32 n = 0;

    for (u32 i = 0; i < SP_FDS_MAX; i++)
        if (s.fds & 1u << i && e->fd[i] >= 0)
            fds[n++] = e->fd[i];
    if (conn_send(&s, sizeof s, fds, n) == -ETOOMANYREFS) {
        s.fds = 0; /* the daemon may fetch them later */
        conn_send(&s, sizeof s, NULL, 0);
    }
}

/* ---- SPAWN ---- */

/* Makes a pipe whose host end, ends[host], does not block; the command gets the other end. */
static long make_pipe(int ends[2], int host)
{
    long r = SYS(pipe2, ends, O_CLOEXEC);
    if (r < 0)
        return r;
    return SYS(fcntl, ends[host], F_SETFL, O_NONBLOCK);
}

/* Opens a terminal of the slot's own devpts. The relay pipe lies between terminal and spool: bytes
 * that the daemon has read from the terminal but not yet written must survive it, so init holds the
 * pipe. */
static long make_pty(const struct sp_spawn *q, int *fd, int *io)
{
    struct k_winsize size = {q->rows, q->cols, 0, 0};
    int relay[2], locked = 0;
    long r = SYS(openat, g.ptsdir, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK, 0);

    if (r < 0)
        return r;
    fd[SP_FD_IN] = (int)r;
    if ((r = SYS(ioctl, fd[SP_FD_IN], TIOCSPTLCK, &locked)) < 0)
        return r;
    r = SYS(ioctl, fd[SP_FD_IN], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (r < 0)
        return r;
    io[0] = (int)r;
    SYS(ioctl, fd[SP_FD_IN], TIOCSWINSZ, &size);
    if (g.stream) { /* init reads the terminal itself and may end input before output */
        r = SYS(fcntl, fd[SP_FD_IN], K_F_DUPFD_CLOEXEC, 3);
        fd[SP_FD_OUT] = r < 0 ? -1 : (int)r;
        return r < 0 ? r : 0;
    }
    if ((r = SYS(pipe2, relay, O_CLOEXEC | O_NONBLOCK)) < 0)
        return r;
    fd[SP_FD_OUT] = relay[0];
    fd[SP_FD_ERR] = relay[1];
    return 0;
}

static long make_pipes(const struct sp_spawn *q, int *fd, int *io)
{
    int p[2];
    long r;

    if (!(q->flags & SP_F_NOSTDIN)) {
        if ((r = make_pipe(p, 1)) < 0)
            return r;
        io[0] = p[0];
        fd[SP_FD_IN] = p[1];
    }
    for (int i = SP_FD_OUT; i <= (q->flags & SP_F_MERGE ? SP_FD_OUT : SP_FD_ERR); i++) {
        if ((r = make_pipe(p, 0)) < 0)
            return r;
        fd[i] = p[0];
        io[i] = p[1];
    }
    return 0;
}

/* Returns true if the payload is where the record says. */
static bool payload_there(bool apart, u32 payload, size_t behind, const struct attached *a)
{
    if (payload > SP_PAYLOAD_MAX || behind != (apart ? 0 : payload))
        return false;
    return !g.stream || a->nextra == (apart ? payload : 0);
}

static bool spawn_well_formed(const struct sp_spawn *q, size_t n, const struct attached *a)
{
    bool memfd = q->flags & SP_F_MEMFD;
    u32 want = !!(memfd && !g.stream) + !!(q->flags & SP_F_EXECFD) + !!(q->flags & SP_F_KEEP);

    for (u32 i = 0; i < sizeof q->reserved / sizeof *q->reserved; i++)
        if (q->reserved[i])
            return false;
    return q->h.id && a->n == want && !(q->flags & ~SPAWN_FLAGS) && q->argc &&
           payload_there(memfd, q->payload, n - sizeof *q, a) && q->argc <= q->payload &&
           q->envc <= q->payload && q->nrlimits <= SP_RLIMITS_MAX &&
           (q->umask <= 0777 || q->umask == SP_UMASK_CLAIM);
}

/* Returns the error for requests that can be refused before anything is made. */
static long spawn_admit(const struct sp_spawn *q, size_t n, const struct attached *a)
{
    if (g.stream && q->flags & (SP_F_KEEP | SP_F_EXECFD))
        return -EOPNOTSUPP;
    if (!spawn_well_formed(q, n, a))
        return -EINVAL;
    if (q->h.id <= g.high)
        return -ESTALE; /* refused before, or already forgotten: an id never runs twice */
    if (q->flags & SP_F_SETUID && !(g.claim.grants & SP_GRANT_SETUID))
        return -EPERM;
    return g.used < SP_MAX_EXEC ? 0 : -ENOSPC;
}

static struct entry *entry_take(const struct sp_spawn *q, u32 at, u32 pid, const int *fd)
{
    struct entry *e = &g.tab[at];

    memset(e, 0, sizeof *e);
    e->used = true;
    e->r.id = q->h.id;
    e->r.state = SP_LIVE;
    e->r.pid = pid;
    e->r.flags = q->flags;
    memcpy(e->fd, fd, sizeof e->fd);
    g.used++;
    if (at >= g.top)
        g.top = at + 1;
    g.high = q->h.id;
    return e;
}

/* Forks the command. io[] holds the command's own ends, which the caller closes. On success fd[]
 * belongs to the table. */
static long spawn_fork(const struct sp_spawn *q, struct attached *a, int *fd, int *io)
{
    struct job j = {.q = q, .payload = -1, .execfd = -1};
    u32 at = 0, next = 0;
    bool pty = q->flags & SP_F_PTY;

    while (g.tab[at].used)
        at++;
    if (q->flags & SP_F_MEMFD && g.stream)
        j.extra = a->extra;
    else if (q->flags & SP_F_MEMFD)
        j.payload = a->fd[next++];
    if (q->flags & SP_F_EXECFD)
        j.execfd = a->fd[next++];
    j.io[0] = io[0] >= 0 ? io[0] : FD_NULL;
    j.io[1] = pty ? io[0] : io[1];
    j.io[2] = pty ? io[0] : q->flags & SP_F_MERGE ? io[1] : io[2];
    j.note = &g.notes[at];
    *j.note = (struct note){.uid = NO_ID, .gid = NO_ID};
    u64 mono = clock_now(K_CLOCK_MONOTONIC), real = clock_now(K_CLOCK_REALTIME);
    long pid = SYS(clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        child_run(&j);
    if (pid < 0)
        return pid;
    if (q->flags & SP_F_KEEP) {
        fd[SP_FD_KEEP] = a->fd[next];
        a->fd[next] = -1;
    }
    struct entry *e = entry_take(q, at, (u32)pid, fd);
    e->r.start_mono = mono;
    e->r.start_real = real;
    answer_started(SP_STARTED, e);
    if (g.stream)
        flow_begin(e);
    return 0;
}

static void do_spawn(const struct sp_spawn *q, size_t n, struct attached *a)
{
    int fd[SP_FDS_MAX] = {-1, -1, -1, -1}, io[3] = {-1, -1, -1};
    struct entry *known = entry_find(q->h.id);

    if (known) { /* repeated after a lost connection */
        answer_started(SP_STARTED, known);
        if (g.stream && !flow_is_on(known))
            flow_fetch(known);
        return;
    }
    long r = spawn_admit(q, n, a);
    if (!r)
        r = q->flags & SP_F_PTY ? make_pty(q, fd, io) : make_pipes(q, fd, io);
    if (r >= 0)
        r = spawn_fork(q, a, fd, io);
    if (r < 0) {
        for (u32 i = 0; i < SP_FDS_MAX; i++)
            fd_close(&fd[i]);
        answer_refused(SP_STARTED, q->h.id, r);
    }
    for (u32 i = 0; i < 3; i++)
        fd_close(&io[i]);
}

/* ---- CLAIM ---- */

static long copy_from_memfd(int fd, char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        long r = SYS(pread64, fd, p + at, n - at, at);
        if (r <= 0)
            return r < 0 ? r : -EINVAL;
        at += (size_t)r;
    }
    return 0;
}

/* Returns the position behind the NUL of the string at s, or NULL if the string does not end. */
static const char *string_end(const char *s, const char *end)
{
    while (s < end && *s)
        s++;
    return s < end ? s + 1 : NULL;
}

static long claim_parse(struct claim *c, const char *p, const char *end)
{
    c->user = p;
    c->cwd = p = string_end(p, end);
    if (p)
        c->env = p = string_end(p, end);
    for (u32 i = 0; p && i < c->envc; i++)
        p = string_end(p, end);
    c->end = end;
    return p == end ? 0 : -EINVAL;
}

static bool claim_well_formed(const struct sp_claim *q, size_t n, const struct attached *a)
{
    bool memfd = q->flags & SP_F_MEMFD;

    for (u32 i = 0; i < sizeof q->reserved / sizeof *q->reserved; i++)
        if (q->reserved[i])
            return false;
    return !q->h.id && !(q->flags & ~SP_F_MEMFD) && a->n == (memfd && !g.stream) && q->payload &&
           payload_there(memfd, q->payload, n - sizeof *q, a) && q->envc <= q->payload &&
           q->umask <= 0777 && !(q->grants & ~SP_GRANT_SETUID);
}

/* Takes the claim. The payload, which holds secrets, stays in this one mapping. It is copied out of
 * a memfd so that no other process holds the pages. */
static long take_claim(const struct sp_claim *q, size_t n, const struct attached *a)
{
    struct claim c = {.made = true, .umask = q->umask, .grants = q->grants, .envc = q->envc};
    long r = 0;

    if (!claim_well_formed(q, n, a))
        return -EINVAL;
    if (g.claim.made)
        return -EALREADY;
    memcpy(c.sandbox, q->sandbox, sizeof c.sandbox);
    char *p = map_anon(q->payload);
    if (!p)
        return -ENOMEM;
    SYS(madvise, p, q->payload, K_MADV_DONTDUMP);
    if (q->flags & SP_F_MEMFD && !g.stream)
        r = copy_from_memfd(a->fd[0], p, q->payload);
    else if (q->flags & SP_F_MEMFD)
        memcpy(p, a->extra, q->payload);
    else
        memcpy(p, q + 1, q->payload);
    if (!r)
        r = claim_parse(&c, p, p + q->payload);
    if (r)
        SYS(munmap, p, q->payload);
    else
        g.claim = c;
    return r;
}

/* Handles CLAIM. A repeated claim is answered with the walls that the first one found. */
static void do_claim(const struct sp_claim *q, size_t n, const struct attached *a)
{
    struct sp_hdr h = {.type = SP_DONE, .err = SP_EWALL};
    u64 walls = SP_WALLS(g.walls.again, g.walls.again);

    if (!g.claim.made && !g.stream) /* in container mode the walls are the engine's */
        walls = walls_try_again(q->grants);

    if (SP_TRIED(walls) == SP_HELD(walls))
        h.err = (int32_t)-take_claim(q, n, a);
    if (!h.err)
        g.walls.again = SP_HELD(walls);
    h.id = walls;
    conn_send(&h, sizeof h, NULL, 0);
}

/* ---- the rest ---- */

static void do_ack(struct entry *e, u32 mask)
{
    if (!e || e->r.state == SP_LIVE)
        return;
    e->acked = e->sent = true;
    e->r.flags |= SP_F_ACKED;
    entry_close(e, mask);
    entry_maybe_free(e);
}

static void do_close(struct entry *e, u32 mask)
{
    if (!e)
        return;
    entry_close(e, mask);
    entry_maybe_free(e);
}

static void do_op(const struct sp_op *q)
{
    struct entry *e = entry_find(q->h.id);

    switch (q->h.type) {
    case SP_FETCH:
        if (e)
            answer_started(SP_FDS, e);
        else
            answer_refused(SP_FDS, q->h.id, -ESRCH);
        if (e && g.stream)
            flow_fetch(e);
        break;
    case SP_SIGNAL:
        answer_done(q->h.id, signal_send(q));
        exits_flush(); /* signal_send() may have reaped children */
        break;
    case SP_ACK:
        do_ack(e, q->mask);
        break;
    case SP_CLOSE:
        do_close(e, q->mask);
        break;
    default:
        break;
    }
}

/* Refuses an unreadable request with the answer its type promises, so that the sender does not wait
 * for ever. */
static void request_refuse(u32 type, u64 id, long r)
{
    if (type == SP_SPAWN || type == SP_FETCH)
        answer_refused(type == SP_SPAWN ? SP_STARTED : SP_FDS, id, r);
    else if (type != SP_ACK && type != SP_CLOSE)
        answer_done(id, r);
}

static void request_dispatch(const union request *q, size_t n, u32 flags, struct attached *a)
{
    u32 type = n >= sizeof q->h ? q->h.type : 0;
    u64 id = n >= sizeof q->h ? q->h.id : 0;

    if (flags & (K_MSG_TRUNC | K_MSG_CTRUNC))
        request_refuse(type, id, -EMSGSIZE);
    else if (type == SP_SPAWN && n >= sizeof q->spawn)
        do_spawn(&q->spawn, n, a);
    else if (type == SP_CLAIM && n >= sizeof q->claim)
        do_claim(&q->claim, n, a);
    else if (type >= SP_FETCH && type <= SP_ACK)
        if (n == sizeof q->op && !a->n && !a->nextra)
            do_op(&q->op);
        else
            request_refuse(type, id, -EINVAL);
    else
        request_refuse(type, id, type == SP_SPAWN || type == SP_CLAIM ? -EINVAL : -ENOSYS);
}

void request_receive(void)
{
    struct k_rights rights = {0};
    struct k_iovec v = {&rx, sizeof rx};
    struct k_msghdr m = {.iov = &v, .niov = 1, .control = &rights, .controllen = sizeof rights};
    struct attached a = {.fd = {-1, -1, -1, -1}};
    long n = SYS(recvmsg, g.conn, &m, K_MSG_CMSG_CLOEXEC | K_MSG_DONTWAIT);

    /* ECONNRESET may be reported once before data the peer had queued; it is not the end. */
    if (n == -EAGAIN || n == -EINTR || n == -ECONNRESET)
        return;
    if (n <= 0) {
        conn_drop();
        return;
    }
    if (m.controllen >= RIGHTS_HEAD && rights.type == K_SCM_RIGHTS && rights.len > RIGHTS_HEAD) {
        a.n = (u32)((rights.len - RIGHTS_HEAD) / sizeof(int));
        memcpy(a.fd, rights.fd, a.n * sizeof(int));
    }
    request_dispatch(&rx, (size_t)n, m.flags, &a);
    for (u32 i = 0; i < a.n; i++)
        fd_close(&a.fd[i]);
}

void request_take(const void *record, size_t n, const char *extra, size_t nextra)
{
    struct attached a = {.fd = {-1, -1, -1, -1}, .extra = extra, .nextra = nextra};

    request_dispatch(record, n, 0, &a);
}
