/* Upgrades a connection to the API server to a byte stream. */
#include "backend/kubernetes/kube_stream.h"

#include <string.h>

#include "backend/kubernetes/kube_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "net/client_stream.h"

static err *connect_to(kube *k, client_stream *s, uint64_t until)
{
    char why[CURL_ERROR_SIZE];
    uint64_t now = now_mono_ns();

    kube_prepare(k, client_stream_curl(s), k->base);
    CURLcode code = client_stream_connect(s, now < until ? (until - now) / NS_PER_MS + 1 : 1, why);
    return code == CURLE_OK ? NULL : kube_transport_err(k, client_stream_curl(s), code, why);
}

static void write_head(const kube *k, const char *path, const char *lines, const char *who,
                       buf *out)
{
    const char *host = strstr(k->base, "://") + 3;
    size_t n = strcspn(host, "/");

    buf_printf(out, "GET %s%s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: bothyd\r\n", host + n, path,
               (int)n, host);
    if (who)
        buf_printf(out, "%s\r\n", who);
    for (char **as = k->c.as; as && *as; as++)
        buf_printf(out, "%s\r\n", *as);
    buf_printf(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n", lines);
}

static err *kube_stream_refused(client_stream *s, const char *path, uint64_t until)
{
    CLEANUP(buf_done) buf body = {0};
    const char *after = client_stream_header(s, "Retry-After");
    uint64_t seconds = 0;

    client_stream_body(s, KUBE_ERROR_MAX, until, &body);
    if (!after || !str_to_u64(after, 86400, &seconds))
        seconds = 0;
    kube_reply r = {.status = client_stream_answer(s)->status,
                    .retry_after = (long)seconds,
                    .body = body.p,
                    .nbody = body.len};
    return kube_reply_err(&r, "GET", path);
}

static err *kube_stream_handshake(kube *k, client_stream *s, const char *path, const char *lines,
                                  bool fresh, uint64_t until)
{
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(secret_freep) char *who = NULL;

    TRY(kube_credentials(k, fresh, &who));
    write_head(k, path, lines, who, &out);
    err *e = client_stream_ask(s, &out, until);
    secret_wipe(out.p, out.cap);
    TRY(e);
    return client_stream_answer(s)->status == 101 ? NULL : kube_stream_refused(s, path, until);
}

static err *kube_stream_attempt(kube *k, const char *path, const char *lines, bool fresh,
                                uint64_t until, client_stream **ret_stream)
{
    CLEANUP(freep) char *where = str_printf("the API server at %s", k->c.server);
    CURL *curl = curl_easy_init();

    if (!curl)
        abort();
    CLEANUP(client_stream_freep) client_stream *s = client_stream_new(curl, where);
    TRY(connect_to(k, s, until));
    TRY(kube_stream_handshake(k, s, path, lines, fresh, until));
    *ret_stream = TAKE_PTR(s);
    return NULL;
}

err *kube_upgrade(kube *k, const char *path, const char *lines, unsigned timeout_ms,
                  client_stream **ret_stream)
{
    uint64_t until = now_mono_ns() + timeout_ms * NS_PER_MS;
    err *e = kube_stream_attempt(k, path, lines, false, until, ret_stream);

    if (!kube_is(e, "Unauthorized") || !k->c.token_file)
        return e;
    err_free(e); /* the token file may have a newer token */
    return kube_stream_attempt(k, path, lines, true, until, ret_stream);
}
