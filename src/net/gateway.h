/* Passes a request to a server inside a sandbox, and its answer back: a relay job with two
 * descriptors. Bodies stream both ways with at most about 64 KiB buffered each; no thread waits.
 * Each request has a connection of its own inside, used once and never shared.
 *
 * There are three forms. Path and host: HTTP, with heads rewritten by wire/gateway.h, and raw bytes
 * after a 101. Tunnel: raw bytes at once, for a caller that sent "Upgrade: tcp". */
#pragma once

#include <stdatomic.h>

#include "net/http.h"

#define GATEWAY_WAITING_MAX 64u /* requests for one sandbox; each retry costs the node a socket */

/* Receives the socket or an error; called once, from any thread. The socket is a non-blocking TCP
 * socket that is not connected. With `connected` it is any connected, non-blocking stream socket;
 * ERR_PORT_CLOSED with an errno then means that no server listens. The bytes of a connected socket
 * are complete if its input ends while the peer is still open, and cut off if it hangs up then
 * (POLLHUP). */
typedef void gateway_socket(void *ticket, err *failure, int fd);

typedef struct gateway_options {
    /* Requests a socket of the sandbox's network, without waiting. `free` releases arg. */
    void (*ask)(void *arg, uint16_t port, gateway_socket *done, void *ticket);
    bool connected; /* the socket comes connected to that port */
    void (*free)(void *arg);
    void *arg;
    uint16_t port;          /* on 127.0.0.1, then on ::1 if that refuses */
    const char *where;      /* "port 80 of sandbox x", for messages */
    bool tunnel;            /* raw bytes; the handler has checked "Upgrade: tcp" */
    const char *prefix;     /* path form: the part removed from the target; NULL: host form */
    uint64_t answer_ms;     /* time limit for the beginning of an answer */
    uint64_t idle_ms;       /* time limit without a byte in either direction */
    uint64_t patient_until; /* monotonic ns until which a refused connection is retried; 0: never */
    /* How many requests for this sandbox are being retried, at most GATEWAY_WAITING_MAX. Belongs to
     * arg. NULL: no limit. */
    atomic_uint *waiting;
} gateway_options;

/* Takes ownership of arg, also on failure. Copies everything else. */
err *gateway_start(request *rq, response *rs, const gateway_options *o) ERR_MUST;
