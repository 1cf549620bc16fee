/* Quotas of keys, counted from the live sandboxes when a create enters, under the engine's lock.
 * There are no counters that a crash or a forgotten path could leave wrong. */
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define RETRY_MAX_S 60

quota quota_of(const engine *e, const caller *c)
{
    quota q = c->quota;

    if (c->role != CALLER_ADMIN)
        quota_fill(&q, &e->o.quota);
    return q;
}

err *quota_ceilings(const engine *e, const caller *c, const limits *l)
{
    return c->role == CALLER_ADMIN || c->granted ? NULL : limits_check_most(l, &e->o.most);
}

typedef struct tally {
    uint32_t live, creating;
    uint64_t memory, cpu_milli;
    uint64_t first_end_ns; /* real time; 0: none ends by itself */
} tally;

static uint64_t quota_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Adds the limits of a sandbox. Engine's and sandbox's locks held. */
static void tally_limits(tally *t, const sandbox *sb)
{
    t->memory += quota_larger(sb->limits.memory, sb->raising.memory);
    t->cpu_milli += quota_larger(sb->limits.cpu_milli, sb->raising.cpu_milli);
}

/* Counts the live sandboxes of the owner, except `but`. Engine's lock held. */
static tally count_owner(engine *e, const caller *c, const sandbox *but)
{
    map_iter it = {0};
    tally t = {0};

    while (map_next(&e->live, &it)) {
        sandbox *sb = it.entry->value;
        if (sb == but || !sb->counted || strcmp(sb->owner, c->owner) != 0)
            continue;
        LOCK_SCOPE(&sb->lock);
        if (sb->deleting)
            continue;
        t.live++;
        tally_limits(&t, sb);
        t.creating += sb->state == LIFE_CREATING && !strcmp(sb->quota_key, c->key);
        if (sb->ends_ns && (!t.first_end_ns || sb->ends_ns < t.first_end_ns))
            t.first_end_ns = sb->ends_ns;
    }
    return t;
}

/* Returns the rate limiter of the caller's key. Engine's lock held. */
static quota_bucket *bucket_of(engine *e, const caller *c)
{
    const char *name = *c->key ? c->key : c->owner;
    quota_bucket *b = map_get_str(&e->buckets, name);

    if (!b) {
        b = xcalloc(1, sizeof *b);
        map_put_str(&e->buckets, name, b);
    }
    return b;
}

static int seconds_until(const engine *e, uint64_t real_ns)
{
    uint64_t now = clock_real(e->o.clock);
    uint64_t s = real_ns > now ? (real_ns - now) / NS_PER_S + 1 : 1;

    return !real_ns || s > RETRY_MAX_S ? RETRY_MAX_S : (int)s;
}

static err *quota_refused(int retry_s, const char *kind, const char *fmt, const char *who,
                          uint64_t n)
{
    return err_retry_after(
        err_kind(err_new(ERR_QUOTA_EXCEEDED, fmt, who, (unsigned long long)n), kind), retry_s);
}

static bool has_sums(const quota *q)
{
    return q->memory || q->cpu_milli;
}

/* Checks that the owner may have these limits besides those of its live sandboxes. */
static err *admit_limits(const engine *e, const caller *c, const quota *q, const tally *t,
                         const limits *more)
{
    int retry_s = seconds_until(e, t->first_end_ns);

    if (q->memory && t->memory + more->memory > q->memory)
        return quota_refused(
            retry_s, "memory",
            "the live sandboxes of '%s' would have more memory than the %llu bytes that "
            "quota.max_memory allows them together",
            c->owner, q->memory);
    if (q->cpu_milli && t->cpu_milli + more->cpu_milli > q->cpu_milli)
        return quota_refused(
            retry_s, "cpu",
            "the live sandboxes of '%s' would have more processors than the %llu/1000 "
            "that quota.max_cpu allows them together",
            c->owner, q->cpu_milli);
    return NULL;
}

/* Checks a create against all quotas of the key. Engine's lock held. */
static err *engine_quota_admit(engine *e, const caller *c, const quota *q, const limits *more)
{
    uint64_t wait_ns = 0;
    tally t = q->sandboxes || q->creating || has_sums(q) ? count_owner(e, c, NULL) : (tally){0};

    if (q->sandboxes && t.live >= q->sandboxes)
        return quota_refused(seconds_until(e, t.first_end_ns), "sandboxes",
                             "'%s' has %llu live sandboxes, as many as this key allows", c->owner,
                             t.live);
    if (q->creating && t.creating >= q->creating)
        return quota_refused(1, "concurrency",
                             "'%s' has %llu creates under way, as many as this key allows",
                             c->owner, t.creating);
    TRY(admit_limits(e, c, q, &t, more));
    if (!quota_take(bucket_of(e, c), q->creates_milli, clock_mono(e->o.clock), &wait_ns))
        return quota_refused((int)(wait_ns / NS_PER_S) + 1, "rate",
                             "'%s' creates faster than the %llu/1000 a second that this key allows",
                             c->owner, q->creates_milli);
    return NULL;
}

err *quota_admit(engine *e, const caller *c, sandbox *sb)
{
    quota q = quota_of(e, c);
    LOCK_SCOPE(&e->lock);

    memcpy(sb->quota_key, c->key, sizeof sb->quota_key);
    TRY(engine_quota_admit(e, c, &q, &sb->limits));
    sb->counted = true;
    return NULL;
}

err *quota_raise(engine *e, const caller *c, sandbox *sb, const limits *to)
{
    quota q = quota_of(e, c);
    const bool higher = to->memory > sb->limits.memory || to->cpu_milli > sb->limits.cpu_milli;

    if (!has_sums(&q) || !higher)
        return NULL;
    LOCK_SCOPE(&e->lock);
    tally t = count_owner(e, c, sb);
    TRY(admit_limits(e, c, &q, &t, to));
    LOCK_SCOPE(&sb->lock);
    sb->raising = *to;
    return NULL;
}

void quota_raised(engine *e, sandbox *sb)
{
    LOCK_SCOPE(&e->lock);
    LOCK_SCOPE(&sb->lock);

    sb->raising = (limits){0};
}

err *quota_room(engine *e, const caller *c, unsigned more)
{
    quota q = quota_of(e, c);
    LOCK_SCOPE(&e->lock);
    tally t = q.sandboxes ? count_owner(e, c, NULL) : (tally){0};

    if (!q.sandboxes || (uint64_t)t.live + more <= q.sandboxes)
        return NULL;
    return quota_refused(seconds_until(e, t.first_end_ns), "sandboxes",
                         "'%s' has %llu live sandboxes, so many more this key does not allow",
                         c->owner, t.live);
}

uint64_t quota_pause_ns(const err *refusal)
{
    if (refusal->code != ERR_QUOTA_EXCEEDED)
        return 0;
    return str_eq(refusal->kind, "concurrency") ? NS_PER_S / 4
           : str_eq(refusal->kind, "rate")      ? (uint64_t)refusal->retry_after * NS_PER_S
                                                : 0;
}

err *quota_ttl(const engine *e, const caller *c, uint64_t *ttl_ms, uint64_t otherwise)
{
    uint64_t max = quota_of(e, c).ttl_ms;

    if (!*ttl_ms)
        *ttl_ms = max && (!otherwise || otherwise > max) ? max : otherwise;
    if (!max || *ttl_ms <= max)
        return NULL;
    return err_remedy(
        err_new(ERR_FORBIDDEN, "ttl: this key allows at most %lu seconds", max / 1000),
        "Ask for at most so much, and for more while it lives.");
}

uint64_t engine_default_ttl(const engine *e, const caller *c)
{
    uint64_t ttl = 0;

    err_free(quota_ttl(e, c, &ttl, e->o.ttl_ms)); /* there is none: the key allows this TTL */
    return ttl;
}

uint64_t engine_ttl_within(const engine *e, const caller *c, uint64_t ttl_ms)
{
    uint64_t max = quota_of(e, c).ttl_ms;

    return max && max < ttl_ms ? max : ttl_ms;
}

void quota_done(engine *e)
{
    map_iter it = {0};

    while (map_next(&e->buckets, &it))
        free(it.entry->value);
    map_done(&e->buckets);
}
