/* The HTTP/1.1 server: listeners, threads for requests, epoll for parked connections, relay.
 *
 * Limits: head 64 KiB and 10 s, body idle 60 s, keep-alive 650 s, at
 * most `threads` requests at a time, then 503 with Retry-After. */
#pragma once

#include "net/http.h"

typedef struct server server;

/* Which answers get a line in the log; at most 200 a second. */
enum server_access {
    ACCESS_ERRORS,
    ACCESS_ALL,
    ACCESS_NONE
};

typedef struct server_options {
    /* Called in the request's thread. An error it returns becomes the answer. */
    err *(*dispatch)(void *arg, request *rq, response *rs);
    /* How errors of a request are told that is refused without a dispatch (all threads are busy,
     * the stop has begun): response_set_form(). NULL: natively. */
    void (*form)(void *arg, request *rq, response *rs);
    /* The stop begins: running requests are about to be waited for, for 5 s. Whoever waits in a
     * handler for something else is to be let go, so that it answers. NULL: nobody does. */
    void (*stopping)(void *arg);
    void *arg;
    unsigned threads;       /* 512 */
    unsigned relay_threads; /* one a core */
    unsigned connections;   /* 20000 */
    uint64_t party_bytes; /* of memory for one party, at least 64 MiB; 0: a part of the machine's */
    uint64_t stall_ns;    /* a relay's peer that takes no byte for so long is cut: 60 s */
    /* Values of labels, NULL-terminated, living for ever, one list for all servers of a process;
     * request_set_operation() has indices into them. NULL: there is one, "none". */
    const char *const *doors, *const *operations;
    enum server_access access;
} server_options;

err *server_new(const server_options *o, server **ret_server) ERR_MUST;
/* Takes the listening socket (unix stream or TCP). Before server_run or while it runs. */
void server_listen(server *s, int fd, bool is_unix);
/* The listeners are held by somebody else, too, and outlive us: when we stop, those who connect
 * wait for whoever is next. */
void server_hand_down(server *s);
/* Serves until server_stop(). Then, for at most 5 s: running requests end, new ones are answered
 * `draining`, streams are ended at a place where they can be resumed. */
void server_run(server *s);
void server_stop(server *s); /* async-signal-safe */
void server_free(server *s);
typedef struct server_counts {
    unsigned connections, requests, relays; /* now */
    uint64_t accepted;                      /* connections, ever */
} server_counts;
server_counts server_count(server *s);
