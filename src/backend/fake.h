/* Internals of the fake backend: boxes and their connections to bothy-fake-node. Only fake*.c
 * include this. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/cleanup.h"

typedef struct fake fake;

struct pending { /* a SPAWN without its answer */
    struct pending *next;
    uint64_t id;
    buf message;
};

struct box {
    _Atomic unsigned refs;
    fake *owner;
    char id[SANDBOX_ID_LEN + 1];
    const box_events *ev;
    void *arg;
    box *next; /* owner->lock */

    /* connection thread only */
    buf in;
    create_done *done; /* a create under way */
    bool claiming;
    bool starting; /* no event was delivered yet */
    buf hello;     /* kept until the claim is answered */

    pthread_mutex_t lock;
    int fd;                  /* lock; changed by the thread */
    bool ready;              /* lock: HELLO came on this connection */
    bool gone;               /* lock */
    bool want_write;         /* lock: EPOLLOUT is on */
    buf out;                 /* lock: whole messages */
    size_t sent;             /* lock: bytes of the first message already sent on this connection */
    buf claim;               /* lock: the CLAIM message until it is sent; wiped */
    struct pending *pending; /* lock; oldest first */
    buf cookies;             /* lock: of the signals in flight on this connection, oldest first */
};

struct fake {
    backend b;
    char *dir, *program, *kit;
    unsigned cut_every, repeat_every;
    unsigned long frames; /* connection thread only */
    int ep, wake;
    pthread_t thread;
    pthread_mutex_t lock;
    box *boxes; /* lock; each is referenced */
    bool stop;  /* lock */
};

box *fake_box_new(fake *f, const char *id, const box_events *ev, void *arg);
void fake_box_ref(box *x);
void fake_box_unref(box *x);
DEFINE_CLEANUP(box, fake_box_unref)
void fake_pending_free(struct pending *p);

/* Queues a record for the node; kept until a connection has sent it. */
void fake_post(box *x, const void *record, size_t size, const void *extra, size_t n);
/* As fake_post, but ERR_SANDBOX_GONE if the box has ended. */
err *fake_post_checked(box *x, const void *record, size_t size, const void *extra,
                       size_t n) ERR_MUST;
void fake_flush(box *x); /* lock held */

err *fake_connect(box *x, bool create) ERR_MUST;
void fake_disconnect(box *x); /* lock held */
/* Drops the backend's own reference. */
void fake_forget(box *x);

/* Runs the thread of all connections; arg is the backend. */
void *fake_run(void *arg);
