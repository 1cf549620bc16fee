/* Parts of a sandbox's spec that several requests have: from what was decoded, which they empty. */
#pragma once

#include "api/openapi.h"
#include "core/spec.h"

void spec_take_limits(const sandbox_limits *in, limits *out);
void spec_take_tmpfs(tmpfs_mount *in, size_t n, sandbox_spec *out);
void spec_take_start(start_command *in, sandbox_spec *out);
