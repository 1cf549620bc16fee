#include "exec/pump.h"

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

#define FAST_MAX 4u
#define BULK     2u
#define BATCH    64
#define NICE     10 /* of the bulk lanes: who floods takes little from the others */

struct pump_lane {
    int ep, wake;
    bool bulk, started;
    pthread_t thread;
    pthread_mutex_t lock;
    pump_job *head, **tail; /* lock */
    bool stop, woken;       /* lock */
};

struct pump {
    unsigned nfast;
    pump_lane lane[FAST_MAX + BULK];
    _Atomic unsigned next_bulk;
    pthread_mutex_t lock; /* timers */
    pthread_cond_t cond;
    pthread_t timer_thread;
    pump_timer **heap;
    size_t nheap, cap;
    bool stop, timer_started;
};

/* ---- lanes ---- */

static _Thread_local pump_lane *own; /* of a lane's thread */

/* lock held */
static void enqueue(pump_lane *l, pump_job *j)
{
    if (j->queued)
        return;
    j->queued = true;
    j->ref(j);
    j->next = NULL;
    *l->tail = j;
    l->tail = &j->next;
}

void pump_kick(pump_job *j)
{
    for (;;) {
        pump_lane *l = atomic_load(&j->lane);
        LOCK_SCOPE(&l->lock);
        if (atomic_load(&j->lane) != l)
            continue; /* it moved in between */
        enqueue(l, j);
        if (!l->woken && l != own) { /* which looks at its queue before it sleeps */
            l->woken = true;
            eventfd_write(l->wake, 1);
        }
        return;
    }
}

void pump_beside(pump_job *j, pump_job *other)
{
    atomic_store(&j->lane, atomic_load(&other->lane));
}

/* Everything queued now: what is kicked meanwhile waits for the next round, behind the events. */
static pump_job *take_round(pump_lane *l)
{
    LOCK_SCOPE(&l->lock);
    pump_job *round = l->head;
    l->head = NULL;
    l->tail = &l->head;
    return round;
}

static pump_job *next_of(pump_lane *l, pump_job **round)
{
    LOCK_SCOPE(&l->lock);
    pump_job *j = *round;
    if (j) {
        *round = j->next;
        j->queued = false;
    }
    return j;
}

static void take_events(pump_lane *l, const struct epoll_event *ev, int n)
{
    LOCK_SCOPE(&l->lock);
    for (int i = 0; i < n; i++) {
        if (ev[i].data.ptr) {
            enqueue(l, ev[i].data.ptr);
            continue;
        }
        eventfd_t v;
        eventfd_read(l->wake, &v);
        l->woken = false;
    }
}

/* False: it is to stop. */
static bool look(pump_lane *l, int *ret_timeout)
{
    LOCK_SCOPE(&l->lock);
    *ret_timeout = l->head ? 0 : -1;
    return !l->stop;
}

/* Events only queue jobs, and each job runs at most once for them: nothing that a run frees can
 * still be named by an event of the same batch. */
static void *lane_run(void *arg)
{
    pump_lane *l = arg;
    struct epoll_event ev[BATCH];
    int timeout;

    own = l;
    if (l->bulk && setpriority(PRIO_PROCESS, (id_t)gettid(), NICE))
        log_warn("pump", "floods of output are moved at a full priority: %s",
                 strerrordesc_np(errno));
    while (look(l, &timeout)) {
        int n = epoll_wait(l->ep, ev, BATCH, timeout);
        if (n < 0 && errno != EINTR) {
            log_error("pump", "epoll_wait: %s", strerrordesc_np(errno));
            abort();
        }
        take_events(l, ev, n);
        pump_job *round = take_round(l), *j;
        while ((j = next_of(l, &round))) {
            j->run(j);
            j->unref(j);
        }
    }
    return NULL;
}

bool pump_watch(pump_job *j, int fd, uint32_t before, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = j};
    int op = !before ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;

    if (before == events)
        return true;
    if (!epoll_ctl(atomic_load(&j->lane)->ep, op, fd, &e))
        return true;
    log_error("pump", "epoll_ctl: %s", strerrordesc_np(errno));
    return false;
}

bool pump_is_bulk(const pump_job *j)
{
    return atomic_load(&j->lane)->bulk;
}

bool pump_move(pump *p, pump_job *j, bool bulk)
{
    pump_lane *from = atomic_load(&j->lane);
    unsigned n = atomic_fetch_add(&p->next_bulk, 1);
    pump_lane *to = bulk ? &p->lane[p->nfast + n % BULK] : &p->lane[n % p->nfast];

    {
        LOCK_SCOPE(&from->lock);
        if (j->queued)
            return false;
        atomic_store(&j->lane, to);
    }
    pump_kick(j);
    return true;
}

void pump_job_init(pump *p, pump_job *j, uint64_t spread)
{
    atomic_store(&j->lane, &p->lane[spread % p->nfast]);
}

static err *lane_start(pump_lane *l, bool bulk)
{
    struct epoll_event e = {.events = EPOLLIN};

    l->bulk = bulk;
    l->tail = &l->head;
    pthread_mutex_init(&l->lock, NULL);
    l->ep = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->ep < 0 || l->wake < 0 || epoll_ctl(l->ep, EPOLL_CTL_ADD, l->wake, &e))
        return err_sys(ERR_INTERNAL, errno, "cannot start a pump");
    l->thread = thread_start(bulk ? "pump-bulk" : "pump", lane_run, l);
    l->started = true;
    return NULL;
}

static void lane_stop(pump_lane *l)
{
    if (!l->started)
        return;
    {
        LOCK_SCOPE(&l->lock);
        l->stop = true;
        eventfd_write(l->wake, 1);
    }
    pthread_join(l->thread, NULL);
    l->started = false;
    pump_job *round = take_round(l), *j;
    while ((j = next_of(l, &round)))
        j->unref(j);
}

static void lane_done(pump_lane *l)
{
    if (!l->tail)
        return;
    closep(&l->ep);
    closep(&l->wake);
    pthread_mutex_destroy(&l->lock);
}

/* ---- timers: a binary heap ---- */

static void heap_place(pump *p, size_t i, pump_timer *t)
{
    p->heap[i] = t;
    t->heap = i + 1;
}

static void heap_up(pump *p, size_t i, pump_timer *t)
{
    while (i && p->heap[(i - 1) / 2]->at_ns > t->at_ns) {
        heap_place(p, i, p->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_place(p, i, t);
}

static void heap_down(pump *p, size_t i, pump_timer *t)
{
    for (;;) {
        size_t c = 2 * i + 1;
        if (c + 1 < p->nheap && p->heap[c + 1]->at_ns < p->heap[c]->at_ns)
            c++;
        if (c >= p->nheap || p->heap[c]->at_ns >= t->at_ns)
            break;
        heap_place(p, i, p->heap[c]);
        i = c;
    }
    heap_place(p, i, t);
}

static void heap_take(pump *p, pump_timer *t)
{
    size_t i = t->heap - 1;
    pump_timer *last = p->heap[--p->nheap];

    t->heap = 0;
    if (last == t)
        return;
    if (i && p->heap[(i - 1) / 2]->at_ns > last->at_ns)
        heap_up(p, i, last);
    else
        heap_down(p, i, last);
}

void pump_timer_set(pump *p, pump_timer *t, uint64_t at_ns)
{
    LOCK_SCOPE(&p->lock);
    if (t->heap)
        heap_take(p, t);
    if (p->nheap == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->heap = xrealloc(p->heap, p->cap * sizeof(pump_timer *));
    }
    t->at_ns = at_ns;
    p->nheap++;
    heap_up(p, p->nheap - 1, t);
    if (t->heap == 1)
        pthread_cond_signal(&p->cond);
}

void pump_timer_cancel(pump *p, pump_timer *t)
{
    LOCK_SCOPE(&p->lock);
    if (t->heap)
        heap_take(p, t);
}

static void *timer_run(void *arg)
{
    pump *p = arg;

    LOCK_SCOPE(&p->lock);
    while (!p->stop) {
        if (!p->nheap || p->heap[0]->at_ns > now_mono_ns()) {
            cond_wait_until(&p->cond, &p->lock, p->nheap ? p->heap[0]->at_ns : 0);
            continue;
        }
        pump_timer *t = p->heap[0];
        heap_take(p, t);
        t->fire(t);
    }
    return NULL;
}

/* ---- together ---- */

err *pump_new(pump **ret_pump)
{
    pump *p = xcalloc(1, sizeof *p);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    err *e = NULL;

    p->nfast = cpus < 1 ? 1 : cpus > (long)FAST_MAX ? FAST_MAX : (unsigned)cpus;
    pthread_mutex_init(&p->lock, NULL);
    cond_init(&p->cond);
    for (unsigned i = 0; i < p->nfast + BULK && !e; i++)
        e = lane_start(&p->lane[i], i >= p->nfast);
    if (e) {
        pump_free(p);
        return e;
    }
    p->timer_thread = thread_start("exec-timer", timer_run, p);
    p->timer_started = true;
    *ret_pump = p;
    return NULL;
}

void pump_stop(pump *p)
{
    if (p->timer_started) {
        {
            LOCK_SCOPE(&p->lock);
            p->stop = true;
            pthread_cond_signal(&p->cond);
        }
        pthread_join(p->timer_thread, NULL);
        p->timer_started = false;
    }
    for (unsigned i = 0; i < p->nfast + BULK; i++)
        lane_stop(&p->lane[i]);
}

void pump_free(pump *p)
{
    if (!p)
        return;
    pump_stop(p);
    for (unsigned i = 0; i < p->nfast + BULK; i++)
        lane_done(&p->lane[i]);
    pthread_cond_destroy(&p->cond);
    pthread_mutex_destroy(&p->lock);
    free(p->heap);
    free(p);
}
