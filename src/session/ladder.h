/* The steps that end a command: SIGINT, SIGKILL to its descendants, SIGKILL to the shell, a new
 * shell. Pure: the time is a parameter, the result is the step to take. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum rung {
    RUNG_NONE,
    RUNG_INT,
    RUNG_KILL_TREE,
    RUNG_KILL_SHELL,
    RUNG_RESTART,
    RUNGS
};
const char *rung_name(enum rung r); /* NULL for none */

typedef struct ladder {
    enum rung rung;   /* the last step taken */
    uint64_t next_ns; /* time of the next step; 0: not started, or at the end */
    bool again;       /* SIGINT is sent twice: the first may come before the command starts */
} ladder;
/* Starts the ladder; does nothing if it has been started. young: the command may not run yet. */
void ladder_start(ladder *l, uint64_t now_ns, bool young);
/* Returns the step to take now; RUNG_NONE: wait until next_ns. If the shell's pid is unknown, skips
 * the two steps that need it. */
enum rung ladder_step(ladder *l, uint64_t now_ns, bool shell_known);
