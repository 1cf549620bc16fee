/* The door for models: the Model Context Protocol over streamable HTTP at /mcp. `bothy mcp` carries
 * the lines of stdio here, so that both transports are this one.
 *
 * Tools are the table of api/mcp.yaml. A caller with a session has a sandbox of its own, made by
 * the first tool that needs one and ended with the session; others name theirs in every call. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct mcp_options {
    engine *engine;
    gid_t group;      /* who may use the unix socket as a user; (gid_t)-1: nobody */
    size_t door;      /* of the server's lists: this door, */
    size_t operation; /* and its first operation */
    const char *version;
    const char *image;      /* of a sandbox whose creator names none */
    const char *code_image; /* of code_run; "": none */
    uint64_t idle_ms;       /* of sandboxes of sessions: nobody may be there to end them */
    uint64_t ttl_ms;        /* of sandboxes of this door, */
    uint64_t max_ttl_ms;    /* if their owner may have them so long; 0: any */
} mcp_options;

typedef struct mcp mcp;
/* Texts of the options live longer than the door. */
mcp *mcp_new(const mcp_options *o);
/* After the server was freed. */
void mcp_free(mcp *d);
/* For the server's lists; NULL-terminated. */
extern const char *const MCP_OPERATIONS[];

/* Is the request for this door? */
bool mcp_claims(const request *rq);
void mcp_form(response *rs); /* of its errors */
/* Answers, errors too: what it returns is to be told in the form that it has set. */
err *mcp_dispatch(mcp *d, request *rq, response *rs) ERR_MUST;
