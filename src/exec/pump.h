/* Pump threads: epoll loops that run jobs, and a timer that kicks them.
 *
 * A job (one per exec) runs on one thread at a time, its lane's: because one of its descriptors is
 * ready, or because somebody kicked it. What a run may move is a quantum; descriptors are
 * level-triggered, so what is left comes up again after everybody else's turn. There are two kinds
 * of lanes: a job that floods moves to the bulk lane, where a disk that blocks delays only others
 * that flood.
 *
 * Kicking is cheap and may happen from any thread, with any lock held. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct pump pump;
typedef struct pump_lane pump_lane;

typedef struct pump_job {
    void (*run)(struct pump_job *j); /* on the lane's thread, nothing locked */
    void (*ref)(struct pump_job *j); /* a queued job is referenced */
    void (*unref)(struct pump_job *j);
    _Atomic(pump_lane *) lane;
    bool queued;           /* lane's lock */
    struct pump_job *next; /* lane's lock */
} pump_job;

err *pump_new(pump **ret_pump) ERR_MUST;
/* Stops and joins all threads; queued jobs are let go without a run. */
void pump_stop(pump *p);
void pump_free(pump *p);

void pump_job_init(pump *p, pump_job *j, uint64_t spread);
void pump_kick(pump_job *j);
/* On the same lane as another, before it is kicked for the first time. */
void pump_beside(pump_job *j, pump_job *other);

/* From the job's own run only. Descriptors are level-triggered; events 0 removes. The job must be
 * referenced by its owner for as long as it has one registered. */
bool pump_watch(pump_job *j, int fd, uint32_t before, uint32_t events);
bool pump_is_bulk(const pump_job *j);
/* To the other kind of lane; all its descriptors must have been removed. It is kicked there. */
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
