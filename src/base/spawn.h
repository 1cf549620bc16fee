/* Starts children by posix_spawn; nothing calls fork. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct spawn_spec {
    char *const *argv; /* argv[0] is searched in PATH if it has no slash */
    char *const *envp; /* NULL: PATH and LANG=C.UTF-8 only */
    const int *fds; /* fds[i] becomes descriptor i of the child; -1: /dev/null. All others close */
    size_t nfds;
    bool detached; /* runs in a session of its own, so it outlives this process and its terminal */
} spawn_spec;

err *spawn_start(const spawn_spec *spec, pid_t *ret_pid) ERR_MUST;
/* Waits for the child's end. After timeout_ms (0: never) kills it with SIGKILL and returns
 * ERR_TIMEOUT. ret_status is a wait status. */
err *spawn_wait(pid_t pid, uint64_t timeout_ms, int *ret_status) ERR_MUST;
/* Runs a program to its end. Returns stdout and stderr together, at most 64 KiB (ret_output may be
 * NULL). An exit status other than 0 is ERR_INTERNAL with the output's last line as cause. */
err *spawn_run(char *const *argv, uint64_t timeout_ms, char **ret_output) ERR_MUST;
