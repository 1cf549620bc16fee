/* May one more sandbox come in? Arithmetic only; the caller reads the figures.
 *
 * Limits are ceilings, not reservations: their sum may be `overcommit` times the memory there is.
 * What protects the node is the reserve of memory that must be free right now. */
#pragma once

#include <stdint.h>

typedef struct admit_rules {
    uint32_t max_sandboxes;   /* 1,000 */
    uint32_t overcommit;      /* 50: times the machine's memory */
    uint32_t reserve_percent; /* 10: of the machine's memory, free now */
} admit_rules;
extern const admit_rules ADMIT_DEFAULT;

typedef struct admit_node {
    uint64_t memory;     /* of the machine, bytes */
    uint64_t available;  /* MemAvailable, bytes */
    uint64_t limits_sum; /* memory limits of the sandboxes there are, bytes */
    uint32_t sandboxes;
} admit_node;

enum admit_verdict {
    ADMIT_NOW,
    ADMIT_WAIT_COUNT,   /* as many as allowed */
    ADMIT_WAIT_LIMITS,  /* the sum of the limits would be too large */
    ADMIT_WAIT_RESERVE, /* too little memory is free */
    ADMIT_NEVER,        /* its own limit is larger than the sum may be */
    ADMIT_VERDICTS
};

enum admit_verdict admit(const admit_rules *r, const admit_node *n, uint64_t memory_limit);
/* Why, for people. */
const char *admit_text(enum admit_verdict v);
