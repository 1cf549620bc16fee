#include "net/client_stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

struct client_stream {
    CURL *curl;
    char *who; /* the server, for messages */
    curl_socket_t fd;
    buf ahead;            /* bytes after the head */
    buf head;             /* of the answer */
    http1_answer *answer; /* points into head */
};

client_stream *client_stream_new(CURL *curl, const char *who)
{
    client_stream *s = xcalloc(1, sizeof *s);

    s->curl = curl;
    s->who = xstrdup(who);
    s->fd = -1;
    return s;
}

void client_stream_free(client_stream *s)
{
    if (!s)
        return;
    curl_easy_cleanup(s->curl);
    buf_done(&s->ahead);
    buf_done(&s->head);
    free(s->answer);
    free(s->who);
    free(s);
}

const char *client_stream_header(const client_stream *s, const char *name)
{
    return http1_header_get(s->answer, name);
}

const http1_answer *client_stream_answer(const client_stream *s)
{
    return s->answer;
}

CURL *client_stream_curl(const client_stream *s)
{
    return s->curl;
}

int client_stream_fd(const client_stream *s)
{
    return s->fd;
}

static ssize_t client_stream_result(CURLcode code, size_t n)
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
    return client_stream_result(code, n);
}

ssize_t client_stream_send(client_stream *s, const void *p, size_t n)
{
    size_t sent = 0;
    CURLcode code = curl_easy_send(s->curl, p, n, &sent);

    return client_stream_result(code, sent);
}

void client_stream_shut(client_stream *s)
{
    shutdown(s->fd, SHUT_WR);
}

/* ---- how it begins ---- */

CURLcode client_stream_connect(client_stream *s, uint64_t timeout_ms, char why[CURL_ERROR_SIZE])
{
    why[0] = 0;
    curl_easy_setopt(s->curl, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(s->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, why);
    CURLcode code = curl_easy_perform(s->curl);
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, NULL);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(s->curl, CURLINFO_ACTIVESOCKET, &s->fd);
    return code;
}

static err *client_stream_lost(const client_stream *s, const char *why)
{
    return err_because(err_new(ERR_UNAVAILABLE, "%s did not answer", s->who), "%s", why);
}

/* Waits for the socket. Returns false after the time limit. */
static bool wait_for(const client_stream *s, short events, uint64_t until)
{
    struct pollfd p = {.fd = s->fd, .events = events};
    uint64_t now = now_mono_ns();

    return now < until && poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) != 0;
}

static err *send_all(client_stream *s, const buf *b, uint64_t until)
{
    for (size_t at = 0; at < b->len;) {
        ssize_t n = client_stream_send(s, b->p + at, b->len - at);
        if (n > 0)
            at += (size_t)n;
        else if (n != -EAGAIN || !wait_for(s, POLLOUT, until))
            return client_stream_lost(s, "the connection was cut");
    }
    return NULL;
}

/* Reads at least one more byte. */
static err *recv_more(client_stream *s, uint64_t until)
{
    char p[16384];

    for (;;) {
        size_t n = 0;
        CURLcode code = curl_easy_recv(s->curl, p, sizeof p, &n);
        if (code == CURLE_OK && n) {
            buf_append(&s->ahead, p, n);
            return NULL;
        }
        if (code != CURLE_AGAIN)
            return client_stream_lost(s, "the connection was cut");
        if (!wait_for(s, POLLIN, until))
            return client_stream_lost(s, "it took too long");
    }
}

/* Reads to the end of the head; later bytes stay in `ahead`. */
static err *read_head(client_stream *s, uint64_t until)
{
    http1_guard guard = {.answer = true};

    for (;;) {
        size_t used = 0;
        enum http1_result r =
            s->ahead.len ? http1_guard_feed(&guard, s->ahead.p, s->ahead.len, &used) : HTTP1_MORE;
        if (used)
            buf_append(&s->head, s->ahead.p, used);
        buf_consume(&s->ahead, used);
        if (r == HTTP1_DONE)
            return NULL;
        if (r == HTTP1_BAD)
            return client_stream_lost(s, "its answer is not HTTP/1.1");
        TRY(recv_more(s, until));
    }
}

err *client_stream_ask(client_stream *s, const buf *request, uint64_t until)
{
    TRY(send_all(s, request, until));
    TRY(read_head(s, until));
    s->answer = xcalloc(1, sizeof *s->answer);
    err *e = http1_parse_answer(s->head.p, s->head.len, false, s->answer);
    if (!e)
        return NULL;
    err_free(e);
    return client_stream_lost(s, "its answer is not HTTP/1.1");
}

void client_stream_body(client_stream *s, size_t max, uint64_t until, buf *ret_body)
{
    http1_framing *f = &s->answer->body;

    while (!http1_body_ended(f) && ret_body->len < max) {
        size_t used = 0, got = 0;
        err *e = s->ahead.len ? NULL : recv_more(s, until);
        if (!e) {
            buf_reserve(ret_body, s->ahead.len);
            e = http1_body(f, s->ahead.p, s->ahead.len, ret_body->p + ret_body->len, &used, &got);
        }
        if (e) { /* keep what was read so far */
            err_free(e);
            return;
        }
        ret_body->len += got;
        buf_consume(&s->ahead, used);
    }
}
