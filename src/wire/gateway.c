#include "wire/gateway.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"

/* ---- names ---- */

/* A "*" at the end matches any ending. */
static const char *const HOP[] = {
    "connection", "keep-alive",        "proxy-*", "te",
    "trailer",    "transfer-encoding", "upgrade", "http2-settings",
};
/* Headers that bothyd writes itself. */
static const char *const OURS_IN[] = {
    "host",
    "content-length",
    "expect",
    "x-request-id",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-prefix",
};
static const char *const CREDENTIALS[] = {
    "authorization", "x-api-key", "x-access-token", "e2b-*", "x-e2b-*", "bothy-*",
};
static const char *const COOKIES[] = {"cookie", "cookie2"};
static const char *const OURS_OUT[] = {"content-length", "x-request-id", "bothy-*"};
/* Commands to a proxy in front of bothyd, which would trust them as bothyd's: serve this file
 * instead. */
static const char *const PROXY_ORDERS[] = {
    "x-accel-*", "x-sendfile*", "x-lighttpd-send-*", "x-litespeed-*", "x-reproxy-*",
};
/* Headers with effect on the whole origin, which the path form shares with the API. */
static const char *const ORIGIN_WIDE[] = {
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "clear-site-data",
    "alt-svc",
    "nel",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "refresh",
    "expect-ct",
    "accept-ch",
    "set-login",
    "public-key-pins*",
    "location",
    "content-location",
    "x-content-type-options",
};

static char gateway_folded(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static bool name_is(const char *name, size_t n, const char *pattern)
{
    size_t i = 0;

    for (; i < n && pattern[i] && pattern[i] != '*'; i++)
        if (gateway_folded(name[i]) != pattern[i])
            return false;
    return pattern[i] == '*' || (i == n && !pattern[i]);
}

static bool in_list(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name_is(name, strlen(name), list[i]))
            return true;
    return false;
}
#define IN(name, list) in_list(name, list, ARRAY_LEN(list))

static bool same_name(const char *name, const char *token, size_t n)
{
    if (strlen(name) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (gateway_folded(name[i]) != gateway_folded(token[i]))
            return false;
    return true;
}

/* Returns true if a comma-separated list has this name. */
static bool list_has(const char *list, const char *name)
{
    while (*list) {
        list += strspn(list, ", \t");
        size_t n = strcspn(list, ", \t");
        if (n && same_name(name, list, n))
            return true;
        list += n;
    }
    return false;
}

/* Returns true for a hop-by-hop header, by nature or because a Connection header lists it. */
static bool is_hop(const http1_message *m, const char *name)
{
    if (IN(name, HOP))
        return true;
    for (size_t i = 0; i < m->nheader; i++)
        if (same_name(m->header[i].name, "connection", 10) && list_has(m->header[i].value, name))
            return true;
    return false;
}

/* ---- inwards ---- */

const char *gateway_upgrade(const http1_request *rq)
{
    const char *to = http1_header_get(rq, "upgrade");

    if (!rq->upgrade || !rq->http11 || !to || rq->body.chunked || rq->body.left ||
        !strcmp(rq->method, "HEAD"))
        return NULL;
    size_t n = strlen(to);
    bool token = n && n <= 64 &&
                 strspn(to, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789-._/+") == n;
    return token && strncasecmp(to, "h2", 2) != 0 ? to : NULL;
}

static void forwarded_for(buf *out, const http1_request *rq, const gateway_rules *r)
{
    const char *before = http1_header_get(rq, "x-forwarded-for");

    if (!before && !r->caller)
        return;
    CLEANUP(freep)
    char *all = str_printf("%s%s%s", str_or(before, ""), before && r->caller ? ", " : "",
                           str_or(r->caller, ""));
    http1_write_header(out, "X-Forwarded-For", all);
}

static void gateway_forwarded(buf *out, const http1_request *rq, const gateway_rules *r)
{
    const char *proto = http1_header_get(rq, "x-forwarded-proto");

    forwarded_for(out, rq, r);
    if (rq->host)
        http1_write_header(out, "X-Forwarded-Host", rq->host);
    http1_write_header(out, "X-Forwarded-Proto",
                       proto && !strcasecmp(proto, "https") ? "https" : "http");
    if (r->prefix)
        http1_write_header(out, "X-Forwarded-Prefix", r->prefix);
    http1_write_header(out, "X-Request-Id", r->id);
}

static bool goes_in(const http1_request *rq, const gateway_rules *r, const char *name)
{
    return !is_hop(rq, name) && !IN(name, OURS_IN) && !IN(name, CREDENTIALS) &&
           !(r->prefix && IN(name, COOKIES));
}

static bool may_have_body(const http1_request *rq)
{
    return rq->body.chunked || http1_header_get(rq, "content-length");
}

void gateway_write_request(buf *out, const http1_request *rq, const gateway_rules *r)
{
    buf_printf(out, "%s %s HTTP/1.1\r\n", rq->method, r->target);
    http1_write_header(out, "Host", r->host);
    for (size_t i = 0; i < rq->nheader; i++)
        if (goes_in(rq, r, rq->header[i].name))
            http1_write_header(out, rq->header[i].name, rq->header[i].value);
    gateway_forwarded(out, rq, r);
    if (rq->body.chunked)
        buf_str(out, "Transfer-Encoding: chunked\r\n");
    else if (may_have_body(rq))
        buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)rq->body.left);
    if (r->upgrade)
        buf_printf(out, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", r->upgrade);
    else
        buf_str(out, "Connection: close\r\n\r\n");
}

/* ---- outwards ---- */

/* Returns the path of "http://host/a" or "//host/a" if the host means this server. NULL: another
 * host, or a scheme other than HTTP. */
static const char *without_origin(const char *url, const char *const *hosts)
{
    size_t scheme = strcspn(url, ":/?#");

    if (url[scheme] == ':') {
        bool http = (scheme == 4 && !strncasecmp(url, "http", 4)) ||
                    (scheme == 5 && !strncasecmp(url, "https", 5));
        url += scheme + 1;
        if (!http || strncmp(url, "//", 2) != 0)
            return NULL;
    }
    if (strncmp(url, "//", 2) != 0)
        return url[0] == '/' ? url : NULL;
    url += 2;
    size_t n = strcspn(url, "/?#\\");
    for (; *hosts; hosts++)
        if (strlen(*hosts) == n && !strncasecmp(*hosts, url, n))
            return url[n] ? url + n : "/";
    return NULL;
}

/* Returns true if a client could read the path as leading upwards: "." and ".." as segments, also
 * escaped, and backslashes, which browsers read as slashes. */
static bool gateway_climbs(const char *path)
{
    size_t end = strcspn(path, "?#");

    for (size_t at = 0; at < end;) {
        at++; /* skip the slash */
        size_t n = 0, dots = 0;
        for (; at + n < end && path[at + n] != '/'; dots++) {
            if (path[at + n] == '\\')
                return true;
            bool escaped = !strncasecmp(path + at + n, "%2e", 3);
            if (path[at + n] != '.' && !escaped) {
                n += strcspn(path + at + n, "/\\?#");
                dots = 3;
                break;
            }
            n += escaped ? 3 : 1;
        }
        if (path[at + n] == '\\' || (n && dots <= 2))
            return true;
        at += n;
    }
    return false;
}

/* Resolves "b", "?c" and the like against the request's own path. */
static char *gateway_beside(const char *target, const char *reference)
{
    size_t n = strcspn(target, "?#");

    if (reference[0] != '?' && reference[0] != '#')
        while (n && target[n - 1] != '/')
            n--;
    return str_printf("%.*s%s", (int)n, target, reference);
}

/* Writes a redirect. A client follows it with its API key, so in the path form a redirect may lead
 * to the same port only. Any other target is sent under another header name. */
static void write_location(buf *out, const char *value, const gateway_rules *r,
                           const char *outer_host)
{
    const char *hosts[] = {r->host, outer_host, NULL};
    bool relative = value[0] != '/' && value[strcspn(value, ":/?#\\")] != ':';
    CLEANUP(freep) char *resolved = relative ? gateway_beside(r->target, value) : NULL;
    const char *path = resolved ? resolved : without_origin(value, hosts);

    if (path && path[0] == '/' && path[1] != '/' && !gateway_climbs(path)) {
        /* The path may have the prefix already. */
        bool whole = str_starts(path, r->prefix) && path[strlen(r->prefix)] == '/';
        CLEANUP(freep) char *here = str_printf("%s%s", whole ? "" : r->prefix, path);
        http1_write_header(out, "Location", here);
    } else {
        http1_write_header(out, "Bothy-Location", value);
    }
}

/* Returns true if a cookie names a domain: every other sandbox would receive it, too. */
static bool cookie_has_domain(const char *value)
{
    for (const char *p = strchr(value, ';'); p; p = strchr(p, ';')) {
        p += 1 + strspn(p + 1, " \t");
        if (!strncasecmp(p, "domain", 6))
            return true;
    }
    return false;
}

static bool goes_out(const http1_answer *a, const gateway_rules *r, const http1_header *h)
{
    if (is_hop(a, h->name) || IN(h->name, OURS_OUT) || IN(h->name, PROXY_ORDERS) ||
        (r->prefix && IN(h->name, ORIGIN_WIDE)))
        return false;
    return !name_is(h->name, strlen(h->name), "set-cookie") || !cookie_has_domain(h->value);
}

static void write_framing(buf *out, const http1_answer *a, enum gateway_framing framing, bool keep)
{
    const char *length = http1_header_get(a, "content-length");

    if (framing == GATEWAY_SWITCHED) {
        http1_write_header(out, "Upgrade", str_or(http1_header_get(a, "upgrade"), ""));
        buf_str(out, "Connection: Upgrade\r\n");
        return;
    }
    if (framing == GATEWAY_CHUNKED)
        buf_str(out, "Transfer-Encoding: chunked\r\n");
    else if (framing != GATEWAY_TO_END && length && a->status != 204)
        http1_write_header(out, "Content-Length", length);
    if (!keep)
        buf_str(out, "Connection: close\r\n");
}

void gateway_write_answer(buf *out, const http1_answer *a, const gateway_rules *r,
                          const char *outer_host, enum gateway_framing framing, bool keep_alive)
{
    http1_write_status(out, a->status);
    for (size_t i = 0; i < a->nheader; i++)
        if (goes_out(a, r, &a->header[i]))
            http1_write_header(out, a->header[i].name, a->header[i].value);
    const char *location = http1_header_get(a, "location");
    if (r->prefix && location)
        write_location(out, location, r, outer_host);
    if (r->prefix)
        buf_str(out, "Content-Security-Policy: sandbox\r\nX-Content-Type-Options: nosniff\r\n");
    http1_write_header(out, "X-Request-Id", r->id);
    write_framing(out, a, framing, keep_alive);
    buf_append(out, "\r\n", 2);
}

/* ---- the host form ---- */

bool gateway_port_parse(const char *s, size_t n, uint16_t *ret_port)
{
    uint32_t port = 0;

    if (!n || n > 5 || s[0] == '0')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        port = port * 10 + (uint32_t)(s[i] - '0');
    }
    *ret_port = (uint16_t)port;
    return port <= UINT16_MAX;
}

static bool is_ldh(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

bool gateway_domain_ok(const char *domain)
{
    size_t n = strlen(domain);

    if (!n || n > GATEWAY_HOST_MAX - 32 || domain[0] == '.' || domain[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_ldh(domain[i]) && (domain[i] != '.' || domain[i + 1] == '.'))
            return false;
    return true;
}

/* Writes the host in lower case, without port and final dot. Returns false if it is too long. */
static bool gateway_normalise(const char *host, char ret[GATEWAY_HOST_MAX + 1])
{
    size_t n = strcspn(host, ":");

    if (n && host[n - 1] == '.')
        n--;
    if (n > GATEWAY_HOST_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        ret[i] = (char)tolower((unsigned char)host[i]);
    ret[n] = 0;
    return true;
}

/* Parses "8080-abcdef…": the port, a hyphen, the id. */
static bool parse_label(const char *label, size_t n, size_t id_len, char *ret_id,
                        uint16_t *ret_port)
{
    const char *hyphen = memchr(label, '-', n);

    if (!hyphen || n - (size_t)(hyphen + 1 - label) != id_len)
        return false;
    for (size_t i = 0; i < id_len; i++)
        if (!is_ldh(hyphen[1 + i]) || hyphen[1 + i] == '-')
            return false;
    memcpy(ret_id, hyphen + 1, id_len);
    ret_id[id_len] = 0;
    return gateway_port_parse(label, (size_t)(hyphen - label), ret_port);
}

enum gateway_host gateway_host_parse(const char *host, const char *domain, size_t id_len,
                                     char *ret_id, uint16_t *ret_port)
{
    char name[GATEWAY_HOST_MAX + 1];

    if (!gateway_normalise(host, name))
        return GATEWAY_HOST_BAD;
    size_t n = strlen(name), d = strlen(domain);
    if (n <= d || strcmp(name + n - d, domain) != 0 || name[n - d - 1] != '.')
        return GATEWAY_HOST_OTHER;
    return parse_label(name, n - d - 1, id_len, ret_id, ret_port) ? GATEWAY_HOST_PORT
                                                                  : GATEWAY_HOST_BAD;
}
