/* Metrics of the process itself: time, memory, descriptors, threads. */
#pragma once

#include <stdint.h>

#include "base/metric.h"

enum process_metric {
    PROCESS_CPU,
    PROCESS_MEMORY,
    PROCESS_FDS,
    PROCESS_FDS_MAX,
    PROCESS_THREADS,
    PROCESS_START,
    PROCESS_METRICS_N
};
/* Registers a table of these rows, named by the program, and updates it before each writing. */
void process_metrics(metric table[PROCESS_METRICS_N]);
