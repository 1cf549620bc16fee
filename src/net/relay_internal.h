/* Shared by the files of the relay. */
#pragma once

#include "base/log.h"
#include "net/internal.h"

typedef struct lane lane;

struct relay_job {
    lane *lane;
    conn *conn;
    const relay_ops *ops; /* NULL: only sends `out` */
    void *ctx;
    buf out;
    size_t sent; /* bytes of `out` */
    enum relay_next next;
    bool started, woken;
    bool keep_alive, http11, head_only, discard, counted;
    bool deaf;                /* the peer has ended its side, which is allowed */
    bool full;                /* input is paused: enough bytes wait */
    bool ending, ended, gone; /* as in relay_io */
    bool over;                /* waits to be freed: later events of this turn may point to it */
    int second;               /* watched beside conn->fd, or -1 */
    uint32_t interest;
    uint64_t wake_at, stall_at, due;
    size_t heap_at;                     /* 1-based; 0: no timer */
    size_t input;                       /* bytes taken from the peer */
    relay_job *prev, *following;        /* the lane's list; lane thread only */
    relay_job *queue_prev, *queue_next; /* lane's lock held */
    bool queued;
    access_answer answer;
    enum stream_kind kind;
    char *party;
    uint64_t held; /* bytes charged to the tenant */
    log_ids ids;   /* log lines about it carry these */
    request *request;
    lapse lapse;
};

struct lane {
    relay *relay;
    pthread_t thread;
    int epfd, evfd;
    relay_job *jobs;
    relay_job *over;  /* ended in this turn, to be freed */
    relay_job **heap; /* 1-based, by due */
    size_t nheap, heap_cap;
    size_t nlapses;     /* jobs whose callers may lapse */
    uint64_t lapses_at; /* time of the next check */
    pthread_mutex_t lock;
    relay_job *first, *last; /* woken or new */
    bool signalled, stopping;
    uint64_t answer_at, stop_at; /* while stopping: limits for unbegun answers and for sending */
};

struct relay {
    server *server;
    lane *lanes;
    unsigned nlanes;
    _Atomic unsigned turn;
    bool stopped;
};

/* ---- relay_timer.c: timers of the jobs; lane thread only ---- */
void relay_timer_set(relay_job *j, uint64_t due); /* 0: none */
void relay_timer_clear(relay_job *j);
