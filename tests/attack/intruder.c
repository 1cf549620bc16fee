/* Tries to get out of a sandbox, one named attempt after another, each in a process of its own.
 *
 *   intruder ATTEMPT…       prints "ATTEMPT RESULT": an errno's name, "done", or what it says
 *   intruder all            every attempt
 *   intruder hold POOL      pools.c; prints "held POOL N" and stays
 *   intruder need           pools.c
 *   intruder misuse WAY     misuse.c
 *
 * With the set-uid bit and the grant for it, it becomes root first. */
#include "intruder.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 60 /* one that hangs; a busy machine does not look like it */

static char said[16384];
static size_t said_len;

void say(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    int n = vsnprintf(said + said_len, sizeof said - said_len, format, ap);
    va_end(ap);
    said_len += n > 0 ? (size_t)n : 0;
    if (said_len >= sizeof said)
        said_len = sizeof said - 1;
}

const char *errno_name(int errnum)
{
    const char *name = strerrorname_np(errnum);
    return name ? name : "?";
}

void say_result(const char *what, long result)
{
    say("%s%s:%s", said_len ? " " : "", what, result < 0 ? errno_name(errno) : "done");
}

void say_unless(const char *what, long result, int expected)
{
    if (result >= 0 || errno != expected)
        say_result(what, result);
}

long try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd >= 0)
        close(fd);
    return fd;
}

long try_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    int errnum = errno;
    close(fd);
    errno = errnum;
    return n;
}

long nest(int flags)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();

    /* Where there are any, those of the attempt before may be on their way out. */
    for (int i = 0; unshare(CLONE_NEWUSER | flags); i++)
        if (errno != ENOSPC || !getenv("NESTED") || i == 300 || usleep(10000))
            return -1;
    if (try_write("/proc/self/setgroups", "deny") < 0)
        return -1;
    snprintf(map, sizeof map, "0 %u 1", uid);
    if (try_write("/proc/self/uid_map", map) < 0)
        return -1;
    snprintf(map, sizeof map, "0 %u 1", gid);
    return try_write("/proc/self/gid_map", map);
}

static void run_one(const attempt *a)
{
    int status = 0;

    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        alarm(SECONDS);
        long r = a->try();
        if (!said_len)
            say("%s", r < 0 ? errno_name(errno) : "done");
        printf("%s %s\n", a->name, said);
        fflush(stdout);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        printf("%s not tried: %s\n", a->name, errno_name(errno));
    else if (WIFSIGNALED(status))
        printf("%s killed by %d\n", a->name, WTERMSIG(status));
}

static int run(const char *name)
{
    static const attempt *const TABLES[] = {PID1_ATTEMPTS, MOUNT_ATTEMPTS, KERNEL_ATTEMPTS,
                                            NET_ATTEMPTS};
    int found = 0;

    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++)
        for (const attempt *a = TABLES[i]; a->name; a++)
            if (!strcmp(name, a->name) || !strcmp(name, "all")) {
                run_one(a);
                found = 1;
            }
    if (!found)
        fprintf(stderr, "intruder: no attempt %s\n", name);
    return found ? 0 : 2;
}

int main(int argc, char **argv)
{
    int status = argc > 1 ? 0 : 2;

    if (geteuid() == 0 && (setresgid(0, 0, 0) || setresuid(0, 0, 0)))
        return 3;
    if (argc > 2 && !strcmp(argv[1], "hold"))
        return hold(argv[2]);
    if (argc > 2 && !strcmp(argv[1], "misuse"))
        return misuse(argv[2]);
    if (argc > 1 && !strcmp(argv[1], "need"))
        return need();
    for (int i = 1; i < argc; i++)
        status |= run(argv[i]);
    return status;
}
