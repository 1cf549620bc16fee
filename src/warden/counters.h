/* The warden's metrics; bothyd fetches them by METRICS and adds them to its own. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "core/admit.h"
#include "warden/walls.h"

struct warden;

void count_init(void);
void count_claim(int errnum, uint64_t queue_ns, uint64_t build_ns, uint64_t swap_ns);
enum queue_left {
    QUEUE_SERVED,
    QUEUE_EXPIRED,
    QUEUE_CANCELLED
};
void count_queue(enum queue_left how, uint64_t ns);
void count_refused(const err *e); /* a claim that was not queued */
void count_admission_wait(enum admit_verdict v);
void count_refill(uint64_t ns); /* 0: it failed */
void count_destroyed(void);
void count_network(uint64_t ns); /* of a claim: time to make and test it */
void count_ahead(void);
void count_walls(uint32_t failed, enum walls_when when); /* bits of wire/walls.h */
/* Writes all metrics as text, or those that fit in max bytes. Takes warden.lock for the gauges. */
void count_write(struct warden *w, size_t max, buf *out);
