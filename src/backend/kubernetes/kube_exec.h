/* A command in a container through the API server: the exec subresource over WebSocket, version 5
 * of its channel protocol, or 4 where the server knows no other. SPDY is not spoken.
 *
 * Not suitable for important commands by itself: the server does not tell the process that the
 * connection broke, and output that a slow reader has not taken when the process ends may be lost
 * although the status says Success. It carries streams that have their own lengths and
 * acknowledgements (link.h).
 *
 * kube_frames is the protocol without I/O; kube_exec runs it over a connection. Only kube_exec_open
 * and kube_exec_run wait. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "backend/kubernetes/kube_http.h"

#define KUBE_MESSAGE_MAX (1024 * 1024) /* per message from the server */
#define KUBE_STDERR_MAX  (8 * 1024)    /* bytes of stderr that are kept, from its start */
#define KUBE_PIECE       (32 * 1024)   /* bytes of stdin per message */

/* How a command ended. */
typedef struct kube_end {
    bool known; /* the server reported the end; otherwise nothing is known, least of all success */
    int exit_code;
    char *message; /* the server's message about a failure, or NULL */
    bool started;  /* false: the runtime could not start it */
} kube_end;

/* ---- the protocol ---- */
typedef struct kube_frames kube_frames;
/* version: 4 or 5; random makes the masks (ws.h). */
kube_frames *kube_frames_new(int version, void (*random)(void *p, size_t n));
void kube_frames_free(kube_frames *f);
/* Takes bytes from the server. */
void kube_frames_feed(kube_frames *f, const void *p, size_t n);
/* Returns the stdout that was not read yet; consume it from the front. */
buf *kube_frames_out(kube_frames *f);
const buf *kube_frames_err(const kube_frames *f);
const kube_end *kube_frames_end(const kube_frames *f);
/* Returns true if nothing more comes: closed by either side, or the bytes were not WebSocket. */
bool kube_frames_over(const kube_frames *f);
/* Append bytes to send to out: at most KUBE_PIECE bytes of stdin; its end (returns false if version
 * 4, which cannot express it); a terminal's size; pongs and the close. */
void kube_frames_stdin(kube_frames *f, buf *out, const void *p, size_t n);
bool kube_frames_stdin_end(kube_frames *f, buf *out);
void kube_frames_resize(kube_frames *f, buf *out, unsigned rows, unsigned cols);
void kube_frames_flush(kube_frames *f, buf *out);
/* Returns true if the peer sends pings and reads no pongs: drop the connection. */
bool kube_frames_flooded(const kube_frames *f);

/* ---- over a connection ---- */
typedef struct kube_exec_spec {
    const char *ns, *pod, *container;
    const char *const *argv; /* NULL-terminated */
    bool in, err;            /* stdin; stderr separate from stdout. stdout is always there */
    bool tty;                /* then stderr is part of stdout */
    int version;             /* 4 or 5; 0: 5, or 4 if the server knows no other */
    unsigned timeout_ms;     /* for the 101; 0: KUBE_CALL_MS */
} kube_exec_spec;
typedef struct kube_exec kube_exec;
/* ERR_NOT_FOUND: the pod does not exist. ERR_UNAVAILABLE: its container does not run (yet, or any
 * more). */
err *kube_exec_open(kube *k, const kube_exec_spec *s, kube_exec **ret_exec) ERR_MUST;
int kube_exec_version(const kube_exec *x);
int kube_exec_fd(const kube_exec *x);
/* As read(2) and write(2), non-blocking; read 0: the stream has ended. After EAGAIN the descriptor
 * becomes readable when there is more. */
ssize_t kube_exec_read(kube_exec *x, void *p, size_t n);
ssize_t kube_exec_write(kube_exec *x, const void *p, size_t n);
/* Returns true if a write left bytes unsent: call kube_exec_write(x, NULL, 0) when fd takes
 * more. */
bool kube_exec_wants_out(const kube_exec *x);
/* Ends stdin. Returns false for version 4, which cannot express it. */
bool kube_exec_stdin_end(kube_exec *x);
const kube_end *kube_exec_end(const kube_exec *x);
/* Returns the server's message and stderr, malloc'ed, or NULL if there are none. */
char *kube_exec_why(const kube_exec *x);
void kube_exec_free(kube_exec *x);
static inline void kube_exec_freep(kube_exec **x)
{
    kube_exec_free(*x);
}
/* Runs a command to its end with this stdin (NULL: none), at most max bytes of stdout.
 * ERR_UNAVAILABLE if the stream ended without a status. The exit status is not an error. */
err *kube_exec_run(kube *k, const kube_exec_spec *s, const buf *input, size_t max, buf *ret_out,
                   kube_end *ret_end) ERR_MUST;
void kube_end_done(kube_end *e);
