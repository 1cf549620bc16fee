/* The door for clients of SWE-ReX, on the same listeners as the native API.
 *
 * Its server's HTTP protocol, on our sessions: nothing runs in the image but the commands. A client
 * says which sandbox it means in its token, or by a path /rex/<sandbox>/… with a plain key
 * (docs/decisions/0022-swerex.md). */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct swerex_options {
    engine *engine;
    int staging;      /* a directory for uploads under way; not owned */
    uint64_t staged;  /* bytes that one owner may have there; 0: 8 GiB */
    size_t door;      /* of the server's lists: this door, */
    size_t operation; /* and its first operation */
} swerex_options;

typedef struct swerex swerex;
swerex *swerex_new(const swerex_options *o);
void swerex_free(swerex *d); /* after the server: no request is under way */
/* For the server's lists; NULL-terminated. */
extern const char *const SWEREX_OPERATIONS[];

/* Is the request for this door? After E2B's: a server inside may have the same paths. */
bool swerex_claims(const swerex *d, const request *rq);
void swerex_form(response *rs); /* of its errors */
/* Answers, errors too: what it returns is to be told in the form that it has set. */
err *swerex_dispatch(swerex *d, request *rq, response *rs) ERR_MUST;
