/* Pump threads: epoll loops that run jobs, and a timer that kicks them.
 *
 * A job (one per exec) runs on one thread at a time, its lane's, when one of its descriptors is
 * ready or when it was kicked. A run moves at most a quantum; descriptors are level-triggered, so
 * the rest comes up again after the turns of all other jobs. There are two kinds of lanes: a job
 * that floods moves to a bulk lane, where a slow disk delays only other floods.
 *
 * A run may block for seconds in a call on a tenant's pipe, because the tenant can hold the pipe's
 * mutex in the kernel. The timer thread therefore checks the lanes every TICK. When a run of a job
 * that has a pump_party lasts STUCK_TICKS of them, a new thread takes over the lane and its queue.
 * The thread in the call gets a separate lane for the party: all jobs of the party run there, one
 * at a time, until no run has blocked for a while. Threads of other lanes that block in jobs of the
 * same party end when they come back. So a party costs others the time until a block is noticed,
 * and one thread.
 *
 * Kicking is cheap and may happen from any thread, with any lock held. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PUMP_WATCHES 4

typedef struct pump pump;
typedef struct pump_lane pump_lane;

/* Groups the jobs that touch one sandbox's descriptors: when one of them blocks, all move to a
 * separate lane. Must be zeroed, and must outlive its jobs. */
typedef struct pump_party {
    _Atomic(pump_lane *) alone; /* separate lane of the party; NULL: it never blocked */
    const char *name;           /* for the log */
} pump_party;

typedef struct pump_job {
    void (*run)(struct pump_job *j); /* on the lane's thread, nothing locked */
    void (*ref)(struct pump_job *j); /* a queued job is referenced */
    void (*unref)(struct pump_job *j);
    pump_party *party; /* NULL: its runs touch no tenant's descriptors and never block */
    _Atomic(pump_lane *) lane;
    bool bulk; /* for the job itself */
    /* lane's lock */
    bool queued;
    bool away;     /* a thread that lost its lane is still in the run */
    bool disarmed; /* its descriptors are not in the lane's epoll */
    struct pump_job *next;
    pump_lane *home;                        /* the lane it returns to from a separate lane */
    struct pump_job *guests, **guests_prev; /* list of the jobs on a separate lane */
    struct {
        int fd;
        uint32_t events; /* 0: a free place */
    } watch[PUMP_WATCHES];
} pump_job;

err *pump_new(pump **ret_pump) ERR_MUST;
/* Stops all threads; queued jobs are dropped without a run. Returns false if after some seconds a
 * run still blocks: its thread will use its job and the pump, so neither may be freed. */
bool pump_stop(pump *p);
void pump_free(pump *p);

/* Puts a job on a lane that `spread` chooses. run, ref, unref and party must be set. */
void pump_job_init(pump *p, pump_job *j, uint64_t spread);
/* Must be called before the job's memory is freed. */
void pump_job_done(pump_job *j);
/* Must be called before the party's memory is freed, when it has no job left. */
void pump_party_done(pump_party *party);
bool pump_party_is_alone(pump_party *party);
void pump_kick(pump_job *j);
/* Puts a job on the lane of another one, before its first kick. */
void pump_beside(pump_job *j, pump_job *other);

/* Watches a descriptor of a job, level-triggered; events 0: no longer, which comes before the
 * descriptor is closed. From the job's own run only. At most PUMP_WATCHES at a time. The job's
 * owner holds a reference to it as long as a descriptor is watched. Returns false if it cannot be
 * watched. */
bool pump_watch(pump_job *j, int fd, uint32_t events);
bool pump_is_bulk(const pump_job *j);
/* Moves a job, with its descriptors, to the other kind of lane and kicks it there. Must be the last
 * step of a run. Returns false if it stays. */
bool pump_move(pump *p, pump_job *j, bool bulk);

/* A timer. fire() is called by the timer thread with the timer's lock held: it may only kick. After
 * pump_timer_cancel() it does not run any more. */
typedef struct pump_timer {
    void (*fire)(struct pump_timer *t);
    uint64_t at_ns; /* CLOCK_MONOTONIC */
    size_t heap;    /* its place + 1; 0: not armed */
} pump_timer;
void pump_timer_set(pump *p, pump_timer *t, uint64_t at_ns);
void pump_timer_cancel(pump *p, pump_timer *t);
