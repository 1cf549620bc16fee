/* The control plane: routes, and who may. */
#include <string.h>

#include "door/e2b/internal.h"
#include "net/router.h"

static err *not_templates(request *rq, response *rs)
{
    (void)rs;
    return e2b_missing(MISSING_TEMPLATES, "%s: templates are not served", request_path(rq));
}
static err *not_snapshots(request *rq, response *rs)
{
    (void)rs;
    return e2b_missing(MISSING_SNAPSHOTS, "%s: snapshots are not served", request_path(rq));
}
static err *not_volumes(request *rq, response *rs)
{
    (void)rs;
    return e2b_missing(MISSING_VOLUMES, "%s: volumes are not served", request_path(rq));
}
static err *not_secrets(request *rq, response *rs)
{
    (void)rs;
    return e2b_missing(MISSING_SECRETS, "%s: secrets are not served", request_path(rq));
}

static const route ROUTES[] = {
    {"*", "/snapshots", not_snapshots, ROLE_READ, "e2b_snapshots"},
    {"*", "/templates", not_templates, ROLE_READ, "e2b_templates"},
    {"*", "/templates/{rest*}", not_templates, ROLE_READ, "e2b_templates"},
    {"*", "/v2/templates/{rest*}", not_templates, ROLE_READ, "e2b_templates"},
    {"*", "/v3/templates", not_templates, ROLE_READ, "e2b_templates"},
    {"*", "/volumes", not_volumes, ROLE_READ, "e2b_volumes"},
    {"*", "/volumes/{rest*}", not_volumes, ROLE_READ, "e2b_volumes"},
    {"*", "/secrets", not_secrets, ROLE_READ, "e2b_secrets"},
    {"*", "/secrets/{rest*}", not_secrets, ROLE_READ, "e2b_secrets"},
};

static const char *key_of(const request *rq)
{
    const char *key = request_header(rq, "X-API-Key");
    const char *bearer = request_header(rq, "Authorization");

    if (key)
        return key;
    return bearer && str_starts(bearer, "Bearer ") ? bearer + strlen("Bearer ") : NULL;
}

static void release_caller(void *c)
{
    caller_free(c);
}

static err *admit(const e2b *d, request *rq, enum route_role role)
{
    const char *key = key_of(rq);
    caller *c = NULL;

    if (!key)
        return err_remedy(err_new(ERR_UNAUTHENTICATED, "the request carries no key"),
                          "Set E2B_API_KEY; 'bothy e2b-env' prints what to set.");
    TRY(caller_by_key(d->o.engine, key, &c));
    request_set_user(rq, c, release_caller);
    request_set_party(rq, c->role == CALLER_ADMIN ? NULL : c->owner);
    return caller_require(c, role == ROLE_READ ? CALLER_READ : CALLER_USER);
}

err *control_dispatch(e2b *d, request *rq, response *rs)
{
    const route *found = NULL;

    TRY(router_match(ROUTES, ARRAY_LEN(ROUTES), rq, rs, &found));
    e2b_set_operation(rq, found->operation);
    TRY(admit(d, rq, found->role));
    return found->handle(rq, rs);
}
