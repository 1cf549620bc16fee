/* Unix sockets: addresses through directory descriptors (sun_path has 108 bytes), SEQPACKET
 * messages with descriptors attached, peer credentials. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"

#define SOCK_FDS_MAX 253 /* the kernel's limit of descriptors per message */

/* Binds a socket of this type (SOCK_STREAM or SOCK_SEQPACKET) to a name in dirfd with this mode. An
 * old socket of that name is removed first. The socket does not listen yet. */
err *sock_bind(int dirfd, const char *name, int type, mode_t mode, int *ret_fd) ERR_MUST;
err *sock_connect(int dirfd, const char *name, int type, int *ret_fd) ERR_MUST;
/* Like the two above, by path: they open the directory first. */
err *sock_bind_path(const char *path, int type, mode_t mode, int *ret_fd) ERR_MUST;
err *sock_connect_path(const char *path, int type, int *ret_fd) ERR_MUST;

/* Sends one message with up to SOCK_FDS_MAX descriptors. flags: MSG_DONTWAIT or 0; MSG_NOSIGNAL is
 * implied. Returns 0 or -errno. */
int sock_send(int fd, const struct iovec *iov, size_t niov, const int *fds, size_t nfds, int flags);

/* Receives one message. Returns its length, 0 at end, or -errno. -EMSGSIZE: the message or the
 * number of its descriptors is too large. -EMFILE: this process has no free descriptors, which is
 * not the peer's fault. No descriptor is leaked in any case. Descriptors are close-on-exec; those
 * beyond max_fds are closed. */
ssize_t sock_recv(int fd, void *p, size_t max, int *fds, size_t max_fds, size_t *ret_nfds,
                  int flags);
/* Like sock_recv(), for at most one descriptor, -1 if there is none. If this process has no free
 * descriptor, the message is returned without its descriptor. */
ssize_t sock_recv_lost(int fd, void *p, size_t max, int *ret_fd, int flags);

/* Like sock_recv(), from an untrusted peer. Closes no descriptor, because a peer can make close()
 * slow (a TCP socket that lingers). Whatever it returns, *ret_nfds descriptors belong to the
 * caller. */
ssize_t sock_recv_all(int fd, void *p, size_t max, int fds[SOCK_FDS_MAX], size_t *ret_nfds,
                      int flags);

typedef struct sock_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
} sock_peer;
bool sock_peer_of(int fd, sock_peer *ret_peer);
/* Returns true if the peer had gid among its groups when it connected (SO_PEERGROUPS or its own
 * gid). */
bool sock_peer_in_group(int fd, gid_t gid);
