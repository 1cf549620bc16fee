/* The operator on a real API server: its watches, its thread, its writes. */
#pragma once

#include "backend/kubernetes/kube_http.h"
#include "operator/operator.h"

typedef struct operator_run operator_run;

typedef struct operator_run_options {
    kube *k; /* must outlive the operator_run */
    const operator_host *host;
    void *host_arg;
    const char *namespace, *cell, *bothy_image, *instance;
    bool image_volume;
    uint64_t disk; /* as in manifest_options */
    uint32_t shm_mib;
    uint8_t record_key[32];
    enum policy_state policy;
    bool records;
} operator_run_options;

operator_run *operator_run_new(const operator_run_options *o);
kube_operator *operator_run_operator(operator_run *r);
/* Returns why a list or a watch fails at the moment, as a copy; NULL: none fails. */
err *operator_run_trouble(operator_run *r);
/* Stops and joins its threads, which takes a second or two. */
void operator_run_free(operator_run *r);
