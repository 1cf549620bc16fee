/* Heads on their way through us, without I/O: a caller's request to a server inside a sandbox, and
 * that server's answer back. Neither side is believed.
 *
 * Inwards no credential and no hop-by-hop header passes, however it is spelled: names are compared
 * without case and with "_" read as "-", as CGI does. Outwards the path form shares its origin with
 * the API, so nothing passes that would speak for that origin; the host form has its own.
 *
 * Host, framing and Connection are always written by us, never copied: a header that a Connection
 * header names cannot take them away. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/http1.h"

#define GATEWAY_HOST_MAX 253

typedef struct gateway_rules {
    const char *prefix;  /* path form: "/v1/sandboxes/x/ports/80"; NULL: host form */
    const char *target;  /* for the server inside, "/a?b" */
    const char *host;    /* likewise */
    const char *caller;  /* the caller's address, or NULL (unix) */
    const char *id;      /* of the request */
    const char *upgrade; /* the protocol that is asked for inside, or NULL */
} gateway_rules;

/* The head for the server inside; the body follows in the request's own framing. */
void gateway_write_request(buf *out, const http1_request *rq, const gateway_rules *r);

enum gateway_framing {
    GATEWAY_NO_BODY, /* or one that is not sent: HEAD, 304 */
    GATEWAY_LENGTH,  /* as the server said */
    GATEWAY_CHUNKED,
    GATEWAY_TO_END,
    GATEWAY_SWITCHED, /* 101 */
};
/* The head for the caller. outer_host is what the caller has sent as Host, or NULL. */
void gateway_write_answer(buf *out, const http1_answer *a, const gateway_rules *r,
                          const char *outer_host, enum gateway_framing framing, bool keep_alive);

/* Which protocol a request may ask for: its Upgrade header if that is one token and not h2c (whose
 * requests would pass without being looked at), or NULL. HEAD has an answer without bytes. */
const char *gateway_upgrade(const http1_request *rq);

/* "8080-<id>.<domain>", any case, with or without a port and a dot at the end. */
enum gateway_host {
    GATEWAY_HOST_OTHER, /* not below the domain */
    GATEWAY_HOST_BAD,   /* below it, but not of this form */
    GATEWAY_HOST_PORT,
};
/* ret_id has room for id_len + 1 bytes. domain is normal already (gateway_domain_ok). */
enum gateway_host gateway_host_parse(const char *host, const char *domain, size_t id_len,
                                     char *ret_id, uint16_t *ret_port);
/* Lower case, letters, digits, hyphens and single dots, no dot at either end. */
bool gateway_domain_ok(const char *domain);
/* 1 to 65535, decimal, without a sign or leading zeros. */
bool gateway_port_parse(const char *s, size_t n, uint16_t *ret_port);
