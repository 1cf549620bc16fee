/* Files and directories by descriptor. Paths are relative to a directory descriptor. No function
 * follows a path supplied by a tenant or peer. All descriptors are close-on-exec. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Returns the error for a failed call on one of bothy's own files: disk_full, unavailable (with a
 * remedy) for a disk that cannot be read or written, not_found, or internal. */
err *fs_error(int errnum, const char *fmt, ...) __attribute__((format(printf, 2, 3))) ERR_MUST;
bool fs_is_no_room(int errnum);
/* Reads a regular file of at most max bytes (ERR_TOO_LARGE beyond). */
err *fs_read(int dirfd, const char *name, size_t max, buf *ret_bytes) ERR_MUST;
/* Like fs_read(), but follows symbolic links: Kubernetes mounts Secrets and ConfigMaps as links.
 * Only for paths that the operator of the node configures. */
err *fs_read_linked(const char *path, size_t max, buf *ret_bytes) ERR_MUST;
/* Replaces a file atomically through a temporary file and a rename. If durable, both are on the
 * disk when it returns. */
err *fs_write(int dirfd, const char *name, const void *p, size_t n, mode_t mode,
              bool durable) ERR_MUST;
/* Opens a directory, making it (and only it) with this mode if missing. */
err *fs_dir(int dirfd, const char *name, mode_t mode, int *ret_fd) ERR_MUST;
/* Makes an absolute or relative path and its parents, like mkdir -p. */
err *fs_mkdirs(const char *path, mode_t mode) ERR_MUST;
/* Removes a tree without following links. A missing name is success. */
err *fs_remove(int dirfd, const char *name) ERR_MUST;
/* Removes everything in the directory, but not the directory, without following links. */
err *fs_empty(int dirfd) ERR_MUST;
/* Makes one pass of fs_empty() that removes at most `each` entries of each tree, so that a large
 * tree does not hold up the others. each: 0 for all, otherwise at least 100, or a pass might not
 * reach the first entry of a deep tree. *ret_more, set on errors too: another pass would remove
 * more. */
err *fs_empty_some(int dirfd, unsigned each, bool *ret_more) ERR_MUST;
/* Opens with openat2 and RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS. Returns the descriptor or
 * -errno. */
int fs_open_in_root(int rootfd, const char *path, int flags);
/* Calls write(2) until all bytes are written. Returns 0 or -errno. */
int fs_write_all(int fd, const void *p, size_t n);
int fs_pwrite_all(int fd, const void *p, size_t n, uint64_t offset);
/* Takes an exclusive flock, held until *ret_fd is closed. ERR_CONFLICT if another process holds
 * it. */
err *fs_lock(int dirfd, const char *name, int *ret_fd) ERR_MUST;
/* Like fs_lock(), on a file system that may be read-only: the lock file must exist. */
err *fs_lock_there(int dirfd, const char *name, int *ret_fd) ERR_MUST;
/* Like fs_lock(), for a program that may start while its killed predecessor is still dying and
 * holds the lock until its last thread has left the kernel. Retries for FS_LOCK_PATIENCE_MS. */
#define FS_LOCK_PATIENCE_MS 10000
err *fs_lock_patient(int dirfd, const char *name, int *ret_fd) ERR_MUST;
