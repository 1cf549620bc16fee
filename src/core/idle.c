#include "core/idle.h"

#include <stddef.h>

#include "base/clock.h"

void idle_reset(idle_meter *m)
{
    m->first = m->n = 0;
}

uint64_t idle_period_ns(uint64_t idle_ms)
{
    uint64_t period = idle_ms * NS_PER_MS / IDLE_PERIODS;

    return period > NS_PER_S ? period : NS_PER_S;
}

static const idle_sample *idle_at(const idle_meter *m, unsigned i)
{
    return &m->s[(m->first + i) % IDLE_SAMPLES];
}

bool idle_due(const idle_meter *m, uint64_t idle_ms, uint64_t now_ns)
{
    return !m->n || now_ns - idle_at(m, m->n - 1)->at_ns >= idle_period_ns(idle_ms);
}

void idle_add(idle_meter *m, const idle_sample *s)
{
    idle_sample new = *s;

    if (m->n) {
        const idle_sample *last = idle_at(m, m->n - 1);
        if (s->at_ns <= last->at_ns || s->cpu_us < last->cpu_us)
            idle_reset(m);
        else if (s->bytes < last->bytes)
            new.bytes = last->bytes;
    }
    if (m->n == IDLE_SAMPLES) {
        m->first = (m->first + 1) % IDLE_SAMPLES;
        m->n--;
    }
    m->s[(m->first + m->n++) % IDLE_SAMPLES] = new;
}

static bool is_nothing(const idle_sample *from, const idle_sample *to)
{
    uint64_t us = (to->at_ns - from->at_ns) / 1000;

    return (to->cpu_us - from->cpu_us) * 100 < us * IDLE_CPU_PER_CENT &&
           (to->bytes - from->bytes) * 1000000 < us * IDLE_BYTES_A_SECOND;
}

uint64_t idle_for_ns(const idle_meter *m)
{
    const idle_sample *last = m->n ? idle_at(m, m->n - 1) : NULL;

    for (unsigned i = 0; i + 1 < m->n; i++)
        if (is_nothing(idle_at(m, i), last))
            return last->at_ns - idle_at(m, i)->at_ns;
    return 0;
}

/* Compares the last sample with the newest one that is at least an idle time older, so that an
 * older burst of work does not count. */
bool idle_is(const idle_meter *m, uint64_t idle_ms)
{
    const idle_sample *last = m->n ? idle_at(m, m->n - 1) : NULL;
    unsigned i = m->n;

    while (i && last->at_ns - idle_at(m, i - 1)->at_ns < idle_ms * NS_PER_MS)
        i--;
    if (!i)
        return false;
    return is_nothing(idle_at(m, i - 1), last);
}
