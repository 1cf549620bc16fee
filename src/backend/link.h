/* A box over one byte stream that a backend dials: bothyd's end of the sealed spine
 * (wire/spine_link.h). For backends whose container runs `bothy-init serve` and can be reached by
 * `bothy-init attach` through the engine's own exec: docker, kubernetes.
 *
 * A backend gives `dial` and says which containers there are; this keeps a proved stream to each,
 * dials again when it breaks, and is the box half of the contract (backend.h, frames form).
 *
 *     link_host_new(&options, &host);
 *     link_warm_new(host, &container, &warm_events, arg, &w);    a container without a sandbox
 *         -> warm_events.ready: it may be claimed; .lost: not now; .ended: never again
 *     link_claim(w, &spec, timeout_ms, events, arg, done, done_arg);
 *         -> done(box, timing), then events.attached; or done(error), and w is no more
 *     link_attach(host, id, &container, events, arg, &box);      after a restart
 *         -> events.attached or events.gone
 *     link_died(host, handle, why);                              the engine says so
 *
 * Threads. One loop for all streams of a host, on which every event and callback of this header is
 * delivered, one at a time; a few dial threads, which may wait. Functions may be called from any
 * thread, also from inside events, and wait for nobody but where it is said.
 *
 * The secret. A container's is HMAC-SHA256(key of this bothyd, "attach" || nonce). The nonce is the
 * backend's (link_nonce_new) and is kept with the container (label, annotation): it is no secret.
 * The first attach leaves the secret in init, before any tenant's code; each later one proves it.
 * An init that was owned and greets as fresh, has another instance, or another's secret, is
 * tainted: it ends, and `condemned` is told.
 *
 * Who has it. CLAIM names its sandbox in 16 bytes and HELLO tells them again, so after a
 * cut or a kill -9 at any step the same link_claim finds its own claim and succeeds; somebody
 * else's is EALREADY.
 *
 * Not trusted: init. A message that is malformed under a right seal, or answers nothing asked,
 * condemns the box. A wrong seal ends the stream only: whoever forged it is not init. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

/* ---- streams: what a backend dials ---- */

/* Calls for one stream are never made at the same time; from any thread. None waits. */
typedef struct link_stream_ops {
    /* As read(2) and write(2) without waiting: -1 with errno, EAGAIN: later. read 0: it has ended.
     * After read EAGAIN, fd must become readable when there is more: bytes that lie in a library's
     * buffer are read first. */
    ssize_t (*read)(void *s, void *p, size_t n);
    ssize_t (*write)(void *s, const void *p, size_t n);
    /* Optional. It has bytes of its own to send (framing, pongs, TLS): write(s, NULL, 0) is called
     * when fd takes more. Asked after each read and write. */
    bool (*wants_out)(void *s);
    int (*fd)(void *s); /* for epoll; the same for life */
    /* Optional, after the end: what the engine said about it, malloc'ed, or NULL. For the log. */
    char *(*why)(void *s);
    void (*close)(void *s); /* frees it */
} link_stream_ops;

typedef struct link_stream {
    const link_stream_ops *ops;
    void *s;
} link_stream;

/* ---- the host: one for a backend ---- */

typedef struct link_host link_host;

#define LINK_KEY_LEN    32
#define LINK_NONCE_LEN  16
#define LINK_HANDLE_MAX 512

typedef struct link_options {
    const char *name; /* of the backend, for logs and threads; static */
    /* Runs `bothy-init attach` in the container and gives its stdin and stdout as a stream. Waits,
     * at most timeout_ms; on a dial thread. ERR_NOT_FOUND and ERR_SANDBOX_GONE mean that there is
     * no such container or it does not run any more: the box is gone. Anything else is tried again,
     * after 50 ms to 2 s. */
    err *(*dial)(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream);
    /* What answers in that container is no init of ours, or not to be believed: end it. The box's
     * `gone` (the warm one's `ended`, a claim's failure) follows by itself. Does not wait. */
    void (*condemned)(void *arg, const char *handle, const char *why);
    void *arg; /* of both; outlives the host */
    uint8_t key[LINK_KEY_LEN];
    const char *kit;  /* what an exec by descriptor runs, by its path inside; NULL: there is none */
    unsigned dialers; /* threads; 0: 4 */
    unsigned dial_ms; /* 0: 10 s */
    unsigned ping_ms; /* of silence until PING; 0: 5 s */
    unsigned pong_ms; /* of silence after it until the stream is given up; 0: 10 s */
    unsigned away_ms; /* without a stream until commands are refused as unavailable; 0: 5 s */
} link_options;

err *link_host_new(const link_options *o, link_host **ret_host) ERR_MUST;
/* Boxes and warm ones fall silent, without an event; their containers live on. A claim under way
 * fails (ERR_UNAVAILABLE). Waits for dials under way. NULL is nothing. */
void link_host_free(link_host *h);

typedef struct link_stats {
    unsigned warm, ready; /* of the warm: claimable now */
    unsigned boxes, open; /* of the boxes: reachable now */
    uint64_t dials, dials_failed;
    uint64_t lost;      /* streams that broke */
    uint64_t silent;    /* of them: no PONG */
    uint64_t forged;    /* of them: a wrong seal or greeting */
    uint64_t condemned; /* containers */
} link_stats;
void link_host_stats(link_host *h, link_stats *ret_stats);

/* ---- containers ---- */

typedef struct link_container {
    const char *handle; /* the backend's name of it: container id, namespace/pod/uid; unique for all
                           time, at most LINK_HANDLE_MAX - 1 bytes */
    uint8_t nonce[LINK_NONCE_LEN];
} link_container;
void link_nonce_new(uint8_t ret_nonce[LINK_NONCE_LEN]);

/* ---- warm: a container without a sandbox ---- */

typedef struct box link_warm; /* becomes the box when it is claimed */

typedef struct link_warm_events {           /* each may be NULL */
    void (*ready)(void *arg, link_warm *w); /* also after `lost` */
    void (*lost)(void *arg, link_warm *w);  /* it is dialled again */
    /* The last: died, tainted, or claimed by somebody else. w stays valid until link_warm_drop
     * (also from in here) or link_claim, which fails then. */
    void (*ended)(void *arg, link_warm *w, const char *why);
} link_warm_events;

/* Dials at once and keeps the stream. w is the caller's until link_claim or link_warm_drop, and so
 * long ev and arg live; an event that runs meanwhile is not waited for. ERR_CONFLICT: the handle is
 * known already. */
err *link_warm_new(link_host *h, const link_container *c, const link_warm_events *ev, void *arg,
                   link_warm **ret_warm) ERR_MUST;
const char *link_warm_handle(const link_warm *w);
/* In `ended`: the id of the sandbox that has claimed it; "" if none has, or it cannot be read. What
 * init says: it is looked up, not believed. */
const char *link_warm_whose(const link_warm *w);
bool link_warm_ready(link_warm *w);
/* Forgets it; the container is the caller's. */
void link_warm_drop(link_warm *w);

/* Takes w over. Before it is ready the claim waits for that; until timeout_ms have passed a broken
 * stream is dialled again. Whose the container is, is written where list() finds it (name,
 * annotation) before this call: after a kill -9 in the middle link_attach tells what became of it,
 * and link_warm_new must never see it again. done is called once, on the loop's thread:
 *   success: box is the receiver's reference, timing->claim_ns and ->walls are filled;
 *            events.attached follows when done returns.
 *   EALREADY (failure->errnum): somebody else has claimed it. Take another; leave this one alone.
 *   else: it failed and the container is the caller's to destroy (ERR_SANDBOX_GONE: it is dead,
 *         ERR_TIMEOUT: no answer in time, ERR_WALL_FAILED, ERR_CREATE_FAILED).
 * The spec's env is encoded before this returns. ERR_INVALID_REQUEST, ERR_TOO_LARGE: done is not
 * called and w stays warm. */
err *link_claim(link_warm *w, const box_spec *spec, unsigned timeout_ms, const box_events *ev,
                void *arg, create_done *done, void *done_arg) ERR_MUST;

/* ---- boxes ---- */

/* After a restart of bothyd. Whether it was claimed is in `attached`'s HELLO; a claim of another
 * sandbox's is `gone`. ERR_CONFLICT: the handle is known already. */
err *link_attach(link_host *h, const char *id, const link_container *c, const box_events *ev,
                 void *arg, box **ret_box) ERR_MUST;

const char *link_box_id(const box *x);
const char *link_box_handle(const box *x);
void *link_box_arg(const box *x); /* options.arg: the backend */
/* The handle of a box by its sandbox's id, malloc'ed; NULL: there is none here. */
char *link_handle_of(link_host *h, const char *id);

/* The box's last event, if it had none: its container is dead. A claim under way fails. */
void link_gone(box *x, const char *why);
/* The same of whatever has this handle, warm ones too. Nothing if nothing has. */
void link_died(link_host *h, const char *handle, const char *why);

/* How often memory has killed inside, as its init says: asked for now, or as last heard where it is
 * out of reach. done is called once, perhaps before this returns. */
typedef void link_ooms_done(void *arg, uint64_t count);
void link_ooms(link_host *h, const char *id, link_ooms_done *done, void *arg);

/* While the engine holds a container still: nothing is sent, asked or dialled, and silence is no
 * sign. What is asked of the box waits in order. Hold before it is frozen, release after it goes
 * on; a stream that broke meanwhile is dialled then. */
void link_hold(box *x, bool held);

/* The box half of a backend's table. */
#define LINK_BOX_OPS                                                                    \
    .exec = link_exec, .fetch = link_fetch, .signal = link_signal, .close = link_close, \
    .ack = link_ack, .received = link_received, .stdin_write = link_stdin_write,        \
    .resize = link_resize, .box_ref = link_box_ref, .box_unref = link_box_unref
err *link_exec(box *x, uint64_t exec, const exec_spec *spec, int keep_fd);
err *link_fetch(box *x, uint64_t exec);
err *link_signal(box *x, const signal_spec *s);
void link_close(box *x, uint64_t exec, uint32_t mask);
void link_ack(box *x, uint64_t exec, uint32_t mask);
void link_received(box *x, uint64_t exec, int stream, uint64_t offset);
err *link_stdin_write(box *x, uint64_t exec, uint64_t offset, const void *p, size_t n, bool eof);
err *link_resize(box *x, uint64_t exec, uint16_t rows, uint16_t cols);
void link_box_ref(box *x);
void link_box_unref(box *x);
