#include "core/pause.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

const pause_fact PAUSE_KEPT[] = {
    {"memory", "All memory, in the node's RAM; it counts there as before."},
    {"processes", "All processes, stopped between two instructions; none is started again."},
    {"files", "All files, in /tmp and /dev/shm, too."},
    {"sessions",
     "Sessions with their variables and directories, and the commands that run in them."},
    {"output", "What commands have written; it can be read meanwhile."},
    {"streams", "Streams that are followed or attached stay open, and go on behind the same byte."},
    {"connections", "Connections that processes have, as long as the other side waits."},
    {"time", "The time to live and the time limits of commands stand still."},
    {NULL, NULL},
};

const pause_fact PAUSE_LOST[] = {
    {"answers", "Nobody inside answers: peers and callers that wait for it may give up."},
    {"clocks", "Clocks go on: programs see time jump, and timers that ran out fire on resume."},
    {"node",
     "If the node is started again or loses power, the sandbox is lost like one that runs."},
    {NULL, NULL},
};

void resume_times_add(resume_times *t, uint64_t ns)
{
    t->ns[t->n++ % RESUMES_KEPT] = ns;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

resume_estimate resume_times_estimate(const resume_times *t)
{
    uint32_t n = t->n < RESUMES_KEPT ? t->n : RESUMES_KEPT;
    uint64_t sorted[RESUMES_KEPT];

    if (!n)
        return (resume_estimate){0};
    memcpy(sorted, t->ns, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_size);
    return (resume_estimate){.expect_ns = sorted[n / 2], .worst_ns = sorted[n - 1], .measured = n};
}

void pause_spans_add(pause_spans *s, uint64_t from, uint64_t to)
{
    if (s->n && s->v[s->n - 1].from == from)
        s->n--;
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 4;
        s->v = xrealloc(s->v, s->cap * sizeof *s->v);
    }
    s->v[s->n++] = (pause_span){from, to};
}

uint64_t pause_spans_between(const pause_spans *s, uint64_t from, uint64_t to)
{
    uint64_t sum = 0;

    for (size_t i = s->n; i-- > 0;) {
        uint64_t a = s->v[i].from > from ? s->v[i].from : from;
        uint64_t b = s->v[i].to < to ? s->v[i].to : to;
        sum += b > a ? b - a : 0;
    }
    return sum;
}

void pause_spans_done(pause_spans *s)
{
    free(s->v);
    *s = (pause_spans){0};
}
