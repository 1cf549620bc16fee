/* The timed steps of ladder.h. */
#include "session/ladder.h"

#include <stddef.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* The time each step has to work. A machine under load may be slow to kill. */
static const struct {
    const char *name;
    uint64_t wait_ns;
} RUNG[RUNGS] = {
    [RUNG_INT] = {"int", NS_PER_S},
    [RUNG_KILL_TREE] = {"kill_tree", NS_PER_S},
    [RUNG_KILL_SHELL] = {"kill_shell", 3 * NS_PER_S},
    [RUNG_RESTART] = {"restart", 0},
};

const char *rung_name(enum rung r)
{
    return (size_t)r < RUNGS ? RUNG[r].name : NULL;
}

void ladder_start(ladder *l, uint64_t now_ns, bool young)
{
    if (l->rung || l->next_ns)
        return;
    l->next_ns = now_ns;
    l->again = young;
}

enum rung ladder_step(ladder *l, uint64_t now_ns, bool shell_known)
{
    if (!l->next_ns || now_ns < l->next_ns)
        return RUNG_NONE;
    if (l->rung == RUNG_INT && l->again) {
        l->again = false;
        l->next_ns = now_ns + RUNG[RUNG_INT].wait_ns / 2;
        return RUNG_INT;
    }
    l->rung++;
    if (!shell_known && (l->rung == RUNG_KILL_TREE || l->rung == RUNG_KILL_SHELL))
        l->rung = RUNG_RESTART;
    uint64_t wait = RUNG[l->rung].wait_ns;
    if (l->rung == RUNG_INT && l->again)
        wait /= 2;
    l->next_ns = wait ? now_ns + wait : 0;
    return l->rung;
}
