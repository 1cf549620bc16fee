/* The client of skopeo's image proxy. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "image/skopeo.h"

#define MESSAGE_MAX (64u << 10) /* skopeo's own limit is 32 KiB */
#define LOG_MAX     (16u << 10)

struct proxy {
    pid_t pid;
    int sock, log;
    char *what;
};

void proxy_reply_done(proxy_reply *r)
{
    json_decref(r->value);
    if (r->fd >= 0)
        close(r->fd);
    *r = (proxy_reply){.fd = -1};
}

/* ---- life ---- */

static err *proxy_spawn(const skopeo_where *w, int auth_fd, int theirs, proxy *p)
{
    CLEANUP(strv_freep) char **argv = skopeo_argv(w);
    CLEANUP(strv_freep) char **env = skopeo_env(w);
    const int fds[] = {theirs, p->log, p->log, auth_fd};

    strv_push(&argv, xstrdup("experimental-image-proxy"));
    if (auth_fd >= 0) {
        strv_push(&argv, xstrdup("--authfile"));
        strv_push(&argv, xstrdup("/proc/self/fd/3"));
    }
    return skopeo_start(
        w, &(spawn_spec){.argv = argv, .envp = env, .fds = fds, .nfds = auth_fd >= 0 ? 4 : 3},
        &p->pid);
}

/* Starts the proxy. Its log goes to memory: a pipe without a reader would block it. */
err *proxy_start(const skopeo_where *w, int auth_fd, const char *what, proxy **ret_proxy)
{
    int pair[2];
    CLEANUP(proxy_freep) proxy *p = xcalloc(1, sizeof *p);

    *p = (proxy){.sock = -1, .log = memfd_create("skopeo-log", MFD_CLOEXEC)};
    p->what = xstrdup(what);
    if (p->log < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(ERR_INTERNAL, errno, "cannot start a fetch");
    CLEANUP(closep) int theirs = pair[1];
    p->sock = pair[0];
    TRY(proxy_spawn(w, auth_fd, theirs, p));
    *ret_proxy = TAKE_PTR(p);
    return NULL;
}

void proxy_free(proxy *p)
{
    int status;

    if (!p)
        return;
    closep(&p->sock);
    closep(&p->log);
    if (p->pid > 0) {
        kill(p->pid, SIGKILL); /* it has no state to save */
        err_free(spawn_wait(p->pid, 0, &status));
    }
    free(p->what);
    free(p);
}

int proxy_fd(const proxy *p)
{
    return p->sock;
}

/* ---- questions ---- */

static err *has_ended(proxy *p)
{
    CLEANUP(buf_done) buf log = {0};

    buf_reserve(&log, LOG_MAX);
    ssize_t n = pread(p->log, log.p, LOG_MAX, 0);
    log.len = n > 0 ? (size_t)n : 0;
    CLEANUP(freep) char *text = skopeo_log_text(&log);
    err *e = *text ? skopeo_reason(p->what, text)
                   : err_because(err_new(ERR_IMAGE_PULL_FAILED, "image '%.200s' cannot be fetched",
                                         p->what),
                                 "the program that fetches it was ended");
    e->errnum = FETCH_AGAIN;
    return e;
}

err *proxy_ask(proxy *p, const char *method, json_t *args)
{
    CLEANUP(json_decrefp) json_t *ask = json_pack("{s:s, s:o}", "method", method, "args", args);
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, ask);
    int r = sock_send(p->sock, &(struct iovec){text.p, text.len}, 1, NULL, 0, 0);
    if (r == -EPIPE || r == -ECONNRESET)
        return has_ended(p);
    return r ? err_sys(ERR_INTERNAL, -r, "cannot ask skopeo") : NULL;
}

err *proxy_reply_parse(const void *bytes, size_t n, const char *what, proxy_reply *ret_reply)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    CLEANUP(err_freep) err *bad = json_parse(bytes, n, &root);

    if (bad || !json_is_object(root) || !json_is_boolean(json_object_get(root, "success")))
        return err_new(ERR_INTERNAL, "skopeo's answer is not of protocol 0.2");
    if (!json_flag(root, "success"))
        return skopeo_reason(what, str_or(json_str(root, "error"), ""));
    int64_t pipe = json_int(root, "pipeid", 0);
    if (pipe < 0 || pipe > UINT32_MAX)
        return err_new(ERR_INTERNAL, "skopeo's answer is not of protocol 0.2");
    ret_reply->pipe = (uint32_t)pipe;
    ret_reply->value = json_incref(json_object_get(root, "value"));
    return NULL;
}

err *proxy_answer(proxy *p, proxy_reply *ret_reply)
{
    CLEANUP(freep) char *bytes = xmalloc(MESSAGE_MAX);
    CLEANUP(proxy_reply_done) proxy_reply r = {.fd = -1};
    size_t nfds = 0;
    ssize_t n = sock_recv(p->sock, bytes, MESSAGE_MAX, &r.fd, 1, &nfds, 0);

    if (!nfds)
        r.fd = -1;
    if (n == 0 || n == -ECONNRESET)
        return has_ended(p);
    if (n < 0)
        return err_sys(ERR_INTERNAL, (int)-n, "cannot hear skopeo");
    TRY(proxy_reply_parse(bytes, (size_t)n, p->what, &r));
    *ret_reply = r;
    r = (proxy_reply){.fd = -1};
    return NULL;
}

err *skopeo_wait(const skopeo_limit *l, int fd)
{
    for (;;) {
        struct pollfd p[] = {{fd, POLLIN, 0}, {l->stop_fd, POLLIN, 0}};
        uint64_t now = now_mono_ns();
        if (now >= l->until)
            return err_new(ERR_TIMEOUT, "it did not come in time");
        if (poll(p, 2, (int)((l->until - now) / NS_PER_MS + 1)) < 0 && errno != EINTR)
            return err_sys(ERR_INTERNAL, errno, "cannot wait for skopeo");
        if (p[1].revents)
            return err_new(ERR_DRAINING, "the node is going down");
        if (p[0].revents)
            return NULL;
    }
}

err *proxy_call(proxy *p, const skopeo_limit *l, const char *method, json_t *args,
                proxy_reply *ret_reply)
{
    TRY(proxy_ask(p, method, args));
    TRY(skopeo_wait(l, p->sock));
    return proxy_answer(p, ret_reply);
}

static err *read_all(const skopeo_limit *l, int fd, size_t max, buf *out)
{
    for (;;) {
        TRY(skopeo_wait(l, fd));
        buf_reserve(out, 16384);
        ssize_t n = read(fd, out->p + out->len, 16384);
        if (n == 0)
            return NULL;
        if (n < 0 && errno != EINTR)
            return err_sys(ERR_INTERNAL, errno, "cannot read from skopeo");
        out->len += n > 0 ? (size_t)n : 0;
        if (out->len > max)
            return err_because(err_new(ERR_IMAGE_UNSUPPORTED, "the image cannot be used"),
                               "its manifest or config is larger than %zu MiB", max >> 20);
    }
}

/* Asks and reads a text. The pipe ends only after FinishPipe was asked, and that is answered only
 * when the pipe has been read to the end. */
err *proxy_text(proxy *p, const skopeo_limit *l, const char *method, json_t *args, size_t max,
                buf *ret_text)
{
    CLEANUP(proxy_reply_done) proxy_reply r = {.fd = -1};
    CLEANUP(proxy_reply_done) proxy_reply end = {.fd = -1};

    TRY(proxy_call(p, l, method, args, &r));
    if (r.fd < 0)
        return err_new(ERR_INTERNAL, "skopeo's answer has no content");
    TRY(proxy_ask(p, "FinishPipe", json_pack("[I]", (json_int_t)r.pipe)));
    TRY(read_all(l, r.fd, max, ret_text));
    TRY(skopeo_wait(l, p->sock));
    return proxy_answer(p, &end);
}
