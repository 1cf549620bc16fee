/* SIGNAL: to a process, a group, a session, a tree, a subtree, everything.
 *
 * Only the exec's own main process can be signalled by number alone: init is its only reaper, so
 * its pid is not reused before init reaps it. All other scopes scan /proc (through a descriptor
 * opened at boot). A scan is a snapshot; processes forked meanwhile are found by the next round.
 * /proc lists pids in ascending order, so the table is already sorted. */
#include "init/init.h"

#define PROCS_MAX       32768
#define PID_LIMIT       (1u << 22) /* the kernel's own limit */
#define ROUNDS_MAX      64
#define NS_PER_TICK     10000000u /* /proc counts start times in 1/100 s */
#define K_PF_FORKNOEXEC 0x40u     /* a bit of the kernel's task flags */

enum member {
    UNKNOWN,
    IN,
    OUT
};
struct proc {
    u32 pid, ppid, pgrp, sid;
    unsigned char member;
    bool dead;   /* a zombie without living threads */
    bool forked; /* forked from init and has not called exec yet */
    u64 start;   /* ticks since boot */
};

struct look {
    struct proc *p; /* PROCS_MAX entries, one mapping for all rounds */
    u32 n;
    unsigned char *seen;   /* bitmap of pids signalled in an earlier round */
    unsigned char *groups; /* bitmap of process groups: not to be killed, or killed already */
};

/* The processes that a round is for. */
struct target {
    const struct sp_op *q;
    u32 leader; /* the exec's main pid */
    bool live;  /* the leader has not been reaped */
    /* SP_TO_BELOW: when the request came, in ticks. Children of q->pid that began in this tick or
     * later are not signalled, nor are their descendants. */
    u64 until;
};

/* ---- /proc ---- */

/* Returns the value of field `want` (3 is the state). Fields are counted from behind the command's
 * name, which may contain any character. */
static const char *stat_field(const char *line, u32 want)
{
    const char *p = NULL;

    for (const char *s = line; *s; s++)
        if (*s == ')')
            p = s + 1;
    for (u32 i = 2; p && i < want; i++) {
        while (*p && *p != ' ')
            p++;
        if (!*p)
            return NULL;
        p++;
    }
    return p;
}

static u64 stat_number(const char *line, u32 field)
{
    const char *p = stat_field(line, field), *end = p;
    u64 v = 0;

    while (end && *end >= '0' && *end <= '9')
        end++;
    return p && text_number(p, end, &v) ? v : 0;
}

static bool read_proc(u32 pid, struct proc *ret)
{
    char path[32], line[1024];
    char *name = path + 16;

    memcpy(name, "/stat", 6);
    name = text_from_number(name, pid);
    long fd = SYS(openat, g.procdir, name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    long n = SYS(read, fd, line, sizeof line - 1);
    SYS(close, fd);
    if (n <= 0)
        return false;
    line[n] = 0;
    const char *state = stat_field(line, 3);
    if (!state)
        return false;
    /* A leader whose threads are still alive shows as a zombie but is not dead. */
    *ret = (struct proc){.pid = pid,
                         .ppid = (u32)stat_number(line, 4),
                         .pgrp = (u32)stat_number(line, 5),
                         .sid = (u32)stat_number(line, 6),
                         .start = stat_number(line, 22),
                         .dead = (*state == 'Z' || *state == 'X') && stat_number(line, 20) <= 1,
                         .forked = stat_number(line, 9) & K_PF_FORKNOEXEC};
    return true;
}

static void look_around(struct look *l)
{
    char b[4096] __attribute__((aligned(8)));
    long n;

    l->n = 0;
    SYS(lseek, g.procdir, 0, K_SEEK_SET);
    while ((n = SYS(getdents64, g.procdir, b, sizeof b)) > 0)
        for (long at = 0; at < n;) {
            const struct k_dirent *d = (const struct k_dirent *)(b + at);
            u64 pid;
            at += d->len;
            if (!text_number(d->name, d->name + text_len(d->name), &pid) || pid >= PID_LIMIT)
                continue;
            if (l->n < PROCS_MAX && read_proc((u32)pid, &l->p[l->n]))
                l->n++;
        }
}

static struct proc *look_find(const struct look *l, u32 pid)
{
    u32 low = 0, high = l->n;

    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (l->p[mid].pid < pid)
            low = mid + 1;
        else
            high = mid;
    }
    return low < l->n && l->p[low].pid == pid ? &l->p[low] : NULL;
}

/* ---- who belongs ---- */

static bool in_session(const struct target *t, const struct proc *p)
{
    return p->sid == t->leader || (t->live && p->pid == t->leader);
}

/* Returns true if p starts a subtree that is to be signalled. For BELOW that is a child of q->pid
 * that began at or after q->since and before the signal came: a shell whose command dies of the
 * signal may start the next command at once. */
static bool is_root(const struct target *t, const struct proc *p)
{
    if (t->q->scope == SP_TO_BELOW)
        return p->ppid == t->q->pid && p->start >= t->q->since / NS_PER_TICK && p->start < t->until;
    return in_session(t, p);
}

/* Decides about p by its nearest ancestor that is decided or a root. Every process on the way is
 * then decided too, so a scan costs n log n. A snapshot may contain cycles, so the steps are
 * counted. */
static void signal_settle(const struct look *l, const struct target *t, struct proc *p)
{
    enum member m = OUT;
    struct proc *at = p;

    for (u32 steps = 0; at && steps < l->n; steps++) {
        if (at->member == UNKNOWN && is_root(t, at))
            at->member = IN;
        if (at->member != UNKNOWN) {
            m = (enum member)at->member;
            break;
        }
        at = t->q->scope == SP_TO_SESSION ? NULL : look_find(l, at->ppid);
    }
    for (at = p; at && at->member == UNKNOWN;) {
        at->member = m;
        at = t->q->scope == SP_TO_SESSION ? NULL : look_find(l, at->ppid);
    }
}

static void settle_all(const struct look *l, const struct target *t)
{
    for (u32 i = 0; i < l->n; i++)
        signal_settle(l, t, &l->p[i]);
}

/* ---- rounds ---- */

static bool bit_get(const unsigned char *map, u32 i)
{
    return map[i / 8] & 1u << i % 8;
}

static void bit_set(unsigned char *map, u32 i)
{
    map[i / 8] |= (unsigned char)(1u << i % 8);
}

/* Kills process groups whose members all belong to the target, each with one call. The kernel does
 * not let a member fork out of such a kill, so a fork bomb in a single group ends at once and
 * without a race. */
static void kill_groups(struct look *l)
{
    for (u32 i = 0; i < PID_LIMIT / 8; i++)
        l->groups[i] = 0;
    for (u32 i = 0; i < l->n; i++)
        if (l->p[i].member != IN && l->p[i].pgrp < PID_LIMIT)
            bit_set(l->groups, l->p[i].pgrp);
    for (u32 i = 0; i < l->n; i++) {
        const struct proc *p = &l->p[i];
        if (p->member != IN || p->pgrp <= 1 || p->pgrp >= PID_LIMIT || bit_get(l->groups, p->pgrp))
            continue;
        bit_set(l->groups, p->pgrp);
        SYS(kill, -(long)p->pgrp, SIGKILL);
    }
}

/* Signals processes of the target that were not signalled before; returns their number. SIGKILL is
 * sent again to processes that are still alive. */
static u32 round_once(struct look *l, const struct target *t)
{
    u32 fresh = 0;

    children_reap(); /* reap orphans already killed, or they would be found again */
    look_around(l);
    settle_all(l, t);
    if (t->q->signo == SIGKILL)
        kill_groups(l);
    for (u32 i = 0; i < l->n; i++) {
        const struct proc *p = &l->p[i];
        if (p->member != IN || p->dead || p->pid <= 1)
            continue;
        bool old = bit_get(l->seen, p->pid);
        if (old && t->q->signo != SIGKILL)
            continue;
        if (SYS(kill, p->pid, t->q->signo) >= 0 && !old)
            fresh++;
        bit_set(l->seen, p->pid);
    }
    return fresh;
}

/* Stops the leader's own group before the first scan, which takes long beside a fork bomb; the
 * whole group belongs to the session. It is not killed yet: children in groups of their own would
 * lose their ancestry before they were found. */
static bool stop_first(const struct target *t)
{
    return t->q->signo == SIGKILL && t->q->scope != SP_TO_BELOW && t->live &&
           SYS(kill, -(long)t->leader, SIGSTOP) >= 0;
}

static long signal_rounds(struct look *l, const struct target *t)
{
    u32 total = stop_first(t), quiet = 0;

    for (u32 i = 0; i < ROUNDS_MAX && quiet < 2; i++) {
        u32 fresh = round_once(l, t);
        total += fresh;
        quiet = fresh ? 0 : quiet + 1;
    }
    if (quiet < 2)
        return -EAGAIN; /* it forks faster than we scan: ask again, or use SP_TO_ALL */
    return total ? 0 : -ESRCH;
}

/* Signals one process of the exec's tree. The pidfd is opened before the scan, so the process that
 * was checked is the one that is signalled. */
static long signal_pid(struct look *l, const struct target *t)
{
    struct sp_op tree = *t->q;
    struct target whole = {.q = &tree, .leader = t->leader, .live = t->live};
    long fd = SYS(pidfd_open, t->q->pid, 0);

    if (fd < 0)
        return fd == -EINVAL ? -ESRCH : fd;
    tree.scope = SP_TO_TREE;
    look_around(l);
    settle_all(l, &whole);
    const struct proc *p = look_find(l, t->q->pid);
    long r =
        p && p->member == IN && !p->dead ? SYS(pidfd_send_signal, fd, t->q->signo, 0, 0) : -ESRCH;
    SYS(close, fd);
    return r;
}

/* Returns true if q->pid is in the exec's tree. BELOW is only allowed for such pids. */
static bool pid_in_tree(struct look *l, const struct target *t)
{
    struct sp_op tree = *t->q;
    struct target whole = {.q = &tree, .leader = t->leader, .live = t->live};

    tree.scope = SP_TO_TREE;
    look_around(l);
    settle_all(l, &whole);
    const struct proc *p = look_find(l, t->q->pid);
    return p && p->member == IN;
}

static long signal_looking(const struct target *t)
{
    struct look l = {.p = map_anon(PROCS_MAX * sizeof *l.p),
                     .seen = map_anon(PID_LIMIT / 8),
                     .groups = map_anon(PID_LIMIT / 8)};
    long r = -ENOMEM;

    if (l.p && l.seen && l.groups) {
        if (t->q->scope == SP_TO_PID)
            r = signal_pid(&l, t);
        else if (t->q->scope == SP_TO_BELOW && !pid_in_tree(&l, t))
            r = -ESRCH;
        else
            r = signal_rounds(&l, t);
    }
    if (l.p)
        SYS(munmap, l.p, PROCS_MAX * sizeof *l.p);
    if (l.seen)
        SYS(munmap, l.seen, PID_LIMIT / 8);
    if (l.groups)
        SYS(munmap, l.groups, PID_LIMIT / 8);
    return r;
}

bool signal_parent_of(u32 pid, u32 *ret_ppid)
{
    struct proc p;

    if (!read_proc(pid, &p))
        return false;
    *ret_ppid = p.ppid;
    return true;
}

/* Kills all processes but pid 1 and one other. Stops all at once first, which no fork escapes; then
 * a scan finds them. */
static long kill_all_but(u32 spared)
{
    struct look l = {.p = map_anon(PROCS_MAX * sizeof *l.p)};
    long r = -ESRCH;

    if (!l.p)
        return -ENOMEM;
    SYS(kill, -1, SIGSTOP);
    look_around(&l);
    for (u32 i = 0; i < l.n; i++)
        if (l.p[i].pid > 1 && l.p[i].pid != spared && SYS(kill, l.p[i].pid, SIGKILL) >= 0)
            r = 0;
    SYS(munmap, l.p, PROCS_MAX * sizeof *l.p);
    return r;
}

/* Signals all processes. kill(-1) spares pid 1 only; outside a pid namespace of our own it would
 * hit the whole machine. The process that carries the stream is spared too, or the answer could not
 * be sent; it ignores every signal that can be ignored. */
static long signal_all(u32 signo)
{
    u32 carrier = g.stream ? link_peer() : 0;

    if (SYS(getpid) != 1)
        return -EPERM;
    if (!carrier)
        return SYS(kill, -1, signo);
    long r = signo == SIGKILL ? kill_all_but(carrier) : SYS(kill, -1, signo);
    SYS(kill, carrier, SIGCONT);
    return r;
}

/* Returns true if a later exec has this exec's pid: after the leader's end no process is left to
 * signal. */
static bool number_reused(const struct entry *e)
{
    for (u32 i = 0; i < g.top; i++) {
        const struct entry *other = &g.tab[i];
        if (other->used && other->r.pid == e->r.pid && other->r.id > e->r.id)
            return true;
    }
    return false;
}

/* Returns 0 if the exec behind a fork has succeeded, -EINPROGRESS if it is still under way. A
 * failed exec is not reported here but by its exit record. */
static long signal_probe(u32 pid)
{
    struct proc p;

    return !read_proc(pid, &p) ? -ESRCH : p.forked ? -EINPROGRESS : 0;
}

long signal_send(const struct sp_op *q)
{
    const struct entry *e = entry_find(q->h.id);

    if (q->signo > K_NSIG || q->scope >= SP_SCOPES)
        return -EINVAL;
    if (q->scope == SP_TO_ALL)
        return signal_all(q->signo);
    if (!e)
        return -ESRCH;
    bool live = e->r.state == SP_LIVE;
    if (q->scope == SP_TO_PROC && live && !q->signo)
        return signal_probe(e->r.pid);
    if (q->scope == SP_TO_PROC)
        return live ? SYS(kill, e->r.pid, q->signo) : -ESRCH;
    if (q->scope == SP_TO_GROUP)
        return live ? SYS(kill, -(long)e->r.pid, q->signo) : -ESRCH;
    if ((q->scope == SP_TO_PID || q->scope == SP_TO_BELOW) && q->pid <= 1)
        return -ESRCH;
    if (!live && number_reused(e))
        return -ESRCH;
    struct target t = {.q = q,
                       .leader = e->r.pid,
                       .live = live,
                       .until = clock_now(K_CLOCK_BOOTTIME) / NS_PER_TICK};
    return signal_looking(&t);
}
