/* Authenticates callers, for doors whose callers come with a key or over the unix socket. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"
#include "net/router.h"

/* Makes c the request's user and counts the request against its owner's limits
 * (request_set_party). Takes ownership of c. The request ends when the key or token that c came
 * with is no longer valid. ERR_QUOTA_EXCEEDED. */
err *admit_as(engine *e, request *rq, caller *c) ERR_MUST;
/* Authenticates a request and admits its caller (admit_as). A key is accepted on every listener
 * (Authorization, X-API-Key). Without one, the unix peer's credentials count; members of the group
 * are users. ERR_UNAUTHENTICATED, ERR_FORBIDDEN, ERR_QUOTA_EXCEEDED. */
err *admit_caller(engine *e, gid_t group, request *rq, enum route_role role) ERR_MUST;
