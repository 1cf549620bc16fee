/* The door for models: the Model Context Protocol over streamable HTTP at /mcp. `bothy mcp`
 * forwards stdio to it, so both transports have one implementation.
 *
 * The tools are the table of api/mcp.yaml. A caller with a session has a sandbox of its
 * own, made by the first tool that needs one and deleted with the session. Other
 * callers name a sandbox in every call. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct mcp_options {
    engine *engine;
    gid_t group;      /* members may use the unix socket as users; (gid_t)-1: no group */
    size_t door;      /* index of this door in the server's lists, */
    size_t operation; /* and its first operation */
    const char *version;
    const char *image;      /* of a sandbox whose create names none */
    const char *code_image; /* image of code_run; "": none */
    /* of sessions' sandboxes, as their client may vanish without ending them */
    uint64_t idle_ms;
    uint64_t ttl_ms;     /* ttl of sandboxes of this door, */
    uint64_t max_ttl_ms; /* if their owner's limit allows it; 0: no limit */
} mcp_options;

typedef struct mcp mcp;
/* The texts in the options must outlive the door. */
mcp *mcp_new(const mcp_options *o);
/* Call it after the server was freed. */
void mcp_free(mcp *d);
/* Names of this door's operations, as metrics and logs show them. NULL-terminated. */
extern const char *const MCP_OPERATIONS[];

/* Returns whether the request is for this door. */
bool mcp_claims(const request *rq);
void mcp_form(response *rs); /* the form of its errors */
/* Answers the request. An error that it returns is sent in the form that it has set. */
err *mcp_dispatch(mcp *d, request *rq, response *rs) ERR_MUST;
