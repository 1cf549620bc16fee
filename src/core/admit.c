#include "core/admit.h"

const admit_rules ADMIT_DEFAULT = {
    .max_sandboxes = 1000,
    .overcommit = 50,
    .reserve_percent = 10,
};

static uint64_t admit_ceiling(const admit_rules *r, const admit_node *n)
{
    uint64_t c;

    return __builtin_mul_overflow(n->memory, r->overcommit, &c) ? UINT64_MAX : c;
}

uint64_t admit_pids_max(const admit_node *n)
{
    return n->threads ? n->threads / 2 : UINT64_MAX;
}

uint64_t admit_counted(uint64_t memory, uint64_t memory_limit)
{
    return memory && memory_limit > memory ? memory : memory_limit;
}

enum admit_verdict admit(const admit_rules *r, const admit_node *n, const admit_ask *ask)
{
    uint64_t most = admit_ceiling(r, n), pids_most = admit_pids_max(n);

    if (ask->memory > most)
        return ADMIT_NEVER;
    if (ask->pids > pids_most)
        return ADMIT_NEVER_PIDS;
    if (n->sandboxes >= r->max_sandboxes)
        return ADMIT_WAIT_COUNT;
    if (n->limits_sum > most - admit_counted(n->memory, ask->memory))
        return ADMIT_WAIT_LIMITS;
    if (n->pids_sum > pids_most - ask->pids)
        return ADMIT_WAIT_PIDS;
    /* Divide first, so that the percentage of memory cannot overflow. */
    if (n->available < n->memory / 100 * r->reserve_percent)
        return ADMIT_WAIT_RESERVE;
    return ADMIT_NOW;
}

bool admit_is_never(enum admit_verdict v)
{
    return v == ADMIT_NEVER || v == ADMIT_NEVER_PIDS;
}

bool admit_holds_all(enum admit_verdict v)
{
    return v == ADMIT_WAIT_COUNT || v == ADMIT_WAIT_RESERVE;
}

const char *admit_text(enum admit_verdict v)
{
    static const char *const TEXTS[ADMIT_VERDICTS] = {
        [ADMIT_NOW] = "there is room",
        [ADMIT_WAIT_COUNT] = "the node has as many sandboxes as it may have",
        [ADMIT_WAIT_LIMITS] =
            "the memory limits of the node's sandboxes are as high as they may be",
        [ADMIT_WAIT_RESERVE] = "too little of the node's memory is free",
        [ADMIT_NEVER] = "the memory limit asked for is more than this node may promise in all",
        [ADMIT_WAIT_PIDS] =
            "the limits of processes of the node's sandboxes are as high as they may be, half of "
            "kernel.threads-max",
        [ADMIT_NEVER_PIDS] = "the limit of processes asked for is more than this node may promise "
                             "in all, half of kernel.threads-max",
    };

    return TEXTS[v < ADMIT_VERDICTS ? v : ADMIT_NEVER];
}
