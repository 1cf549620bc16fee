/* Which requests are E2B's, and which plane, sandbox and port they mean: pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"

#define E2B_ENVD_PORT 49983
#define E2B_TOKEN_LEN (SANDBOX_ID_LEN + 40)
#define E2B_DEBUG_ID  "debug_sandbox_id"

typedef struct e2b_asked { /* what is looked at; each may be NULL */
    const char *path, *host;
    const char *api_key;        /* X-API-Key */
    const char *sandbox, *port; /* E2b-Sandbox-Id, E2b-Sandbox-Port */
    const char *token;          /* X-Access-Token */
    const char *traffic;        /* E2B-Traffic-Access-Token */
    bool has_signature;         /* in the query */
    const char *domain;         /* of native hosts */
} e2b_asked;

enum e2b_plane {
    PLANE_OTHER, /* not E2B's */
    PLANE_CONTROL,
    PLANE_DATA,
    PLANE_SIGNED, /* data of the sandbox whose signature it is */
};

typedef struct e2b_way {
    enum e2b_plane plane;
    char id[SANDBOX_ID_LEN + 1]; /* "": none that could be one */
    uint16_t port;
    bool by_host;
    bool native; /* by host, and the native API would serve it, too */
} e2b_way;

e2b_way e2b_route(const e2b_asked *a);
/* "<id>" or "<id>-<client>": the id alone, or "" */
void e2b_id(const char *text, char ret_id[SANDBOX_ID_LEN + 1]);
/* /sandboxes, /v2/sandboxes/x, /templates/y …; /v1 is the native API's. */
bool e2b_is_control_path(const char *path);
bool e2b_is_rpc_path(const char *path);
