/* The native API: handlers for the operations of api/openapi.yaml, the JSON of their answers, and
 * the relay jobs behind answers that take time. */
#pragma once

#include "base/json.h"
#include "engine/engine.h"
#include "net/http.h"

typedef struct rest_options {
    engine *engine;
    gid_t group;         /* members may use the unix socket as users; (gid_t)-1: no group */
    const char *version; /* version of the program */
    /* Further readiness checks, or NULL. Sets *ret_name to the check, and *ret_warns if its failure
     * is only a warning. pool is NULL if there is none, or if it does not answer. */
    err *(*ready)(void *arg, size_t i, const pool_status *pool, const char **ret_name,
                  bool *ret_warns);
    void *arg;
    const char *listen_tcp;  /* for /v1/info; NULL: none */
    bool e2b;                /* for /v1/info: the E2B door is open */
    const char *code_image;  /* image of code_run; "" or NULL: none */
    const char *port_domain; /* domain of the host form; "" or NULL: off */
    uint64_t port_answer_ms, port_idle_ms;
} rest_options;

typedef struct rest rest;
rest *rest_new(const rest_options *o);
void rest_free(rest *r);
/* Returns the server's list of operations; the first stands for requests without a route. */
const char *const *rest_operations(const rest *r);
/* The server's dispatch: authenticates, finds the route, runs the handler. arg is the rest. */
err *rest_dispatch(void *arg, request *rq, response *rs);
