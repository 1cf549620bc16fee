/* The other end of a link for tests: dialled streams are socketpairs, and init is a script or a
 * model without processes. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/link.h"
#include "base/buf.h"
#include "wire/spine_link.h"
#include "wire/spine_stream.h"

#define PEER_RECS 8

typedef struct peer_init { /* what outlives a connection */
    uint8_t secret[SPL_SECRET];
    bool owned, claimed;
    uint64_t instance, high;
    uint32_t sandbox[4];
    unsigned claims; /* that were taken */
    struct sp_rec recs[PEER_RECS];
    uint32_t nrecs;
} peer_init;

typedef struct peer_conn {
    int fd;
    spl_end end;
    buf in;
    size_t used; /* of it: the message that was given last */
} peer_conn;

/* What `dial` reaches. */
typedef struct peer_wire {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int waiting[32]; /* the other ends, oldest first */
    unsigned nwaiting, dials;
    err_code fail; /* with this, if `failing` */
    bool failing;
    unsigned dial_ms; /* each takes so long */
    unsigned condemned;
    char why[160];
    uint64_t dialled_ns[64];
} peer_wire;

void peer_wire_init(peer_wire *w);
void peer_wire_done(peer_wire *w);
void peer_wire_fail(peer_wire *w, bool failing, err_code code);
err *peer_dial(void *wire, const char *handle, unsigned timeout_ms, link_stream *ret_stream);
void peer_condemned(void *wire, const char *handle, const char *why);
unsigned peer_dials(peer_wire *w);

/* Waits for the next dialled stream: false after ms. */
bool peer_open(peer_wire *w, peer_conn *c, int ms);
void peer_close(peer_conn *c);
void peer_greet(peer_conn *c, const peer_init *i);
bool peer_admit(peer_conn *c, peer_init *i); /* false: refused, and told so */
void peer_hello(peer_conn *c, const peer_init *i);
/* The three together. */
bool peer_attach(peer_wire *w, peer_conn *c, peer_init *i);
void peer_put(peer_conn *c, const void *record, size_t n, const void *extra, size_t nextra);
void peer_put_hdr(peer_conn *c, uint32_t type, int errnum, uint64_t id);
/* The type of the next message, 0: none within ms, -1: the stream has ended or is wrong. */
int peer_next(peer_conn *c, sps_message *ret_message, int ms);
/* The same, and PINGs are answered. */
int peer_next_asked(peer_conn *c, sps_message *ret_message, int ms);
/* Takes CLAIM, answers. */
void peer_take_claim(peer_conn *c, peer_init *i, const sps_message *m);
void peer_put_started(peer_conn *c, uint32_t type, uint64_t id, uint32_t flags);
