/* A line of MCP over stdio that our parser refuses: who sent it waits for an answer with its id. */
#pragma once

#include "base/err.h"
#include "base/json.h"

#define MCP_ID_MAX 256 /* bytes of an id as it is written */

/* The id in the outermost object, a number or a text, a new reference; NULL if none can be read.
 * Takes any bytes. */
json_t *mcp_line_id(const char *p, size_t n);
/* What is told of it. Malloc'ed. */
char *mcp_line_refusal(const err *e);
