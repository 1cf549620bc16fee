/* What the files of the relay share. */
#pragma once

#include "base/log.h"
#include "net/internal.h"

typedef struct lane lane;

struct relay_job {
    lane *lane;
    conn *conn;
    const relay_ops *ops; /* NULL: only what is in out */
    void *ctx;
    buf out;
    size_t sent; /* of out */
    enum relay_next next;
    bool started, woken;
    bool keep_alive, http11, head_only, discard, counted;
    bool deaf;                /* the peer has ended its side, and may */
    bool full;                /* enough of its bytes wait: no more are read */
    bool ending, ended, gone; /* as in relay_io */
    bool over;                /* waits to be freed: events of this turn may name it */
    int second;               /* watched beside conn->fd, or -1 */
    uint32_t interest;
    uint64_t wake_at, stall_at, due;
    size_t heap_at;                     /* 1-based; 0: no timer */
    size_t input;                       /* bytes taken from the peer */
    relay_job *prev, *following;        /* of the lane, by its thread */
    relay_job *queue_prev, *queue_next; /* under the lane's lock */
    bool queued;
    access_answer answer;
    enum stream_kind kind;
    char *party;
    uint64_t held; /* bytes the party is charged with */
    log_ids ids;   /* lines about it carry these */
    request *request;
    lapse lapse;
};

struct lane {
    relay *relay;
    pthread_t thread;
    int epfd, evfd;
    relay_job *jobs;
    relay_job *over;  /* ended in this turn */
    relay_job **heap; /* 1-based, by due */
    size_t nheap, heap_cap;
    size_t nlapses;     /* jobs whose callers may lapse */
    uint64_t lapses_at; /* when they are asked next */
    pthread_mutex_t lock;
    relay_job *first, *last; /* woken or new */
    bool signalled, stopping;
    uint64_t answer_at, stop_at; /* while stopping: until then answers, and bytes, are waited for */
};

struct relay {
    server *server;
    lane *lanes;
    unsigned nlanes;
    _Atomic unsigned turn;
    bool stopped;
};

/* ---- relay_timer.c: when the lane turns to a job by itself; by its thread ---- */
void relay_timer_set(relay_job *j, uint64_t due); /* 0: none */
void relay_timer_clear(relay_job *j);
