/* Internals of link.h; only link*.c include this.
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

typedef struct link_queue { /* first in, first out; call link_queue_init() before use */
    link_out *first, **end;
    size_t n;
} link_queue;

/* ---- boxes ---- */

enum link_phase { /* what the box is used for */
    LINK_WARM,
    LINK_CLAIMING, /* `done` must still be called */
    LINK_BOX,
    LINK_DROPPED, /* its owner has dropped it: no event */
};

enum link_state {  /* state of its stream */
    LINK_DOWN,     /* no stream: a dial is under way, or a timer runs, or it is held */
    LINK_GREETING, /* until HELLO */
    LINK_CLAIM_SENT,
    LINK_OPEN,
    LINK_GONE
};

/* Stdin of an exec in this connection: the next offset, and the offset that init accepts. */
typedef struct link_stdin {
    uint64_t next, limit;
    bool told; /* TAKEN came */
} link_stdin;

struct box {
    link_host *h; /* referenced */
    atomic_uint refs;
    atomic_uint users; /* counted by box_ref and box_unref; together they hold one of refs */
    char *handle;
    uint8_t secret[SPL_SECRET];

    pthread_mutex_t lock; /* guards the members up to the empty line */
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
    buf out;          /* sealed bytes, from the beginning of a message */
    size_t out_sent;  /* bytes of out already written */
    link_queue queue; /* not sealed yet */
    /* Sent in this connection and not answered yet. A message that gets no answer of its own is
     * freed when a later one is answered. */
    link_queue sent;
    size_t nasked;    /* SPAWN, FETCH, SIGNAL in sent */
    size_t nfetching; /* FETCHes without an answer, in both queues */
    bool pinged;      /* PING is under way */
    bool want_out;
    bool write_failed;
    bool in_turn; /* the loop reads: the queue is flushed at the end of the turn */
    bool held;
    bool newer;
    uint64_t down_ns; /* when the stream was lost */
    map stdins;       /* exec → link_stdin */
    uint64_t ooms;    /* OOM kills, as init reported them */
    struct link_oom_wait *oom_waits;

    /* loop's thread only */
    buf in;
    uint64_t instance;              /* of the authenticated init; 0: none yet */
    bool was_claimed;               /* HELLO said so, or init accepted our CLAIM */
    char whose[SANDBOX_ID_LEN + 1]; /* the sandbox id in that HELLO; "" while warm */
    struct sp_hello *hello;
    bool dialling;
    unsigned attempts;
    bool complained; /* the log already says why it is unreachable */
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
link_out *link_out_spine(spine_out *record); /* takes ownership of its buffers */
void link_out_free(link_out *o);             /* wipes it, too */
DEFINE_CLEANUP(link_out, link_out_free)
/* Seals and writes queued messages, as far as the stream takes them. Box's lock held. */
void link_flush(box *x);
/* Queues a message; takes ownership. ERR_SANDBOX_GONE, ERR_UNAVAILABLE, ERR_SANDBOX_EXHAUSTED. */
err *link_push(box *x, link_out *o) ERR_MUST;
/* Sends CLAIM, before everything else. Box's lock held. */
void link_send_claim(box *x);
void link_send_ping(box *x);
/* Returns the request that this answers, or NULL if it was not asked. Frees earlier messages that
 * get no answer: init has received them. */
link_out *link_take_asked(box *x, uint32_t type, uint64_t id);
/* Returns whether a FETCH of this exec is under way: then its frames belong to the time before and
 * come again after the answer. */
bool link_is_fetching(box *x, uint64_t exec);
/* After a connection broke: puts unanswered messages back at the front of the queue. Returns a list
 * of the signals that must not be sent twice. Box's lock held. */
link_out *link_take_back(box *x);

/* link_box.c; all on the loop's thread unless stated otherwise */
box *link_box_new(link_host *h, const link_container *c); /* any thread; refs 2 */
void link_unref(box *x);                                  /* internal references; any thread */
static inline void link_ref(box *x)
{
    atomic_fetch_add(&x->refs, 1);
}
/* run by link_post; uses the list's reference */
void link_box_begin(void *arg);
void link_box_arrived(box *x, link_stream *s, err *e); /* takes ownership of both */
void link_box_readable(box *x);
void link_box_writable(box *x);
void link_box_timer(box *x, uint64_t now);
void link_box_broken(box *x, const char *why);
void link_box_end(box *x, err_code code, int errnum, const char *why);
void link_box_condemn(box *x, const char *why);
void link_box_shut(box *x); /* the host ends */
/* Makes the loop check a box after a change: held, a claim's time, a failed write. Any thread.
 * Takes its own reference. */
void link_box_look_soon(box *x);

/* link.c: unpacks a sandbox id, [a-z0-9]{20}, from 16 bytes. Returns false if they hold none. */
bool link_id_unpack(const uint32_t packed[4], char ret_id[SANDBOX_ID_LEN + 1]);

/* link_ooms.c: a PONG came with a count, or none will come. Loop's thread, box's lock not held. */
typedef struct link_oom_wait link_oom_wait;
void link_ooms_told(box *x, uint32_t count);
void link_ooms_lost(box *x);

/* link_greet.c: handles messages until the stream is open. Each returns false if the stream
 * ended. */
bool link_on_greeting(box *x, const struct spl_greeting *g);
bool link_on_refused(box *x, const struct sp_hdr *h);
bool link_on_hello(box *x, const sps_message *m);
bool link_on_newer(box *x);
bool link_on_claimed(box *x, const struct sp_hdr *h);

/* ---- the host ---- */

typedef struct link_post_item link_post_item;
typedef struct link_dial_item link_dial_item;

struct link_host {
    link_options o;
    atomic_uint refs; /* held by its owner and its boxes */

    pthread_mutex_t lock;
    map handles; /* lock: handle → box */
    map ids;     /* lock: sandbox → box */

    int epoll, wake;
    pthread_t thread;
    pthread_mutex_t post_lock;
    link_post_item *posts, **posts_end; /* post_lock */
    bool stop;                          /* post_lock */
    atomic_bool closing;
    box *boxes;   /* loop's thread only; each is referenced */
    uint64_t due; /* loop's thread only: no timer is earlier */

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
/* Set the timer of the stream, and that of the claim. Loop's thread. */
void link_timer(box *x, uint64_t at_ns);
void link_claim_timer(box *x, uint64_t at_ns);
/* Returns false if epoll refused. Box's lock held. */
bool link_watch(box *x, bool first, bool want_out);
void link_unwatch(box *x);
err *link_register(link_host *h, box *x) ERR_MUST; /* any thread */
void link_register_id(box *x);                     /* any thread, box's lock not held */
/* loop's thread: removes it from maps and list, drops the list's reference */
void link_unregister(box *x);
