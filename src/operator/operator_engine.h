/* The operator inside bothyd: implements operator_host over the engine and the `kubernetes`
 * backend. */
#pragma once

#include "engine/engine.h"
#include "operator/operator.h"

typedef struct operator_daemon operator_daemon;

typedef struct operator_daemon_options {
    engine *engine;   /* engine and backend must outlive it */
    backend *backend; /* `kubernetes` */
    const char *cell;
    limits defaults;      /* limits of sandboxes: pods get them where the template names none */
    const uint8_t *key;   /* 32 bytes, this bothyd's; record_proof()'s key is derived from it */
    const char *instance; /* the reporter of events; NULL: the cell */
    bool vouched;         /* the administrator says that NetworkPolicies hold in this cluster */
} operator_daemon_options;

/* Call it after engine_reconcile() and before the doors open. */
operator_daemon *operator_daemon_new(const operator_daemon_options *o);
kube_operator *operator_daemon_operator(operator_daemon *d);
/* Returns why it cannot watch the cluster's objects: definitions or rights are missing. NULL: it
 * can. */
err *operator_daemon_trouble(operator_daemon *d);
void operator_daemon_free(operator_daemon *d);
