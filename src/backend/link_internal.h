/* Inside link.h's implementation. Nobody else includes this.
 *
 * Locks, in the order they are taken: host->lock, box->lock, host->post_lock and host->dial_lock.
 * None is held while an event is delivered or a dial runs. Streams are read and written under their
 * box's lock, which never waits. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backend/link.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "wire/spine_codec.h"
#include "wire/spine_link.h"
#include "wire/spine_stream.h"

/* ---- a message to send ---- */

typedef struct link_out link_out;
struct link_out {
    link_out *next;
    uint32_t type;
    uint32_t signo;
    uint64_t id, cookie;
    buf record, extra;
};

typedef struct link_queue { /* first in, first out; link_queue_init() before use */
    link_out *first, **end;
    size_t n;
} link_queue;

/* ---- boxes ---- */

enum link_phase { /* what it is */
    LINK_WARM,
    LINK_CLAIMING, /* `done` is owed */
    LINK_BOX,
    LINK_DROPPED, /* its owner has left it: no event */
};

enum link_state {  /* what its stream is */
    LINK_DOWN,     /* there is none: a dial is under way, or a timer runs, or it is held */
    LINK_GREETING, /* until HELLO */
    LINK_CLAIM_SENT,
    LINK_OPEN,
    LINK_GONE
};

/* Stdin of an exec in this connection: what comes next, and up to where init takes it. */
typedef struct link_stdin {
    uint64_t next, limit;
    bool told; /* TAKEN came */
} link_stdin;

struct box {
    link_host *h; /* referenced */
    atomic_uint refs;
    atomic_uint users; /* what box_ref and box_unref count; they share one of refs */
    char *handle;
    uint8_t secret[SPL_SECRET];

    pthread_mutex_t lock; /* guards from here to the next line */
    enum link_phase phase;
    enum link_state state;
    char id[SANDBOX_ID_LEN + 1]; /* "" while warm; written once */
    uint32_t sandbox[4];         /* its id, packed as in CLAIM */
    const box_events *ev;
    void *arg;
    const link_warm_events *wev;
    void *warg;
    create_done *done;
    void *done_arg;
    link_out *claim; /* until it is answered */
    uint64_t claim_ns;
    uint64_t claim_due_ns;
    link_stream stream; /* ops NULL: none */
    spl_end end;
    buf out;          /* sealed; begins at a message's beginning */
    size_t out_sent;  /* of it */
    link_queue queue; /* not sealed yet */
    link_queue sent;  /* in this connection; an answer, or a later one's, is awaited */
    size_t nasked;    /* of them: SPAWN, FETCH, SIGNAL */
    size_t nfetching; /* FETCHes without an answer, in both queues */
    bool pinged;      /* PING is under way */
    bool want_out;
    bool write_failed;
    bool in_turn; /* the loop reads: what is queued leaves when it has */
    bool held;
    bool newer;
    uint64_t down_ns; /* since when there is no stream */
    map stdins;       /* exec → link_stdin */
    uint64_t ooms;    /* as init has told */
    struct link_oom_wait *oom_waits;

    /* loop's thread only */
    buf in;
    uint64_t instance;              /* of the init that proved itself; 0: none did yet */
    bool was_claimed;               /* HELLO said so, or our CLAIM was taken */
    char whose[SANDBOX_ID_LEN + 1]; /* by that HELLO; "" while warm */
    struct sp_hello *hello;
    bool dialling;
    unsigned attempts;
    bool complained; /* the log has why it cannot be reached */
    uint64_t up_ns, heard_ns, ping_ns;
    uint64_t timer_ns, claim_timer_ns;
    box *prev, *next;
    bool listed;
};

/* link_out.c */
void link_queue_init(link_queue *q);
void link_queue_push(link_queue *q, link_out *o);
link_out *link_queue_pop(link_queue *q);
void link_queue_done(link_queue *q);
link_out *link_out_new(uint32_t type, uint64_t id, const void *record, size_t n);
link_out *link_out_spine(spine_out *record); /* takes its buffers */
void link_out_free(link_out *o);             /* wipes */
DEFINE_CLEANUP(link_out, link_out_free)
/* Box's lock held: what is queued leaves, as far as the stream takes it. */
void link_flush(box *x);
/* Takes it. ERR_SANDBOX_GONE, ERR_UNAVAILABLE, ERR_SANDBOX_EXHAUSTED. */
err *link_push(box *x, link_out *o) ERR_MUST;
/* Box's lock held. CLAIM, before everything else. */
void link_send_claim(box *x);
void link_send_ping(box *x);
/* The request that this answers, or NULL when it was not asked. What was sent before it and has no
 * answer of its own has been heard. */
link_out *link_take_asked(box *x, uint32_t type, uint64_t id);
/* FETCH of this exec is under way: what flows is of before, and comes again behind its answer. */
bool link_is_fetching(box *x, uint64_t exec);
/* Box's lock held, of a connection that broke: what had no answer goes to the front of the queue.
 * Returned is a list of the signals that would be a second one. */
link_out *link_take_back(box *x);

/* link_box.c; all on the loop's thread unless said otherwise */
box *link_box_new(link_host *h, const link_container *c); /* any thread; refs 2 */
void link_unref(box *x);                                  /* internal references; any thread */
static inline void link_ref(box *x)
{
    atomic_fetch_add(&x->refs, 1);
}
void link_box_begin(void *arg);                        /* a post: takes over the list's reference */
void link_box_arrived(box *x, link_stream *s, err *e); /* takes both */
void link_box_readable(box *x);
void link_box_writable(box *x);
void link_box_timer(box *x, uint64_t now);
void link_box_broken(box *x, const char *why);
void link_box_end(box *x, err_code code, int errnum, const char *why);
void link_box_condemn(box *x, const char *why);
void link_box_shut(box *x); /* end of the host */
/* Any thread; takes a reference. Looks again at what was changed: held, a claim's time, a write
 * that failed. */
void link_box_look_soon(box *x);

/* link.c: an id of [a-z0-9]{20} in 16 bytes, and back; false: these are none. */
bool link_id_unpack(const uint32_t packed[4], char ret_id[SANDBOX_ID_LEN + 1]);

/* link_ooms.c; loop's thread, without the box's lock. A PONG has come / none will. */
typedef struct link_oom_wait link_oom_wait;
void link_ooms_told(box *x, uint32_t count);
void link_ooms_lost(box *x);

/* link_greet.c: until it is open */
bool link_on_greeting(box *x, const struct spl_greeting *g); /* false: the stream has ended */
bool link_on_refused(box *x, const struct sp_hdr *h);
bool link_on_hello(box *x, const sps_message *m);
bool link_on_newer(box *x);
bool link_on_claimed(box *x, const struct sp_hdr *h);

/* ---- the host ---- */

typedef struct link_post_item link_post_item;
typedef struct link_dial_item link_dial_item;

struct link_host {
    link_options o;
    atomic_uint refs; /* its owner's and its boxes' */

    pthread_mutex_t lock;
    map handles; /* lock: handle → box */
    map ids;     /* lock: sandbox → box */

    int epoll, wake;
    pthread_t thread;
    pthread_mutex_t post_lock;
    link_post_item *posts, **posts_end; /* post_lock */
    bool stop;                          /* post_lock */
    atomic_bool closing;
    box *boxes;   /* the loop's; each is referenced */
    uint64_t due; /* the loop's: no timer is earlier */

    pthread_t *dialers;
    pthread_mutex_t dial_lock;
    pthread_cond_t dial_cond;
    link_dial_item *dials, **dials_end; /* dial_lock */
    bool dial_stop;                     /* dial_lock */

    atomic_ulong ndials, ndials_failed, nlost, nsilent, nforged, ncondemned;
};

void link_host_unref(link_host *h);
void link_post(link_host *h, void (*fn)(void *arg), void *arg);
void link_dial(box *x, bool urgent); /* loop's thread */
/* One timer for its stream and one for its claim; loop's thread. */
void link_timer(box *x, uint64_t at_ns);
void link_claim_timer(box *x, uint64_t at_ns);
/* Box's lock held. False: epoll would not. */
bool link_watch(box *x, bool first, bool want_out);
void link_unwatch(box *x);
err *link_register(link_host *h, box *x) ERR_MUST; /* any thread */
void link_register_id(box *x);                     /* any thread, without its lock */
void link_unregister(box *x); /* loop's thread: leaves maps and list, drops the list's reference */
