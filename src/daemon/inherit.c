/* Takes the descriptors that LISTEN_FDS announces. */
#include "daemon/inherit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"

#define FIRST_FD 3

/* Call while there is one thread. */
static bool take_number(const char *name, uint64_t max, uint64_t *ret)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe) */
    bool ok = text && str_to_u64(text, max, ret);

    unsetenv(name); /* NOLINT(concurrency-mt-unsafe) */
    return ok;
}

static err *inherit_take(int fd, inherited *l)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a, size = sizeof(int);
    int listens = 0;

    if (fcntl(fd, F_SETFD, FD_CLOEXEC) || getsockname(fd, (struct sockaddr *)&a, &n) ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
        return err_remedy(err_sys(ERR_INVALID_REQUEST, errno,
                                  "descriptor %d, given by LISTEN_FDS, is no listening socket", fd),
                          "Give stream sockets that listen: ListenStream= of a socket unit.");
    l->is_unix[l->n] = a.ss_family == AF_UNIX;
    l->fd[l->n++] = fd;
    return NULL;
}

err *inherit_listeners(inherited *ret_listeners)
{
    inherited l = {0};
    uint64_t pid = 0, n = 0;
    bool ours = take_number("LISTEN_PID", INT32_MAX, &pid) && pid == (uint64_t)getpid();

    if (!take_number("LISTEN_FDS", INT32_MAX, &n) || !ours)
        n = 0;
    if (n > INHERIT_MAX)
        return err_new(ERR_INVALID_REQUEST, "LISTEN_FDS gives %d sockets, at most %d are taken",
                       (int)n, INHERIT_MAX);
    for (uint64_t i = 0; i < n; i++)
        TRY(inherit_take(FIRST_FD + (int)i, &l));
    *ret_listeners = l;
    return NULL;
}
