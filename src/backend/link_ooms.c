/* Counts OOM kills inside: init reads the container's own cgroup and reports the count with each
 * PONG. For backends whose engine does not report it for a running container. */
#include "backend/link_internal.h"
#include "base/thread.h"

struct link_oom_wait {
    link_oom_wait *next;
    unsigned pongs; /* PONGs to wait for, so that the last answers a PING sent after the question */
    link_ooms_done *done;
    void *arg;
};

static box *link_ooms_find(link_host *h, const char *id)
{
    LOCK_SCOPE(&h->lock);
    box *x = map_get_str(&h->ids, id);

    if (x)
        link_ref(x);
    return x;
}

/* Queues a question and sends a PING. Box's lock held. */
static void link_ooms_ask(box *x, link_ooms_done *done, void *arg)
{
    link_oom_wait **at = &x->oom_waits, *w = xcalloc(1, sizeof *w);

    while (*at)
        at = &(*at)->next;
    *w = (link_oom_wait){NULL, x->pinged ? 2 : 1, done, arg};
    *at = w;
    link_send_ping(x);
    link_flush(x);
}

void link_ooms(link_host *h, const char *id, link_ooms_done *done, void *arg)
{
    box *x = link_ooms_find(h, id);
    bool asked = false;
    uint64_t known = 0;

    if (x) {
        LOCK_SCOPE(&x->lock);
        known = x->ooms;
        asked = x->state == LINK_OPEN && x->phase == LINK_BOX && !x->held;
        if (asked)
            link_ooms_ask(x, done, arg);
    }
    if (x)
        link_unref(x);
    if (!asked)
        done(arg, known);
}

static void link_ooms_tell(link_oom_wait *due, uint64_t count)
{
    while (due) {
        link_oom_wait *w = due;
        due = w->next;
        w->done(w->arg, count);
        free(w);
    }
}

void link_ooms_told(box *x, uint32_t count)
{
    link_oom_wait *due = NULL, **end = &due;
    uint64_t known;

    {
        LOCK_SCOPE(&x->lock);
        x->pinged = false;
        x->ooms = count > x->ooms ? count : x->ooms;
        known = x->ooms;
        for (link_oom_wait **at = &x->oom_waits; *at;) {
            link_oom_wait *w = *at;
            if (--w->pongs) {
                at = &w->next;
                continue;
            }
            *at = w->next;
            w->next = NULL;
            *end = w;
            end = &w->next;
        }
        if (x->oom_waits) {
            link_send_ping(x);
            link_flush(x);
        }
    }
    link_ooms_tell(due, known);
}

void link_ooms_lost(box *x)
{
    link_oom_wait *due;
    uint64_t known;

    {
        LOCK_SCOPE(&x->lock);
        due = x->oom_waits;
        x->oom_waits = NULL;
        known = x->ooms;
    }
    link_ooms_tell(due, known);
}
