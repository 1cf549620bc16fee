#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define OUTPUT_MAX (64 * 1024)

static char *const DEFAULT_ENV[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", NULL};

/* Places descriptors at 0..n-1. Since these may themselves be sources, all sources are first copied
 * to higher numbers. */
static int place_fds(posix_spawn_file_actions_t *fa, const spawn_spec *spec, int *moved)
{
    int r = 0;

    for (size_t i = 0; i < spec->nfds && !r; i++) {
        moved[i] = -1;
        if (spec->fds[i] >= 0) {
            moved[i] = fcntl(spec->fds[i], F_DUPFD_CLOEXEC, 64);
            if (moved[i] < 0)
                return errno;
        }
    }
    for (size_t i = 0; i < spec->nfds && !r; i++)
        r = moved[i] >= 0 ? posix_spawn_file_actions_adddup2(fa, moved[i], (int)i)
                          : posix_spawn_file_actions_addopen(fa, (int)i, "/dev/null", O_RDWR, 0);
    return r ? r : posix_spawn_file_actions_addclosefrom_np(fa, (int)spec->nfds);
}

err *spawn_start(const spawn_spec *spec, pid_t *ret_pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int moved[16];

    if (spec->nfds > ARRAY_LEN(moved))
        return err_new(ERR_INTERNAL, "too many descriptors for a child");
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                            (spec->detached ? POSIX_SPAWN_SETSID : 0)));
    for (size_t i = 0; i < ARRAY_LEN(moved); i++)
        moved[i] = -1;
    int r = place_fds(&fa, spec, moved);
    if (!r)
        r = posix_spawnp(ret_pid, spec->argv[0], &fa, &attr, spec->argv,
                         spec->envp ? spec->envp : DEFAULT_ENV);
    for (size_t i = 0; i < ARRAY_LEN(moved); i++)
        closep(&moved[i]);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    if (r)
        return err_sys(r == ENOENT ? ERR_UNAVAILABLE : ERR_INTERNAL, r, "cannot start %s",
                       spec->argv[0]);
    return NULL;
}

err *spawn_wait(pid_t pid, uint64_t timeout_ms, int *ret_status)
{
    bool killed = false;

    if (timeout_ms) {
        CLEANUP(closep) int pidfd = pidfd_open(pid, 0);
        uint64_t end = now_mono_ns() + timeout_ms * NS_PER_MS;
        struct pollfd p = {pidfd, POLLIN, 0};
        while (pidfd >= 0) {
            uint64_t now = now_mono_ns();
            int left = now >= end ? 0 : (int)((end - now) / NS_PER_MS + 1);
            int r = poll(&p, 1, left);
            if (r > 0)
                break;
            if (!r && now_mono_ns() >= end) {
                kill(pid, SIGKILL);
                killed = true;
                break;
            }
        }
    }
    while (waitpid(pid, ret_status, 0) < 0)
        if (errno != EINTR)
            return err_sys(ERR_INTERNAL, errno, "cannot wait for child %d", pid);
    return killed ? err_new(ERR_TIMEOUT, "child %d did not end in %lu ms", pid, timeout_ms) : NULL;
}

static void read_output(int fd, buf *out)
{
    char chunk[4096];
    ssize_t n;

    while ((n = read(fd, chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && out->len + (size_t)n <= OUTPUT_MAX)
            buf_append(out, chunk, (size_t)n);
}

static const char *last_line(buf *out)
{
    while (out->len && out->p[out->len - 1] == '\n')
        out->len--;
    const char *text = buf_cstr(out), *at = strrchr(text, '\n');
    return at ? at + 1 : text;
}

err *spawn_run(char *const *argv, uint64_t timeout_ms, char **ret_output)
{
    CLEANUP(buf_done) buf out = {0};
    int p[2], status;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    CLEANUP(closep) int rd = p[0];
    CLEANUP(closep) int wr = p[1];
    const int fds[] = {-1, wr, wr};
    TRY(spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 3}, &pid));
    close(TAKE_FD(wr));
    read_output(rd, &out);
    TRY(err_wrap(spawn_wait(pid, timeout_ms, &status), "%s", argv[0]));
    if (status) {
        err *e =
            WIFEXITED(status)
                ? err_new(ERR_INTERNAL, "%s ended with status %d", argv[0], WEXITSTATUS(status))
                : err_new(ERR_INTERNAL, "%s was ended by signal %d", argv[0], WTERMSIG(status));
        return out.len ? err_because(e, "%s", last_line(&out)) : e;
    }
    if (ret_output)
        *ret_output = buf_take(&out);
    return NULL;
}
