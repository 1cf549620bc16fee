/* Internals of the oci backend: the warden's client, the loop, boxes. Private to oci*.c.
 *
 * Threads: `warden` (oci_warden.c) talks to the warden and calls back with answers; `boxes`
 * (oci_loop.c) holds every connection to an init and is the only one that delivers events. Locks: a
 * box's lock and the warden's are leaves; none is held while an event or an answer is delivered. */
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
    int errnum;           /* 0; an errno of the warden's; with `local` a local one */
    bool local;           /* no answer came in time, or none will ever come */
    const char *text;     /* for people; "" if there is none */
    uint32_t retry_after; /* seconds; 0: not given */
    const void *body;     /* checked (wp_answer_ok) when errnum is 0; 8-byte aligned */
    size_t n;
    int fd; /* or -1; a receiver that keeps it sets -1 */
} warden_answer;
/* Called once, from the warden thread; while the backend is freed, from the freeing thread. */
typedef void warden_done(void *arg, warden_answer *a);

typedef struct warden_ask {
    uint32_t type;
    struct iovec body[2]; /* copied */
    int fd;               /* -1, or one to send along; duplicated */
    uint64_t timeout_ms;  /* afterwards a local ETIMEDOUT; 0: never */
    uint64_t deadline_ms; /* CLAIM, SNAPSHOT: deadline from now; a resend carries the rest */
    bool now;             /* a call: a local ENOTCONN at once if no warden is connected */
    bool prompt;          /* a call: a local ENOTCONN at once if the warden is silent */
    bool once; /* fd can be read only once: a local ECONNRESET if the connection is lost */
} warden_ask;

/* Connects and greets; waits up to wait_ms for the warden to appear. marks (NULL: the warden's own)
 * are sent at each connection. */
err *oci_warden_new(const char *socket, const struct wp_watermarks *marks, uint64_t wait_ms,
                    oci_warden **ret_warden) ERR_MUST;
/* Sets the watermarks that are sent at each later connection. */
void oci_warden_remember(oci_warden *w, const struct wp_watermarks *marks);
uint32_t oci_warden_caps(oci_warden *w);
/* Writes the release of the connected warden; "" if none is connected, or it does not say. */
void oci_warden_release(oci_warden *w, char ret_release[WP_RELEASE_MAX]);
/* Sends a request; done is called with its answer. A request that is lost with the connection is
 * sent again, except with `once`: all others are safe to repeat. */
void oci_warden_send(oci_warden *w, const warden_ask *ask, warden_done *done, void *arg);

typedef struct warden_reply { /* an answer with its own memory */
    int errnum;
    bool local;
    uint32_t retry_after;
    char text[WP_ERROR_TEXT + 1];
    buf body;
    int fd;
} warden_reply;
void warden_reply_done(warden_reply *r);
/* As oci_warden_send, but waits for the answer. Not from the warden thread. */
void oci_warden_call(oci_warden *w, const warden_ask *ask, warden_reply *ret_reply);
/* Answers all open requests with a local ECANCELED. */
void oci_warden_free(oci_warden *w);

/* Converts a failed answer to the caller's error; `what` says what failed. */
err *oci_error(const warden_answer *a, const char *what) ERR_MUST;
/* As oci_error, for calls other than a create: never reports an exhausted pool. */
err *oci_call_error(const warden_reply *r, const char *what) ERR_MUST;
static inline struct wp_id oci_id(const char *id)
{
    struct wp_id r = {0};

    memcpy(r.id, id, strnlen(id, SANDBOX_ID_LEN));
    return r;
}
#define OCI_COUNT_MS 500  /* metrics: the scraper will ask again */
#define OCI_LOOK_MS  2000 /* reads: a thread waits, and a late answer is of no use */
#define OCI_SHORT_MS 30000
#define OCI_RETRY_S  5

/* ---- create and attach (oci_create.c) ---- */

void oci_create(backend *b, const box_spec *s, const box_events *ev, void *arg, create_done *done);
err *oci_attach(backend *b, const char *id, const box_events *ev, void *arg,
                box **ret_box) ERR_MUST;

/* oci.c: destroys without waiting for the answer. */
void oci_destroy_soon(backend *b, const char *id);

/* ---- usage (oci_usage.c) ---- */

err *oci_usage(backend *b, const char *id, box_usage *ret_usage) ERR_MUST;
err *oci_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n,
                    box_usage *ret) ERR_MUST;

/* ---- how it ended, and limits (oci_fate.c) ---- */

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
/* Watches box->fd for input (and for room, if want_out). Any thread; box->lock held. */
void oci_loop_watch(oci_loop *l, box *x, bool first, bool want_out);
void oci_loop_unwatch(oci_loop *l, box *x);
/* Calls oci_box_timer(x) on the loop's thread after delay_ms; one timer per box. Loop's thread
 * only. */
void oci_loop_timer(oci_loop *l, box *x, uint64_t delay_ms);
void oci_loop_add(oci_loop *l, box *x);    /* loop's thread: takes over a reference */
void oci_loop_remove(oci_loop *l, box *x); /* drops that reference */
/* Ends the thread; oci_loop_free runs what is posted later. */
void oci_loop_stop(oci_loop *l);
/* Closes the remaining boxes without an event. */
void oci_loop_free(oci_loop *l);

/* ---- boxes (oci_box.c) ---- */

typedef struct oci_out oci_out; /* a record to send, with its attachments */

enum box_state {
    BOX_CONNECTING, /* no connection: an ATTACH is under way, or a timer runs */
    BOX_GREETING,   /* connected; HELLO or the answer to CLAIM is awaited */
    BOX_OPEN,
    BOX_GONE
};

struct box {
    oci *b;
    char id[SANDBOX_ID_LEN + 1];
    const box_events *ev;
    void *arg;
    atomic_uint refs;     /* the loop's, running callbacks', and one for all users together */
    atomic_uint users;    /* counted by box_ref and box_unref */
    atomic_uint discards; /* oci_discard() calls under way */

    pthread_mutex_t lock; /* guards the members up to the empty line */
    enum box_state state;
    int fd;
    oci_out *queue, **queue_end; /* not sent yet */
    size_t nqueue;
    oci_out *sent, **sent_end; /* sent, answer awaited, in order */
    size_t nsent;
    bool want_out;
    bool held;  /* frozen: the queue waits */
    bool newer; /* init is newer than this bothyd: requests that need an answer are refused */

    /* loop's thread only */
    oci_out *claim;    /* until it is answered */
    bool claim_sent;   /* on this connection */
    uint64_t walls;    /* SP_WALLS of CLAIM's answer */
    create_done *done; /* of a create that has not been answered */
    void *done_arg;
    box_timing timing;
    uint64_t begun_ns;
    unsigned attempts;
    struct sp_hello *hello; /* with its records, while CLAIM is under way */
    box *prev, *next;
    uint64_t timer_ns;
    bool unwatched; /* epoll refused its connection */
};

box *oci_box_new(oci *b, const char *id, const box_events *ev, void *arg);
void oci_box_ref(box *x); /* internal reference */
void oci_box_unref(box *x);
/* Sends CLAIM at once, from the thread that got the connection: init works on it while the loop
 * wakes up. Call before oci_box_connected(). */
void oci_box_claim(box *x, int fd, const void *hello, size_t n);
/* The next ones: loop's thread only. Takes over a new connection; hello is the greeting that was
 * already read from it, or NULL. */
void oci_box_connected(box *x, int fd, const void *hello, size_t n);
void oci_box_failed(box *x, err *why); /* fails a create; takes ownership of the error */
void oci_box_attach(box *x);           /* asks the warden for a connection */
void oci_box_readable(box *x);
void oci_box_writable(box *x);
void oci_box_timer(box *x);
void oci_box_shut(box *x); /* the backend ends */

/* Makes a record for the queue. Takes ownership of fds, also on error. */
err *oci_out_new(spine_out *record, const int *fds, size_t nfds, oci_out **ret_out) ERR_MUST;
oci_out *oci_out_op(const struct sp_op *op, uint64_t cookie);
void oci_out_free(oci_out *o);
/* Queues it; takes ownership. ERR_SANDBOX_GONE, ERR_SANDBOX_EXHAUSTED, ERR_UNAVAILABLE. */
err *oci_box_push(box *x, oci_out *o) ERR_MUST;

/* Holds the queue, or releases it and sends what has waited. Any thread. */
void oci_box_hold(box *x, bool held);

/* oci_freeze.c: freeze and thaw of the contract. */
err *oci_freeze(box *x) ERR_MUST;
err *oci_thaw(box *x) ERR_MUST;

/* Checks the descriptors of an exec as init returned them. Returns NULL, or what is wrong. Sets
 * O_NONBLOCK. */
const char *oci_check_fds(uint32_t flags, const int fd[SP_FDS_MAX]);

/* Closes descriptors that init sent, or a connection which may hold unread ones, on another thread:
 * closing may block as long as init likes. */
void oci_discard(box *x, const int *fds, size_t n);
#define OCI_DISCARDS_MAX 8 /* of a box at a time; a box with more is malicious */

struct oci {
    backend base;
    oci_warden *warden;
    oci_loop *loop;
    bool closing; /* the loop's thread has ended; nothing is requested any more */
};

static inline oci *oci_of(backend *b)
{
    return (oci *)b;
}
