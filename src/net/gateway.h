/* A request handed on to a server inside a sandbox, and its answer back: a relay job with two
 * descriptors. Bodies stream both ways, at most about 64 KiB of each is held; nobody waits in a
 * thread. Each request has a connection of its own inside, used once and never shared.
 *
 * Three forms. Path and host: HTTP, with heads rewritten by wire/gateway.h, and after a 101 raw
 * bytes. Tunnel: raw bytes at once, for a caller that asked with "Upgrade: tcp". */
#pragma once

#include "net/http.h"

/* Called once, from any thread: a TCP socket that is not connected and does not block, or why not.
 * With `connected` any stream socket that does not block and stands; ERR_PORT_CLOSED with an errno:
 * nobody listens there. What such a socket brings is whole if it ends while its peer is still
 * there, and cut off if it hangs up with it (POLLHUP). */
typedef void gateway_socket(void *ticket, err *failure, int fd);

typedef struct gateway_options {
    /* Asks for a socket of the sandbox's network; does not wait. arg goes with `free`. */
    void (*ask)(void *arg, uint16_t port, gateway_socket *done, void *ticket);
    bool connected; /* what it brings is, to that port */
    void (*free)(void *arg);
    void *arg;
    uint16_t port;      /* on 127.0.0.1, and if that refuses on ::1 */
    const char *where;  /* "port 80 of sandbox x", for messages */
    bool tunnel;        /* "Upgrade: tcp" was checked by the handler */
    const char *prefix; /* path form: what is cut off the target; NULL: host form */
    uint64_t answer_ms; /* until an answer has begun */
    uint64_t idle_ms;   /* without a byte in either direction */
    uint64_t
        patient_until; /* monotonic ns; so long a refused connection is tried again. 0: never */
} gateway_options;

/* Takes arg, also when it fails. Everything else is copied. */
err *gateway_start(request *rq, response *rs, const gateway_options *o) ERR_MUST;
