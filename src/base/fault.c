#include "base/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TURNS_MAX 8

/* Opened before main: points lie where the directory's path leads nowhere (a claimer's root is one
 * of its own), and between fork and exec. */
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

/* One of NAME.1 … NAME.8 is taken: this time is let pass. */
static bool passes(const char *name)
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
    if (dir < 0 || faccessat(dir, name, F_OK, 0) || passes(name))
        return;
    if (!unlinkat(dir, name, 0))
        syscall(SYS_tgkill, getpid(), gettid(), SIGKILL); /* allowed in every thread of ours */
}
