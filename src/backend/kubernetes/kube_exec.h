/* A command in a container through the API server: the exec subresource over WebSocket, version 5
 * of its channel protocol, or 4 where the server knows no other. SPDY is not spoken.
 *
 * Not a way to run what matters by itself: the server tells the process nothing when the connection
 * goes, and what a slow reader has not taken when the process ends may be lost although the status
 * says Success. It carries streams with lengths and acknowledgements of their own (link.h).
 *
 * kube_frames is the protocol without I/O; kube_exec is it over a connection, without waiting but
 * for kube_exec_open and kube_exec_run. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "backend/kubernetes/kube_http.h"

#define KUBE_MESSAGE_MAX (1024 * 1024) /* of a message from the server */
#define KUBE_STDERR_MAX  (8 * 1024)    /* kept of stderr: its beginning */
#define KUBE_PIECE       (32 * 1024)   /* of stdin in a message */

/* How it ended. */
typedef struct kube_end {
    bool known; /* the server said so; without it nothing is known, least of all success */
    int exit_code;
    char *message; /* the server's words where it did not succeed, or NULL */
    bool started;  /* false: the runtime could not start it */
} kube_end;

/* ---- the protocol ---- */
typedef struct kube_frames kube_frames;
/* version 4 or 5; random is for masks (ws.h). */
kube_frames *kube_frames_new(int version, void (*random)(void *p, size_t n));
void kube_frames_free(kube_frames *f);
/* Bytes from the server. */
void kube_frames_feed(kube_frames *f, const void *p, size_t n);
/* What it wrote to stdout and nobody took; consume from the front. */
buf *kube_frames_out(kube_frames *f);
const buf *kube_frames_err(const kube_frames *f);
const kube_end *kube_frames_end(const kube_frames *f);
/* Nothing more comes: closed by either side, or what came is no WebSocket. */
bool kube_frames_over(const kube_frames *f);
/* Append to what is to be sent: at most KUBE_PIECE bytes of stdin; its end (false: version 4 cannot
 * say it); a terminal's size; pongs and the close. */
void kube_frames_stdin(kube_frames *f, buf *out, const void *p, size_t n);
bool kube_frames_stdin_end(kube_frames *f, buf *out);
void kube_frames_resize(kube_frames *f, buf *out, unsigned rows, unsigned cols);
void kube_frames_flush(kube_frames *f, buf *out);
/* The peer sends pings and takes no pongs: give it up. */
bool kube_frames_flooded(const kube_frames *f);

/* ---- over a connection ---- */
typedef struct kube_exec_spec {
    const char *ns, *pod, *container;
    const char *const *argv; /* NULL-terminated */
    bool in, err;            /* stdin; stderr apart from stdout. stdout is always there */
    bool tty;                /* then err is out */
    int version;             /* 0: 5, else 4 */
    unsigned timeout_ms;     /* for the 101; 0: KUBE_CALL_MS */
} kube_exec_spec;
typedef struct kube_exec kube_exec;
/* ERR_NOT_FOUND: there is no such pod. A container that does not run (yet, or any more) is
 * ERR_UNAVAILABLE. */
err *kube_exec_open(kube *k, const kube_exec_spec *s, kube_exec **ret_exec) ERR_MUST;
int kube_exec_version(const kube_exec *x);
int kube_exec_fd(const kube_exec *x);
/* As read(2) and write(2) without waiting; read 0: it has ended. After EAGAIN the descriptor
 * becomes readable when there is more. */
ssize_t kube_exec_read(kube_exec *x, void *p, size_t n);
ssize_t kube_exec_write(kube_exec *x, const void *p, size_t n);
/* Something waits that a write has not sent: call kube_exec_write(x, NULL, 0) when fd takes more.
 */
bool kube_exec_wants_out(const kube_exec *x);
/* False: version 4, which has no word for it. */
bool kube_exec_stdin_end(kube_exec *x);
const kube_end *kube_exec_end(const kube_exec *x);
/* What there is to say about its end, malloced, or NULL. */
char *kube_exec_why(const kube_exec *x);
void kube_exec_free(kube_exec *x);
static inline void kube_exec_freep(kube_exec **x)
{
    kube_exec_free(*x);
}
/* Runs it to its end with this stdin (NULL: none), at most max bytes of stdout. ERR_UNAVAILABLE
 * when the stream ended and nobody said how. Its exit status is not an error. */
err *kube_exec_run(kube *k, const kube_exec_spec *s, const buf *input, size_t max, buf *ret_out,
                   kube_end *ret_end) ERR_MUST;
void kube_end_done(kube_end *e);
