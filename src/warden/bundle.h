/* A slot's OCI bundle. All inputs are the warden's own, so the text is printed, not composed. */
#pragma once

#include "base/buf.h"
#include "wire/wardenp.h"

struct warden;

/* What a slot has before its claim says otherwise. */
#define BUNDLE_MEMORY    (UINT64_C(1) << 30)
#define BUNDLE_CPU_MILLI 1000u
#define BUNDLE_PIDS      512u
#define BUNDLE_SHM_MIB   64u

/* What this host has of what is masked and limited; called once at start. */
void bundle_look_at_host(void);
void bundle_write(const struct warden *w, uint32_t n, buf *out);
