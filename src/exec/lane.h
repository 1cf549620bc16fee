/* Inside the pump: what lane.c (jobs, queues, descriptors), timers.c and pump.c (threads, the watch
 * over them) share. Of others only their tests include it.
 *
 * Locks, in the order they are taken: the pump's, for timers → alone_lock → a lane's → a party's
 * lane's. */
#pragma once

#include "exec/pump.h"

#define FAST_MAX 4u
#define BULK     2u

typedef struct pump_worker {
    pump *p;
    pump_lane *lane; /* NULL: another thread has it now. The lane's lock, and who has it */
    uint64_t run;    /* of the lane, that blocks: it is to be taken over. 0: a new lane */
} pump_worker;

struct pump_lane {
    pump *p;
    int ep, wake;
    bool bulk, alone;
    pthread_mutex_t lock; /* everything below */
    pump_worker *worker;  /* NULL: of a party that shares lanes */
    pump_job *running;    /* referenced by the worker; for the one of a party's lane not known */
    uint64_t runs;
    pump_job *head, **tail;
    pump_job *round; /* of the queue, what has its turn now */
    bool stop, woken;
    bool relief;   /* a thread is on its way to take over */
    uint64_t seen; /* runs, at the last tick */
    unsigned ticks;
    /* a party's */
    pump_job *guests; /* every job whose lane it is */
    size_t naway;
    bool leaving; /* its jobs are on their way home */
    bool orphan;  /* the party is gone */
    unsigned strikes;
    uint64_t quiet_ns; /* until then no run may block */
    pump_lane *next;   /* in p->alone */
};

struct pump {
    unsigned nfast;
    unsigned nlanes;   /* of `lane` that were begun: all, unless one of them failed */
    uint64_t quiet_ns; /* a party that blocked is alone for so long */
    pump_lane lane[FAST_MAX + BULK];
    _Atomic unsigned next_bulk;
    pthread_mutex_t alone_lock; /* around lanes' locks */
    pump_lane *alone;           /* alone_lock: lanes of parties */
    pthread_mutex_t lock;       /* timers, and below; never taken inside a lane's lock */
    pthread_cond_t cond;
    pthread_t timer_thread;
    pump_timer **heap;
    size_t nheap, cap;
    bool stop, timer_started;
    uint64_t tick_ns;     /* the next one */
    _Atomic bool dozing;  /* no lane works: there are no ticks until one does */
    unsigned nworkers;    /* threads of lanes */
    pthread_cond_t ended; /* nworkers fell */
};

/* lane.c */
extern _Thread_local pump_lane *lane_own; /* of a lane's thread */
bool lane_init(pump *p, pump_lane *l);
pump_lane *lane_new_alone(pump *p);
/* A party's lane is freed, one of the pump's only what it has. */
void lane_free(pump_lane *l);
/* Returns the job's lane, locked. */
pump_lane *job_lock(pump_job *j);
/* All below with the lane's lock held. A job that is away is queued by its thread when that comes
 * back. */
void lane_enqueue(pump_lane *l, pump_job *j);
void lane_wake(pump_lane *l);
void job_arm(pump_lane *l, pump_job *j);
/* Queues a job on its sandbox's separate lane, if it has one, with the caller's reference. Returns
 * false if the job stays on this lane. */
bool job_goes_alone(pump_lane *l, pump_job *j);
/* Both locks held. Moves a job that blocks; true: a reference, the queue's, is to be let go. */
bool job_send_away(pump_lane *from, pump_lane *to, pump_job *j);
/* The thread leaves the lane. True: it is the one to free it. */
bool lane_detach(pump_lane *l);
/* Ends a separate lane when its jobs have not blocked for a while. Returns false if work came
 * meanwhile. Nothing locked. */
bool lane_leave(pump_lane *l, bool *ret_free);

/* timers.c; the pump's lock held */
/* Takes the timer that is due; or returns NULL and when one will be, 0: there is none. */
pump_timer *timers_take(pump *p, uint64_t now, uint64_t *ret_next);
