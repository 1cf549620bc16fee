/* The warden's metrics; bothyd fetches them by METRICS and adds them to its own. */
#pragma once

#include <stdint.h>

#include "base/buf.h"

struct warden;

void count_init(void);
void count_claim(int errnum, uint64_t queue_ns, uint64_t build_ns, uint64_t swap_ns);
void count_refill(uint64_t ns); /* 0: it failed */
void count_destroyed(void);
/* All of them as text; takes warden.lock for the gauges. */
void count_write(struct warden *w, buf *out);
