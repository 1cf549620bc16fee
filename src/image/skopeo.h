/* skopeo, run as our own user without privilege: the only program that talks to registries.
 *
 * proxy: "skopeo experimental-image-proxy" (protocol 0.2, in Debian's since 1.5), one process for
 * each pull. It takes JSON requests on a SEQPACKET socket and returns manifest, config and blobs as
 * pipes. It checks size and digest of every blob and reports the result in the answer to
 * FinishPipe. Used by one thread. docs/decisions/0003 says why it is not "skopeo copy". */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/spawn.h"

/* An error with this errnum may not recur at the next attempt: the transport failed, not the image.
 */
#define FETCH_AGAIN EAGAIN

typedef struct skopeo_where { /* the parameters of every call */
    const char *program;
    const char *conf;    /* directory with registries.conf and home/, or NULL */
    const char *scratch; /* directory for this call alone, for temporary files and caches */
    bool local;          /* it reads an image of the node */
    err *(*start)(const spawn_spec *spec, const char *scratch, bool local, pid_t *ret_pid);
} skopeo_where;
err *skopeo_start(const skopeo_where *w, const spawn_spec *spec, pid_t *ret_pid) ERR_MUST;
/* Return the environment, and the options before the verb. Owned by the caller: strv_free(). */
char **skopeo_env(const skopeo_where *w);
char **skopeo_argv(const skopeo_where *w);

typedef struct skopeo_limit { /* how long a call may wait */
    uint64_t until;           /* CLOCK_MONOTONIC, ns */
    int stop_fd;              /* readable: stop waiting at once */
} skopeo_limit;
/* Waits until fd is readable. ERR_TIMEOUT, ERR_DRAINING. */
err *skopeo_wait(const skopeo_limit *l, int fd) ERR_MUST;

/* Turns a message of skopeo into an error with a remedy. `what` is the image or host. */
err *skopeo_reason(const char *what, const char *text) ERR_MUST;
/* Returns the message of the last line of its log, or the line. */
char *skopeo_log_text(buf *log);

typedef struct proxy proxy;
typedef struct proxy_reply {
    json_t *value;
    uint32_t pipe; /* for FinishPipe; 0: none */
    int fd;        /* read end of the pipe, or -1 */
} proxy_reply;
void proxy_reply_done(proxy_reply *r);

/* Starts the proxy. auth_fd: an authentication file, or -1. what: named in errors. */
err *proxy_start(const skopeo_where *w, int auth_fd, const char *what, proxy **ret_proxy) ERR_MUST;
void proxy_free(proxy *p); /* ends the process */
static inline void proxy_freep(proxy **p)
{
    proxy_free(*p);
}
int proxy_fd(const proxy *p); /* readable when an answer has come */
/* Sends a request; only one at a time. Takes ownership of args. */
err *proxy_ask(proxy *p, const char *method, json_t *args) ERR_MUST;
err *proxy_answer(proxy *p, proxy_reply *ret_reply) ERR_MUST;
/* Sends a request and waits for the answer. */
err *proxy_call(proxy *p, const skopeo_limit *l, const char *method, json_t *args,
                proxy_reply *ret_reply) ERR_MUST;
/* Sends a request whose answer is a text of at most max bytes. */
err *proxy_text(proxy *p, const skopeo_limit *l, const char *method, json_t *args, size_t max,
                buf *ret_text) ERR_MUST;
/* Parses an answer; a failure that it reports becomes an error. Pure. */
err *proxy_reply_parse(const void *bytes, size_t n, const char *what,
                       proxy_reply *ret_reply) ERR_MUST;
