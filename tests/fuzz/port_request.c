/* A caller's request on its way to a server inside: whatever passes the guard is one request of the
 * same method and framing there, without a credential under any spelling; a host is a sandbox's
 * port or it is not. The first byte chooses the form. */
#include <ctype.h>
#include <strings.h>

#include "base/cleanup.h"
#include "wire/gateway.h"

#include "fuzz.h"

#define ID_LEN 20

static const char *const NEVER[] = {"authorization",    "x-api-key", "x-access-token",
                                    "keep-alive",       "te",        "trailer",
                                    "proxy-connection", "expect",    "forwarded"};

/* As CGI, and a careless reader, would see a name. */
static void bare(const char *name, char *to, size_t size)
{
    size_t n = 0;

    for (; *name && n + 1 < size; name++)
        to[n++] = (char)(*name == '_' ? '-' : tolower((unsigned char)*name));
    to[n] = 0;
}

static size_t count(const http1_request *rq, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < rq->nheader; i++)
        n += !strcasecmp(rq->header[i].name, name);
    return n;
}

static bool same_name(const char *name, const char *listed, size_t n)
{
    return strlen(name) == n && !strncasecmp(name, listed, n);
}

static void check_names(const http1_request *inner, bool path_form)
{
    char text[64];

    for (size_t i = 0; i < inner->nheader; i++) {
        bare(inner->header[i].name, text, sizeof text);
        for (size_t k = 0; k < ARRAY_LEN(NEVER); k++)
            MUST(strcmp(text, NEVER[k]) != 0);
        MUST(!str_starts(text, "e2b-"));
        MUST(!path_form || strcmp(text, "cookie") != 0);
    }
}

/* Nothing that the caller's Connection headers list goes in, but for what we write ourselves. */
static void check_listed(const http1_request *outer, const http1_request *inner)
{
    static const char *const OURS[] = {"host",       "content-length", "transfer-encoding",
                                       "connection", "upgrade",        "x-request-id"};

    for (size_t i = 0; i < outer->nheader; i++) {
        const char *p = outer->header[i].value;
        if (strcasecmp(outer->header[i].name, "connection") != 0)
            continue;
        while (*(p += strspn(p, ", \t"))) {
            size_t n = strcspn(p, ", \t");
            bool ours = !strncasecmp(p, "x-forwarded-", n < 12 ? n : 12);
            for (size_t k = 0; k < ARRAY_LEN(OURS); k++)
                ours |= same_name(OURS[k], p, n);
            for (size_t k = 0; !ours && k < inner->nheader; k++)
                MUST(!same_name(inner->header[k].name, p, n));
            p += n;
        }
    }
}

static void check_request(http1_request *outer, bool path_form)
{
    const gateway_rules rules = {.prefix = path_form ? "/v1/sandboxes/x/ports/80" : NULL,
                                 .target = outer->target[0] == '/' ? outer->target : "/",
                                 .host = path_form ? "localhost:80" : str_or(outer->host, "a"),
                                 .caller = "192.0.2.1",
                                 .id = "id",
                                 .upgrade = gateway_upgrade(outer)};
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(freep) http1_request *inner = xcalloc(1, sizeof *inner);
    http1_guard guard = {0};
    size_t used = 0;

    gateway_write_request(&out, outer, &rules);
    if (out.len > HTTP1_HEAD_MAX || outer->nheader + 8 > HTTP1_HEADERS_MAX)
        return; /* more than we would take ourselves; the server inside decides */
    MUST(http1_guard_feed(&guard, out.p, out.len, &used) == HTTP1_DONE && used == out.len);
    err *e = http1_parse(out.p, out.len, inner);
    MUST(!e);
    MUST(!strcmp(inner->method, outer->method) && count(inner, "host") == 1);
    MUST(inner->body.chunked == outer->body.chunked && inner->body.left == outer->body.left);
    check_names(inner, path_form);
    check_listed(outer, inner);
}

static void check_host(const char *host)
{
    char id[ID_LEN + 1];
    uint16_t port = 0;

    if (gateway_host_parse(host, "a.example", ID_LEN, id, &port) != GATEWAY_HOST_PORT)
        return;
    CLEANUP(freep) char *again = str_printf("%u-%s.a.example", port, id);
    MUST(port && strlen(id) == ID_LEN && !strncasecmp(again, host, strlen(again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(freep) http1_request *rq = xcalloc(1, sizeof *rq);
    http1_guard guard = {0};
    size_t used = 0;

    if (size < 2)
        return 0;
    CLEANUP(freep) char *head = xmalloc(size);
    memcpy(head, data + 1, size - 1);
    if (http1_guard_feed(&guard, head, size - 1, &used) != HTTP1_DONE)
        return 0;
    err *e = http1_parse(head, used, rq);
    if (!e) {
        if (rq->host)
            check_host(rq->host);
        check_request(rq, data[0] & 1);
    }
    err_free(e);
    return 0;
}
