/* The HTTP/1.1 server: listeners, threads for requests, epoll for parked connections, relay.
 *
 * Limits: head 64 KiB and 10 s, body idle 60 s, keep-alive 650 s, at most `threads` requests at a
 * time, then 503 with Retry-After. */
#pragma once

#include "net/http.h"

typedef struct server server;

/* The answers that get a log line, at most 200 lines a second. */
enum server_access {
    ACCESS_ERRORS,
    ACCESS_ALL,
    ACCESS_NONE
};

typedef struct server_options {
    /* Called in the request's thread. An error it returns becomes the answer. */
    err *(*dispatch)(void *arg, request *rq, response *rs);
    /* Sets the form (response_set_form()) of errors for requests that are refused without a
     * dispatch, because all threads are busy or the stop has begun. NULL: the native form. */
    void (*form)(void *arg, request *rq, response *rs);
    /* Called when a stop begins, before running requests get 5 s to end. Must release handlers that
     * wait for something, so that they can answer. NULL: no handler waits. */
    void (*stopping)(void *arg);
    void *arg;
    unsigned threads;       /* 512 */
    unsigned relay_threads; /* one a core */
    unsigned connections;   /* 20000 */
    uint64_t party_bytes;   /* of memory per tenant, at least 64 MiB; 0: a part of the machine's */
    uint64_t stall_ns;      /* a relay's peer that takes no byte for this long is cut: 60 s */
    /* Label values, NULL-terminated, never freed, one list for all servers of a process;
     * request_set_operation() uses indices into them. NULL: a single value, "none". */
    const char *const *doors, *const *operations;
    enum server_access access;
} server_options;

err *server_new(const server_options *o, server **ret_server) ERR_MUST;
/* Adds a listening socket (unix stream or TCP) and takes ownership of it. Before or during
 * server_run. */
void server_listen(server *s, int fd, bool is_unix);
/* Declares that another process holds the listeners, too, and that they outlive this one: at the
 * stop, connecting clients wait for the successor. */
void server_hand_down(server *s);
/* Serves until server_stop(). Then, for at most 5 s, lets running requests end, answers new ones
 * with `draining`, and ends streams where clients can resume them. */
void server_run(server *s);
void server_stop(server *s); /* async-signal-safe */
void server_free(server *s);
typedef struct server_counts {
    unsigned connections, requests, relays; /* now */
    uint64_t accepted;                      /* connections, ever */
} server_counts;
server_counts server_count(server *s);
