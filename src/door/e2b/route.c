#include "door/e2b/route.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "wire/gateway.h"

static bool is_id_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

void e2b_id(const char *text, char ret_id[SANDBOX_ID_LEN + 1])
{
    size_t n = strcspn(text, "-");

    ret_id[0] = 0;
    if (n != SANDBOX_ID_LEN)
        return;
    for (size_t i = 0; i < n; i++)
        if (!is_id_char(text[i]))
            return;
    memcpy(ret_id, text, n);
    ret_id[n] = 0;
}

/* Returns true if the path's first segment is this one. */
static bool begins_with(const char *path, const char *segment)
{
    size_t n = strlen(segment);

    return !strncmp(path, segment, n) && (!path[n] || path[n] == '/');
}

bool e2b_is_control_path(const char *path)
{
    static const char *const NOUNS[] = {"/sandboxes", "/snapshots", "/templates", "/volumes",
                                        "/secrets"};

    if (path[0] == '/' && path[1] == 'v' && path[2] >= '2' && path[2] <= '9' && path[3] == '/')
        path += 3;
    for (size_t i = 0; i < ARRAY_LEN(NOUNS); i++)
        if (begins_with(path, NOUNS[i]))
            return true;
    return false;
}

bool e2b_is_rpc_path(const char *path)
{
    return str_starts(path, "/process.Process/") || str_starts(path, "/filesystem.Filesystem/");
}

/* Returns true if the rest of a host is this domain, in any case, with or without a final dot and a
 * port. True for every host if no domain is configured. */
static bool is_domain(const char *rest, const char *domain)
{
    size_t n = domain ? strlen(domain) : 0;

    if (!n)
        return true;
    if (strncasecmp(rest, domain, n) != 0)
        return false;
    rest += n;
    rest += *rest == '.';
    return !*rest || *rest == ':';
}

/* Parses "<port>-<id>[-<client>].<domain>", in any case. */
static bool parse_host(const char *host, const char *domain, e2b_way *way)
{
    size_t label = strcspn(host, "."), digits = strspn(host, "0123456789");
    char low[SANDBOX_ID_LEN + 64];

    if (host[label] != '.' || label >= sizeof low || host[digits] != '-' ||
        !is_domain(host + label + 1, domain) || !gateway_port_parse(host, digits, &way->port))
        return false;
    for (size_t i = 0; i < label; i++)
        low[i] = (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] + 32 : host[i]);
    low[label] = 0;
    e2b_id(low + digits + 1, way->id);
    return way->id[0] != 0;
}

static void parse_port(const char *text, uint16_t *port)
{
    *port = E2B_ENVD_PORT;
    if (text && *text && !gateway_port_parse(text, strlen(text), port))
        *port = 0;
}

static bool is_id(const char *text)
{
    char id[SANDBOX_ID_LEN + 1];

    e2b_id(text, id);
    return id[0] != 0;
}

static void by_header(const e2b_asked *a, e2b_way *way)
{
    way->plane = PLANE_DATA;
    parse_port(a->port, &way->port);
    e2b_id(a->sandbox, way->id);
}

/* Returns true if it has a token's length. Others may use a header of this name: a web page, for a
 * server inside. */
static bool is_token(const char *text)
{
    return text && strlen(text) == E2B_TOKEN_LEN;
}

static bool by_host(const e2b_asked *a, e2b_way *way)
{
    char id[SANDBOX_ID_LEN + 1];
    uint16_t port;

    if (!a->host || !parse_host(a->host, a->domain, way))
        return false;
    way->plane = PLANE_DATA;
    way->by_host = true;
    way->native =
        way->port != E2B_ENVD_PORT && !is_token(a->token) && !a->traffic && a->domain &&
        *a->domain &&
        gateway_host_parse(a->host, a->domain, SANDBOX_ID_LEN, id, &port) == GATEWAY_HOST_PORT;
    return true;
}

/* Finds the sandbox by the token, which begins with its id: no table is needed. */
static void by_token(const e2b_asked *a, e2b_way *way)
{
    char id[SANDBOX_ID_LEN + 1] = "";

    way->plane = PLANE_DATA;
    parse_port(a->port, &way->port);
    if (a->token && is_token(a->token)) {
        memcpy(id, a->token, SANDBOX_ID_LEN);
        id[SANDBOX_ID_LEN] = 0;
        e2b_id(id, way->id);
    }
}

static bool is_envd_path(const char *path)
{
    return e2b_is_rpc_path(path) || str_eq(path, "/files");
}

e2b_way e2b_route(const e2b_asked *a)
{
    e2b_way way = {0};
    bool control = e2b_is_control_path(a->path);

    if (a->api_key && control)
        way.plane = PLANE_CONTROL; /* some SDKs send routing headers with control calls, too */
    else if (a->sandbox && (is_id(a->sandbox) || !str_starts(a->path, "/v1/")))
        by_header(a, &way); /* for a server inside, which may have paths like ours */
    else if (by_host(a, &way))
        return way;
    else if (str_eq(a->path, "/files") && a->has_signature)
        way = (e2b_way){.plane = PLANE_SIGNED, .port = E2B_ENVD_PORT};
    else if (is_token(a->token) ||
             (a->token && (is_envd_path(a->path) || str_eq(a->path, "/health"))))
        by_token(a, &way);
    else if (control)
        way.plane = PLANE_CONTROL;
    else if (is_envd_path(a->path))
        by_token(a, &way); /* names no sandbox: the error says what is missing */
    return way;
}
