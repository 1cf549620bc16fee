/* When a sandbox is idle. Pure: samples and the time come from the caller.
 *
 * Whoever keeps the meter empties it while a command runs or a stream is attached. What it then
 * sees over the idle time is either work without a caller or nothing: below 1 % of a core and
 * 1 KiB/s on average it is nothing. So it is never idle before its idle time is over, and noticed
 * at most two periods later. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDLE_SAMPLES        18 /* one more than periods in an idle time, and one for a late look */
#define IDLE_PERIODS        16
#define IDLE_CPU_PER_CENT   1
#define IDLE_BYTES_A_SECOND 1024

typedef struct idle_sample {
    uint64_t at_ns;  /* monotonic */
    uint64_t cpu_us; /* of the whole sandbox, since it began */
    uint64_t bytes;  /* read and written, likewise: disk and network */
} idle_sample;

typedef struct idle_meter { /* zero-initialised is empty */
    idle_sample s[IDLE_SAMPLES];
    unsigned first, n;
} idle_meter;

void idle_reset(idle_meter *m);
/* How far apart samples are: a sixteenth of the idle time, at least a second. */
uint64_t idle_period_ns(uint64_t idle_ms);
/* It is time for the next. */
bool idle_due(const idle_meter *m, uint64_t idle_ms, uint64_t now_ns);
/* A CPU count that falls (another sandbox than before) empties it first. Bytes may fall a little
 * while a process is on its way out: then they stand still. */
void idle_add(idle_meter *m, const idle_sample *s);
bool idle_is(const idle_meter *m, uint64_t idle_ms);
/* For how long nothing has happened, up to the last sample: no longer than an idle time. */
uint64_t idle_for_ns(const idle_meter *m);
