/* What one caller may hold at a time of what is everybody's: threads that wait for bodies, memory
 * that waits for somebody to read. Dispatch says whose a request is; until then it is nobody's, and
 * all of those are one party. */
#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/internal.h"

#define PARTY_BYTES_MIN (UINT64_C(64) << 20)
#define PARTY_BYTES_OF  32 /* of the machine's memory, one part in so many */
#define PARTY_SLOW_OF   8  /* of the request threads, likewise */

typedef struct party { /* in the map while it holds anything */
    uint64_t bytes;
    unsigned slow;
} party;

void party_limits(server *s)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t ram = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    uint64_t part = ram / PARTY_BYTES_OF;

    s->party_bytes = part > PARTY_BYTES_MIN ? part : PARTY_BYTES_MIN;
    s->party_slow = s->o.threads / PARTY_SLOW_OF ? s->o.threads / PARTY_SLOW_OF : 1;
}

/* Locked. */
static bool fits(const server *s, const party *p, uint64_t bytes, unsigned slow)
{
    uint64_t have = p ? p->bytes : 0;

    return (!bytes || bytes <= s->party_bytes - (have < s->party_bytes ? have : s->party_bytes)) &&
           (!slow || (p ? p->slow : 0) + slow <= s->party_slow);
}

bool party_has_room(server *s, const char *name, uint64_t bytes, unsigned slow)
{
    if (!name)
        return true;
    LOCK_SCOPE(&s->party_lock);
    return fits(s, map_get_str(&s->parties, name), bytes, slow);
}

bool party_take(server *s, const char *name, uint64_t bytes, unsigned slow)
{
    if (!name)
        return true;
    LOCK_SCOPE(&s->party_lock);
    party *p = map_get_str(&s->parties, name);
    if (!fits(s, p, bytes, slow))
        return false;
    if (!p) {
        p = xcalloc(1, sizeof *p);
        map_put_str(&s->parties, name, p);
    }
    p->bytes += bytes;
    p->slow += slow;
    return true;
}

void party_give(server *s, const char *name, uint64_t bytes, unsigned slow)
{
    if (!name || (!bytes && !slow))
        return;
    LOCK_SCOPE(&s->party_lock);
    party *p = map_get_str(&s->parties, name);
    p->bytes -= bytes;
    p->slow -= slow;
    if (!p->bytes && !p->slow)
        free(map_take_str(&s->parties, name));
}

void request_set_party(request *rq, const char *name)
{
    assert(!rq->slow);
    free(rq->party);
    rq->party = name ? xstrdup(name) : NULL;
}

/* ---- what a handler keeps after it has returned ---- */

struct request_hold {
    server *server;
    uint64_t bytes;
    char *name;
};

err *request_hold_new(request *rq, size_t n, request_hold **ret_hold)
{
    server *s = rq->server;

    if (!party_take(s, rq->party, n, 0)) {
        metric_add(&NET_METRICS[M_REFUSED], 0, 1);
        return err_retry_after(
            err_remedy(err_because(err_new(ERR_QUOTA_EXCEEDED, "too much of yours waits"),
                                   "requests under way and answers that are not read may take %llu "
                                   "MiB",
                                   (unsigned long long)(s->party_bytes >> 20)),
                       "Read the answers to what you have asked, or ask for less at a time."),
            NET_RETRY_AFTER);
    }
    request_hold *h = xcalloc(1, sizeof *h);
    *h = (request_hold){s, n, rq->party ? xstrdup(rq->party) : NULL};
    *ret_hold = h;
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
