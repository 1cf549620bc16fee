#include "base/sock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/str.h"

/* Makes an address through /proc/self/fd, which is short whatever the directory's path is. */
static err *sock_address(int dirfd, const char *name, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", dirfd, name);
    if (n < 0 || (size_t)n >= sizeof ret->sun_path)
        return err_new(ERR_INTERNAL, "socket name %s is too long", name);
    return NULL;
}

err *sock_bind(int dirfd, const char *name, int type, mode_t mode, int *ret_fd)
{
    struct sockaddr_un a;
    CLEANUP(closep) int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    TRY(sock_address(dirfd, name, &a));
    if (fd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot make a socket");
    /* The inode of the socket gives the socket file its mode at bind, so no one can connect between
     * bind and a chmod. */
    if (fchmod(fd, mode))
        return err_sys(ERR_INTERNAL, errno, "cannot set the mode of socket %s", name);
    if (unlinkat(dirfd, name, 0) && errno != ENOENT)
        return err_sys(ERR_INTERNAL, errno, "cannot remove the old socket %s", name);
    if (bind(fd, (struct sockaddr *)&a, sizeof a))
        return err_sys(ERR_INTERNAL, errno, "cannot bind socket %s", name);
    /* Restores the bits that the umask removed. Never follow a link: the directory may be another
     * user's. */
    if (fchmodat(dirfd, name, mode, AT_SYMLINK_NOFOLLOW))
        return err_sys(ERR_INTERNAL, errno, "cannot set the mode of socket %s", name);
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

err *sock_connect(int dirfd, const char *name, int type, int *ret_fd)
{
    struct sockaddr_un a;
    CLEANUP(closep) int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    TRY(sock_address(dirfd, name, &a));
    if (fd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot make a socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof a))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot connect to socket %s", name);
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

static err *sock_split(const char *path, int *ret_dirfd, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    CLEANUP(freep)
    char *dir = slash ? xstrndup(path, (size_t)(slash - path) + (slash == path)) : xstrdup(".");
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot open directory %s", dir);
    *ret_dirfd = fd;
    *ret_name = slash ? slash + 1 : path;
    return NULL;
}

err *sock_bind_path(const char *path, int type, mode_t mode, int *ret_fd)
{
    CLEANUP(closep) int dir = -1;
    const char *name = NULL;

    TRY(sock_split(path, &dir, &name));
    assert(name);
    return err_wrap(sock_bind(dir, name, type, mode, ret_fd), "%s", path);
}

err *sock_connect_path(const char *path, int type, int *ret_fd)
{
    CLEANUP(closep) int dir = -1;
    const char *name = NULL;

    TRY(sock_split(path, &dir, &name));
    assert(name);
    return err_wrap(sock_connect(dir, name, type, ret_fd), "%s", path);
}

int sock_send(int fd, const struct iovec *iov, size_t niov, const int *fds, size_t nfds, int flags)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(SOCK_FDS_MAX * sizeof(int))];
    } ctl;
    struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = niov};

    if (nfds > SOCK_FDS_MAX)
        return -EINVAL;
    if (nfds) {
        memset(&ctl, 0, CMSG_SPACE(nfds * sizeof(int)));
        m.msg_control = &ctl;
        m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }
    for (;;) {
        if (sendmsg(fd, &m, flags | MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

/* Copies the descriptors out of the control data. */
static size_t take_fds(struct msghdr *m, int fds[SOCK_FDS_MAX])
{
    size_t n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        assert(n + k <= SOCK_FDS_MAX); /* the control data has no room for more */
        memcpy(fds + n, CMSG_DATA(c), k * sizeof(int));
        n += k;
    }
    return n;
}

/* Receives one message. *ret_bad: 0, or -EMSGSIZE or -EMFILE although the message's bytes are
 * there. */
static ssize_t sock_receive(int fd, void *p, size_t max, int fds[SOCK_FDS_MAX], size_t *ret_nfds,
                            int *ret_bad, int flags)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(SOCK_FDS_MAX * sizeof(int))];
    } ctl;
    struct iovec iov = {p, max};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl};
    ssize_t n;

    *ret_nfds = 0;
    *ret_bad = 0;
    do
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    *ret_nfds = take_fds(&m, fds);
    /* Cut although the buffer had room: this process had no free descriptors. */
    bool ours = m.msg_flags & MSG_CTRUNC && *ret_nfds < SOCK_FDS_MAX;
    if (m.msg_flags & MSG_TRUNC || (m.msg_flags & MSG_CTRUNC && !ours))
        *ret_bad = -EMSGSIZE;
    else if (ours)
        *ret_bad = -EMFILE;
    return n;
}

ssize_t sock_recv_all(int fd, void *p, size_t max, int fds[SOCK_FDS_MAX], size_t *ret_nfds,
                      int flags)
{
    int bad;
    ssize_t n = sock_receive(fd, p, max, fds, ret_nfds, &bad, flags);

    return n >= 0 && bad ? bad : n;
}

ssize_t sock_recv(int fd, void *p, size_t max, int *fds, size_t max_fds, size_t *ret_nfds,
                  int flags)
{
    int all[SOCK_FDS_MAX];
    size_t n;
    ssize_t r = sock_recv_all(fd, p, max, all, &n, flags);
    size_t kept = r < 0 ? 0 : n < max_fds ? n : max_fds;

    if (kept)
        memcpy(fds, all, kept * sizeof *fds);
    for (size_t i = kept; i < n; i++)
        close(all[i]);
    *ret_nfds = kept;
    return r;
}

ssize_t sock_recv_lost(int fd, void *p, size_t max, int *ret_fd, int flags)
{
    int all[SOCK_FDS_MAX], bad;
    size_t n;
    ssize_t r = sock_receive(fd, p, max, all, &n, &bad, flags);

    *ret_fd = r > 0 && !bad && n ? all[0] : -1;
    for (size_t i = *ret_fd >= 0; i < n; i++)
        close(all[i]);
    return bad == -EMSGSIZE ? bad : r;
}

bool sock_peer_of(int fd, sock_peer *ret_peer)
{
    struct ucred c;
    socklen_t n = sizeof c;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n))
        return false;
    *ret_peer = (sock_peer){c.pid, c.uid, c.gid};
    return true;
}

bool sock_peer_in_group(int fd, gid_t gid)
{
    sock_peer peer;
    gid_t groups[256];
    socklen_t n = sizeof groups;

    if (!sock_peer_of(fd, &peer))
        return false;
    if (peer.gid == gid)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n))
        return false;
    for (size_t i = 0; i < n / sizeof *groups; i++)
        if (groups[i] == gid)
            return true;
    return false;
}
