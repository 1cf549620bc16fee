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

/* Without a key a page must not be behind the request: whatever brings a browser to the socket must
 * not lend it to every site that the browser shows. */
static err *authenticate(engine *e, gid_t group, request *rq, caller **ret_caller)
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

static enum caller_role needed(enum route_role role)
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

err *admit_caller(engine *e, gid_t group, request *rq, enum route_role role)
{
    caller *c = NULL;

    TRY(authenticate(e, group, rq, &c));
    assert(c);
    request_set_user(rq, c, release_caller);
    TRY(request_set_party(rq, c->role == CALLER_ADMIN ? NULL : c->owner));
    return caller_require(c, needed(role));
}
