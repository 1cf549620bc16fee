/* Registries: an administrator's settings for them, and the addresses that may be reached at all.
 *
 * Pure: the caller resolves names and passes the addresses. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define REGISTRY_MIRRORS_MAX 16
#define REGISTRIES_MAX       256

typedef struct registry {
    char *host;     /* "ghcr.io", "registry.example:5000", as in an image's name */
    char **mirrors; /* tried first, in order; "host[:port][/path]" */
    char *ca;       /* path of a PEM file with its own certificate authorities, or NULL */
    bool insecure;  /* plain http, or TLS without verification */
} registry;

typedef struct registries {
    registry *v;
    size_t n;
} registries;

void registries_done(registries *r);
/* Returns the host's entry; adds one if there is none. */
registry *registries_put(registries *r, const char *host);
const registry *registries_find(const registries *r, const char *host);

/* Returns true for host[:port] in lower case: a name of letters, digits, dashes and dots, or an
 * address. */
bool registry_host_ok(const char *host);
/* Returns true for a host as above with an optional path, for mirrors. */
bool registry_mirror_ok(const char *location);
/* Returns "host:port" without ":port". */
char *registry_name_of(const char *host);

/* Returns false for addresses that only this machine, its links or its site can reach: loopback,
 * private, link-local, shared, documentation, multicast, unspecified, and IPv6 forms that embed one
 * of these. */
bool address_is_public(const struct sockaddr *a);
