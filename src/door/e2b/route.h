/* Decides which requests are E2B's, and which plane, sandbox and port they mean. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"

#define E2B_ENVD_PORT 49983
#define E2B_TOKEN_LEN (SANDBOX_ID_LEN + 40)
#define E2B_DEBUG_ID  "debug_sandbox_id"

typedef struct e2b_asked { /* the parts of a request that decide; each may be NULL */
    const char *path, *host;
    const char *api_key;        /* X-API-Key */
    const char *sandbox, *port; /* E2b-Sandbox-Id, E2b-Sandbox-Port */
    const char *token;          /* X-Access-Token */
    const char *traffic;        /* E2B-Traffic-Access-Token */
    bool has_signature;         /* in the query: a signature */
    const char *domain;         /* domain of the native API's port hosts */
} e2b_asked;

enum e2b_plane {
    PLANE_OTHER, /* not this door's */
    PLANE_CONTROL,
    PLANE_DATA,
    PLANE_SIGNED, /* data plane of the sandbox whose token signed the URL */
};

typedef struct e2b_way {
    enum e2b_plane plane;
    char id[SANDBOX_ID_LEN + 1]; /* "": no valid id was given */
    uint16_t port;
    bool by_host;
    bool native; /* named by host, and the native API could serve it too */
} e2b_way;

e2b_way e2b_route(const e2b_asked *a);
/* Extracts the id from "<id>" or "<id>-<client>"; "" if it is not one. */
void e2b_id(const char *text, char ret_id[SANDBOX_ID_LEN + 1]);
/* Returns true for /sandboxes, /v2/sandboxes/x, /templates/y …; /v1 is the native API's. */
bool e2b_is_control_path(const char *path);
bool e2b_is_rpc_path(const char *path);
