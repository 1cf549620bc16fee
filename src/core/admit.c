#include "core/admit.h"

const admit_rules ADMIT_DEFAULT = {
    .max_sandboxes = 1000,
    .overcommit = 50,
    .reserve_percent = 10,
};

static uint64_t ceiling(const admit_rules *r, const admit_node *n)
{
    uint64_t c;

    return __builtin_mul_overflow(n->memory, r->overcommit, &c) ? UINT64_MAX : c;
}

enum admit_verdict admit(const admit_rules *r, const admit_node *n, uint64_t memory_limit)
{
    uint64_t most = ceiling(r, n);

    if (memory_limit > most)
        return ADMIT_NEVER;
    if (n->sandboxes >= r->max_sandboxes)
        return ADMIT_WAIT_COUNT;
    if (n->limits_sum > most - memory_limit)
        return ADMIT_WAIT_LIMITS;
    /* Divided first: a percentage of memory never overflows this way. */
    if (n->available < n->memory / 100 * r->reserve_percent)
        return ADMIT_WAIT_RESERVE;
    return ADMIT_NOW;
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
    };

    return TEXTS[v < ADMIT_VERDICTS ? v : ADMIT_NEVER];
}
