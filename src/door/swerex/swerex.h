/* The door for clients of SWE-ReX, on the same listeners as the native API.
 *
 * It serves the HTTP protocol of SWE-ReX's server with bothy's sessions; nothing but the commands
 * runs in the sandbox. A client names its sandbox in its token, or by a path /rex/<sandbox>/… with
 * a plain key (docs/decisions/0022-swerex.md). */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct swerex_options {
    engine *engine;
    int staging;      /* directory for uploads in progress; not owned */
    uint64_t staged;  /* bytes that one owner may use there; 0: 8 GiB */
    size_t door;      /* index of this door in the server's lists */
    size_t operation; /* index of its first operation */
} swerex_options;

typedef struct swerex swerex;
swerex *swerex_new(const swerex_options *o);
void swerex_free(swerex *d); /* after the server, when no request is in progress */
/* Names of this door's operations, as metrics and logs show them. NULL-terminated. */
extern const char *const SWEREX_OPERATIONS[];

/* Returns true if the request belongs to this door. Ask E2B's door first: a server inside a sandbox
 * may have the same paths. */
bool swerex_claims(const swerex *d, const request *rq);
void swerex_form(response *rs); /* sets the form of its errors */
/* Serves the request. The caller renders a returned error in the form that was set on the
 * response. */
err *swerex_dispatch(swerex *d, request *rq, response *rs) ERR_MUST;
