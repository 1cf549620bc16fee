/* Handles a line of MCP over stdio that is not valid JSON. The client waits for an answer with its
 * id. */
#pragma once

#include "base/err.h"
#include "base/json.h"

#define MCP_ID_MAX 256 /* bytes of an id as it is written */

/* Finds the id in the outermost object, a number or a string. Returns a new reference, NULL if none
 * can be read. Accepts any bytes. */
json_t *mcp_line_id(const char *p, size_t n);
/* Returns the error message for the line. Malloc'ed. */
char *mcp_line_refusal(const err *e);
