/* The hub: what all tables share, from the start of the daemon to its end. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/count.h"
#include "exec/internal.h"

#define SWEEP_NS (2 * NS_PER_S)
#define IDLE_NS  (5 * NS_PER_S)

static void sweep_ref(pump_job *j)
{
    (void)j;
}

static void sweep_run(pump_job *j)
{
    exec_hub *h = (exec_hub *)((char *)j - offsetof(exec_hub, sweep_job));

    spool_set_sweep(&h->spools, now_mono_ns(), IDLE_NS);
    pump_timer_set(h->pump, &h->sweep_timer, now_mono_ns() + SWEEP_NS);
}

static void sweep_fire(pump_timer *t)
{
    exec_hub *h = (exec_hub *)((char *)t - offsetof(exec_hub, sweep_timer));

    pump_kick(&h->sweep_job);
}

err *exec_hub_new(const exec_options *o, exec_hub **ret_hub)
{
    CLEANUP(freep) exec_hub *h = xcalloc(1, sizeof *h);
    struct rlimit r;

    h->o = *o;
    h->descriptors = getrlimit(RLIMIT_NOFILE, &r) ? RLIM_INFINITY : r.rlim_cur;
    TRY(spool_set_init(&h->spools, o->spool_dir, o->stream_max));
    if (o->hold_ns)
        h->spools.patience_ns = o->hold_ns;
    TRY(pump_new(&h->pump));
    pthread_mutex_init(&h->lock, NULL);
    h->sweep_job = (pump_job){.run = sweep_run, .ref = sweep_ref, .unref = sweep_ref};
    pump_job_init(h->pump, &h->sweep_job, 0);
    h->sweep_timer.fire = sweep_fire;
    pump_timer_set(h->pump, &h->sweep_timer, now_mono_ns() + SWEEP_NS);
    count_init(h);
    sync_start(h);
    *ret_hub = TAKE_PTR(h);
    return NULL;
}

static exec_table *hub_unfinished(exec_hub *h)
{
    map_iter it = {0};

    while (map_next(&h->tables, &it)) {
        exec_table *t = it.entry->value;
        if (t->live || t->bound || t->tunnels.count)
            return t;
    }
    return NULL;
}

void exec_hub_free(exec_hub *h)
{
    exec_table *t;

    if (!h)
        return;
    bool stopped = pump_stop(h->pump);
    sync_stop(h);
    if (!stopped)
        return; /* threads still use it: it is freed with the process */
    do {
        {
            LOCK_SCOPE(&h->lock);
            t = hub_unfinished(h);
            if (t)
                exec_table_ref(t);
        }
        if (t) {
            table_abandon(t);
            exec_table_unref(t);
        }
    } while (t);
    pump_free(h->pump);
    spool_set_done(&h->spools);
    map_done(&h->tables);
    map_done(&h->accounts);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

bool exec_hub_is_full(const exec_hub *h)
{
    return atomic_load(&h->full) > 0;
}
