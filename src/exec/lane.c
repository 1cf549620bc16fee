/* Lanes of the pump: queues of jobs, their descriptors, and the separate lanes of sandboxes whose
 * jobs have blocked (pump_party). */
#include "exec/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

/* ---- lanes ---- */

_Thread_local const pump_worker *worker_own;

/* Returns the job's lane, locked. */
pump_lane *job_lock(pump_job *j)
{
    for (;;) {
        pump_lane *l = atomic_load(&j->lane);
        pthread_mutex_lock(&l->lock);
        if (atomic_load(&j->lane) == l)
            return l;
        pthread_mutex_unlock(&l->lock); /* it moved in between */
    }
}

/* Appends a job whose reference is the queue's. Lock held. */
static void lane_append(pump_lane *l, pump_job *j)
{
    j->queued = true;
    j->next = NULL;
    *l->tail = j;
    l->tail = &j->next;
}

/* Queues a job. A job that is `away` is queued by its thread after its run. Lock held. */
void lane_enqueue(pump_lane *l, pump_job *j)
{
    if (j->queued || j->away || l->stop)
        return;
    j->ref(j);
    lane_append(l, j);
}

/* Wakes the lane's thread, unless that is the caller: it looks at its queue before it sleeps. A
 * caller that blocked may have lost the lane on which its job began. Lock held. */
void lane_wake(pump_lane *l)
{
    if (l->woken || (l->worker && l->worker == worker_own))
        return;
    l->woken = true;
    eventfd_write(l->wake, 1);
}

void pump_kick(pump_job *j)
{
    pump_lane *l = job_lock(j);

    lane_enqueue(l, j);
    lane_wake(l);
    pthread_mutex_unlock(&l->lock);
}

void pump_beside(pump_job *j, pump_job *other)
{
    pump_lane *l = job_lock(other), *to = l->alone ? other->home : l;

    pthread_mutex_unlock(&l->lock);
    atomic_store(&j->lane, to);
}

/* ---- descriptors of jobs ---- */

/* Removes the job's descriptors from the lane's epoll. The job is not running on another thread, or
 * is away. Lock held. */
static void job_disarm(pump_lane *l, pump_job *j)
{
    for (unsigned i = 0; i < PUMP_WATCHES && !j->disarmed; i++)
        if (j->watch[i].events)
            epoll_ctl(l->ep, EPOLL_CTL_DEL, j->watch[i].fd, NULL);
    j->disarmed = true;
}

static bool lane_watch(pump_lane *l, pump_job *j, int op, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = j};

    if (!epoll_ctl(l->ep, op, fd, &e))
        return true;
    log_error("pump", "epoll_ctl: %s", strerrordesc_np(errno));
    return false;
}

/* Adds the job's descriptors to the lane's epoll. A descriptor that cannot be watched is forgotten:
 * the run that follows tries again and notices. Lock held. */
void job_arm(pump_lane *l, pump_job *j)
{
    for (unsigned i = 0; i < PUMP_WATCHES; i++)
        if (j->watch[i].events &&
            !lane_watch(l, j, EPOLL_CTL_ADD, j->watch[i].fd, j->watch[i].events))
            j->watch[i].events = 0;
    j->disarmed = false;
}

/* Returns the place of a descriptor, or a free one, or PUMP_WATCHES. */
static unsigned job_place(const pump_job *j, int fd)
{
    unsigned place = PUMP_WATCHES;

    for (unsigned i = 0; i < PUMP_WATCHES; i++) {
        if (j->watch[i].events && j->watch[i].fd == fd)
            return i;
        if (!j->watch[i].events)
            place = i;
    }
    return place;
}

bool pump_watch(pump_job *j, int fd, uint32_t events)
{
    unsigned i = job_place(j, fd);
    bool done = true;

    if (i == PUMP_WATCHES)
        return !events;
    uint32_t before = j->watch[i].events; /* only the run changes it */
    if (before == events)
        return true;
    pump_lane *l = job_lock(j);
    if (!j->disarmed)
        done = lane_watch(l, j,
                          !before  ? EPOLL_CTL_ADD
                          : events ? EPOLL_CTL_MOD
                                   : EPOLL_CTL_DEL,
                          fd, events);
    if (done) {
        j->watch[i].fd = fd;
        j->watch[i].events = events;
    }
    pthread_mutex_unlock(&l->lock);
    return done;
}

bool pump_is_bulk(const pump_job *j)
{
    return j->bulk;
}

bool pump_move(pump *p, pump_job *j, bool bulk)
{
    unsigned n = atomic_fetch_add(&p->next_bulk, 1);
    pump_lane *to = bulk ? &p->lane[p->nfast + n % BULK] : &p->lane[n % p->nfast];
    pump_lane *from = job_lock(j);
    bool move = !from->alone && !j->queued;

    if (from->alone)
        j->home = to;
    else if (move)
        job_disarm(from, j);
    if (from->alone || move)
        j->bulk = bulk;
    if (move)
        atomic_store(&j->lane, to);
    pthread_mutex_unlock(&from->lock);
    if (move)
        pump_kick(j);
    return move;
}

void pump_job_init(pump *p, pump_job *j, uint64_t spread)
{
    atomic_store(&j->lane, &p->lane[spread % p->nfast]);
}

/* ---- separate lanes ---- */

/* Returns true if the lane has a thread and accepts jobs. Lock held. */
static bool lane_is_taking(const pump_lane *l)
{
    return l->worker && !l->leaving && !l->stop;
}

/* Moves a job to its sandbox's separate lane. Both lanes' locks held. */
static void job_go(pump_lane *from, pump_lane *to, pump_job *j)
{
    job_disarm(from, j);
    j->home = from;
    j->guests = to->guests;
    j->guests_prev = &to->guests;
    if (to->guests)
        to->guests->guests_prev = &j->guests;
    to->guests = j;
    atomic_store(&j->lane, to);
}

/* Takes a job off its separate lane's list. Lane's lock held. */
static void job_leave_list(pump_job *j)
{
    *j->guests_prev = j->guests;
    if (j->guests)
        j->guests->guests_prev = j->guests_prev;
}

/* Takes a job out of a list; tail may be NULL. */
static bool lane_unlink(pump_job **at, pump_job ***tail, const pump_job *j)
{
    while (*at && *at != j)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = j->next;
    if (tail && !*at)
        *tail = at;
    return true;
}

bool job_send_away(pump_lane *from, pump_lane *to, pump_job *j)
{
    bool queued = j->queued; /* it was kicked meanwhile; it is queued again after its run */

    if (queued && !lane_unlink(&from->round, NULL, j))
        lane_unlink(&from->head, &from->tail, j);
    j->queued = false;
    job_go(from, to, j);
    j->away = true;
    to->naway++;
    return queued;
}

/* Queues a job on its sandbox's separate lane, if it has one, with the caller's reference. Returns
 * false if the job stays on this lane. l's lock held. */
bool job_goes_alone(pump_lane *l, pump_job *j)
{
    pump_lane *to = j->party ? atomic_load(&j->party->alone) : NULL;

    if (!to || to == l)
        return false;
    LOCK_SCOPE(&to->lock);
    if (!lane_is_taking(to))
        return false;
    job_go(l, to, j);
    lane_append(to, j);
    lane_wake(to);
    return true;
}

/* Moves one job of a separate lane back to its shared lane. Returns false if none is left, or if
 * one has work again. */
static bool lane_send_home(pump_lane *l)
{
    pump_job *j;
    bool kick = false;

    {
        LOCK_SCOPE(&l->lock);
        l->leaving &= l->guests && !l->guests->queued; /* there is work again */
        if (!l->leaving)
            return false;
        j = l->guests;
        for (unsigned i = 0; i < PUMP_WATCHES; i++)
            kick |= j->watch[i].events != 0; /* so it is referenced */
        if (kick)
            j->ref(j);
        job_disarm(l, j);
        job_leave_list(j);
        atomic_store(&j->lane, j->home);
    }
    if (kick) {
        pump_kick(j);
        j->unref(j);
    }
    return true;
}

/* Returns true if no run has blocked for long enough, and no job waits. Lock held. */
static bool lane_is_quiet(const pump_lane *l)
{
    return !l->head && !l->round && !l->naway && now_mono_ns() >= l->quiet_ns;
}

/* Takes the thread off the lane. Returns true if the thread must free it. Lock held. */
bool lane_detach(pump_lane *l)
{
    l->worker = NULL;
    return l->orphan;
}

/* Ends a separate lane when its jobs have not blocked for a while. Returns false if work came
 * meanwhile. */
bool lane_leave(pump_lane *l, bool *ret_free)
{
    {
        LOCK_SCOPE(&l->lock);
        if (!lane_is_quiet(l))
            return false;
        l->leaving = true;
    }
    while (lane_send_home(l))
        continue;
    LOCK_SCOPE(&l->lock);
    bool left = !l->guests && lane_is_quiet(l);
    l->leaving = false;
    if (left)
        *ret_free = lane_detach(l);
    return left;
}

void pump_job_done(pump_job *j)
{
    pump_lane *l = job_lock(j);

    if (l->alone)
        job_leave_list(j);
    pthread_mutex_unlock(&l->lock);
}

void lane_free(pump_lane *l)
{
    closep(&l->ep);
    closep(&l->wake);
    pthread_mutex_destroy(&l->lock);
    if (l->alone)
        free(l);
}

void pump_party_done(pump_party *party)
{
    pump_lane *l = atomic_exchange(&party->alone, NULL);
    bool unused;

    if (!l)
        return;
    {
        LOCK_SCOPE(&l->p->alone_lock);
        pump_lane **at = &l->p->alone;
        while (*at != l)
            at = &(*at)->next;
        *at = l->next;
    }
    {
        LOCK_SCOPE(&l->lock);
        l->stop = l->orphan = true;
        unused = !l->worker;
        lane_wake(l);
    }
    if (unused)
        lane_free(l);
}

bool pump_party_is_alone(pump_party *party)
{
    pump_lane *l = atomic_load(&party->alone);

    if (!l)
        return false;
    LOCK_SCOPE(&l->lock);
    return l->worker;
}

bool lane_init(pump *p, pump_lane *l)
{
    struct epoll_event e = {.events = EPOLLIN};

    l->p = p;
    l->tail = &l->head;
    pthread_mutex_init(&l->lock, NULL);
    l->ep = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return l->ep >= 0 && l->wake >= 0 && !epoll_ctl(l->ep, EPOLL_CTL_ADD, l->wake, &e);
}

pump_lane *lane_new_alone(pump *p)
{
    pump_lane *l = xcalloc(1, sizeof *l);

    l->alone = true;
    if (lane_init(p, l))
        return l;
    log_error("pump", "cannot make a lane: %s", strerrordesc_np(errno));
    lane_free(l);
    return NULL;
}
