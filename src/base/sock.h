/* Unix sockets: addresses through directory descriptors (sun_path has 108 bytes), SEQPACKET
 * messages with descriptors attached, peer credentials. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"

#define SOCK_FDS_MAX 253 /* the kernel lets a message have no more */

/* type: SOCK_STREAM or SOCK_SEQPACKET. The name is bound in dirfd with this mode; an old socket of
 * the name is removed first. Not listening yet. */
err *sock_bind(int dirfd, const char *name, int type, mode_t mode, int *ret_fd) ERR_MUST;
err *sock_connect(int dirfd, const char *name, int type, int *ret_fd) ERR_MUST;
/* The same by path: opens the directory, then uses the two above. */
err *sock_bind_path(const char *path, int type, mode_t mode, int *ret_fd) ERR_MUST;
err *sock_connect_path(const char *path, int type, int *ret_fd) ERR_MUST;

/* One message with up to SOCK_FDS_MAX descriptors. flags: MSG_DONTWAIT or 0. Returns 0 or -errno.
 * MSG_NOSIGNAL is implied. */
int sock_send(int fd, const struct iovec *iov, size_t niov, const int *fds, size_t nfds, int flags);

/* Receives one message. Returns its length, 0 at end, or -errno: -EMSGSIZE when it, or the number
 * of its descriptors, is too large; -EMFILE when our own table had no place for them, which is not
 * the peer's fault. Nothing is leaked then. Descriptors are close-on-exec; those that do not fit
 * max_fds are closed. */
ssize_t sock_recv(int fd, void *p, size_t max, int *fds, size_t max_fds, size_t *ret_nfds,
                  int flags);
/* The same with at most one descriptor, -1 for none; a message whose own found no place is given
 * without it. */
ssize_t sock_recv_lost(int fd, void *p, size_t max, int *ret_fd, int flags);

/* The same, from a stranger: closes nothing, because that may take as long as he likes (a TCP
 * socket that lingers). Whatever it returns, *ret_nfds descriptors are the caller's. */
ssize_t sock_recv_all(int fd, void *p, size_t max, int fds[SOCK_FDS_MAX], size_t *ret_nfds,
                      int flags);

typedef struct sock_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
} sock_peer;
bool sock_peer_of(int fd, sock_peer *ret_peer);
/* True if the peer had gid among its groups when it connected (SO_PEERGROUPS or its own gid). */
bool sock_peer_in_group(int fd, gid_t gid);
