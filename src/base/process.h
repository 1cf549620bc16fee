/* What a process says about itself in its metrics: time, memory, descriptors, threads. */
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
/* Registers a table of these rows, whose names are the program's, and looks before each writing. */
void process_metrics(metric table[PROCESS_METRICS_N]);
