/* Internal header of the pump, shared by lane.c (jobs, queues, descriptors), timers.c and pump.c
 * (threads, and the watch over them). Elsewhere only their tests include it.
 *
 * Locks, in the order they are taken: the pump's, for timers → alone_lock → a lane's → a separate
 * lane's. A separate lane serves the jobs of one pump_party, that is of one sandbox. */
#pragma once

#include "exec/pump.h"

#define FAST_MAX 4u
#define BULK     2u

typedef struct pump_worker {
    pump *p;
    pump_lane *lane; /* NULL: another thread has it now. Guarded by the lane's lock */
    uint64_t run;    /* number of the lane's run that blocks and is taken over; 0: a new lane */
} pump_worker;

struct pump_lane {
    pump *p;
    int ep, wake;
    bool bulk, alone;
    pthread_mutex_t lock; /* everything below */
    pump_worker *worker;  /* NULL: a separate lane that is not in use */
    pump_job *running;    /* referenced by the worker; not set for a run from another lane */
    uint64_t runs;
    pump_job *head, **tail;
    pump_job *round; /* the part of the queue that is run now */
    bool stop, woken;
    bool relief;   /* a thread is on its way to take over */
    uint64_t seen; /* `runs` at the last tick */
    unsigned ticks;
    /* of a separate lane */
    pump_job *guests; /* all jobs of this lane */
    size_t naway;
    bool leaving; /* its jobs are being moved back */
    bool orphan;  /* its pump_party is gone */
    unsigned strikes;
    uint64_t quiet_ns; /* it ends if no run blocks until then */
    pump_lane *next;   /* in p->alone */
};

struct pump {
    unsigned nfast;
    unsigned nlanes;   /* of `lane` that were started: all, unless one of them failed */
    uint64_t quiet_ns; /* how long a separate lane lasts after a block */
    pump_lane lane[FAST_MAX + BULK];
    _Atomic unsigned next_bulk;
    pthread_mutex_t alone_lock; /* taken before lanes' locks */
    pump_lane *alone;           /* alone_lock: separate lanes */
    pthread_mutex_t lock;       /* timers, and below; never taken inside a lane's lock */
    pthread_cond_t cond;
    pthread_t timer_thread;
    pump_timer **heap;
    size_t nheap, cap;
    bool stop, timer_started;
    uint64_t tick_ns;     /* time of the next tick */
    _Atomic bool dozing;  /* no lane works: there are no ticks until one does */
    unsigned nworkers;    /* threads of lanes */
    pthread_cond_t ended; /* nworkers fell */
};

/* lane.c */
extern _Thread_local const pump_worker *worker_own; /* the calling thread's; NULL: serves no lane */
bool lane_init(pump *p, pump_lane *l);
pump_lane *lane_new_alone(pump *p);
/* Frees a separate lane; of one of the pump's own only its members. */
void lane_free(pump_lane *l);
/* Returns the job's lane, locked. */
pump_lane *job_lock(pump_job *j);
/* The functions below need the lane's lock. A job that is `away` is queued by its thread after its
 * run. */
void lane_enqueue(pump_lane *l, pump_job *j);
void lane_wake(pump_lane *l);
void job_arm(pump_lane *l, pump_job *j);
/* Queues a job on its sandbox's separate lane, if it has one, with the caller's reference. Returns
 * false if the job stays on this lane. */
bool job_goes_alone(pump_lane *l, pump_job *j);
/* Moves a job that blocks to a separate lane. Returns true if it was queued: the caller drops the
 * queue's reference. Both locks held. */
bool job_send_away(pump_lane *from, pump_lane *to, pump_job *j);
/* Takes the thread off the lane. Returns true if the thread must free it. */
bool lane_detach(pump_lane *l);
/* Ends a separate lane when its jobs have not blocked for a while. Returns false if work came
 * meanwhile. No lock held. */
bool lane_leave(pump_lane *l, bool *ret_free);

/* timers.c; the pump's lock held */
/* Takes and returns the timer that is due. Otherwise returns NULL; *ret_next is when the next one
 * is due, 0: there is none. */
pump_timer *timers_take(pump *p, uint64_t now, uint64_t *ret_next);
