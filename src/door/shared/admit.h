/* Who asks, for doors whose callers come with a key or over the unix socket. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"
#include "net/router.h"

/* Makes c, which it takes, the request's user and its owner the party. Once the key or the token that
 * c came with is not valid any more, the request ends. ERR_QUOTA_EXCEEDED. */
err *admit_as(engine *e, request *rq, caller *c) ERR_MUST;
/* A key is taken on every listener (Authorization, X-API-Key); without one the unix peer's
 * credentials count, members of the group being users. The caller is the request's user from here
 * on, and its owner the party. ERR_UNAUTHENTICATED, ERR_FORBIDDEN, ERR_QUOTA_EXCEEDED. */
err *admit_caller(engine *e, gid_t group, request *rq, enum route_role role) ERR_MUST;
