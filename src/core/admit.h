/* Decides whether one more sandbox fits on the node. Arithmetic only; the caller reads the figures.
 *
 * Memory limits are ceilings, not reservations: their sum may be `overcommit` times the machine's
 * memory. The node is protected by a reserve of memory that must be free at the moment. Process
 * limits are promises: all sandboxes together get at most half of the kernel's threads, so that a
 * clone() on the host never fails because of them. */
#pragma once

#include <stdbool.h>
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
    uint64_t limits_sum; /* admit_counted() of all present sandboxes, bytes */
    uint64_t threads;    /* kernel.threads-max; 0: not known, and pids are not counted */
    uint64_t pids_sum;   /* process limits of all present sandboxes */
    uint32_t sandboxes;
} admit_node;

typedef struct admit_ask { /* limits of the new sandbox */
    uint64_t memory, pids;
} admit_ask;

enum admit_verdict {
    ADMIT_NOW,
    ADMIT_WAIT_COUNT,   /* the node has as many as allowed */
    ADMIT_WAIT_LIMITS,  /* the sum of the limits would be too large */
    ADMIT_WAIT_RESERVE, /* too little memory is free */
    ADMIT_NEVER,        /* its own limit exceeds the ceiling of the sum */
    /* Frames of earlier releases carry the numbers above (wp_pool.held_by); add new ones here. */
    ADMIT_WAIT_PIDS,  /* the sum of the limits of processes would be too large */
    ADMIT_NEVER_PIDS, /* its own process limit exceeds the ceiling of that sum */
    ADMIT_VERDICTS
};

/* Returns the ceiling of the sum of process limits; UINT64_MAX: not known. */
uint64_t admit_pids_max(const admit_node *n);
/* Returns the part of a memory limit that counts: at most the memory of the machine. */
uint64_t admit_counted(uint64_t memory, uint64_t memory_limit);
enum admit_verdict admit(const admit_rules *r, const admit_node *n, const admit_ask *ask);
/* Returns true if waiting is useless: the sandbox can never fit. */
bool admit_is_never(enum admit_verdict v);
/* Returns true if the reason holds for every other sandbox, too: the node is full. */
bool admit_holds_all(enum admit_verdict v);
/* Returns the reason, for people. */
const char *admit_text(enum admit_verdict v);
