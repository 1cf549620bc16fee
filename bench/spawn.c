#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define ARGV_MAX 64

uint64_t run_timed(char *const *argv, unsigned round, int out)
{
    char *copy[ARGV_MAX];
    char name[32];
    posix_spawn_file_actions_t fa;
    pid_t pid;
    int status = 0, i = 0;

    snprintf(name, sizeof name, "bench-%d-%u", getpid(), round);
    for (; argv[i] && i < ARGV_MAX - 1; i++)
        copy[i] = strcmp(argv[i], "{}") == 0 ? name : argv[i];
    copy[i] = NULL;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&fa, out, 1);
    else
        posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    uint64_t begun = now_mono_ns();
    errno = posix_spawnp(&pid, copy[0], &fa, NULL, copy, environ);
    if (errno || waitpid(pid, &status, 0) != pid)
        die(copy[0]);
    uint64_t took = now_mono_ns() - begun;
    posix_spawn_file_actions_destroy(&fa);
    if (status)
        fail("%s ended with %#x", copy[0], (unsigned)status);
    return took;
}
