/* Clocks as parameters, so that a test can control the time. */
#pragma once

#include <stdint.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

typedef struct clock_source {
    uint64_t (*mono_ns)(void *arg); /* CLOCK_MONOTONIC */
    uint64_t (*real_ns)(void *arg); /* since 1970 */
    void *arg;
} clock_source;

extern const clock_source CLOCK_SYSTEM;

static inline uint64_t clock_mono(const clock_source *c)
{
    return c->mono_ns(c->arg);
}
static inline uint64_t clock_real(const clock_source *c)
{
    return c->real_ns(c->arg);
}
uint64_t now_mono_ns(void); /* reads CLOCK_SYSTEM */
uint64_t now_real_ns(void);
/* Room for clock_format()'s text: "2026-01-02T03:04:05.678Z" and a NUL. */
#define CLOCK_TEXT_MAX 32
void clock_format(uint64_t real_ns, char ret_text[CLOCK_TEXT_MAX]);
