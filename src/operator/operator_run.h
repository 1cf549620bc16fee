/* The operator on a real API server: its watches, its thread, its writes. */
#pragma once

#include "backend/kubernetes/kube_http.h"
#include "operator/operator.h"

typedef struct operator_run operator_run;

typedef struct operator_run_options {
    kube *k; /* outlives it */
    const operator_host *host;
    void *host_arg;
    const char *namespace, *cell, *bothy_image, *instance;
    bool image_volume;
    uint64_t disk; /* as manifest_options has them */
    uint32_t shm_mib;
    uint8_t record_key[32];
    enum policy_state policy;
    bool records;
} operator_run_options;

operator_run *operator_run_new(const operator_run_options *o);
kube_operator *operator_run_operator(operator_run *r);
/* Why a list or a watch fails just now, copied; NULL: none does. */
err *operator_run_trouble(operator_run *r);
/* Waits for its threads, a second or two. */
void operator_run_free(operator_run *r);
