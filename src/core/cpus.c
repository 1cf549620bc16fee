#include "core/cpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned cpus_count(const cpus_set *s)
{
    unsigned n = 0;

    for (size_t i = 0; i < CPUS_MAX / 64; i++)
        n += (unsigned)__builtin_popcountll(s->bits[i]);
    return n;
}

bool cpus_equal(const cpus_set *a, const cpus_set *b)
{
    return !memcmp(a, b, sizeof *a);
}

void cpus_init(cpus *c, const cpus_set *host)
{
    *c = (cpus){.host = *host};
    for (unsigned i = 0; i < CPUS_MAX; i++)
        if (cpus_has(host, i))
            c->end = i + 1;
}

unsigned cpus_of_milli(uint32_t milli)
{
    return milli ? (milli - 1) / 1000 + 1 : 1;
}

/* ---- choosing ---- */

static bool is_better(const cpus *c, const cpus_set *hint, unsigned a, unsigned b)
{
    if (c->load[a] != c->load[b])
        return c->load[a] < c->load[b];
    return cpus_has(hint, a) && !cpus_has(hint, b); /* callers visit the lower one first */
}

void cpus_choose(const cpus *c, uint32_t milli, const cpus_set *hint, cpus_set *ret_set)
{
    unsigned want = cpus_of_milli(milli);

    *ret_set = (cpus_set){0};
    if (want >= cpus_count(&c->host)) {
        *ret_set = c->host;
        return;
    }
    while (want--) {
        unsigned best = CPUS_MAX;
        for (unsigned i = 0; i < c->end; i++)
            if (cpus_has(&c->host, i) && !cpus_has(ret_set, i) &&
                (best == CPUS_MAX || is_better(c, hint, i, best)))
                best = i;
        cpus_add(ret_set, best);
    }
}

/* Returns each processor's share of a limit, split evenly among those of the set. */
static uint64_t share_of(const cpus_set *s, uint32_t milli)
{
    unsigned n = cpus_count(s);

    return n ? milli / n : 0;
}

void cpus_promise(cpus *c, const cpus_set *s, uint32_t milli)
{
    for (unsigned i = 0; i < c->end; i++)
        if (cpus_has(s, i))
            c->load[i] += share_of(s, milli);
}

void cpus_release(cpus *c, const cpus_set *s, uint32_t milli)
{
    for (unsigned i = 0; i < c->end; i++)
        if (cpus_has(s, i))
            c->load[i] -= share_of(s, milli);
}

/* ---- lists ---- */

void cpus_text(const cpus_set *s, char ret[CPUS_TEXT])
{
    size_t n = 0;

    ret[0] = 0;
    for (unsigned i = 0; i < CPUS_MAX; i++) {
        if (!cpus_has(s, i))
            continue;
        unsigned last = i;
        while (cpus_has(s, last + 1))
            last++;
        n += (size_t)snprintf(ret + n, CPUS_TEXT - n, "%s%u", n ? "," : "", i);
        if (last > i)
            n += (size_t)snprintf(ret + n, CPUS_TEXT - n, "-%u", last);
        i = last;
    }
}

/* Parses one number at *at and moves *at after it. */
static bool take_number(const char **at, unsigned *ret)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    unsigned long n = strtoul(*at, &end, 10);
    *at = end;
    *ret = (unsigned)n;
    return n < CPUS_MAX;
}

bool cpus_parse(const char *text, cpus_set *ret_set)
{
    cpus_set s = {0};
    unsigned first, last;

    do {
        if (!take_number(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !take_number(&text, &last)))
            return false;
        for (; first <= last; first++)
            cpus_add(&s, first);
    } while (*text++ == ',');
    if (text[-1] && (text[-1] != '\n' || *text))
        return false;
    *ret_set = s;
    return true;
}
