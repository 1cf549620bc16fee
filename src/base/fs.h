/* Files and directories by descriptor. Paths are relative to a directory descriptor; nothing here
 * follows a path of a stranger. All descriptors are close-on-exec. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* What a failed call on one of our own files comes to: disk_full, a disk that cannot be written or
 * read (unavailable, with what to do), not_found, or internal. */
err *fs_error(int errnum, const char *fmt, ...) __attribute__((format(printf, 2, 3))) ERR_MUST;
bool fs_is_no_room(int errnum);
/* Reads a regular file of at most max bytes (ERR_TOO_LARGE beyond). */
err *fs_read(int dirfd, const char *name, size_t max, buf *ret_bytes) ERR_MUST;
/* The same through symbolic links, which whoever runs us has put there: what Kubernetes mounts of a
 * Secret or a ConfigMap consists of them. */
err *fs_read_linked(const char *path, size_t max, buf *ret_bytes) ERR_MUST;
/* Replaces atomically: temporary file, rename; if durable, both are on the disk when it returns. */
err *fs_write(int dirfd, const char *name, const void *p, size_t n, mode_t mode,
              bool durable) ERR_MUST;
/* Opens a directory, making it (and only it) with this mode if missing. */
err *fs_dir(int dirfd, const char *name, mode_t mode, int *ret_fd) ERR_MUST;
/* mkdir -p of an absolute or relative path. */
err *fs_mkdirs(const char *path, mode_t mode) ERR_MUST;
/* Removes a tree without following links. A missing name is success. */
err *fs_remove(int dirfd, const char *name) ERR_MUST;
/* The same for everything in the directory, which stays. */
err *fs_empty(int dirfd) ERR_MUST;
/* One pass of that, which removes at most so many entries of each tree (0: all; else 100 or more, as
 * it comes to the first of a deep tree): a large one holds up no other. ret_more, also set on error: another pass would remove more. */
err *fs_empty_some(int dirfd, unsigned each, bool *ret_more) ERR_MUST;
/* openat2 with RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS. Returns the descriptor or -errno. */
int fs_open_in_root(int rootfd, const char *path, int flags);
/* write(2) until all is written; -errno or 0. */
int fs_write_all(int fd, const void *p, size_t n);
int fs_pwrite_all(int fd, const void *p, size_t n, uint64_t offset);
/* An exclusive flock for life; ERR_CONFLICT if another holds it. */
err *fs_lock(int dirfd, const char *name, int *ret_fd) ERR_MUST;
/* The same on a disk that cannot be written: the lock must be there. */
err *fs_lock_there(int dirfd, const char *name, int *ret_fd) ERR_MUST;
/* The same for a program that may be started while its killed predecessor is still dying: threads
 * that have not left the kernel yet hold the lock. Tries for FS_LOCK_PATIENCE_MS. */
#define FS_LOCK_PATIENCE_MS 10000
err *fs_lock_patient(int dirfd, const char *name, int *ret_fd) ERR_MUST;
