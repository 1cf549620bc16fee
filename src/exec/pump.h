/* Pump threads: epoll loops that run jobs, and a timer that kicks them.
 *
 * A job (one per exec) runs on one thread at a time, its lane's: because one of its descriptors is
 * ready, or because somebody kicked it. What a run may move is a quantum; descriptors are
 * level-triggered, so what is left comes up again after everybody else's turn. There are two kinds
 * of lanes: a job that floods moves to the bulk lane, where a disk that blocks delays only others
 * that flood.
 *
 * A run may block for seconds in a call on a tenant's pipe: the tenant can hold the pipe's mutex in
 * the kernel. The timer's thread therefore looks at the lanes every TICK; when a run of a job that
 * has a party lasts STUCK_TICKS of them, a new thread takes over the lane and its queue. The thread
 * in the call becomes the one of a lane that the party has to itself: every job of the party runs
 * there, in turns, until no run has blocked for a while. Threads of other lanes that block in the
 * same party's jobs end when they come back. So a party costs others the time until a block is
 * noticed, and one thread.
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

/* Jobs that touch descriptors of one tenant, of one sandbox. Zeroed by its owner, who outlives its
 * jobs. */
typedef struct pump_party {
    _Atomic(pump_lane *) alone; /* NULL: it never blocked */
    const char *name;           /* for the log */
} pump_party;

typedef struct pump_job {
    void (*run)(struct pump_job *j); /* on the lane's thread, nothing locked */
    void (*ref)(struct pump_job *j); /* a queued job is referenced */
    void (*unref)(struct pump_job *j);
    pump_party *party; /* NULL: its runs touch no tenant's descriptors and never block */
    _Atomic(pump_lane *) lane;
    bool bulk; /* the job's */
    /* lane's lock */
    bool queued;
    bool away;     /* a thread that lost its lane is still in the run */
    bool disarmed; /* its descriptors are not in the lane's epoll */
    struct pump_job *next;
    pump_lane *home;                        /* where it goes when its party shares lanes again */
    struct pump_job *guests, **guests_prev; /* a list, on its party's lane */
    struct {
        int fd;
        uint32_t events; /* 0: a free place */
    } watch[PUMP_WATCHES];
} pump_job;

err *pump_new(pump **ret_pump) ERR_MUST;
/* Stops all threads; queued jobs are let go without a run. False: after some seconds a run still
 * blocks. Its thread will use its job and the pump: nothing of them may be freed. */
bool pump_stop(pump *p);
void pump_free(pump *p);

/* After run, ref, unref and party were set. */
void pump_job_init(pump *p, pump_job *j, uint64_t spread);
/* Before the job's memory goes. */
void pump_job_done(pump_job *j);
/* Before the party's goes: no job of it is left. */
void pump_party_done(pump_party *party);
bool pump_party_is_alone(pump_party *party);
void pump_kick(pump_job *j);
/* On the same lane as another, before it is kicked for the first time. */
void pump_beside(pump_job *j, pump_job *other);

/* From the job's own run only. Descriptors are level-triggered; events 0 removes, which comes
 * before the descriptor is closed. At most PUMP_WATCHES at a time. The job must be referenced by its
 * owner for as long as it has one registered. */
bool pump_watch(pump_job *j, int fd, uint32_t events);
bool pump_is_bulk(const pump_job *j);
/* To the other kind of lane, with its descriptors, as the last thing of a run. It is kicked there. */
bool pump_move(pump *p, pump_job *j, bool bulk);

/* Timers. fire() is called by the timer thread with the timer's lock held: it may kick, nothing
 * else. After pump_timer_cancel() it is not running and will not. */
typedef struct pump_timer {
    void (*fire)(struct pump_timer *t);
    uint64_t at_ns; /* CLOCK_MONOTONIC */
    size_t heap;    /* its place + 1; 0: not armed */
} pump_timer;
void pump_timer_set(pump *p, pump_timer *t, uint64_t at_ns);
void pump_timer_cancel(pump *p, pump_timer *t);
