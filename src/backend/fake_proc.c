/* A command of the fake node: its process, its pipes or pty, and the record of it. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "backend/fake_node.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define READ_CHUNK (64u * 1024)
#define DRAIN_MAX  (2u << 20)
#define PATH_ENV   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct ends { /* [0] the node's end, [1] the child's */
    int in[2], out[2], err[2], report[2];
};

static void close_pair(int p[2])
{
    closep(&p[0]);
    closep(&p[1]);
    p[0] = p[1] = -1;
}

static void close_ends(struct ends *e)
{
    close_pair(e->in);
    close_pair(e->out);
    close_pair(e->err);
    close_pair(e->report);
}

static bool make_pipe(int p[2], bool child_reads)
{
    int raw[2];

    if (pipe2(raw, O_CLOEXEC))
        return false;
    p[0] = raw[child_reads];
    p[1] = raw[!child_reads];
    return !fcntl(p[0], F_SETFL, O_NONBLOCK);
}

static bool make_pty(const spine_spawn *s, struct ends *e)
{
    struct winsize ws = {.ws_row = s->rows ? s->rows : 24, .ws_col = s->cols ? s->cols : 80};

    e->out[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (e->out[0] < 0 || grantpt(e->out[0]) || unlockpt(e->out[0]))
        return false;
    ioctl(e->out[0], TIOCSWINSZ, &ws);
    e->out[1] = ioctl(e->out[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    e->in[0] = fcntl(e->out[0], F_DUPFD_CLOEXEC, 3);
    return e->out[1] >= 0 && e->in[0] >= 0;
}

static int make_ends(const spine_spawn *s, struct ends *e)
{
    memset(e, 0xff, sizeof *e);
    bool ok = make_pipe(e->report, false);
    if (s->flags & SP_F_PTY)
        return ok && make_pty(s, e) ? 0 : errno;
    ok = ok && make_pipe(e->out, false);
    if (!(s->flags & SP_F_MERGE))
        ok = ok && make_pipe(e->err, false);
    if (s->flags & SP_F_NOSTDIN)
        e->in[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    else
        ok = ok && make_pipe(e->in, true);
    return ok && e->in[1] >= 0 ? 0 : errno;
}

/* ---- the child ---- */

static void fake_proc_fail(int report, uint32_t stage)
{
    int word[2] = {errno, (int)stage};

    if (write(report, word, sizeof word) < 0)
        _exit(126);
    _exit(127);
}

static bool is_us(const char *user)
{
    struct passwd *pw = getpwuid(getuid()); /* NOLINT(concurrency-mt-unsafe): one thread */
    char number[16];

    snprintf(number, sizeof number, "%u", getuid());
    return !*user || !strcmp(user, "0") || !strcmp(user, "root") || !strcmp(user, number) ||
           (pw && !strcmp(user, pw->pw_name));
}

static void put_pair(char ***env, const char *pair)
{
    const char *is = strchr(pair, '=');
    CLEANUP(freep) char *name = is ? xstrndup(pair, (size_t)(is - pair)) : NULL;

    if (is)
        strv_env_set(env, name, is + 1);
}

static char **child_env(const nbox *b, const spine_spawn *s)
{
    char **env = NULL;

    strv_env_set(&env, "PATH", PATH_ENV);
    strv_env_set(&env, "HOME", b->dir);
    strv_env_set(&env, "HOSTNAME", b->id);
    for (char *const *v = b->env; v && *v; v++)
        put_pair(&env, *v);
    if (s->flags & SP_F_PTY)
        strv_env_set(&env, "TERM", "xterm");
    for (char *const *v = s->env; v && *v; v++)
        put_pair(&env, *v);
    return env;
}

static void wire_stdio(const spine_spawn *s, const struct ends *e)
{
    if (s->flags & SP_F_PTY) {
        ioctl(e->out[1], TIOCSCTTY, 0);
        for (int i = 0; i < 3; i++)
            dup2(e->out[1], i);
        return;
    }
    dup2(e->in[1], 0);
    dup2(e->out[1], 1);
    dup2(s->flags & SP_F_MERGE ? e->out[1] : e->err[1], 2);
}

_Noreturn static void fake_proc_child(const nbox *b, const spine_spawn *s, struct ends *e)
{
    sigset_t none;
    char **env = child_env(b, s);

    setsid();
    int report = fcntl(e->report[1], F_DUPFD_CLOEXEC, 10);
    wire_stdio(s, e);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    umask(s->umask == SP_UMASK_CLAIM ? b->umask : s->umask);
    if (!is_us(s->user)) {
        errno = strspn(s->user, "0123456789:") == strlen(s->user) ? EINVAL : ENOENT;
        fake_proc_fail(report, SP_ST_USER);
    }
    if (chdir(*s->cwd ? s->cwd : b->dir))
        fake_proc_fail(report, SP_ST_CWD);
    environ = env;
    execvpe(s->argv[0], s->argv, env);
    fake_proc_fail(report, SP_ST_EXEC);
    _exit(127);
}

/* ---- the parent ---- */

static void fill_rec(proc *p, const spine_spawn *s)
{
    p->flags = s->flags;
    p->rec = (struct sp_rec){
        .id = s->id,
        .state = SP_LIVE,
        .pid = (uint32_t)p->pid,
        .flags = s->flags & ~SP_F_MEMFD,
        .start_mono = now_mono_ns(),
        .start_real = now_real_ns(),
        .uid = getuid(),
        .gid = getgid(),
    };
}

int proc_spawn(nbox *b, const spine_spawn *s, proc **ret_proc)
{
    struct ends e;
    int errnum = make_ends(s, &e), word[2];

    pid_t pid = errnum ? -1 : fork();
    if (!pid)
        fake_proc_child(b, s, &e);
    if (pid < 0) {
        errnum = errnum ? errnum : errno;
        close_ends(&e);
        return errnum;
    }
    proc *p = xcalloc(1, sizeof *p);
    p->box = b;
    p->pid = pid;
    p->flowing = true;
    fill_rec(p, s);
    close(TAKE_FD(e.report[1]));
    fcntl(e.report[0], F_SETFL, 0);
    if (read(e.report[0], word, sizeof word) == (ssize_t)sizeof word) {
        p->rec.state = SP_FAILED; /* reported when it is reaped */
        p->rec.status = word[0];
        p->rec.stage = (uint32_t)word[1];
    }
    p->in_fd = TAKE_FD(e.in[0]);
    p->in_over = p->in_fd < 0;
    p->out[0].fd = TAKE_FD(e.out[0]);
    p->out[1].fd = TAKE_FD(e.err[0]);
    p->out[1].eof = p->out[1].fd < 0;
    close_ends(&e);
    p->next = b->procs;
    b->procs = p;
    b->high = s->id;
    *ret_proc = p;
    return 0;
}

proc *proc_find(nbox *b, uint64_t id)
{
    for (proc *p = b->procs; p; p = p->next)
        if (p->rec.id == id)
            return p;
    return NULL;
}

static void end_stream(stream *s)
{
    closep(&s->fd);
    s->fd = -1;
    s->eof = true;
}

/* Returns true if there may be more. */
static bool read_some(proc *p, stream *s)
{
    buf_reserve(&s->bytes, READ_CHUNK);
    ssize_t n = read(s->fd, s->bytes.p + s->bytes.len, READ_CHUNK);

    if (n > 0) {
        s->bytes.len += (size_t)n;
        return true;
    }
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (p->flags & SP_F_PTY && !p->rec.end_mono)
        s->hung_up = true;
    else
        end_stream(s);
    return false;
}

void proc_read(proc *p, int i)
{
    if (p->out[i].fd >= 0)
        read_some(p, &p->out[i]);
}

static void tell_taken(proc *p)
{
    struct sps_data d = {{SPS_TAKEN, 0, p->rec.id}, 0, 0, p->in_over ? UINT64_MAX : p->in_base};

    if (p->box->conn && p->flowing && p->taken_told != d.offset)
        sps_put(&p->box->conn->out, &d, sizeof d, NULL, 0);
    p->taken_told = d.offset;
}

void proc_write(proc *p)
{
    while (p->in_fd >= 0 && p->in.len) {
        ssize_t n = write(p->in_fd, p->in.p, p->in.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            p->in_over = true;
            closep(&p->in_fd);
            p->in_fd = -1;
            break;
        }
        buf_consume(&p->in, (size_t)n);
        p->in_base += (uint64_t)n;
    }
    if (p->in_eof && !p->in.len && p->in_fd >= 0) {
        if (p->flags & SP_F_PTY && write(p->in_fd, "\004", 1) != 1)
            return;
        closep(&p->in_fd);
        p->in_fd = -1;
    }
    tell_taken(p);
}

void proc_reaped(proc *p, int status, const void *rusage)
{
    const struct rusage *u = rusage;

    p->rec.end_mono = now_mono_ns();
    p->rec.end_real = now_real_ns();
    if (p->rec.state == SP_LIVE) {
        p->rec.state = SP_EXITED;
        p->rec.status = status;
    }
    p->rec.utime_us = (uint64_t)u->ru_utime.tv_sec * 1000000 + (uint64_t)u->ru_utime.tv_usec;
    p->rec.stime_us = (uint64_t)u->ru_stime.tv_sec * 1000000 + (uint64_t)u->ru_stime.tv_usec;
    p->rec.maxrss_kb = (uint64_t)u->ru_maxrss;
    for (int i = 0; i < 2; i++) {
        stream *s = &p->out[i];
        size_t begun = s->bytes.len;
        while (s->fd >= 0 && s->bytes.len - begun < DRAIN_MAX && read_some(p, s))
            continue;
        s->at_exit = s->base + s->bytes.len;
    }
}

static void flush_stream(proc *p, int i)
{
    stream *s = &p->out[i];
    conn *c = p->box->conn;

    while (s->sent < s->base + s->bytes.len && c->out.len < SEND_MAX) {
        size_t at = (size_t)(s->sent - s->base), n = s->bytes.len - at;
        struct sps_data d = {{SPS_STDIO, 0, p->rec.id}, (uint32_t)i + 1, 0, s->sent};
        n = n < READ_CHUNK ? n : READ_CHUNK;
        sps_put(&c->out, &d, sizeof d, s->bytes.p + at, n);
        s->sent += n;
    }
    if (s->eof && !s->eof_sent && s->sent == s->base + s->bytes.len) {
        struct sps_data d = {{SPS_STDIO, 0, p->rec.id}, (uint32_t)i + 1, 0, s->sent};
        sps_put(&c->out, &d, sizeof d, NULL, 0);
        s->eof_sent = true;
    }
}

void proc_flush(proc *p)
{
    if (!p->box->conn || !p->flowing)
        return;
    flush_stream(p, 0);
    flush_stream(p, 1);
    if (!p->rec.end_mono || p->exit_sent || p->out[0].sent < p->out[0].at_exit ||
        p->out[1].sent < p->out[1].at_exit)
        return;
    struct sp_exit x = {.h = {SP_EXIT, 0, p->rec.id}, .r = p->rec};
    sps_put(&p->box->conn->out, &x, sizeof x, NULL, 0);
    p->exit_sent = true;
}

void proc_close(proc *p, uint32_t mask)
{
    if (mask & 1u << SP_FD_IN && !(p->flags & SP_F_PTY)) {
        closep(&p->in_fd);
        p->in_fd = -1;
        p->in_over = true;
    }
    for (int i = 0; i < 2; i++)
        if (mask & 1u << (SP_FD_OUT + i)) {
            end_stream(&p->out[i]);
            buf_clear(&p->out[i].bytes);
            p->out[i].base = p->out[i].sent;
        }
}

bool proc_is_done(const proc *p)
{
    for (int i = 0; i < 2; i++)
        if (p->out[i].fd >= 0 || p->out[i].bytes.len)
            return false;
    return p->acked;
}

void proc_free(proc *p)
{
    closep(&p->in_fd);
    for (int i = 0; i < 2; i++) {
        closep(&p->out[i].fd);
        buf_done(&p->out[i].bytes);
    }
    buf_done(&p->in);
    free(p);
}
