/* The native API: handlers named by the operations of api/openapi.yaml, the JSON they answer with,
 * and the relay jobs behind answers that take time. */
#pragma once

#include "base/json.h"
#include "engine/engine.h"
#include "net/http.h"

typedef struct rest_options {
    engine *engine;
    gid_t group;         /* who may use the unix socket as a user; (gid_t)-1: nobody */
    const char *version; /* of the program */
    /* Further readiness checks, or NULL; sets *ret_name to what was checked, *ret_warns if its
     * failure is only a warning. pool is NULL where there is none, or it does not answer. */
    err *(*ready)(void *arg, size_t i, const pool_status *pool, const char **ret_name,
                  bool *ret_warns);
    void *arg;
    const char *listen_tcp;  /* for /v1/info; NULL: none */
    bool e2b;                /* likewise: that door is open */
    const char *code_image;  /* of code_run; "" or NULL: none */
    const char *port_domain; /* of the host form; "" or NULL: off */
    uint64_t port_answer_ms, port_idle_ms;
} rest_options;

typedef struct rest rest;
rest *rest_new(const rest_options *o);
void rest_free(rest *r);
/* For the server: its operations; the first stands for what has no route. */
const char *const *rest_operations(const rest *r);
/* The server's dispatch: authenticates, finds the route, runs the handler. arg is the rest. */
err *rest_dispatch(void *arg, request *rq, response *rs);
