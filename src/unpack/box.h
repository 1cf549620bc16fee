/* The walls around the process that reads a layer.
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

/* A detached copy of the directory's mount, to become the root. Before box_fork(): a directory of
 * the old mount namespace cannot be cloned from the new one. */
err *box_take_tree(int dir, int *ret_tree) ERR_MUST;
/* Forks into all namespaces. Returns in both: *ret_pid is 0 in the writer, which ends when the
 * outer process does. */
err *box_fork(pid_t *ret_pid) ERR_MUST;
/* In the writer: the tree becomes the root, all else is gone. */
err *box_enter(int tree, int *ret_root) ERR_MUST;
/* Capabilities, resource limits, system calls. Nothing is opened from the file system after it. */
err *box_close(enum box_role which, const unpack_limits *lim) ERR_MUST;

/* In the outer process, where the kernel has Landlock: no file but those below dir can be opened,
 * and those only to be read. It has capabilities, and openat2's flags are out of a filter's sight.
 */
err *box_see_only(int dir) ERR_MUST;
/* In the outer process: reads NUL-terminated paths until the end and marks those that are
 * directories below dir. What comes is hostile: it can do no more than make directories of its own
 * layer opaque. */
err *box_mark_opaques(int from, int dir) ERR_MUST;
