/* A box over one byte stream that a backend dials: bothyd's end of the sealed spine
 * (wire/spine_link.h). For backends whose container runs `bothy-init serve` and can be reached by
 * `bothy-init attach` through the engine's own exec: docker, kubernetes.
 *
 * A backend provides `dial` and names its containers. The link keeps an authenticated stream to
 * each, dials again when it breaks, and is the box half of the contract (backend.h, frames form).
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
 * Threads. One loop serves all streams of a host and delivers every event and callback of this
 * header, one at a time. A few dial threads may wait. Functions may be called from any thread, also
 * from inside events, and do not wait unless they say so.
 *
 * The secret. A container's secret is HMAC-SHA256(key of this bothyd, "attach" || nonce). The
 * backend makes the nonce (link_nonce_new) and keeps it with the container (label, annotation): it
 * is no secret. The first attach leaves the secret in init, before any tenant's code runs; each
 * later attach proves it. An init is tainted if it was owned and greets as fresh, if its instance
 * changed, or if it has another secret: then the box ends, and `condemned` is called.
 *
 * Ownership. CLAIM names its sandbox in 16 bytes and HELLO repeats them. So after a cut
 * or a kill -9 at any step the same link_claim finds its own claim and succeeds; the claim of
 * another sandbox is EALREADY.
 *
 * Not trusted: init. A message that is malformed under a right seal, or answers nothing asked,
 * condemns the box. A wrong seal only ends the stream: its author is not init. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

/* ---- streams: what a backend dials ---- */

/* Calls for one stream never overlap, but may come from any thread. None may wait. */
typedef struct link_stream_ops {
    /* As read(2) and write(2), non-blocking: -1 with errno, EAGAIN: later. read 0: the stream has
     * ended. After read EAGAIN, fd must become readable when there is more: EAGAIN is
     * only allowed while no library's buffer holds bytes. */
    ssize_t (*read)(void *s, void *p, size_t n);
    ssize_t (*write)(void *s, const void *p, size_t n);
    /* Optional. Returns true if the stream has bytes of its own to send (framing, pongs, TLS); then
     * write(s, NULL, 0) is called when fd takes more. Called after each read and write. */
    bool (*wants_out)(void *s);
    int (*fd)(void *s); /* for epoll; never changes */
    /* Optional, after the end: the engine's message about it, malloc'ed, or NULL. For the log. */
    char *(*why)(void *s);
    void (*close)(void *s); /* frees it */
} link_stream_ops;

typedef struct link_stream {
    const link_stream_ops *ops;
    void *s;
} link_stream;

/* ---- the host: one per backend ---- */

typedef struct link_host link_host;

#define LINK_KEY_LEN    32
#define LINK_NONCE_LEN  16
#define LINK_HANDLE_MAX 512

typedef struct link_options {
    const char *name; /* of the backend, for logs and threads; static */
    /* Runs `bothy-init attach` in the container and returns its stdin and stdout as a stream.
     * Waits, at most timeout_ms; on a dial thread. ERR_NOT_FOUND and ERR_SANDBOX_GONE mean that the
     * container does not exist or does not run any more: the box is gone. Any other error is
     * retried after 50 ms to 2 s. */
    err *(*dial)(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream);
    /* The init in that container is not bothy's, or violated the protocol: end the container. The
     * box's `gone` (a warm container's `ended`, a claim's failure) follows by itself. Does not
     * wait. */
    void (*condemned)(void *arg, const char *handle, const char *why);
    void *arg; /* passed to both; outlives the host */
    uint8_t key[LINK_KEY_LEN];
    const char *kit;  /* the program of an exec by descriptor, by its path inside; NULL: none */
    unsigned dialers; /* threads; 0: 4 */
    unsigned dial_ms; /* 0: 10 s */
    unsigned ping_ms; /* of silence until PING; 0: 5 s */
    unsigned pong_ms; /* of silence after PING until the stream is dropped; 0: 10 s */
    unsigned away_ms; /* without a stream until commands are refused as unavailable; 0: 5 s */
} link_options;

err *link_host_new(const link_options *o, link_host **ret_host) ERR_MUST;
/* Drops all boxes and warm containers without an event; the containers live on. A claim under way
 * fails (ERR_UNAVAILABLE). Waits for dials under way. NULL is ignored. */
void link_host_free(link_host *h);

typedef struct link_stats {
    unsigned warm, ready; /* ready: warm and claimable now */
    unsigned boxes, open; /* open: boxes reachable now */
    uint64_t dials, dials_failed;
    uint64_t lost;      /* streams that broke */
    uint64_t silent;    /* lost because no PONG came */
    uint64_t forged;    /* lost because of a wrong seal or greeting */
    uint64_t condemned; /* containers */
} link_stats;
void link_host_stats(link_host *h, link_stats *ret_stats);

/* ---- containers ---- */

typedef struct link_container {
    /* the backend's name for it, unique for all time: container id, namespace/pod/uid; at most
     * LINK_HANDLE_MAX - 1 bytes */
    const char *handle;
    uint8_t nonce[LINK_NONCE_LEN];
} link_container;
void link_nonce_new(uint8_t ret_nonce[LINK_NONCE_LEN]);

/* ---- warm: a container without a sandbox ---- */

typedef struct box link_warm; /* becomes the box when it is claimed */

typedef struct link_warm_events {           /* each may be NULL */
    void (*ready)(void *arg, link_warm *w); /* also after `lost` */
    void (*lost)(void *arg, link_warm *w);  /* it is being dialled again */
    /* The last event: it died, is tainted, or another sandbox has claimed it. w stays valid until
     * link_warm_drop (also from in here) or link_claim, which fails then. */
    void (*ended)(void *arg, link_warm *w, const char *why);
} link_warm_events;

/* Dials at once and keeps the stream. The caller owns w until link_claim or link_warm_drop; ev and
 * arg must live as long, but a running event is not waited for. ERR_CONFLICT: the handle is known
 * already. */
err *link_warm_new(link_host *h, const link_container *c, const link_warm_events *ev, void *arg,
                   link_warm **ret_warm) ERR_MUST;
const char *link_warm_handle(const link_warm *w);
/* Returns the id of the sandbox that claimed it, "" if none did or the id cannot be read. Only in
 * `ended`. Init says so: use it for a lookup, do not trust it. */
const char *link_warm_whose(const link_warm *w);
bool link_warm_ready(link_warm *w);
/* Forgets it; the container belongs to the caller. */
void link_warm_drop(link_warm *w);

/* Claims a container for a sandbox. Takes ownership of w. If w is not ready the claim waits; until
 * timeout_ms have passed a broken stream is dialled again.
 *
 * Before this call the caller must record the sandbox where list() finds it (name, annotation):
 * after a kill -9 in the middle, link_attach finds out whether the claim was made, and
 * link_warm_new must never get this container again.
 *
 * done is called once, on the loop's thread:
 *   success: box is the receiver's reference, timing->claim_ns and ->walls are filled;
 *            events.attached follows when done returns.
 *   EALREADY (failure->errnum): another sandbox has claimed it. Take another container; leave this
 *         one alone.
 *   else: it failed, and the caller must destroy the container (ERR_SANDBOX_GONE: it is dead,
 *         ERR_TIMEOUT: no answer in time, ERR_WALL_FAILED, ERR_CREATE_FAILED).
 *
 * The spec's env is encoded before this returns. On ERR_INVALID_REQUEST or ERR_TOO_LARGE done is
 * not called and w stays warm. */
err *link_claim(link_warm *w, const box_spec *spec, unsigned timeout_ms, const box_events *ev,
                void *arg, create_done *done, void *done_arg) ERR_MUST;

/* ---- boxes ---- */

/* Connects to a box after a restart of bothyd. `attached`'s HELLO says whether it was claimed; if
 * another sandbox has claimed it, `gone` follows. ERR_CONFLICT: a container with this handle is
 * attached already. */
err *link_attach(link_host *h, const char *id, const link_container *c, const box_events *ev,
                 void *arg, box **ret_box) ERR_MUST;

const char *link_box_id(const box *x);
const char *link_box_handle(const box *x);
void *link_box_arg(const box *x); /* options.arg: the backend */
/* Returns the handle of a sandbox's box, malloc'ed; NULL if it has none here. */
char *link_handle_of(link_host *h, const char *id);

/* Ends the box with `gone`, unless it has ended: its container is dead. A claim under way fails. */
void link_gone(box *x, const char *why);
/* As link_gone, by handle, also for a warm container. Does nothing if the handle is not known. */
void link_died(link_host *h, const char *handle, const char *why);

/* Counts the OOM kills inside, as init reports them: asks now, or uses the last report if init is
 * unreachable. done is called once, perhaps before this returns. */
typedef void link_ooms_done(void *arg, uint64_t count);
void link_ooms(link_host *h, const char *id, link_ooms_done *done, void *arg);

/* Holds the box while the engine freezes its container: nothing is sent or dialled, and silence is
 * accepted. Requests to the box queue up in order. Hold before the freeze, release after the thaw;
 * a stream that broke meanwhile is dialled then. */
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
