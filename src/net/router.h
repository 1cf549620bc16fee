/* Routes as data: a table of method, pattern and handler, usually generated from an API file. */
#pragma once

#include "net/http.h"

enum route_role {
    ROLE_ANYONE,
    ROLE_READ,
    ROLE_USER,
    ROLE_ADMIN
};

typedef struct route {
    const char *method;  /* "*": every method */
    const char *pattern; /* "/v1/sandboxes/{id}/exec"; {x} matches one segment, {x*} the rest */
    err *(*handle)(request *rq, response *rs);
    enum route_role role;
    const char *operation; /* operationId, for logs and metrics */
} route;

/* Finds the route for this method and path and sets the request's parameters. ERR_NOT_FOUND (kind
 * "route"), or ERR_METHOD_NOT_ALLOWED with the Allow header set on the response. */
err *router_match(const route *table, size_t n, request *rq, response *rs,
                  const route **ret_route) ERR_MUST;
