#include "door/shared/admit.h"

#include <assert.h>
#include <string.h>

#include "base/str.h"

static const char *key_of(const request *rq)
{
    const char *bearer = request_header(rq, "Authorization");

    if (bearer && str_starts(bearer, "Bearer "))
        return bearer + strlen("Bearer ");
    return bearer ? bearer : request_header(rq, "X-API-Key");
}

/* Finds the caller of a request. A request without a key must not come from a web page: a browser
 * that can reach the socket would otherwise give every site it shows the rights of its user. */
static err *admit_authenticate(engine *e, gid_t group, request *rq, caller **ret_caller)
{
    const char *key = key_of(rq);

    if (key)
        return caller_by_key(e, key, ret_caller);
    if (request_header(rq, "Origin"))
        return err_remedy(err_new(ERR_UNAUTHENTICATED, "a page's request carries no key"),
                          "Send a key in the header Authorization, or leave Origin out.");
    if (request_is_unix(rq))
        return caller_by_peer(request_socket(rq), group, ret_caller);
    return err_new(ERR_UNAUTHENTICATED, "the request carries no key");
}

static enum caller_role admit_needed(enum route_role role)
{
    static const enum caller_role ROLES[] = {[ROLE_ANYONE] = CALLER_NOBODY,
                                             [ROLE_READ] = CALLER_READ,
                                             [ROLE_USER] = CALLER_USER,
                                             [ROLE_ADMIN] = CALLER_ADMIN};
    return ROLES[role];
}

static void release_caller(void *c)
{
    caller_free(c);
}

typedef struct lapsing {
    engine *engine;
    caller who;
} lapsing;

static bool lapsing_over(void *arg)
{
    lapsing *l = arg;

    return caller_has_lapsed(l->engine, &l->who);
}

static void lapsing_free(void *arg)
{
    lapsing *l = arg;

    free(l->who.owner);
    free(l);
}

err *admit_as(engine *e, request *rq, caller *c)
{
    request_set_user(rq, c, release_caller);
    if (*c->key || c->by_token) {
        lapsing *l = xmalloc(sizeof *l);
        *l = (lapsing){e, *c};
        l->who.owner = xstrdup(c->owner);
        request_set_lapse(rq, l, lapsing_over, lapsing_free);
    }
    return request_set_party(rq, c->role == CALLER_ADMIN ? NULL : c->owner);
}

err *admit_caller(engine *e, gid_t group, request *rq, enum route_role role)
{
    caller *c = NULL;

    TRY(admit_authenticate(e, group, rq, &c));
    assert(c);
    TRY(admit_as(e, rq, c));
    return caller_require(c, admit_needed(role));
}
