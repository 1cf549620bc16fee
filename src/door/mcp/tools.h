/* The list of tools, from api/mcp.yaml. Pure. */
#pragma once

#include <stdbool.h>

#include "base/json.h"

/* Returns the array of tools/list, borrowed: it lives as long as the process. without_session:
 * callers have no sandbox of their own, so `sandbox` is a required argument. */
json_t *tools_listed(bool without_session);
/* Parses the list. Call it before the first request. */
void tools_init(void);
