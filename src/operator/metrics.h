/* Metrics of the operator; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/plan_pool.h"

enum operator_work { /* the kind of a reconcile, as in the table of operator.c */
    WORK_TEMPLATE,
    WORK_POOL,
    WORK_POD,
    WORK_SANDBOX,
    WORK_RECORD,
    WORK_SWEEP,
    WORKS
};

void operator_metrics_init(void);
void count_look(enum operator_work work, const err *failure, uint64_t ns);
void count_write(const err *failure);
void count_leading(bool is); /* holds the Lease */
void count_waiting(size_t keys);
void count_objects(int kind, size_t n); /* enum operator_kind */
/* Replaces the pool's share of the gauges: its pods and waiting claims
 * now, and those counted before. */
void count_pool(const pool_counts *now, uint32_t pending, const pool_counts *before,
                uint32_t pending_before);
