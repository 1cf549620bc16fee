#include "warden/pace.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "warden/privs.h"

#define LOW_NICE 19

bool pace_set(pid_t tid, enum pace p)
{
    if (p == PACE_LOW && !privs_may_renice())
        return false;
    return !setpriority(PRIO_PROCESS, (id_t)tid, p == PACE_LOW ? LOW_NICE : 0);
}

/* Raises a process's children, by the kernel's list of them. That is not always built in: then only
 * the process itself is raised. */
static void raise_children(int proc_fd, pid_t pid)
{
    CLEANUP(buf_done) buf b = {0};
    char name[64];

    snprintf(name, sizeof name, "%d/task/%d/children", pid, pid);
    err *e = fs_read(proc_fd, name, 4096, &b);
    if (e) {
        err_free(e);
        return;
    }
    for (char *at = b.p, *end; at; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at)
            break;
        (void)pace_set((pid_t)child, PACE_NORMAL);
    }
}

void pace_raise_tree(int proc_fd, pid_t pid)
{
    (void)pace_set(pid, PACE_NORMAL);
    raise_children(proc_fd, pid);
}
