/* Inside the oci backend: the warden's client, the loop, boxes. Nobody else includes this.
 *
 * Threads: `warden` (oci_warden.c) talks to the warden and calls answers back; `boxes` (oci_loop.c)
 * holds every connection to an init and is the only one that delivers events. Locks: a box's lock
 * and the warden's are leaves; none is held while an event or an answer is delivered. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "backend/backend.h"
#include "base/cleanup.h"
#include "base/sock.h"
#include "wire/spine_codec.h"
#include "wire/wardenp.h"

/* ---- the warden (oci_warden.c) ---- */

typedef struct oci_warden oci_warden;

typedef struct warden_answer {
    int errnum;           /* 0; an errno of the warden's; with `local` one of ours */
    bool local;           /* no answer came in time, or never will */
    const char *text;     /* for people, "" if there is none */
    uint32_t retry_after; /* seconds, 0: not told */
    const void *body;     /* checked (wp_answer_ok) when errnum is 0; 8-byte aligned */
    size_t n;
    int fd; /* or -1; a receiver that keeps it sets -1 */
} warden_answer;
/* Called once, from the warden thread (at the end of life: from the freeing one). */
typedef void warden_done(void *arg, warden_answer *a);

typedef struct warden_ask {
    uint32_t type;
    struct iovec body[2]; /* copied */
    int fd;               /* -1, or one to send along; duplicated */
    uint64_t timeout_ms;  /* then a local ETIMEDOUT; 0: never */
    uint64_t
        deadline_ms; /* CLAIM, SNAPSHOT: its deadline, counted from now; sent again it is shorter */
    bool now;        /* a call: without a warden it is a local ENOTCONN at once */
    bool prompt;     /* a call: beside a warden that is silent it is a local ENOTCONN at once */
    bool once;       /* fd can be read once: lost with the connection, a local ECONNRESET */
} warden_ask;

/* Connects and greets; waits up to wait_ms for the warden to be there. marks (NULL: the warden's
 * own) are sent at each connection. */
err *oci_warden_new(const char *socket, const struct wp_watermarks *marks, uint64_t wait_ms,
                    oci_warden **ret_warden) ERR_MUST;
/* From now on these. */
void oci_warden_remember(oci_warden *w, const struct wp_watermarks *marks);
uint32_t oci_warden_caps(oci_warden *w);
/* Of the warden that is connected; "" if none is, or it does not tell. */
void oci_warden_release(oci_warden *w, char ret_release[WP_RELEASE_MAX]);
/* Every other request is safe to repeat: one that was lost with the connection is sent again. */
void oci_warden_send(oci_warden *w, const warden_ask *ask, warden_done *done, void *arg);

typedef struct warden_reply { /* the owned form of an answer */
    int errnum;
    bool local;
    uint32_t retry_after;
    char text[WP_ERROR_TEXT + 1];
    buf body;
    int fd;
} warden_reply;
void warden_reply_done(warden_reply *r);
/* The same, waiting. Not from the warden thread. */
void oci_warden_call(oci_warden *w, const warden_ask *ask, warden_reply *ret_reply);
/* Answers what is still open with a local ECANCELED. */
void oci_warden_free(oci_warden *w);

/* The caller's error for an answer: `what` failed. */
err *oci_error(const warden_answer *a, const char *what) ERR_MUST;
/* Of calls that are not a create: nothing to do with pools. */
err *oci_call_error(const warden_reply *r, const char *what) ERR_MUST;
static inline struct wp_id oci_id(const char *id)
{
    struct wp_id r = {0};

    memcpy(r.id, id, strnlen(id, SANDBOX_ID_LEN));
    return r;
}
#define OCI_COUNT_MS 500  /* metrics: whoever scrapes comes again */
#define OCI_LOOK_MS  2000 /* what only looks: a thread waits, and a late answer helps nobody */
#define OCI_SHORT_MS 30000
#define OCI_RETRY_S  5

/* ---- create and attach (oci_create.c) ---- */

void oci_create(backend *b, const box_spec *s, const box_events *ev, void *arg, create_done *done);
err *oci_attach(backend *b, const char *id, const box_events *ev, void *arg,
                box **ret_box) ERR_MUST;

/* oci.c: nobody waits for its answer. */
void oci_destroy_soon(backend *b, const char *id);

/* ---- usage (oci_usage.c) ---- */

err *oci_usage(backend *b, const char *id, box_usage *ret_usage) ERR_MUST;
err *oci_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n,
                    box_usage *ret) ERR_MUST;

/* ---- its end, and limits (oci_fate.c) ---- */

void oci_fate(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg);
err *oci_limits(backend *b, const char *id, const limits *l) ERR_MUST;
/* oci_snapshot.c */
err *oci_snapshot(backend *b, const char *id, const uint8_t layer[32],
                  box_snapshot *ret_what) ERR_MUST;

/* ---- the loop (oci_loop.c) ---- */

typedef struct oci_loop oci_loop;
typedef struct oci oci;

oci_loop *oci_loop_new(void);
/* Runs fn(arg) on the loop's thread, in the order of posting. */
void oci_loop_post(oci_loop *l, void (*fn)(void *arg), void *arg);
/* Watches box->fd for input (and room, when asked); any thread, box->lock held. */
void oci_loop_watch(oci_loop *l, box *x, bool first, bool want_out);
void oci_loop_unwatch(oci_loop *l, box *x);
/* box_timer(x) on the loop's thread after so long; one a box. Loop's thread only. */
void oci_loop_timer(oci_loop *l, box *x, uint64_t delay_ms);
void oci_loop_add(oci_loop *l, box *x);    /* loop's thread: takes over a reference */
void oci_loop_remove(oci_loop *l, box *x); /* drops it */
/* Ends the thread; what is posted later is run by oci_loop_free. */
void oci_loop_stop(oci_loop *l);
/* Boxes that are left are closed without an event. */
void oci_loop_free(oci_loop *l);

/* ---- boxes (oci_box.c) ---- */

typedef struct oci_out oci_out; /* a record to send, with what is attached */

enum box_state {
    BOX_CONNECTING, /* no connection: an ATTACH is under way, or a timer runs */
    BOX_GREETING,   /* connected, HELLO or CLAIM's answer is awaited */
    BOX_OPEN,
    BOX_GONE
};

struct box {
    oci *b;
    char id[SANDBOX_ID_LEN + 1];
    const box_events *ev;
    void *arg;
    atomic_uint refs;     /* the loop's, running callbacks', and one for all users together */
    atomic_uint users;    /* what box_ref and box_unref count */
    atomic_uint discards; /* under way: oci_discard() */

    pthread_mutex_t lock; /* guards from here to the next line */
    enum box_state state;
    int fd;
    oci_out *queue, **queue_end; /* not sent yet */
    size_t nqueue;
    oci_out *sent, **sent_end; /* sent, answer awaited, in order */
    size_t nsent;
    bool want_out;
    bool held;  /* frozen: the queue waits */
    bool newer; /* init is newer than we are: what needs its answer is refused */

    /* loop's thread only */
    oci_out *claim;    /* until it is answered */
    bool claim_sent;   /* on this connection */
    uint64_t walls;    /* SP_WALLS of its answer */
    create_done *done; /* of a create that has not been answered */
    void *done_arg;
    box_timing timing;
    uint64_t begun_ns;
    unsigned attempts;
    struct sp_hello *hello; /* with its records, while CLAIM is under way */
    box *prev, *next;
    uint64_t timer_ns;
    bool unwatched; /* epoll did not take its connection */
};

box *oci_box_new(oci *b, const char *id, const box_events *ev, void *arg);
void oci_box_ref(box *x); /* internal reference */
void oci_box_unref(box *x);
/* Loop's thread: a connection came (hello: what was read from it already, or NULL), or none did. */
/* Sends CLAIM at once, from the thread that got the connection: init works on it while the loop is
 * woken. Before oci_box_connected(). */
void oci_box_claim(box *x, int fd, const void *hello, size_t n);
void oci_box_connected(box *x, int fd, const void *hello, size_t n);
void oci_box_failed(box *x, err *why); /* a create's; takes the error */
void oci_box_attach(box *x);           /* asks the warden for a connection */
void oci_box_readable(box *x);
void oci_box_writable(box *x);
void oci_box_timer(box *x);
void oci_box_shut(box *x); /* end of the backend */

/* A record for the queue; fds are owned by it from now on, also on error. */
err *oci_out_new(spine_out *record, const int *fds, size_t nfds, oci_out **ret_out) ERR_MUST;
oci_out *oci_out_op(const struct sp_op *op, uint64_t cookie);
void oci_out_free(oci_out *o);
/* Takes it. ERR_SANDBOX_GONE, ERR_SANDBOX_EXHAUSTED. */
err *oci_box_push(box *x, oci_out *o) ERR_MUST;

/* From now on nothing is sent / what has waited is. Any thread. */
void oci_box_hold(box *x, bool held);

/* oci_freeze.c: of the contract. */
err *oci_freeze(box *x) ERR_MUST;
err *oci_thaw(box *x) ERR_MUST;

/* Descriptors of an exec as init may return them: NULL, or what is wrong. Sets O_NONBLOCK. */
const char *oci_check_fds(uint32_t flags, const int fd[SP_FDS_MAX]);

/* Closes what init sent, or a connection in which some of it may lie unread, elsewhere: it may wait
 * as long as init likes. */
void oci_discard(box *x, const int *fds, size_t n);
#define OCI_DISCARDS_MAX 8 /* of a box at a time; one with more wants to do harm */

struct oci {
    backend base;
    oci_warden *warden;
    oci_loop *loop;
    bool closing; /* the loop's thread has ended; nothing is asked any more */
};

static inline oci *oci_of(backend *b)
{
    return (oci *)b;
}
