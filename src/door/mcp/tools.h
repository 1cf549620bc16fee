/* What tools there are, as api/mcp.yaml says it. Pure. */
#pragma once

#include <stdbool.h>

#include "base/json.h"

/* The array of tools/list, borrowed: it lives as long as the process. without_session: callers have
 * no sandbox of their own, so `sandbox` is required. */
json_t *tools_listed(bool without_session);
/* Parsed once; before the first request. */
void tools_init(void);
