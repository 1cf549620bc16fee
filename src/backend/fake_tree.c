/* Signals to commands, found by reading /proc, with the scopes of bothy-init. The node is a
 * subreaper: a process that loses its parent stays below the node, but leaves its exec's tree. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/fake_node.h"
#include "base/cleanup.h"
#include "base/str.h"

#define FIELDS 19 /* of /proc/PID/stat, after the state */

struct entry {
    pid_t pid, parent, group, session;
    uint64_t start; /* clock ticks since boot */
    bool in;
};

struct list {
    struct entry *v;
    size_t n, cap;
};

static bool read_stat(pid_t pid, struct entry *ret)
{
    char path[64], line[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f)
        fclose(f);
    line[n] = 0;
    char *at = strrchr(line, ')'); /* the name before it may contain any character */
    if (!at || at[1] != ' ' || at[2] == 'Z')
        return false;
    uint64_t field[FIELDS]; /* 4 parent, 5 group, 6 session, 22 start time; signs do not matter */
    at += 3;
    for (int i = 0; i < FIELDS; i++) {
        char *end;
        field[i] = (uint64_t)strtoll(at, &end, 10);
        if (end == at)
            return false;
        at = end;
    }
    *ret = (struct entry){.pid = pid,
                          .parent = (pid_t)field[0],
                          .group = (pid_t)field[1],
                          .session = (pid_t)field[2],
                          .start = field[FIELDS - 1]};
    return true;
}

static void fake_tree_scan(struct list *l)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    uint64_t pid;

    l->n = 0;
    while (d && (e = readdir(d))) { /* NOLINT(concurrency-mt-unsafe): one thread */
        struct entry x;
        if (!str_to_u64(e->d_name, 1u << 22, &pid) || !read_stat((pid_t)pid, &x))
            continue;
        if (l->n == l->cap) {
            l->cap = l->cap ? 2 * l->cap : 256;
            l->v = xrealloc(l->v, l->cap * sizeof *l->v);
        }
        l->v[l->n++] = x;
    }
    if (d)
        closedir(d);
}

/* Marks all descendants of marked processes. */
static void mark_below(struct list *l)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < l->n; i++)
            for (size_t k = 0; k < l->n && !l->v[i].in; k++)
                if (l->v[k].in && l->v[k].pid == l->v[i].parent)
                    l->v[i].in = more = true;
    }
}

static void mark_tree(struct list *l, pid_t root)
{
    for (size_t i = 0; i < l->n; i++)
        l->v[i].in = l->v[i].pid == root || l->v[i].session == root;
    mark_below(l);
}

/* Marks direct children of pid that began at or after since, and their descendants. */
static void mark_since(struct list *l, pid_t pid, uint64_t since_ns)
{
    uint64_t ticks = since_ns / (UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK));

    for (size_t i = 0; i < l->n; i++)
        l->v[i].in = l->v[i].parent == pid && l->v[i].start >= ticks;
    mark_below(l);
}

static size_t kill_marked(const struct list *l, int signo)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].in && l->v[i].pid > 1 && l->v[i].pid != getpid() && !kill(l->v[i].pid, signo))
            n++;
    return n;
}

/* Signals a tree. SIGKILL is repeated until two rounds find no process; other signals are sent
 * once. */
static int kill_tree(pid_t root, int signo)
{
    struct list l = {0};
    size_t any = 0;

    for (int quiet = 0, round = 0; quiet < 2 && round < 50; round++) {
        fake_tree_scan(&l);
        mark_tree(&l, root);
        size_t n = kill_marked(&l, signo);
        any += n;
        quiet = n ? 0 : quiet + 1;
        if (signo != SIGKILL)
            break;
        usleep(1000);
    }
    free(l.v);
    return any ? 0 : ESRCH;
}

static bool is_below(pid_t root, pid_t pid)
{
    struct list l = {0};
    bool found = false;

    fake_tree_scan(&l);
    mark_tree(&l, root);
    for (size_t i = 0; i < l.n; i++)
        found |= l.v[i].in && l.v[i].pid == pid;
    free(l.v);
    return found;
}

static int kill_below(pid_t root, const struct sp_op *op)
{
    struct list l = {0};

    if (!is_below(root, (pid_t)op->pid))
        return ESRCH;
    fake_tree_scan(&l);
    mark_since(&l, (pid_t)op->pid, op->since);
    kill_marked(&l, (int)op->signo);
    free(l.v);
    return 0;
}

void tree_kill_rest(void)
{
    kill_tree(getpid(), SIGKILL);
}

static int errno_of(int r)
{
    return r ? errno : 0;
}

int tree_signal(nbox *b, proc *p, const struct sp_op *op)
{
    int signo = (int)op->signo;

    if (op->scope == SP_TO_ALL) {
        for (proc *q = b->procs; q; q = q->next)
            kill_tree(q->pid, signo);
        return 0;
    }
    if (!p)
        return ESRCH;
    bool live = p->rec.state == SP_LIVE;
    switch (op->scope) {
    case SP_TO_PROC:
        return live ? errno_of(kill(p->pid, signo)) : ESRCH;
    case SP_TO_GROUP:
        return errno_of(kill(-p->pid, signo));
    case SP_TO_SESSION:
    case SP_TO_TREE:
        return kill_tree(p->pid, signo);
    case SP_TO_PID:
        return is_below(p->pid, (pid_t)op->pid) ? errno_of(kill((pid_t)op->pid, signo)) : ESRCH;
    case SP_TO_BELOW:
        return kill_below(p->pid, op);
    default:
        return EINVAL;
    }
}
