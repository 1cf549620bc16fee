/* The operator in bothyd: over its engine and its backend `kubernetes`. */
#pragma once

#include "engine/engine.h"
#include "operator/operator.h"

typedef struct operator_daemon operator_daemon;

typedef struct operator_daemon_options {
    engine *engine;   /* both outlive it */
    backend *backend; /* `kubernetes` */
    const char *cell;
    limits defaults;      /* of a sandbox: pods have them where no template says */
    const uint8_t *key;   /* 32 bytes, this bothyd's: proofs of records are derived from it */
    const char *instance; /* who reports events; NULL: the cell */
    bool vouched;         /* the administrator says that NetworkPolicies hold here */
} operator_daemon_options;

/* After engine_reconcile(), before the doors open. */
operator_daemon *operator_daemon_new(const operator_daemon_options *o);
kube_operator *operator_daemon_operator(operator_daemon *d);
/* NULL, or why it does not see the cluster's objects: definitions that are not installed, rights
 * that are missing. */
err *operator_daemon_trouble(operator_daemon *d);
void operator_daemon_free(operator_daemon *d);
