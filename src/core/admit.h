/* May one more sandbox come in? Arithmetic only; the caller reads the figures.
 *
 * Limits of memory are ceilings, not reservations: their sum may be `overcommit` times the memory
 * there is. What protects the node is the reserve of memory that must be free right now. Limits of
 * processes are promises: all sandboxes together have half of the threads that the kernel allows,
 * so that a clone() of the host never fails because of them. */
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
    uint64_t limits_sum; /* admit_counted() of the sandboxes there are, bytes */
    uint64_t threads;    /* kernel.threads-max; 0: not known, and pids are not counted */
    uint64_t pids_sum;   /* limits of processes of the sandboxes there are */
    uint32_t sandboxes;
} admit_node;

typedef struct admit_ask { /* limits of the one that wants in */
    uint64_t memory, pids;
} admit_ask;

enum admit_verdict {
    ADMIT_NOW,
    ADMIT_WAIT_COUNT,   /* as many as allowed */
    ADMIT_WAIT_LIMITS,  /* the sum of the limits would be too large */
    ADMIT_WAIT_RESERVE, /* too little memory is free */
    ADMIT_NEVER,        /* its own limit is larger than the sum may be */
    /* The numbers above are in frames of earlier releases (wp_pool.held_by). */
    ADMIT_WAIT_PIDS,  /* the sum of the limits of processes would be too large */
    ADMIT_NEVER_PIDS, /* its own limit of processes is larger than that sum may be */
    ADMIT_VERDICTS
};

/* The most that limits of processes may add up to; UINT64_MAX: not known. */
uint64_t admit_pids_max(const admit_node *n);
/* As much of a memory limit as counts: no sandbox can use more than the machine has. */
uint64_t admit_counted(uint64_t memory, uint64_t memory_limit);
enum admit_verdict admit(const admit_rules *r, const admit_node *n, const admit_ask *ask);
/* It does not wait: it can never come in. */
bool admit_is_never(enum admit_verdict v);
/* It waits for the node, which each other one would wait for, too. */
bool admit_holds_all(enum admit_verdict v);
/* Why, for people. */
const char *admit_text(enum admit_verdict v);
