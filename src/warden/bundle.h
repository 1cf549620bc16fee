/* Writes a slot's OCI bundle. All inputs are the warden's own, so the JSON is printed as plain
 * text. */
#pragma once

#include "base/buf.h"
#include "wire/wardenp.h"

struct warden;

/* Limits of a slot until its claim sets others. */
#define BUNDLE_MEMORY    (UINT64_C(1) << 30)
#define BUNDLE_CPU_MILLI 1000u
#define BUNDLE_PIDS      512u
#define BUNDLE_SHM_MIB   64u

/* Lowers the slots' resource limits to the warden's own where those are lower. Called once at
 * start. */
void bundle_look_at_host(void);
void bundle_write(const struct warden *w, uint32_t n, buf *out);
