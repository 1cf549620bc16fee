#include "base/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TURNS_MAX 8

/* Opened before main: some kill points run where the directory's path cannot be resolved (a claim
 * changes its root), and some between fork and exec. */
static int dir = -1;

__attribute__((constructor)) static void open_armed(void)
{
    const char *path = getenv("BOTHY_FAULTS"); /* NOLINT(concurrency-mt-unsafe): before threads */

    dir = path ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
}

bool fault_armed(const char *name)
{
    return dir >= 0 && !faccessat(dir, name, F_OK, 0);
}

/* Consumes one of NAME.1 … NAME.8. Returns true if there was one: this pass survives. */
static bool fault_passes(const char *name)
{
    char turn[64];

    for (int i = 1; i <= TURNS_MAX; i++) {
        snprintf(turn, sizeof turn, "%s.%d", name, i);
        if (!unlinkat(dir, turn, 0))
            return true;
    }
    return false;
}

void fault_kill(const char *name)
{
    if (dir < 0 || faccessat(dir, name, F_OK, 0) || fault_passes(name))
        return;
    if (!unlinkat(dir, name, 0))
        syscall(SYS_tgkill, getpid(), gettid(), SIGKILL); /* every thread may make this call */
}
