/* Shared by plan_pool.c and pool_status.c. */
#pragma once

#include "operator/plan_pool.h"

enum pod_kind {
    KIND_GOING,
    KIND_CLAIMED,
    KIND_ENDED,
    KIND_TAINTED,
    KIND_RETIRED,
    KIND_READY,
    KIND_STARTING
};
enum pod_kind pod_kind_of(const pool_pod *p);
enum pool_trouble pod_trouble(const pod_view *p);
json_t *pool_status_json(const pool_world *w, const pool_memory *m, const pool_orders *o);
