/* Limits per tenant on shared resources: threads that wait for bodies, memory of unread answers and
 * holds. Dispatch assigns a request to a tenant; until then all requests share one account named
 * "". */
#include <assert.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/internal.h"

#define PARTY_BYTES_MIN (UINT64_C(64) << 20)
#define PARTY_BYTES_OF  32       /* one part in so many of the machine's memory */
#define PARTY_SLOW_OF   8        /* one part in so many of the request threads */
#define PARTY_RELAYS_OF 2        /* one part in so many of the connections */
#define PARTY_TURN_NS   NS_PER_S /* how long a request waits for one of its tenant's threads */
#define PARTY_TURN_MS   5

typedef struct party { /* in the map while anything is charged to it */
    uint64_t bytes;
    unsigned slow, relays;
    unsigned threads, turns; /* requests in a handler; requests that wait for one of those */
} party;

void party_limits(server *s)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t ram = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    uint64_t part = s->o.party_bytes ? s->o.party_bytes : ram / PARTY_BYTES_OF;

    s->party_bytes = part > PARTY_BYTES_MIN ? part : PARTY_BYTES_MIN;
    s->party_slow = s->o.threads / PARTY_SLOW_OF ? s->o.threads / PARTY_SLOW_OF : 1;
    s->party_relays = s->o.connections / PARTY_RELAYS_OF ? s->o.connections / PARTY_RELAYS_OF : 1;
}

/* Returns true if `more` fits. party_lock held. */
static bool party_fits(const server *s, const party *have, const party *more)
{
    static const party NOTHING;

    have = have ? have : &NOTHING;
    return (!more->bytes ||
            (more->bytes <= s->party_bytes && have->bytes <= s->party_bytes - more->bytes)) &&
           (!more->slow || have->slow + more->slow <= s->party_slow) &&
           (!more->relays || have->relays + more->relays <= s->party_relays) &&
           (!more->turns || have->turns + more->turns <= s->party_slow);
}

static bool net_party_take(server *s, const char *name, const party *more)
{
    if (!name)
        return true;
    LOCK_SCOPE(&s->party_lock);
    party *p = map_get_str(&s->parties, name);
    if (!party_fits(s, p, more))
        return false;
    if (!p) {
        p = xcalloc(1, sizeof *p);
        map_put_str(&s->parties, name, p);
    }
    p->bytes += more->bytes;
    p->slow += more->slow;
    p->relays += more->relays;
    p->threads += more->threads;
    p->turns += more->turns;
    return true;
}

static void net_party_give(server *s, const char *name, const party *less)
{
    static const party NOTHING;

    if (!name || !memcmp(less, &NOTHING, sizeof NOTHING))
        return;
    LOCK_SCOPE(&s->party_lock);
    party *p = map_get_str(&s->parties, name);
    p->bytes -= less->bytes;
    p->slow -= less->slow;
    p->relays -= less->relays;
    p->threads -= less->threads;
    p->turns -= less->turns;
    if (!memcmp(p, &NOTHING, sizeof NOTHING))
        free(map_take_str(&s->parties, name));
}

bool party_has_room(server *s, const char *name, uint64_t bytes, unsigned slow)
{
    if (!name)
        return true;
    LOCK_SCOPE(&s->party_lock);
    return party_fits(s, map_get_str(&s->parties, name), &(party){bytes, slow});
}

bool party_take(server *s, const char *name, uint64_t bytes, unsigned slow)
{
    return net_party_take(s, name, &(party){bytes, slow});
}

void party_give(server *s, const char *name, uint64_t bytes, unsigned slow)
{
    net_party_give(s, name, &(party){bytes, slow});
}

bool party_take_relay(server *s, const char *name)
{
    return net_party_take(s, name, &(party){.relays = 1});
}

void party_give_relay(server *s, const char *name)
{
    net_party_give(s, name, &(party){.relays = 1});
}

/* ---- threads ---- */

/* Takes a thread: half of all, or more while a quarter of all is free for others. busy: the request
 * itself is counted among the busy ones. */
static bool take_thread(server *s, const char *name, bool busy)
{
    pthread_mutex_lock(&s->lock);
    bool tight = s->busy + !busy > s->o.threads - s->o.threads / 4;
    pthread_mutex_unlock(&s->lock);
    LOCK_SCOPE(&s->party_lock);
    party *p = map_get_str(&s->parties, name);
    if (p && tight && p->threads >= (s->o.threads + 1) / 2)
        return false;
    if (!p) {
        p = xcalloc(1, sizeof *p);
        map_put_str(&s->parties, name, p);
    }
    p->threads++;
    return true;
}

/* Waits for a thread of the tenant. Counts as waiting meanwhile, so that others can use the
 * thread. */
static bool wait_for_turn(request *rq)
{
    server *s = rq->server;
    body_wait w = {.conn = rq->conn, .elsewhere = true, .turn = true};
    uint64_t until = now_mono_ns() + PARTY_TURN_NS;
    bool ours = false;

    if (!net_party_take(s, rq->party, &(party){.turns = 1}))
        return false;
    server_wait_begin(s, &w);
    while (!ours && !atomic_load(&w.given_up) && now_mono_ns() < until &&
           !atomic_load(&s->draining)) {
        poll(NULL, 0, PARTY_TURN_MS);
        ours = take_thread(s, rq->party, false);
    }
    server_wait_end(s, &w);
    net_party_give(s, rq->party, &(party){.turns = 1});
    return ours;
}

static err *no_thread(const server *s)
{
    metric_add(&NET_METRICS[M_REFUSED], 0, 1);
    return err_retry_after(
        err_remedy(err_because(err_new(ERR_QUOTA_EXCEEDED, "too many of your requests at a time"),
                               "one caller may have half of the %u request threads while they are "
                               "short",
                               s->o.threads),
                   "Ask for less at a time; streams and commands that run hold no thread."),
        NET_RETRY_AFTER);
}

void party_give_thread(request *rq)
{
    if (rq->threaded)
        net_party_give(rq->server, rq->party, &(party){.threads = 1});
    rq->threaded = false;
}

err *request_set_party(request *rq, const char *name)
{
    assert(!rq->slow);
    party_give_thread(rq);
    free(rq->party);
    rq->party = name ? xstrdup(name) : NULL;
    if (!name)
        return NULL;
    rq->threaded = take_thread(rq->server, name, true) || wait_for_turn(rq);
    return rq->threaded ? NULL : no_thread(rq->server);
}

/* ---- what a handler keeps after it has returned ---- */

struct request_hold {
    server *server;
    uint64_t bytes;
    char *name;
};

static err *party_hold(server *s, const char *name, size_t before, size_t n)
{
    unsigned long long mib = s->party_bytes >> 20;

    if (n + before > s->party_bytes)
        return err_remedy(err_new(ERR_TOO_LARGE, "this would take %zu MiB of memory while it waits",
                                  (n + before) >> 20),
                          "Ask for less at a time: %llu MiB may wait.", mib);
    if (party_take(s, name, n, 0))
        return NULL;
    metric_add(&NET_METRICS[M_REFUSED], 0, 1);
    return err_retry_after(
        err_remedy(err_because(err_new(ERR_QUOTA_EXCEEDED, "too much of yours waits"),
                               "requests under way and answers that are not read may take %llu MiB",
                               mib),
                   "Read the answers to what you have asked, or ask for less at a time."),
        NET_RETRY_AFTER);
}

err *request_hold_new(request *rq, size_t n, request_hold **ret_hold)
{
    TRY(party_hold(rq->server, rq->party, 0, n));
    request_hold *h = xcalloc(1, sizeof *h);
    *h = (request_hold){rq->server, n, rq->party ? xstrdup(rq->party) : NULL};
    *ret_hold = h;
    return NULL;
}

err *request_hold_more(request_hold *h, size_t n)
{
    TRY(party_hold(h->server, h->name, h->bytes, n));
    h->bytes += n;
    return NULL;
}

void request_hold_free(request_hold *h)
{
    if (!h)
        return;
    party_give(h->server, h->name, h->bytes, 0);
    free(h->name);
    free(h);
}
