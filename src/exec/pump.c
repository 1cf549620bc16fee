/* The pump's threads, and the watch that notices one that blocks. */
#include "exec/pump.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/lane.h"

#define BATCH 64
#define NICE  10 /* of bulk and separate lanes: they take little from the others */

#define TICK_NS     (40 * NS_PER_MS)
#define STUCK_TICKS 2u
#define STUCK_NS    (STUCK_TICKS * TICK_NS)
#define QUIET_NS    (10 * NS_PER_S) /* without a block; doubled each time, STRIKES_MAX times */
#define STRIKES_MAX 6u
#define EXTRA_MAX   2048u /* threads beyond one per lane; above that, a lane that blocks waits */
#define LANE_OVER   (-2)
#define STOP_NS     (3 * NS_PER_S)

/* ---- threads ---- */

static void worker_be_nice(void)
{
    if (setpriority(PRIO_PROCESS, (id_t)gettid(), NICE))
        log_warn("pump", "floods of output are moved at a full priority: %s",
                 strerrordesc_np(errno));
}

/* Gives the thread that blocks the separate lane, if that has no thread yet. All three locks
 * held. */
static void lane_give(pump_lane *to, pump_worker *w, const pump_party *party)
{
    to->leaving = false;
    if (to->worker) {
        w->lane = NULL;
        return;
    }
    to->worker = w;
    w->lane = to;
    to->quiet_ns = now_mono_ns() + (to->p->quiet_ns << to->strikes);
    to->strikes += to->strikes < STRIKES_MAX;
    log_info("pump", "sandbox %s gets a thread of its own: a call on one of its pipes blocks",
             party->name ? party->name : "?");
}

/* Returns the separate lane of a party; makes it from *spare if there is none. alone_lock held. */
static pump_lane *party_lane(pump *p, pump_party *party, pump_lane **spare)
{
    pump_lane *l = atomic_load(&party->alone);

    if (l || !*spare)
        return l;
    l = TAKE_PTR(*spare);
    l->next = p->alone;
    p->alone = l;
    atomic_store(&party->alone, l);
    return l;
}

/* Takes over a lane, if its thread is still in the run for which this thread was started. Returns
 * false otherwise. */
static bool worker_take_over(pump_worker *w)
{
    pump_lane *l = w->lane, *spare = lane_new_alone(w->p);
    pump_job *j, *unref = NULL;
    bool taken = false;

    {
        LOCK_SCOPE(&w->p->alone_lock);
        LOCK_SCOPE(&l->lock);
        l->relief = false;
        j = l->runs == w->run && !l->stop ? l->running : NULL;
        pump_lane *to = j && atomic_load(&j->lane) == l ? party_lane(w->p, j->party, &spare) : NULL;
        if (to) {
            LOCK_SCOPE(&to->lock);
            lane_give(to, l->worker, j->party);
            unref = job_send_away(l, to, j) ? j : NULL;
            l->worker = w;
            l->running = NULL;
            taken = true;
        }
    }
    if (spare)
        lane_free(spare);
    if (unref)
        unref->unref(unref);
    return taken;
}

/* Ends the run of a job whose lane another thread took over meanwhile. */
static void worker_bring_back(pump_job *j)
{
    pump_lane *l = job_lock(j);

    j->away = false;
    l->naway--;
    lane_enqueue(l, j);
    lane_wake(l);
    pthread_mutex_unlock(&l->lock);
    j->unref(j);
}

/* Queues the jobs of a batch of events. Each job runs at most once per batch, so no event of the
 * batch can name a job that a run has freed. Jobs leave a lane only between batches. */
static void lane_take_events(pump_lane *l, const struct epoll_event *ev, int n)
{
    LOCK_SCOPE(&l->lock);
    for (int i = 0; i < n; i++) {
        if (ev[i].data.ptr) {
            lane_enqueue(l, ev[i].data.ptr);
            continue;
        }
        eventfd_t v;
        eventfd_read(l->wake, &v);
        l->woken = false;
    }
    /* The round is everything queued now; jobs that are kicked meanwhile wait for the next round,
     * after its events. */
    l->round = l->head;
    l->head = NULL;
    l->tail = &l->head;
}

/* Ends the run of *job and takes the next job of the round, or NULL. Returns false if another
 * thread has taken over the lane; *job is then away. */
static bool lane_next(pump_lane *l, const pump_worker *w, pump_job **job)
{
    pump_job *j;

    LOCK_SCOPE(&l->lock);
    if (l->worker != w)
        return false;
    while ((j = l->round)) {
        l->round = j->next;
        j->queued = false;
        if (!job_goes_alone(l, j))
            break;
    }
    if (j && j->disarmed)
        job_arm(l, j);
    l->running = j;
    l->runs++;
    *job = j;
    return true;
}

/* Restarts the ticks, which stop while all lanes are idle: a lane works now, and may block. */
static void pump_rouse(pump *p)
{
    LOCK_SCOPE(&p->lock);
    if (!atomic_load(&p->dozing))
        return;
    atomic_store(&p->dozing, false);
    p->tick_ns = now_mono_ns() + TICK_NS;
    pthread_cond_signal(&p->cond);
}

static void lane_run_job(pump_lane *l, pump_job *j)
{
    if (atomic_load(&l->p->dozing))
        pump_rouse(l->p);
    uint64_t began = l->alone ? now_mono_ns() : 0;
    j->run(j);
    uint64_t now = l->alone ? now_mono_ns() : 0;
    if (now - began < STUCK_NS)
        return;
    LOCK_SCOPE(&l->lock);
    l->quiet_ns = now + (l->p->quiet_ns << l->strikes);
}

/* Runs the jobs of a round. Returns false if the thread has another lane now, or none. */
static bool lane_run_round(pump_lane *l, const pump_worker *w)
{
    pump_job *j = NULL;

    for (;;) {
        pump_job *was = j;
        if (!lane_next(l, w, &j)) {
            assert(was); /* only a thread that is in a run loses its lane */
            worker_bring_back(was);
            return false;
        }
        if (was)
            was->unref(was);
        if (!j)
            return true;
        lane_run_job(l, j);
    }
}

/* Returns the milliseconds to wait for events, or LANE_OVER: the thread has left the lane, and
 * frees it if *ret_free is set. */
static int lane_patience(pump_lane *l, bool *ret_free)
{
    {
        LOCK_SCOPE(&l->lock);
        if (l->stop) {
            *ret_free = lane_detach(l);
            return LANE_OVER;
        }
        if (l->head)
            return 0;
        if (!l->alone)
            return -1;
        uint64_t now = now_mono_ns();
        if (now < l->quiet_ns)
            return (int)((l->quiet_ns - now) / NS_PER_MS) + 1;
    }
    return lane_leave(l, ret_free) ? LANE_OVER : (int)(TICK_NS / NS_PER_MS);
}

static void lane_wait(pump_lane *l, int timeout)
{
    struct epoll_event ev[BATCH];
    int n = epoll_wait(l->ep, ev, BATCH, timeout);

    if (n < 0 && errno != EINTR) {
        log_error("pump", "epoll_wait: %s", strerrordesc_np(errno));
        abort();
    }
    lane_take_events(l, ev, n);
}

/* Serves a lane until it stops, or another thread has taken it over. */
static void worker_serve(const pump_worker *w, pump_lane *l)
{
    bool gone = false;
    int timeout;

    if (!lane_run_round(l, w)) /* the rest of the former thread's round */
        return;
    while ((timeout = lane_patience(l, &gone)) != LANE_OVER) {
        lane_wait(l, timeout);
        if (!lane_run_round(l, w))
            return;
    }
    if (gone)
        lane_free(l);
}

static void worker_end(pump_worker *w)
{
    pump *p = w->p;

    free(w);
    LOCK_SCOPE(&p->lock);
    p->nworkers--;
    pthread_cond_broadcast(&p->ended);
}

static void *worker_run(void *arg)
{
    pump_worker *w = arg;
    pump_lane *l = w->lane;

    worker_own = w;
    pthread_setname_np(pthread_self(), l->bulk ? "pump-bulk" : "pump");
    if (l->bulk)
        worker_be_nice();
    if (!w->run || worker_take_over(w)) {
        worker_serve(w, l);
        if (w->lane && w->lane != l) { /* it blocked, and has the separate lane now */
            pthread_setname_np(pthread_self(), "pump-alone");
            worker_be_nice();
            worker_serve(w, w->lane);
        }
    }
    worker_end(w);
    return NULL;
}

static bool pump_admit(pump *p)
{
    LOCK_SCOPE(&p->lock);
    bool room = p->nworkers < p->nfast + BULK + EXTRA_MAX;

    p->nworkers += room;
    return room;
}

/* Starts a thread for a lane; run 0: a new lane, else the run to take over. Returns false if there
 * is no room for another thread. */
static bool worker_start(pump *p, pump_lane *l, uint64_t run)
{
    pump_worker *w = xcalloc(1, sizeof *w);

    *w = (pump_worker){.p = p, .lane = l, .run = run};
    if (!run)
        l->worker = w;
    if (pump_admit(p)) {
        if (thread_try_detach(worker_run, w))
            return true;
        LOCK_SCOPE(&p->lock);
        p->nworkers--;
    }
    if (!run)
        l->worker = NULL;
    free(w);
    return false;
}

static err *lane_start(pump *p, pump_lane *l, bool bulk)
{
    l->bulk = bulk;
    p->nlanes++;
    if (!lane_init(p, l))
        return err_sys(ERR_INTERNAL, errno, "cannot start a pump");
    if (!worker_start(p, l, 0))
        return err_new(ERR_INTERNAL, "cannot start a thread for commands");
    return NULL;
}

static void lane_stop(pump_lane *l)
{
    LOCK_SCOPE(&l->lock);
    l->stop = true;
    l->woken = true;
    eventfd_write(l->wake, 1);
}

static pump_job *lane_drop(pump_lane *l)
{
    LOCK_SCOPE(&l->lock);
    pump_job **from = l->round ? &l->round : &l->head, *j = *from;

    if (!j)
        return NULL;
    *from = j->next;
    if (!l->head)
        l->tail = &l->head;
    j->queued = false;
    return j;
}

/* Returns a job that is still queued, when all threads have ended. */
static pump_job *pump_drop(pump *p)
{
    pump_job *j = NULL;

    for (unsigned i = 0; i < p->nlanes && !j; i++)
        j = lane_drop(&p->lane[i]);
    LOCK_SCOPE(&p->alone_lock);
    for (pump_lane *l = p->alone; l && !j; l = l->next)
        j = lane_drop(l);
    return j;
}

/* ---- the watch over lanes ---- */

/* Checks a lane. Returns the run that has lasted too long, or 0. Sets *idle to false if the lane
 * works. */
static uint64_t lane_look(pump_lane *l, bool *idle)
{
    LOCK_SCOPE(&l->lock);
    bool same = l->runs == l->seen;

    l->seen = l->runs;
    l->ticks = same && l->running ? l->ticks + 1 : 0;
    *idle &= same && !l->running;
    if (l->ticks < STUCK_TICKS || l->relief || l->stop || !l->running->party)
        return 0;
    l->relief = true;
    return l->runs;
}

/* Checks all lanes and starts threads for those that block. Returns false if all have been idle
 * since the last check. No lock held. */
static bool pump_look(pump *p)
{
    bool idle = true;

    for (unsigned i = 0; i < p->nfast + BULK; i++) {
        uint64_t run = lane_look(&p->lane[i], &idle);
        if (!run || worker_start(p, &p->lane[i], run))
            continue;
        log_warn("pump", "a command's pipe blocks a lane, and there is no thread to take over");
        LOCK_SCOPE(&p->lane[i].lock);
        p->lane[i].relief = false;
        p->lane[i].ticks = 0;
    }
    return !idle;
}

/* Makes a tick. Pump's lock held; released meanwhile. A lane that begins to work after the second
 * check sees `dozing` and restarts the ticks. */
static void pump_tick(pump *p)
{
    pthread_mutex_unlock(&p->lock);
    bool busy = pump_look(p);
    if (!busy) {
        atomic_store(&p->dozing, true);
        busy = pump_look(p);
    }
    pthread_mutex_lock(&p->lock);
    if (busy)
        atomic_store(&p->dozing, false);
    p->tick_ns = now_mono_ns() + TICK_NS;
}

static void *timer_run(void *arg)
{
    pump *p = arg;

    LOCK_SCOPE(&p->lock);
    while (!p->stop) {
        uint64_t now = now_mono_ns(), next;
        pump_timer *t = timers_take(p, now, &next);
        if (t) {
            t->fire(t);
            continue;
        }
        bool dozing = atomic_load(&p->dozing);
        if (!dozing && p->tick_ns <= now) {
            pump_tick(p);
            continue;
        }
        if (!dozing && (!next || p->tick_ns < next))
            next = p->tick_ns;
        cond_wait_until(&p->cond, &p->lock, next);
    }
    return NULL;
}

/* ---- start and stop ---- */

err *pump_new(pump **ret_pump)
{
    pump *p = xcalloc(1, sizeof *p);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    err *e = NULL;

    p->quiet_ns = QUIET_NS;
    p->nfast = cpus < 1 ? 1 : cpus > (long)FAST_MAX ? FAST_MAX : (unsigned)cpus;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->alone_lock, NULL);
    cond_init(&p->cond);
    cond_init(&p->ended);
    for (unsigned i = 0; i < p->nfast + BULK && !e; i++)
        e = lane_start(p, &p->lane[i], i >= p->nfast);
    if (e) {
        pump_free(p);
        return e;
    }
    p->timer_thread = thread_start("exec-timer", timer_run, p);
    p->timer_started = true;
    *ret_pump = p;
    return NULL;
}

static void pump_stop_timer(pump *p)
{
    if (!p->timer_started)
        return;
    {
        LOCK_SCOPE(&p->lock);
        p->stop = true;
        pthread_cond_signal(&p->cond);
    }
    pthread_join(p->timer_thread, NULL);
    p->timer_started = false;
}

bool pump_stop(pump *p)
{
    uint64_t until = now_mono_ns() + STOP_NS;
    pump_job *j;

    pump_stop_timer(p); /* from here on no thread is started */
    for (unsigned i = 0; i < p->nlanes; i++)
        lane_stop(&p->lane[i]);
    {
        LOCK_SCOPE(&p->alone_lock);
        for (pump_lane *l = p->alone; l; l = l->next)
            lane_stop(l);
    }
    {
        LOCK_SCOPE(&p->lock);
        while (p->nworkers)
            if (!cond_wait_until(&p->ended, &p->lock, until))
                break;
        if (p->nworkers) {
            log_warn("pump", "%u threads are still in calls on pipes of commands", p->nworkers);
            return false;
        }
    }
    while ((j = pump_drop(p)))
        j->unref(j);
    return true;
}

void pump_free(pump *p)
{
    if (!p || !pump_stop(p))
        return;
    for (unsigned i = 0; i < p->nlanes; i++)
        lane_free(&p->lane[i]);
    pthread_cond_destroy(&p->cond);
    pthread_cond_destroy(&p->ended);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->alone_lock);
    free(p->heap);
    free(p);
}
