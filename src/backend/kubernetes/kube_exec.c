/* A command in a container: the exec protocol over a WebSocket connection. */
#include "backend/kubernetes/kube_exec.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "backend/kubernetes/kube_stream.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "wire/ws.h"

/* The bytes to send keep their address until they are sent: room for a piece and for pongs. */
#define OUT_ROOM (128 * 1024)
#define OUT_FULL (64 * 1024)

struct kube_exec {
    client_stream *stream;
    kube_frames *frames;
    int version;
    buf out;     /* bytes to send; never grows beyond OUT_ROOM */
    size_t sent; /* bytes of out already sent */
    bool lost;   /* the connection is lost */
};

static const char *protocol_name(int version)
{
    return version == 4 ? "v4.channel.k8s.io" : "v5.channel.k8s.io";
}

static char *path_of(const kube_exec_spec *s)
{
    CLEANUP(freep) char *base = kube_path(&KUBE_PODS, s->ns, s->pod, "exec");
    CLEANUP(buf_done) buf path = {0};

    buf_str(&path, base);
    for (const char *const *arg = s->argv; *arg; arg++)
        kube_query(&path, "command", *arg);
    if (s->container)
        kube_query(&path, "container", s->container);
    if (s->in)
        kube_query(&path, "stdin", "true");
    kube_query(&path, "stdout", "true");
    if (s->err && !s->tty)
        kube_query(&path, "stderr", "true");
    if (s->tty)
        kube_query(&path, "tty", "true");
    return buf_take(&path);
}

static err *check_answer(const client_stream *s, const char *key, kube_exec *x)
{
    const char *chosen = client_stream_header(s, "Sec-WebSocket-Protocol");

    if (!ws_accepted(key, client_stream_header(s, "Sec-WebSocket-Accept")))
        return err_new(ERR_UNAVAILABLE, "the API server's answer is no WebSocket's");
    if (str_eq(chosen, protocol_name(5)))
        x->version = 5;
    else if (str_eq(chosen, protocol_name(4)))
        x->version = 4;
    else
        return err_new(ERR_UNAVAILABLE,
                       "the API server speaks no exec protocol that is known here");
    return NULL;
}

/* Adds kind or remedy. A container that does not run yet, or any more, is a 500 in plain text. */
static err *kube_exec_explain(err *e, const kube_exec_spec *s)
{
    if (e && e->code == ERR_NOT_FOUND)
        return err_kind(e, KUBE_NOT_FOUND);
    if (kube_is(e, KUBE_FORBIDDEN))
        return err_remedy(e, "Allow 'get' and 'create' on pods/exec in the namespace %s.", s->ns);
    return e;
}

err *kube_exec_open(kube *k, const kube_exec_spec *s, kube_exec **ret_exec)
{
    CLEANUP(kube_exec_freep) kube_exec *x = xcalloc(1, sizeof *x);
    CLEANUP(freep) char *path = path_of(s);
    CLEANUP(buf_done) buf lines = {0};
    uint8_t random[16];
    char key[WS_KEY_LEN + 1];

    random_bytes(random, sizeof random);
    ws_key(random, key);
    ws_ask(&lines, key,
           s->version ? protocol_name(s->version) : "v5.channel.k8s.io, v4.channel.k8s.io");
    TRY(kube_exec_explain(kube_upgrade(k, path, buf_cstr(&lines),
                                       s->timeout_ms ? s->timeout_ms : KUBE_CALL_MS, &x->stream),
                          s));
    TRY(check_answer(x->stream, key, x));
    x->frames = kube_frames_new(x->version, random_bytes);
    buf_reserve(&x->out, OUT_ROOM);
    *ret_exec = TAKE_PTR(x);
    return NULL;
}

void kube_exec_free(kube_exec *x)
{
    if (!x)
        return;
    kube_frames_free(x->frames);
    client_stream_free(x->stream);
    buf_done(&x->out);
    free(x);
}

int kube_exec_version(const kube_exec *x)
{
    return x->version;
}

int kube_exec_fd(const kube_exec *x)
{
    return client_stream_fd(x->stream);
}

/* ---- sending ---- */

static void send_out(kube_exec *x)
{
    while (x->sent < x->out.len && !x->lost) {
        ssize_t n = client_stream_send(x->stream, x->out.p + x->sent, x->out.len - x->sent);
        if (n == -EAGAIN)
            return;
        x->lost = n <= 0;
        x->sent += n > 0 ? (size_t)n : 0;
    }
    buf_clear(&x->out); /* keeps its address */
    x->sent = 0;
}

/* Sends pongs and the close, if there is room for them. */
static void send_control(kube_exec *x)
{
    if (x->out.len < OUT_FULL)
        kube_frames_flush(x->frames, &x->out);
    send_out(x);
    x->lost |= kube_frames_flooded(x->frames);
}

bool kube_exec_wants_out(const kube_exec *x)
{
    return !x->lost && x->out.len > 0;
}

static ssize_t kube_exec_fail(int errnum)
{
    errno = errnum;
    return -1;
}

ssize_t kube_exec_write(kube_exec *x, const void *p, size_t n)
{
    send_out(x);
    if (x->lost || kube_frames_over(x->frames))
        return kube_exec_fail(EPIPE);
    if (!n)
        return 0;
    if (x->out.len)
        return kube_exec_fail(EAGAIN);
    n = n < KUBE_PIECE ? n : KUBE_PIECE;
    kube_frames_stdin(x->frames, &x->out, p, n);
    send_out(x);
    return (ssize_t)n;
}

bool kube_exec_stdin_end(kube_exec *x)
{
    bool can = kube_frames_stdin_end(x->frames, &x->out);

    send_out(x);
    return can;
}

/* ---- receiving ---- */

static ssize_t kube_exec_take(kube_exec *x, void *p, size_t n)
{
    buf *out = kube_frames_out(x->frames);

    n = n < out->len ? n : out->len;
    memcpy(p, out->p, n);
    buf_consume(out, n);
    return (ssize_t)n;
}

ssize_t kube_exec_read(kube_exec *x, void *p, size_t n)
{
    char in[16384];

    while (!kube_frames_out(x->frames)->len) {
        if (x->lost || kube_frames_over(x->frames))
            return 0;
        ssize_t got = client_stream_recv(x->stream, in, sizeof in);
        if (got == -EAGAIN)
            return kube_exec_fail(EAGAIN);
        if (got > 0)
            kube_frames_feed(x->frames, in, (size_t)got);
        else
            x->lost = true;
        send_control(x);
    }
    return kube_exec_take(x, p, n);
}

const kube_end *kube_exec_end(const kube_exec *x)
{
    return kube_frames_end(x->frames);
}

char *kube_exec_why(const kube_exec *x)
{
    const kube_end *end = kube_exec_end(x);
    const buf *said = kube_frames_err(x->frames);

    if (end->message && said->len)
        return str_printf("%s: %.*s", end->message, (int)said->len, said->p);
    if (said->len)
        return xstrndup(said->p, said->len);
    return end->message ? xstrdup(end->message) : NULL;
}

/* ---- running to the end ---- */

static bool wait_exec(const kube_exec *x, bool sends, uint64_t until)
{
    uint64_t now = now_mono_ns();
    struct pollfd p = {.fd = kube_exec_fd(x), .events = sends ? POLLIN | POLLOUT : POLLIN};

    return now < until && poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) != 0;
}

/* Sends what it can of the input, then its end. Returns true if bytes remain unsent. */
static bool kube_exec_feed(kube_exec *x, const buf *input, size_t *at)
{
    while (input && *at <= input->len) {
        ssize_t n = *at < input->len ? kube_exec_write(x, input->p + *at, input->len - *at) : 0;
        if (n < 0)
            return errno == EAGAIN;
        if (*at == input->len) {
            kube_exec_stdin_end(x);
            *at = SIZE_MAX;
            break;
        }
        *at += (size_t)n;
    }
    kube_exec_write(x, NULL, 0);
    return kube_exec_wants_out(x);
}

err *kube_exec_run(kube *k, const kube_exec_spec *s, const buf *input, size_t max, buf *ret_out,
                   kube_end *ret_end)
{
    CLEANUP(kube_exec_freep) kube_exec *x = NULL;
    CLEANUP(buf_done) buf out = {0};
    char p[16384];
    size_t at = 0;
    uint64_t until = now_mono_ns() + (s->timeout_ms ? s->timeout_ms : KUBE_CALL_MS) * NS_PER_MS;

    TRY(kube_exec_open(k, s, &x));
    for (;;) {
        bool sends = kube_exec_feed(x, input, &at);
        ssize_t n = kube_exec_read(x, p, sizeof p);
        if (!n)
            break;
        if (n > 0 && out.len + (size_t)n > max)
            return err_new(ERR_TOO_LARGE, "the command in %s wrote more than %zu bytes", s->pod,
                           max);
        if (n > 0)
            buf_append(&out, p, (size_t)n);
        else if (!wait_exec(x, sends, until))
            return err_new(ERR_TIMEOUT, "the command in %s did not end in time", s->pod);
    }
    if (!kube_exec_end(x)->known)
        return err_new(ERR_UNAVAILABLE, "how the command in %s ended is not known", s->pod);
    *ret_end = *kube_exec_end(x);
    ret_end->message = ret_end->message ? xstrdup(ret_end->message) : NULL;
    *ret_out = out;
    out = (buf){0};
    return NULL;
}
