/* A call whose answer is 101: libcurl connects (unix socket, TCP, TLS), the rest are bytes. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "net/client_internal.h"
#include "wire/http1.h"

#define ANSWER_MS 60000 /* for the head */

struct client_stream {
    CURL *curl;
    curl_socket_t fd;
    buf ahead;            /* behind the head */
    buf head;             /* of the 101 */
    http1_answer *answer; /* points into it */
};

void client_stream_free(client_stream *s)
{
    if (!s)
        return;
    curl_easy_cleanup(s->curl);
    buf_done(&s->ahead);
    buf_done(&s->head);
    free(s->answer);
    free(s);
}

const char *client_stream_header(const client_stream *s, const char *name)
{
    return http1_header_get(s->answer, name);
}

int client_stream_fd(const client_stream *s)
{
    return s->fd;
}

static ssize_t result(CURLcode code, size_t n)
{
    if (code == CURLE_OK)
        return (ssize_t)n;
    return code == CURLE_AGAIN ? -EAGAIN : -ECONNRESET;
}

ssize_t client_stream_recv(client_stream *s, void *p, size_t max)
{
    size_t n = s->ahead.len < max ? s->ahead.len : max;

    if (n) {
        memcpy(p, s->ahead.p, n);
        buf_consume(&s->ahead, n);
        return (ssize_t)n;
    }
    CURLcode code = curl_easy_recv(s->curl, p, max, &n);
    return result(code, n);
}

ssize_t client_stream_send(client_stream *s, const void *p, size_t n)
{
    size_t sent = 0;
    CURLcode code = curl_easy_send(s->curl, p, n, &sent);

    return result(code, sent);
}

void client_stream_shut(client_stream *s)
{
    shutdown(s->fd, SHUT_WR);
}

/* ---- the handshake ---- */

static err *connect_stream(const client *c, client_stream *s)
{
    char why[CURL_ERROR_SIZE] = "";

    s->curl = curl_easy_init();
    if (!s->curl)
        abort();
    curl_easy_setopt(s->curl, CURLOPT_URL, c->base);
    curl_easy_setopt(s->curl, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(s->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT_MS, CLIENT_CONNECT_MS);
    curl_easy_setopt(s->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, why);
    if (c->socket_path)
        curl_easy_setopt(s->curl, CURLOPT_UNIX_SOCKET_PATH, c->socket_path);
    CURLcode code = curl_easy_perform(s->curl);
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, NULL);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(s->curl, CURLINFO_ACTIVESOCKET, &s->fd);
    if (code == CURLE_OK)
        return NULL;
    return err_because(err_new(ERR_UNAVAILABLE, "cannot reach the server at %s",
                               c->socket_path ? c->socket_path : c->base),
                       "%s", *why ? why : curl_easy_strerror(code));
}

static err *lost(const client *c, const char *why)
{
    return err_because(err_new(ERR_UNAVAILABLE, "the server at %s did not answer",
                               c->socket_path ? c->socket_path : c->base),
                       "%s", why);
}

/* Waits for the socket; false when the time is over. */
static bool wait_for(const client_stream *s, short events, uint64_t until)
{
    struct pollfd p = {.fd = s->fd, .events = events};
    uint64_t now = now_mono_ns();

    return now < until && poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) != 0;
}

static err *send_all(const client *c, client_stream *s, const buf *b, uint64_t until)
{
    for (size_t at = 0; at < b->len;) {
        ssize_t n = client_stream_send(s, b->p + at, b->len - at);
        if (n > 0)
            at += (size_t)n;
        else if (n != -EAGAIN || !wait_for(s, POLLOUT, until))
            return lost(c, "the connection was cut");
    }
    return NULL;
}

/* At least one more byte. */
static err *recv_more(const client *c, client_stream *s, uint64_t until, buf *in)
{
    char p[16384];

    for (;;) {
        size_t n = 0;
        CURLcode code = curl_easy_recv(s->curl, p, sizeof p, &n);
        if (code == CURLE_OK && n) {
            buf_append(in, p, n);
            return NULL;
        }
        if (code != CURLE_AGAIN)
            return lost(c, "the connection was cut");
        if (!wait_for(s, POLLIN, until))
            return lost(c, "it took too long");
    }
}

static void write_head(const client *c, const char *path, const char *protocol, const char *lines,
                       buf *out)
{
    const char *host = strstr(c->base, "://") + 3;
    size_t n = strcspn(host, "/");

    buf_printf(out, "GET %s%s HTTP/1.1\r\nHost: %.*s\r\n", host + n, path, (int)n, host);
    if (c->key_line)
        buf_printf(out, "%s\r\n", c->key_line);
    buf_printf(out, "Connection: Upgrade\r\nUpgrade: %s\r\n%s\r\n", protocol, str_or(lines, ""));
}

/* Reads to the end of a head, which stays in *ret_head; what is behind it in ahead. */
static err *read_head(const client *c, client_stream *s, uint64_t until, buf *ret_head)
{
    http1_guard guard = {.answer = true};

    for (;;) {
        size_t used = 0;
        enum http1_result r =
            s->ahead.len ? http1_guard_feed(&guard, s->ahead.p, s->ahead.len, &used) : HTTP1_MORE;
        if (used)
            buf_append(ret_head, s->ahead.p, used);
        buf_consume(&s->ahead, used);
        if (r == HTTP1_DONE)
            return NULL;
        if (r == HTTP1_BAD) {
            err_free(http1_guard_err(&guard));
            return lost(c, "its answer is not HTTP/1.1");
        }
        TRY(recv_more(c, s, until, &s->ahead));
    }
}

/* An answer that is not 101: what the server wrote about it. */
static err *refused(const client *c, client_stream *s, const char *path, http1_answer *a,
                    uint64_t until)
{
    CLEANUP(buf_done) buf body = {0};

    while (!http1_body_ended(&a->body) && body.len < CLIENT_ERROR_MAX) {
        size_t used = 0, got = 0;
        err *e = s->ahead.len ? NULL : recv_more(c, s, until, &s->ahead);
        if (!e) {
            buf_reserve(&body, s->ahead.len);
            e = http1_body(&a->body, s->ahead.p, s->ahead.len, body.p + body.len, &used, &got);
        }
        if (e) { /* what is there has to do */
            err_free(e);
            break;
        }
        body.len += got;
        buf_consume(&s->ahead, used);
    }
    return client_status_error("GET", path, a->status, &body);
}

static err *handshake(const client *c, client_stream *s, const char *path, const char *protocol,
                      const char *lines)
{
    CLEANUP(buf_done) buf out = {0};
    http1_answer *a = s->answer = xcalloc(1, sizeof *a);
    uint64_t until = now_mono_ns() + ANSWER_MS * NS_PER_MS;

    write_head(c, path, protocol, lines, &out);
    err *e = send_all(c, s, &out, until);
    secret_wipe(out.p, out.cap);
    TRY(e);
    TRY(read_head(c, s, until, &s->head));
    e = http1_parse_answer(s->head.p, s->head.len, false, a);
    if (e) {
        err_free(e);
        return lost(c, "its answer is not HTTP/1.1");
    }
    return a->status == 101 ? NULL : refused(c, s, path, a, until);
}

err *client_upgrade(client *c, const char *path, const char *protocol, const char *lines,
                    client_stream **ret_stream)
{
    CLEANUP(client_stream_freep) client_stream *s = xcalloc(1, sizeof *s);

    TRY(connect_stream(c, s));
    TRY(handshake(c, s, path, protocol, lines));
    *ret_stream = TAKE_PTR(s);
    return NULL;
}
