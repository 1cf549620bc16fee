/* Pausing a sandbox: what is kept and lost, how long a resume takes, how long it was paused. Pure;
 * the caller supplies the times. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* ---- the answer to a pause request ---- */
typedef struct pause_fact {
    const char *what;   /* a word for programs */
    const char *detail; /* a sentence for people */
} pause_fact;
/* Each array ends with a row of NULLs. */
extern const pause_fact PAUSE_KEPT[], PAUSE_LOST[];

/* ---- how long a resume takes ---- */
#define RESUMES_KEPT 32u
typedef struct resume_times { /* the latest resumes on this node */
    uint64_t ns[RESUMES_KEPT];
    uint32_t n; /* resumes in all */
} resume_times;
typedef struct resume_estimate {
    uint64_t expect_ns; /* median of the kept times */
    uint64_t worst_ns;  /* the longest of them */
    uint32_t measured;  /* number of kept times; 0: nothing is known */
} resume_estimate;
void resume_times_add(resume_times *t, uint64_t ns);
resume_estimate resume_times_estimate(const resume_times *t);

/* ---- the times at which a sandbox was paused ---- */
#define PAUSES_MAX 100000u /* per sandbox */
typedef struct pause_span {
    uint64_t from, to;
} pause_span;
typedef struct pause_spans { /* in order */
    pause_span *v;
    size_t n, cap;
} pause_spans;
/* Adds a span. It replaces the last one if both begin at the same time. */
void pause_spans_add(pause_spans *s, uint64_t from, uint64_t to);
/* Returns how much of [from, to) was paused. */
uint64_t pause_spans_between(const pause_spans *s, uint64_t from, uint64_t to);
void pause_spans_done(pause_spans *s);
