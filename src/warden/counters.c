#include "warden/counters.h"

#include <errno.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/metric.h"
#include "base/process.h"
#include "base/thread.h"
#include "warden/fifo.h"
#include "warden/warden.h"

static const char *const RESULTS[] = {"ok", "timeout", "cancelled", "refused", "failed", NULL};
enum {
    RESULT_OK,
    RESULT_TIMEOUT,
    RESULT_CANCELLED,
    RESULT_REFUSED,
    RESULT_FAILED
};
static const char *const STAGES[] = {"queue", "build", "swap", NULL};

static const char *const LEFT[] = {"served", "expired", "cancelled", NULL};
static const char *const REFUSED[] = {"exists",      "image", "queue_full",
                                      "unsupported", "other", NULL};
static const char *const ADMISSION[] = {"count", "limits", "memory", "pids", NULL};
static const char *const MARKS[] = {"low", "high", "max", NULL};

#define WALL_ROW(id, name, refill, claim, what) name,
static const char *const WALL_NAMES[] = {WALLS(WALL_ROW) NULL};
#undef WALL_ROW
static const char *const WHEN[] = {"refill", "claim", NULL};

enum {
    M_CUT,
    M_CLAIMS,
    M_CLAIM,
    M_QUEUE,
    M_REFUSED,
    M_ADMISSION,
    M_REFILL,
    M_REFILLS_FAILED,
    M_REFILL_FAILURES,
    M_DESTROYED,
    M_NETWORK,
    M_AHEAD,
    M_WALLS,
    M_READY,
    M_MAKING,
    M_CLAIMED,
    M_DYING,
    M_MARKS,
    M_WAITING,
    M_OLDEST,
    M_LIMITS,
    M_DISK_FREE,
    M_DISK_SIZE
};
static metric PROCESS[PROCESS_METRICS_N] = {
    [PROCESS_CPU] =
        METRIC_COUNTER("bothy_warden_cpu_seconds_total",
                       "Processor time of the warden, of user and system.", .unit = 1e-6),
    [PROCESS_MEMORY] = METRIC_GAUGE("bothy_warden_resident_memory_bytes",
                                    "Memory of the warden that is resident."),
    [PROCESS_FDS] = METRIC_GAUGE("bothy_warden_open_fds", "Descriptors the warden has open."),
    [PROCESS_FDS_MAX] = METRIC_GAUGE("bothy_warden_max_fds", "Descriptors it may have open."),
    [PROCESS_THREADS] = METRIC_GAUGE("bothy_warden_threads", "Threads of the warden."),
    [PROCESS_START] = METRIC_GAUGE("bothy_warden_start_time_seconds",
                                   "When the warden was started, in seconds of 1970."),
};
static metric METRICS[] = {
    [M_CUT] = METRIC_GAUGE("bothy_warden_metrics_cut_bytes",
                           "Bytes at the end of the warden's metrics that no frame had room for: "
                           "what is missing below. 0 is as it should be."),
    [M_CLAIMS] =
        METRIC_COUNTER_BY("bothy_warden_claims_total", "Claims by result.", "result", RESULTS),
    [M_CLAIM] = METRIC_HISTOGRAM_BY("bothy_warden_claim_seconds",
                                    "Time of successful claims by stage.", "stage", STAGES),
    [M_QUEUE] =
        METRIC_HISTOGRAM_BY("bothy_warden_queue_seconds",
                            "Time claims stood in the queue, by how they left it.", "left", LEFT),
    [M_REFUSED] = METRIC_COUNTER_BY("bothy_warden_claims_refused_total",
                                    "Claims refused at once, by reason.", "reason", REFUSED),
    [M_ADMISSION] = METRIC_COUNTER_BY(
        "bothy_warden_admission_waits_total",
        "Claims whose turn came and that had to wait for room: the number of "
        "sandboxes, the sum of their memory limits, free memory, the sum of their "
        "limits of processes.",
        "reason", ADMISSION),
    [M_REFILL] = METRIC_HISTOGRAM("bothy_warden_refill_seconds", "Time to make a slot."),
    [M_REFILLS_FAILED] =
        METRIC_COUNTER("bothy_warden_refills_failed_total", "Slots that could not be made."),
    [M_REFILL_FAILURES] =
        METRIC_GAUGE("bothy_warden_refill_failures", "Refills that failed in a row until now."),
    [M_NETWORK] = METRIC_HISTOGRAM("bothy_warden_network_seconds",
                                   "Time to give a sandbox its network and to try its walls."),
    [M_DESTROYED] = METRIC_COUNTER("bothy_warden_destroyed_total", "Slots destroyed."),
    [M_AHEAD] =
        METRIC_COUNTER("bothy_warden_ahead_total", "Slots given an image ahead of their claim."),
    [M_WALLS] = METRIC_COUNTER_BY2(
        "bothy_wall_failures_total",
        "Walls that did not hold when they were tried; their slots were destroyed.", "wall",
        WALL_NAMES, "when", WHEN),
    [M_READY] = METRIC_GAUGE("bothy_warden_slots_ready", "Slots waiting for a claim."),
    [M_MAKING] = METRIC_GAUGE("bothy_warden_slots_making", "Slots being made."),
    [M_MARKS] = METRIC_GAUGE_BY("bothy_warden_pool_watermark",
                                "What the pool is kept between, and the most slots and sandboxes.",
                                "mark", MARKS),
    [M_OLDEST] = METRIC_GAUGE("bothy_warden_queue_oldest_seconds",
                              "How long the first claim of the queue has waited."),
    [M_LIMITS] =
        METRIC_GAUGE("bothy_warden_memory_limits_bytes", "Sum of the sandboxes' memory limits."),
    [M_CLAIMED] = METRIC_GAUGE("bothy_warden_slots_claimed", "Slots that are sandboxes."),
    [M_WAITING] = METRIC_GAUGE("bothy_warden_claims_waiting", "Claims waiting for a slot."),
    [M_DYING] = METRIC_GAUGE("bothy_warden_slots_dying", "Slots being taken apart."),
    [M_DISK_FREE] = METRIC_GAUGE("bothy_warden_disk_free_bytes",
                                 "Room on the disk of layers and sandboxes' files."),
    [M_DISK_SIZE] = METRIC_GAUGE("bothy_warden_disk_size_bytes",
                                 "Size of the disk of layers and sandboxes' files."),
};

void count_init(void)
{
    metric_register(METRICS, ARRAY_LEN(METRICS));
    process_metrics(PROCESS);
}

void count_claim(int errnum, uint64_t queue_ns, uint64_t build_ns, uint64_t swap_ns)
{
    metric_add(&METRICS[M_CLAIMS],
               !errnum               ? RESULT_OK
               : errnum == ETIMEDOUT ? RESULT_TIMEOUT
               : errnum == ECANCELED ? RESULT_CANCELLED
                                     : RESULT_FAILED,
               1);
    if (errnum)
        return;
    metric_observe_ns(&METRICS[M_CLAIM], 0, queue_ns);
    metric_observe_ns(&METRICS[M_CLAIM], 1, build_ns);
    metric_observe_ns(&METRICS[M_CLAIM], 2, swap_ns);
}

void count_queue(enum queue_left how, uint64_t ns)
{
    metric_observe_ns(&METRICS[M_QUEUE], how, ns);
}

void count_refused(const err *e)
{
    size_t why = e->code == ERR_CONFLICT      ? 0
                 : e->code == ERR_NOT_FOUND   ? 1
                 : e->errnum == EAGAIN        ? 2
                 : e->code == ERR_UNSUPPORTED ? 3
                                              : 4;

    metric_add(&METRICS[M_CLAIMS], RESULT_REFUSED, 1);
    metric_add(&METRICS[M_REFUSED], why, 1);
}

void count_admission_wait(enum admit_verdict v)
{
    metric_add(&METRICS[M_ADMISSION],
               v == ADMIT_WAIT_COUNT    ? 0
               : v == ADMIT_WAIT_LIMITS ? 1
               : v == ADMIT_WAIT_PIDS   ? 3
                                        : 2,
               1);
}

void count_refill(uint64_t ns)
{
    if (ns)
        metric_observe_ns(&METRICS[M_REFILL], 0, ns);
    else
        metric_add(&METRICS[M_REFILLS_FAILED], 0, 1);
}

void count_ahead(void)
{
    metric_add(&METRICS[M_AHEAD], 0, 1);
}

void count_walls(uint32_t failed, enum walls_when when)
{
    for (size_t i = 0; i < WALL_COUNT; i++)
        if (failed & 1u << i)
            metric_add(&METRICS[M_WALLS], i * 2 + when, 1);
}

void count_network(uint64_t ns)
{
    metric_observe_ns(&METRICS[M_NETWORK], 0, ns);
}

void count_destroyed(void)
{
    metric_add(&METRICS[M_DESTROYED], 0, 1);
}

static void look_at(warden *w)
{
    pthread_mutex_lock(&w->lock);
    const claim_job *oldest = w->fifo.head;
    uint64_t waited = oldest ? now_mono_ns() - oldest->j->received_ns : 0;
    metric_set(&METRICS[M_READY], 0, w->ready);
    metric_set(&METRICS[M_MAKING], 0, w->making);
    metric_set(&METRICS[M_CLAIMED], 0, w->claimed);
    metric_set(&METRICS[M_DYING], 0, w->ndying);
    metric_set(&METRICS[M_MARKS], 0, w->pool.low);
    metric_set(&METRICS[M_MARKS], 1, w->pool.high);
    metric_set(&METRICS[M_MARKS], 2, w->pool.max);
    metric_set(&METRICS[M_WAITING], 0, w->fifo.n);
    metric_set(&METRICS[M_OLDEST], 0, (int64_t)(waited / NS_PER_S));
    metric_set(&METRICS[M_REFILL_FAILURES], 0, w->pool.failures);
    metric_set(&METRICS[M_LIMITS], 0, (int64_t)w->memory_claimed);
    pthread_mutex_unlock(&w->lock);
    struct statvfs v;
    if (!fstatvfs(w->state_fd, &v)) {
        metric_set(&METRICS[M_DISK_FREE], 0, (int64_t)(v.f_bavail * v.f_frsize));
        metric_set(&METRICS[M_DISK_SIZE], 0, (int64_t)(v.f_blocks * v.f_frsize));
    }
}

/* M_CUT is among the first families, so that it is there when others are cut. */
void count_write(warden *w, size_t max, buf *out)
{
    look_at(w);
    metric_set(&METRICS[M_CUT], 0, 0);
    metric_write(out);
    size_t cut = metric_cut(out, max);
    if (!cut)
        return;
    metric_set(&METRICS[M_CUT], 0, (int64_t)cut);
    buf_clear(out);
    metric_write(out);
    (void)metric_cut(out, max);
}
