#include "base/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

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

void fault_kill(const char *name)
{
    if (dir >= 0 && !unlinkat(dir, name, 0))
        (void)kill(getpid(), SIGKILL);
}
