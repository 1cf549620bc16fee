/* Pausing a sandbox: what is kept and what is lost, how long a resume takes,
 * how much time stood still. Pure; times come in. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* ---- what the answer says ---- */
typedef struct pause_fact {
    const char *what;   /* a word for programs */
    const char *detail; /* a sentence for people */
} pause_fact;
/* Each ends with a row of NULLs. */
extern const pause_fact PAUSE_KEPT[], PAUSE_LOST[];

/* ---- how long a resume takes ---- */
#define RESUMES_KEPT 32u
typedef struct resume_times { /* the last ones of this node */
    uint64_t ns[RESUMES_KEPT];
    uint32_t n; /* in all */
} resume_times;
typedef struct resume_estimate {
    uint64_t expect_ns; /* median of those kept */
    uint64_t worst_ns;  /* the longest of them */
    uint32_t measured;  /* how many they are; 0: nothing is known */
} resume_estimate;
void resume_times_add(resume_times *t, uint64_t ns);
resume_estimate resume_times_estimate(const resume_times *t);

/* ---- the times at which a sandbox was paused ---- */
#define PAUSES_MAX 100000u /* of a sandbox's life */
typedef struct pause_span {
    uint64_t from, to;
} pause_span;
typedef struct pause_spans { /* in order */
    pause_span *v;
    size_t n, cap;
} pause_spans;
/* One that begins when the last one did replaces it. */
void pause_spans_add(pause_spans *s, uint64_t from, uint64_t to);
/* How much of [from, to) was paused. */
uint64_t pause_spans_between(const pause_spans *s, uint64_t from, uint64_t to);
void pause_spans_done(pause_spans *s);
