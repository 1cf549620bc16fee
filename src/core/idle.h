/* Decides when a sandbox is idle. Pure: samples and the time come from the caller.
 *
 * The caller resets the meter while a command runs or a stream is attached. Over the idle time the
 * samples then show either work without a caller, or nothing: on average less than 1 % of a core
 * and 1 KiB/s count as nothing. So a sandbox never counts as idle before its idle time is over, and
 * is noticed at most two periods later. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDLE_SAMPLES        18 /* the periods of an idle time plus one, and one for a late sample */
#define IDLE_PERIODS        16
#define IDLE_CPU_PER_CENT   1
#define IDLE_BYTES_A_SECOND 1024

typedef struct idle_sample {
    uint64_t at_ns;  /* monotonic */
    uint64_t cpu_us; /* of the whole sandbox, since its start */
    uint64_t bytes;  /* read and written since its start: disk and network */
} idle_sample;

typedef struct idle_meter { /* zero-initialised is empty */
    idle_sample s[IDLE_SAMPLES];
    unsigned first, n;
} idle_meter;

void idle_reset(idle_meter *m);
/* Returns the time between samples: a sixteenth of the idle time, at least a second. */
uint64_t idle_period_ns(uint64_t idle_ms);
/* Returns true if the next sample is due. */
bool idle_due(const idle_meter *m, uint64_t idle_ms, uint64_t now_ns);
/* Adds a sample. If the CPU time falls (another sandbox than before), the meter is reset first.
 * Bytes may fall a little while a process exits; the last value is kept then. */
void idle_add(idle_meter *m, const idle_sample *s);
/* Returns true if nothing happened over a whole idle time. */
bool idle_is(const idle_meter *m, uint64_t idle_ms);
/* Returns for how long nothing happened, up to the last sample: at most an idle time. */
uint64_t idle_for_ns(const idle_meter *m);
