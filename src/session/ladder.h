/* How a command is made to end: SIGINT, SIGKILL to what it started, SIGKILL to the shell, a new
 * shell. Pure: time comes in, what to do comes out. */
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
    enum rung rung;   /* the one last done */
    uint64_t next_ns; /* when to look again; 0: not on it, or at its end */
    bool again;       /* SIGINT once more: the first may have come before the command */
} ladder;
/* young: the command may not have begun yet. Does nothing when it is on its way already. */
void ladder_start(ladder *l, uint64_t now_ns, bool young);
/* What to do now; RUNG_NONE: wait until next_ns. Without a shell's pid the two rungs that need it
 * are left out. */
enum rung ladder_step(ladder *l, uint64_t now_ns, bool shell_known);
