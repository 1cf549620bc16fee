/* Registries: what an administrator said about them, and which hosts may be reached at all.
 *
 * Pure: names are looked up by the caller, who gives the addresses. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define REGISTRY_MIRRORS_MAX 16
#define REGISTRIES_MAX       256

typedef struct registry {
    char *host;     /* "ghcr.io", "registry.example:5000", as it stands in an image's name */
    char **mirrors; /* asked first, in order; "host[:port][/path]" */
    char *ca;       /* path of a PEM file with its own authorities, or NULL */
    bool insecure;  /* plain http, or TLS that is not verified */
} registry;

typedef struct registries {
    registry *v;
    size_t n;
} registries;

void registries_done(registries *r);
/* An entry for the host, new or the one there is. */
registry *registries_put(registries *r, const char *host);
const registry *registries_find(const registries *r, const char *host);

/* host[:port] in lower case: names of letters, digits, dashes and dots, or an address. */
bool registry_host_ok(const char *host);
/* The same with a path behind it, for mirrors. */
bool registry_mirror_ok(const char *location);
/* "host:port" without ":port". */
char *registry_name_of(const char *host);

/* False for what only this machine, its links or its site can reach: loopback, private, link-local,
 * shared, documentation, multicast, unspecified, and IPv6 forms that hold such an address. */
bool address_is_public(const struct sockaddr *a);
