/* Shared by the files of src/net; no other code includes it, except tests.
 *
 * A connection has one owner at a time: epoll while it is parked (armed, one shot), a worker while
 * a request is read or served, a relay lane while a job drives it. Handing the connection over is
 * the last thing an owner does with it. The sweeper only shuts sockets down, under conns_lock,
 * which every close takes first. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/metric.h"
#include "base/thread.h"
#include "net/http.h"
#include "net/server.h"
#include "wire/http1.h"

#define NET_READ        (16 * 1024) /* bytes per read */
#define NET_PIPELINE    (64 * 1024) /* bytes of later requests kept while one is served */
#define NET_DRAIN       (64 * 1024) /* bytes of an unread body read to keep the connection */
#define NET_LINGER      (1024 * 1024)
#define NET_SHED        UINT64_MAX
#define NET_ID_MAX      64
#define NET_RETRY_AFTER 1              /* seconds, when every thread is busy */
#define NET_BODY_GRACE  NS_PER_S       /* a thread that waits longer for a body counts as slow */
#define NET_LAPSE       (NS_PER_S / 2) /* interval of the checks whether a caller has lapsed */

/* Nanoseconds. Tests shorten them. */
typedef struct server_times {
    uint64_t head;       /* from a connection's or a head's first byte to its end */
    uint64_t body_idle;  /* without a byte of the body */
    uint64_t keep_alive; /* between requests */
    uint64_t linger;     /* keep reading after a last answer, so that the peer can read it */
    uint64_t stall;      /* a relay's peer takes no bytes */
    uint64_t stop;       /* time allowed for server_stop */
} server_times;
void server_set_times(server *s, const server_times *t); /* before server_run */
server_times server_times_default(void);

enum source_kind {
    SOURCE_LISTENER,
    SOURCE_CONN,
    SOURCE_QUIT
};
typedef struct source { /* first member of everything that an epoll event points to */
    enum source_kind kind;
} source;

typedef struct conn {
    source src;
    int fd;
    bool is_unix;
    bool in_epoll;
    bool lingering;
    server *server;
    struct conn *prev, *next;  /* under conns_lock */
    _Atomic uint64_t deadline; /* parked: when the sweeper closes it; 0: not parked */
    _Atomic uint64_t parked;   /* time of parking; NET_SHED: it is being shed */
    uint64_t since;            /* start of head or connection; 0: idle between requests */
    size_t discarded;
    http1_guard guard;
    size_t scanned; /* bytes of `in` that the guard has seen */
    buf in;         /* received, not yet consumed */
    request *again; /* request to dispatch again before reading `in`, or NULL */
} conn;

/* The check of request_set_lapse(). */
typedef struct lapse {
    void *arg;
    bool (*lapsed)(void *arg); /* NULL: never */
    void (*release)(void *arg);
} lapse;

typedef struct query_param {
    char *name;
    char *value;
} query_param;

struct request {
    conn *conn;
    server *server;
    buf head; /* the strings of h1 lie in it */
    http1_request h1;
    char id[NET_ID_MAX + 1];
    char *raw_path; /* without the query, not decoded */
    char *path;
    query_param *query; /* NULL-terminated by name */
    size_t nquery;
    char *param[HTTP_PARAMS_MAX];
    void *handler; /* argument for doors; NULL: the server's */
    void *user;
    void (*release)(void *);
    void *kept;
    void (*release_kept)(void *);
    lapse lapse;
    uint64_t lapse_at; /* time of the next check, while the body is read */
    bool continued;    /* 100 sent */
    bool broken;       /* the end of the body cannot be found any more */
    bool taken;        /* the relay reads the body */
    bool threaded;     /* its thread is charged to its tenant */
    bool slow;         /* its thread waited too long for the body and is charged as slow */
    uint64_t waited;   /* ns spent waiting for the body */
    char *party;       /* tenant; NULL: not limited */
    uint64_t begun;
    uint64_t taken_up;      /* when the present thread started serving it */
    size_t door, operation; /* indices into the server's lists */
    enum stream_kind kind;
};

struct response {
    int status;
    const char *id; /* the request's */
    buf headers;    /* lines */
    buf kept;       /* header lines that an error answer keeps: Allow and the like */
    const error_form *form;
    char *type;
    buf body;
    const relay_ops *ops;
    void *ctx;
};

/* ---- request.c ---- */
void request_set_id(request *rq);
err *request_open(request *rq) ERR_MUST; /* after http1_parse */
void request_close(request *rq);
lapse request_take_lapse(request *rq);
void lapse_done(lapse *l);
/* Releases the resources that it holds only while it is served. */
void request_rest(request *rq);
bool request_is_head(const request *rq);
void request_set_param(request *rq, size_t i, const char *raw, size_t n);
/* Drains the rest of a small body from the socket, without waiting. Returns true if the connection
 * is at the beginning of the next request. */
bool request_settle(request *rq);

/* ---- party.c ---- */
void party_limits(server *s); /* after the number of threads is known */
/* Returns true if the tenant may take so much; always for NULL. slow: threads that wait for a
 * body. */
bool party_has_room(server *s, const char *name, uint64_t bytes, unsigned slow);
bool party_take(server *s, const char *name, uint64_t bytes, unsigned slow); /* false: too much */
void party_give(server *s, const char *name, uint64_t bytes, unsigned slow);
/* Returns the thread that request_set_party() took. */
void party_give_thread(request *rq);
/* Counts a connection that the relay drives. */
bool party_take_relay(server *s, const char *name);
void party_give_relay(server *s, const char *name);

/* ---- http.c ---- */
void http_error_lines(buf *out, const err *e); /* Retry-After and the like */
/* Appends the body of an error answer and returns its Content-Type. form NULL: bothy's own JSON. */
const char *http_error_body(buf *body, const error_form *form, const err *e, const char *request_id,
                            int *ret_status);

/* ---- response.c ---- */
void response_done(response *rs);
/* Writes head and body in one piece. */
void response_render(const response *rs, const request *rq, bool keep_alive, buf *out);

/* ---- conn.c ---- */
conn *conn_new(server *s, int fd, bool is_unix);
void conn_event(conn *c);  /* called by the worker that epoll gave it to */
void conn_park(conn *c);   /* back to epoll */
void conn_finish(conn *c); /* after a last answer: lingers if bytes may come */
void conn_close(conn *c);
ssize_t conn_fill(conn *c); /* one read: bytes, 0 at the end, -errno */

/* The properties of an answer for metrics and logs (access.c). */
typedef struct access_answer {
    int status;
    size_t door, operation;
    const char *operation_name;
    uint64_t begun;
} access_answer;

/* ---- relay.c ---- */
typedef struct relay relay;
relay *relay_new(server *s, unsigned lanes);
void relay_stop(relay *r, uint64_t grace_ns); /* ends all jobs, joins */
void relay_free(relay *r);
typedef struct relay_start {
    conn *conn;
    const relay_ops *ops;
    void *ctx;
    buf out; /* sent first; ownership taken */
    bool keep_alive;
    bool http11;
    bool head_only;
    bool discard; /* drop further bytes of the peer: they are no next request */
    bool counted; /* its status is in the metrics */
    access_answer answer;
    const char *party; /* charged with the relay, if there are ops */
    request *request;  /* ownership taken; only for ops with `again`, else NULL */
    lapse lapse;       /* ownership taken */
} relay_start;
void relay_add(relay *r, const relay_start *start);

/* ---- access.c ---- */
void access_init(enum server_access what);
/* Notes an error that becomes the next answer written by this thread. */
void access_note_error(const err *e);
/* Forgets an error noted for another request: this thread starts a new one. */
void access_forget(void);
/* Records an answer when its head is sent. */
void access_answered(const access_answer *a);

/* ---- server.c ---- */
const char *server_operation(const server *s, size_t operation); /* its name */
enum {
    M_REQUESTS,
    M_ERRORS,
    M_SECONDS,
    M_THREAD_SECONDS,
    M_CONNECTIONS,
    M_THREADS,
    M_RELAYS,
    M_STREAMS,
    M_SENT,
    M_RECEIVED,
    M_REFUSED,
    M_STALLED,
    M_COUNT
};
extern metric NET_METRICS[M_COUNT];
static inline void net_count_bytes(int which, size_t door, enum stream_kind kind, size_t n)
{
    metric_add(&NET_METRICS[which], door * STREAM_KINDS + kind, (int64_t)n);
}

typedef struct listener {
    source src;
    int fd;
    bool is_unix;
    struct listener *next;
} listener;

/* A handler that waits for bytes of its request's body, or for a turn. */
typedef struct body_wait {
    struct body_wait *prev, *next;
    conn *conn;
    bool elsewhere;        /* it does not wait for the connection: it polls given_up */
    bool turn;             /* it waits for a thread of its tenant, not for a body; given up first */
    _Atomic bool given_up; /* set by the server: too many wait, this one the longest */
} body_wait;

struct server {
    server_options o;
    server_times times;
    int epfd;
    int stop_fd; /* eventfd: server_stop */
    int quit_fd; /* eventfd in epfd, never read: workers leave */
    source quit;
    relay *relay;
    char id_prefix[9];
    _Atomic uint64_t next_id;
    _Atomic bool draining; /* no new request is dispatched */
    _Atomic bool stopping; /* connections are closed */
    bool handed_down;
    _Atomic unsigned nconn, nrelay;
    _Atomic uint64_t accepted; /* connections, ever */

    pthread_mutex_t lock;   /* guards the members down to the list of waits */
    pthread_cond_t changed; /* while stopping */
    pthread_cond_t room;    /* busy went down */
    uint64_t released_ns;   /* last time busy went down */
    unsigned total;         /* workers; one more than busy and waiting, which polls epoll */
    unsigned busy;          /* workers in a handler */
    unsigned waiting;       /* workers in a handler that waits for a body; not counted as busy */
    struct body_wait *first_wait, *last_wait; /* these waits, the longest first */

    pthread_mutex_t party_lock;
    map parties; /* by name */
    uint64_t party_bytes;
    unsigned party_slow, party_relays;

    pthread_mutex_t conns_lock; /* conns, listeners, spare_fd */
    conn *conns;
    listener *listeners;
    int spare_fd; /* closed to accept and refuse a connection when descriptors are exhausted */
};
/* Gets a thread for one more request. Returns false if all are busy and none came free for a
 * second. */
bool server_admit(server *s);
void server_release(server *s);
/* Surround a wait for bytes of a body: the thread counts as waiting meanwhile, so that slow bodies
 * block no other requests. As many may wait as there are request threads; beyond that the longest
 * wait is given up. */
void server_wait_begin(server *s, body_wait *w);
void server_wait_end(server *s, body_wait *w);
