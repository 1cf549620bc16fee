/* The walls around the process that reads a layer: how each of three processes is confined.
 *
 *   outer        keeps SYS_ADMIN and DAC_READ_SEARCH; marks opaque directories (box_mark_opaques)
 *   └ writer     pid 1 of its own user (identity map), mount, pid, network, ipc, uts and cgroup
 *     │          namespaces; its root is the layer's directory (nodev, nosuid, noexec); CHOWN
 *     │          FOWNER FSETID SETFCAP inside that user namespace only
 *     └ decompressor   the same namespaces, no capability, reads 0, writes one pipe
 *
 * A wall that cannot be built is an error; there is no switch to leave one out. */
#pragma once

#include <sys/types.h>

#include "unpack/unpack.h"

enum box_role {
    BOX_OUTER,
    BOX_WRITER,
    BOX_DECOMPRESSOR
};

/* Returns a detached copy of the directory's mount, which becomes the root. Call it before
 * box_fork(): a directory of the old mount namespace cannot be cloned from the new one. */
err *box_take_tree(int dir, int *ret_tree) ERR_MUST;
/* Forks into new namespaces of all kinds. Returns in both processes: *ret_pid is 0 in the writer,
 * which ends when the outer process does. */
err *box_fork(pid_t *ret_pid) ERR_MUST;
/* Makes the tree the root and detaches everything else. Writer process only. */
err *box_enter(int tree, int *ret_root) ERR_MUST;
/* Applies the role's resource limits, capabilities and system call filter. Afterwards the
 * decompressor can open no file, the others only with the system calls that filter.c lists. */
err *box_close(enum box_role which, const unpack_limits *lim) ERR_MUST;

/* Restricts the outer process with Landlock, if the kernel has it: only files below dir can be
 * opened, and only for reading. This process has capabilities, and a seccomp filter cannot see the
 * flags of openat2. */
err *box_see_only(int dir) ERR_MUST;
/* Reads NUL-terminated paths until the end of the stream and marks those that are directories below
 * dir as opaque. Outer process only. The input is hostile, but it can only make directories of its
 * own layer opaque. */
err *box_mark_opaques(int from, int dir) ERR_MUST;
