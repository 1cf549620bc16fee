/* Children by posix_spawn; nothing calls fork. */
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
    bool detached; /* a session of its own: it outlives us and our terminal */
} spawn_spec;

err *spawn_start(const spawn_spec *spec, pid_t *ret_pid) ERR_MUST;
/* Waits for the end, at most timeout_ms (0: for ever); kills with SIGKILL after it.
 * ret_status is a wait status. ERR_TIMEOUT if it had to be killed. */
err *spawn_wait(pid_t pid, uint64_t timeout_ms, int *ret_status) ERR_MUST;
/* Runs to the end; stderr and stdout together, at most 64 KiB, are given back (may be NULL).
 * A status other than 0 is ERR_INTERNAL with the output's last line as cause. */
err *spawn_run(char *const *argv, uint64_t timeout_ms, char **ret_output) ERR_MUST;
