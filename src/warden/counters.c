#include "warden/counters.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/metric.h"
#include "base/thread.h"
#include "warden/warden.h"

static const char *const RESULTS[] = {"ok", "timeout", "failed", NULL};
enum {
    RESULT_OK,
    RESULT_TIMEOUT,
    RESULT_FAILED
};
static const char *const STAGES[] = {"queue", "build", "swap", NULL};

enum {
    M_CLAIMS,
    M_CLAIM,
    M_REFILL,
    M_REFILLS_FAILED,
    M_DESTROYED,
    M_READY,
    M_CLAIMED,
    M_WAITING,
    M_DYING
};
static metric METRICS[] = {
    [M_CLAIMS] =
        METRIC_COUNTER_BY("bothy_warden_claims_total", "Claims by result.", "result", RESULTS),
    [M_CLAIM] = METRIC_HISTOGRAM_BY("bothy_warden_claim_seconds",
                                    "Time of successful claims by stage.", "stage", STAGES),
    [M_REFILL] = METRIC_HISTOGRAM("bothy_warden_refill_seconds", "Time to make a slot."),
    [M_REFILLS_FAILED] =
        METRIC_COUNTER("bothy_warden_refills_failed_total", "Slots that could not be made."),
    [M_DESTROYED] = METRIC_COUNTER("bothy_warden_destroyed_total", "Slots destroyed."),
    [M_READY] = METRIC_GAUGE("bothy_warden_slots_ready", "Slots waiting for a claim."),
    [M_CLAIMED] = METRIC_GAUGE("bothy_warden_slots_claimed", "Slots that are sandboxes."),
    [M_WAITING] = METRIC_GAUGE("bothy_warden_claims_waiting", "Claims waiting for a slot."),
    [M_DYING] = METRIC_GAUGE("bothy_warden_slots_dying", "Slots being taken apart."),
};

void count_init(void)
{
    metric_register(METRICS, ARRAY_LEN(METRICS));
}

void count_claim(int errnum, uint64_t queue_ns, uint64_t build_ns, uint64_t swap_ns)
{
    metric_add(&METRICS[M_CLAIMS],
               !errnum               ? RESULT_OK
               : errnum == ETIMEDOUT ? RESULT_TIMEOUT
                                     : RESULT_FAILED,
               1);
    if (errnum)
        return;
    metric_observe_ns(&METRICS[M_CLAIM], 0, queue_ns);
    metric_observe_ns(&METRICS[M_CLAIM], 1, build_ns);
    metric_observe_ns(&METRICS[M_CLAIM], 2, swap_ns);
}

void count_refill(uint64_t ns)
{
    if (ns)
        metric_observe_ns(&METRICS[M_REFILL], 0, ns);
    else
        metric_add(&METRICS[M_REFILLS_FAILED], 0, 1);
}

void count_destroyed(void)
{
    metric_add(&METRICS[M_DESTROYED], 0, 1);
}

void count_write(warden *w, buf *out)
{
    int64_t dying = 0;

    pthread_mutex_lock(&w->lock);
    for (const slot *s = w->dying_list; s; s = s->next)
        dying++;
    metric_set(&METRICS[M_READY], 0, w->ready);
    metric_set(&METRICS[M_CLAIMED], 0, w->claimed);
    metric_set(&METRICS[M_WAITING], 0, w->fifo.n);
    metric_set(&METRICS[M_DYING], 0, dying);
    pthread_mutex_unlock(&w->lock);
    metric_write(out);
}
