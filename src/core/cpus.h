/* Chooses the processors of a sandbox: as many as its CPU limit can keep busy, and those with the
 * least CPU time promised. Pure: the caller knows the machine, holds the lock and configures the
 * kernel. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPUS_MAX  1024u
#define CPUS_TEXT 8192u /* room for the longest list of cpus_text() */

typedef struct cpus_set {
    uint64_t bits[CPUS_MAX / 64];
} cpus_set;

typedef struct cpus {
    cpus_set host;           /* the processors to choose from */
    unsigned end;            /* the highest of them plus one */
    uint64_t load[CPUS_MAX]; /* promised thousandths of each */
} cpus;

static inline bool cpus_has(const cpus_set *s, unsigned cpu)
{
    return cpu < CPUS_MAX && s->bits[cpu / 64] >> cpu % 64 & 1;
}
static inline void cpus_add(cpus_set *s, unsigned cpu)
{
    s->bits[cpu / 64] |= UINT64_C(1) << cpu % 64;
}
unsigned cpus_count(const cpus_set *s);
bool cpus_equal(const cpus_set *a, const cpus_set *b);

void cpus_init(cpus *c, const cpus_set *host);
/* Returns how many processors a limit appears as: whole ones, rounded up, at least one. */
unsigned cpus_of_milli(uint32_t milli);
/* Chooses the processors with the least load; among equals those of `hint`, then the lowest.
 * Chooses all of the host's if it has no more than needed. */
void cpus_choose(const cpus *c, uint32_t milli, const cpus_set *hint, cpus_set *ret_set);
/* Adds a promise to the load; release it with the same values. */
void cpus_promise(cpus *c, const cpus_set *s, uint32_t milli);
void cpus_release(cpus *c, const cpus_set *s, uint32_t milli);

/* Convert to and from the kernel's form, "0-3,8". cpus_parse returns false if the text is malformed
 * or names a processor from CPUS_MAX on. */
void cpus_text(const cpus_set *s, char ret[CPUS_TEXT]);
bool cpus_parse(const char *text, cpus_set *ret_set);
