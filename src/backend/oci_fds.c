/* Checks the descriptors that init returns. They are untrusted: a hostile pid 1 could pass a file
 * whose server never answers, and the pump's thread would hang in it. So only pipes of pipefs and
 * terminals are accepted, opened in the right direction and set non-blocking. No check here calls
 * into a file system. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/oci.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

static unsigned pipe_major, pipe_minor;
static pthread_once_t pipe_once = PTHREAD_ONCE_INIT;

static bool oci_fds_look(int fd, struct statx *ret)
{
    return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, ret);
}

/* All pipes of the machine live on one device; a named FIFO does not. */
static void find_pipefs(void)
{
    int p[2];
    struct statx st;

    if (pipe2(p, O_CLOEXEC))
        return;
    if (oci_fds_look(p[0], &st)) {
        pipe_major = st.stx_dev_major;
        pipe_minor = st.stx_dev_minor;
    }
    close(p[0]);
    close(p[1]);
}

static bool is_pipe(int fd)
{
    struct statx st;

    pthread_once(&pipe_once, find_pipefs);
    return oci_fds_look(fd, &st) && S_ISFIFO(st.stx_mode) && st.stx_dev_major == pipe_major &&
           st.stx_dev_minor == pipe_minor && (pipe_major || pipe_minor);
}

static bool is_pty_master(int fd)
{
    struct statx st;
    return oci_fds_look(fd, &st) && S_ISCHR(st.stx_mode) && st.stx_rdev_major == 5 &&
           st.stx_rdev_minor == 2;
}

static bool is_file(int fd)
{
    struct statx st;
    return oci_fds_look(fd, &st) && S_ISREG(st.stx_mode);
}

static bool opened_for(int fd, int mode)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || (flags & O_ACCMODE) != mode)
        return false;
    return flags & O_NONBLOCK || !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static const char *check_pty(const int fd[SP_FDS_MAX])
{
    if (fd[SP_FD_IN] >= 0 && !(is_pty_master(fd[SP_FD_IN]) && opened_for(fd[SP_FD_IN], O_RDWR)))
        return "init's terminal is none";
    if (fd[SP_FD_OUT] >= 0 && !(is_pipe(fd[SP_FD_OUT]) && opened_for(fd[SP_FD_OUT], O_RDONLY)))
        return "init's relay is no pipe to read from";
    if (fd[SP_FD_ERR] >= 0 && !(is_pipe(fd[SP_FD_ERR]) && opened_for(fd[SP_FD_ERR], O_WRONLY)))
        return "init's relay is no pipe to write to";
    return NULL;
}

static const char *check_pipes(const int fd[SP_FDS_MAX])
{
    if (fd[SP_FD_IN] >= 0 && !(is_pipe(fd[SP_FD_IN]) && opened_for(fd[SP_FD_IN], O_WRONLY)))
        return "init's stdin is no pipe to write to";
    for (int i = SP_FD_OUT; i <= SP_FD_ERR; i++)
        if (fd[i] >= 0 && !(is_pipe(fd[i]) && opened_for(fd[i], O_RDONLY)))
            return "init's output is no pipe to read from";
    return NULL;
}

const char *oci_check_fds(uint32_t flags, const int fd[SP_FDS_MAX])
{
    const char *why = flags & SP_F_PTY ? check_pty(fd) : check_pipes(fd);

    if (why)
        return why;
    /* Only the exec layer, which passed the file, knows which one it must be. */
    if (fd[SP_FD_KEEP] >= 0 && !is_file(fd[SP_FD_KEEP]))
        return "what init kept is no file";
    return NULL;
}

typedef struct discarded {
    box *x;
    size_t n;
    int fd[];
} discarded;

static void *discard_run(void *arg)
{
    discarded *d = arg;

    for (size_t i = 0; i < d->n; i++)
        closep(&d->fd[i]);
    atomic_fetch_sub(&d->x->discards, 1);
    oci_box_unref(d->x);
    free(d);
    return NULL;
}

void oci_discard(box *x, const int *fds, size_t n)
{
    discarded *d = xmalloc(sizeof *d + n * sizeof *d->fd);

    *d = (discarded){.x = x, .n = n};
    if (n)
        memcpy(d->fd, fds, n * sizeof *fds);
    oci_box_ref(x);
    atomic_fetch_add(&x->discards, 1);
    if (thread_try_detach(discard_run, d))
        return;
    log_error("spine", "sandbox %s: %zu descriptors stay open: no thread to close them", x->id, n);
    d->n = 0;
    discard_run(d);
}
