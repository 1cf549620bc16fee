#include "core/registry.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define HOST_MAX  253
#define LABEL_MAX 63
#define PORT_MAX  65535

void registries_done(registries *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->v[i].host);
        strv_free(r->v[i].mirrors);
        free(r->v[i].ca);
    }
    free(r->v);
    *r = (registries){0};
}

const registry *registries_find(const registries *r, const char *host)
{
    for (size_t i = 0; i < r->n; i++)
        if (str_eq(r->v[i].host, host))
            return &r->v[i];
    return NULL;
}

registry *registries_put(registries *r, const char *host)
{
    registry *there = (registry *)registries_find(r, host);

    if (there)
        return there;
    r->v = xrealloc(r->v, (r->n + 1) * sizeof *r->v);
    r->v[r->n] = (registry){.host = xstrdup(host)};
    return &r->v[r->n++];
}

/* ---- names ---- */

static bool label_ok(const char *s, size_t n)
{
    if (!n || n > LABEL_MAX || s[0] == '-' || s[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '-'))
            return false;
    return true;
}

static bool name_ok(const char *s, size_t n)
{
    if (!n || n > HOST_MAX)
        return false;
    for (size_t at = 0; at <= n;) {
        const char *dot = memchr(s + at, '.', n - at);
        size_t end = dot ? (size_t)(dot - s) : n;
        if (!label_ok(s + at, end - at))
            return false;
        at = end + 1;
    }
    return true;
}

bool registry_host_ok(const char *host)
{
    const char *colon = strchr(host, ':');
    uint64_t port;

    if (!colon)
        return name_ok(host, strlen(host));
    return name_ok(host, (size_t)(colon - host)) && str_to_u64(colon + 1, PORT_MAX, &port) && port;
}

static bool path_ok(const char *path)
{
    static const char ALLOWED[] = "abcdefghijklmnopqrstuvwxyz0123456789._-/";

    return *path && *path != '/' && strlen(path) <= HOST_MAX &&
           strspn(path, ALLOWED) == strlen(path) && !strstr(path, "//") && !strstr(path, "..") &&
           path[strlen(path) - 1] != '/';
}

bool registry_mirror_ok(const char *location)
{
    const char *slash = strchr(location, '/');
    CLEANUP(freep)
    char *host = xstrndup(location, slash ? (size_t)(slash - location) : strlen(location));

    return registry_host_ok(host) && (!slash || path_ok(slash + 1));
}

char *registry_name_of(const char *host)
{
    return xstrndup(host, strcspn(host, ":"));
}

/* ---- addresses ---- */

static const struct {
    uint32_t net;
    unsigned bits;
} NOT_PUBLIC[] = {
    {0x00000000, 8},  /* this network */
    {0x0a000000, 8},  /* private */
    {0x64400000, 10}, /* shared by carriers */
    {0x7f000000, 8},  /* loopback */
    {0xa9fe0000, 16}, /* link-local; clouds' metadata services */
    {0xac100000, 12}, /* private */
    {0xc0000000, 24}, /* protocol assignments */
    {0xc0000200, 24}, /* documentation */
    {0xc0a80000, 16}, /* private */
    {0xc6120000, 15}, /* benchmarks */
    {0xc6336400, 24}, /* documentation */
    {0xcb007100, 24}, /* documentation */
    {0xe0000000, 3},  /* multicast, reserved, broadcast */
};

static bool v4_is_public(uint32_t host_order)
{
    for (size_t i = 0; i < ARRAY_LEN(NOT_PUBLIC); i++)
        if ((host_order ^ NOT_PUBLIC[i].net) >> (32 - NOT_PUBLIC[i].bits) == 0)
            return false;
    return true;
}

static uint32_t v4_at(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Checks an IPv6 address. Global unicast is 2000::/3. Addresses that embed an IPv4 address are
 * judged by that one, or refused (Teredo). */
static bool v6_is_public(const uint8_t a[16])
{
    static const uint8_t MAPPED[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t NAT64[12] = {0x00, 0x64, 0xff, 0x9b};

    if (!memcmp(a, MAPPED, sizeof MAPPED) || !memcmp(a, NAT64, sizeof NAT64))
        return v4_is_public(v4_at(a + 12));
    if ((a[0] & 0xe0) != 0x20)
        return false;
    if (a[0] == 0x20 && a[1] == 0x02)
        return v4_is_public(v4_at(a + 2));
    bool assigned = a[0] == 0x20 && a[1] == 0x01 && a[2] < 0x02; /* Teredo and the like */
    bool documentation = a[0] == 0x20 && a[1] == 0x01 && a[2] == 0x0d && a[3] == 0xb8;
    return !assigned && !documentation;
}

bool address_is_public(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, a, sizeof in);
        return v4_is_public(ntohl(in.sin_addr.s_addr));
    }
    if (a->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, a, sizeof in);
        return v6_is_public(in.sin6_addr.s6_addr);
    }
    return false;
}
