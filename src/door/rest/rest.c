/* Dispatches requests of the native API: caller, route, permission. */
#include "door/rest/rest.h"

#include <string.h>

#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/internal.h"
#include "door/shared/admit.h"

rest *rest_new(const rest_options *o)
{
    rest *r = xcalloc(1, sizeof *r);

    r->o = *o;
    r->operations = xcalloc(OPENAPI_NROUTES + 2, sizeof *r->operations);
    r->operations[0] = "none";
    for (size_t i = 0; i < OPENAPI_NROUTES; i++)
        r->operations[i + 1] = OPENAPI_ROUTES[i].operation;
    return r;
}

const char *const *rest_operations(const rest *r)
{
    return r->operations;
}

void rest_free(rest *r)
{
    free(r->operations);
    free(r);
}

static err *rest_admit(const rest *r, request *rq, enum route_role role)
{
    return admit_caller(r->o.engine, r->o.group, rq, role);
}

/* Dispatches requests in the host form. Every host below the ports' domain is a sandbox's origin,
 * so the API's routes are not available there. */
static err *dispatch_host(rest *r, request *rq, response *rs, bool *ret_done)
{
    char id[SANDBOX_ID_LEN + 1];
    uint16_t port = 0;
    enum gateway_host form = ports_host(rq, id, &port);

    *ret_done = form != GATEWAY_HOST_OTHER;
    if (form == GATEWAY_HOST_BAD)
        return err_kind(
            err_new(ERR_NOT_FOUND, "the host is not <port>-<sandbox id>.%s", r->o.port_domain),
            "host");
    if (!*ret_done)
        return NULL;
    TRY(rest_admit(r, rq, ROLE_USER));
    return ports_by_host(rq, rs, id, port);
}

/* Finds the route. An unknown path is no wrong id: the remedy names the list of paths. */
static err *rest_route(request *rq, response *rs, const route **ret_route)
{
    err *e = router_match(OPENAPI_ROUTES, OPENAPI_NROUTES, rq, rs, ret_route);

    return e && e->code == ERR_NOT_FOUND ? err_remedy(e, "GET /openapi.json lists the paths.") : e;
}

err *rest_dispatch(void *arg, request *rq, response *rs)
{
    rest *r = arg;
    const route *found = NULL;
    bool done = false;

    request_set_door(rq, r);
    TRY(dispatch_host(r, rq, rs, &done));
    if (done)
        return NULL;
    TRY(rest_route(rq, rs, &found));
    request_set_operation(rq, 0, (size_t)(found - OPENAPI_ROUTES) + 1);
    if (found->role != ROLE_ANYONE)
        TRY(rest_admit(r, rq, found->role));
    return found->handle(rq, rs);
}

err *rest_idempotency(request *rq, const buf *body, idempotency *ret_idem)
{
    const char *key = request_header(rq, "Idempotency-Key");

    if (key && (!ascii_visible(key) || strlen(key) > 255))
        return err_new(ERR_INVALID_REQUEST,
                       "Idempotency-Key: must be 1 to 255 visible ASCII characters");
    *ret_idem = (idempotency){.key = key, .body = body->p, .nbody = body->len};
    return NULL;
}

bool rest_wants_events(const request *rq)
{
    const char *accept = request_header(rq, "Accept");

    return accept && strstr(accept, "text/event-stream");
}
