/* Moves the parts of a decoded request that several requests share into a
 * sandbox's spec, or its limits. */
#pragma once

#include "api/openapi.h"
#include "core/spec.h"

void spec_take_limits(const sandbox_limits *in, limits *out);
void spec_take_tmpfs(tmpfs_mount *in, size_t n, sandbox_spec *out);
void spec_take_start(start_command *in, sandbox_spec *out);
