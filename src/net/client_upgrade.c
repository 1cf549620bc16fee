/* Sends requests whose answer starts a byte stream. */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "net/client_internal.h"
#include "net/client_stream.h"

#define ANSWER_MS 60000 /* for the head */

/* A request, and the statuses that count as success. */
typedef struct request_line {
    const char *method, *path, *protocol;
    const char *lines; /* further headers, each with CRLF, or NULL */
    const json_t *json;
    bool any_2xx; /* not only 101 */
    uint64_t timeout_ms;
} request_line;

static void write_head(const client *c, const request_line *q, buf *out)
{
    const char *host = strstr(c->base, "://") + 3;
    size_t n = strcspn(host, "/");

    buf_printf(out, "%s %s%s HTTP/1.1\r\nHost: %.*s\r\n", q->method, host + n, q->path, (int)n,
               host);
    if (c->key_line)
        buf_printf(out, "%s\r\n", c->key_line);
    buf_printf(out, "Connection: Upgrade\r\nUpgrade: %s\r\n%s", q->protocol, str_or(q->lines, ""));
}

static void write_request(const client *c, const request_line *q, buf *out)
{
    CLEANUP(buf_done) buf body = {0};

    write_head(c, q, out);
    if (q->json) {
        json_write(&body, q->json);
        buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.len);
    }
    buf_str(out, "\r\n");
    buf_append(out, body.p, body.len);
    secret_wipe(body.p, body.cap);
}

static err *connect_to(const client *c, client_stream *s)
{
    char why[CURL_ERROR_SIZE];
    CURL *curl = client_stream_curl(s);

    client_prepare(c, curl, c->base);
    CURLcode code = client_stream_connect(s, 0, why);
    return code == CURLE_OK ? NULL : client_unreached(c, curl, code, why);
}

static bool is_taken(const request_line *q, int status)
{
    return status == 101 || (q->any_2xx && status >= 200 && status < 300);
}

static err *client_upgrade_handshake(const client *c, client_stream *s, const request_line *q)
{
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(buf_done) buf body = {0};
    uint64_t until = now_mono_ns() + q->timeout_ms * NS_PER_MS;

    write_request(c, q, &out);
    err *e = client_stream_ask(s, &out, until);
    secret_wipe(out.p, out.cap);
    TRY(e);
    int status = client_stream_answer(s)->status;
    if (is_taken(q, status))
        return NULL;
    client_stream_body(s, CLIENT_ERROR_MAX, until, &body);
    return client_status_error(q->method, q->path, status, &body);
}

static err *open_stream(client *c, const request_line *q, client_stream **ret_stream)
{
    CLEANUP(freep) char *who = str_printf("the server at %s", client_where(c));
    CURL *curl = curl_easy_init();

    if (!curl)
        abort();
    CLEANUP(client_stream_freep) client_stream *s = client_stream_new(curl, who);
    TRY(connect_to(c, s));
    TRY(client_upgrade_handshake(c, s, q));
    *ret_stream = TAKE_PTR(s);
    return NULL;
}

err *client_upgrade(client *c, const char *path, const char *protocol, const char *lines,
                    client_stream **ret_stream)
{
    const request_line q = {.method = "GET",
                            .path = path,
                            .protocol = protocol,
                            .lines = lines,
                            .timeout_ms = ANSWER_MS};

    return open_stream(c, &q, ret_stream);
}

err *client_hijack(client *c, const char *path, const json_t *json, uint64_t timeout_ms,
                   client_stream **ret_stream)
{
    const request_line q = {.method = "POST",
                            .path = path,
                            .protocol = "tcp",
                            .json = json,
                            .any_2xx = true,
                            .timeout_ms = timeout_ms};

    return open_stream(c, &q, ret_stream);
}
