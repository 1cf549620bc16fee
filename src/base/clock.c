#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t system_mono(void *arg)
{
    (void)arg;
    return read_clock(CLOCK_MONOTONIC);
}

static uint64_t system_real(void *arg)
{
    (void)arg;
    return read_clock(CLOCK_REALTIME);
}

const clock_source CLOCK_SYSTEM = {system_mono, system_real, NULL};

uint64_t now_mono_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t now_real_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_format(uint64_t real_ns, char ret_text[CLOCK_TEXT_MAX])
{
    time_t s = (time_t)(real_ns / NS_PER_S);
    struct tm tm;

    gmtime_r(&s, &tm);
    size_t n = strftime(ret_text, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret_text + n, CLOCK_TEXT_MAX - n, ".%03uZ", (unsigned)(real_ns / NS_PER_MS % 1000));
}
