#include "core/sysctl.h"

#include "base/cleanup.h"

#define ROW(name_, base_, each_, per_, vital_, why_) \
    {.name = name_, .base = base_, .each = each_, .per = per_, .vital = vital_, .why = why_},
const sysctl_need SYSCTL_NEEDS[] = {SYSCTL_TABLE(ROW)};
#undef ROW
const size_t SYSCTL_NEEDS_N = ARRAY_LEN(SYSCTL_NEEDS);
