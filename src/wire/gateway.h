/* Rewrites heads on their way through bothyd, without I/O: a caller's request to a server inside a
 * sandbox, and that server's answer. Neither side is trusted.
 *
 * Inwards no credential and no hop-by-hop header passes, however it is spelled: names are compared
 * without case and with "_" read as "-", as CGI does. Outwards, the path form shares its origin
 * with the API, so no header passes that would take effect for that origin; the host form has an
 * origin of its own.
 *
 * bothyd always writes Host, framing and Connection itself and never copies them: a Connection
 * header cannot name them to have them removed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/http1.h"

#define GATEWAY_HOST_MAX 253

typedef struct gateway_rules {
    const char *prefix;  /* path form: "/v1/sandboxes/x/ports/80"; NULL: host form */
    const char *target;  /* request target for the server inside, "/a?b" */
    const char *host;    /* Host for the server inside */
    const char *caller;  /* the caller's address, or NULL (unix) */
    const char *id;      /* request id */
    const char *upgrade; /* protocol the caller asks to upgrade to, or NULL */
} gateway_rules;

/* Writes the head for the server inside; the body follows in the request's own framing. */
void gateway_write_request(buf *out, const http1_request *rq, const gateway_rules *r);

enum gateway_framing {
    GATEWAY_NO_BODY, /* none, or not sent: HEAD, 304 */
    GATEWAY_LENGTH,  /* as the server declared */
    GATEWAY_CHUNKED,
    GATEWAY_TO_END,
    GATEWAY_SWITCHED, /* 101 */
};
/* Writes the head for the caller. outer_host is the caller's Host, or NULL. */
void gateway_write_answer(buf *out, const http1_answer *a, const gateway_rules *r,
                          const char *outer_host, enum gateway_framing framing, bool keep_alive);

/* Returns the protocol a request may upgrade to, or NULL: its Upgrade header if that is one token
 * and not h2c, whose requests would pass unchecked. Never for HEAD, whose answer has no body. */
const char *gateway_upgrade(const http1_request *rq);

/* The host form is "8080-<id>.<domain>", any case, with or without a port and a final dot. */
enum gateway_host {
    GATEWAY_HOST_OTHER, /* not below the domain */
    GATEWAY_HOST_BAD,   /* below the domain, but malformed */
    GATEWAY_HOST_PORT,
};
/* Parses a Host. ret_id has room for id_len + 1 bytes. domain must have passed
 * gateway_domain_ok(). */
enum gateway_host gateway_host_parse(const char *host, const char *domain, size_t id_len,
                                     char *ret_id, uint16_t *ret_port);
/* Returns true for lower-case letters, digits, hyphens and single dots, with no dot at either
 * end. */
bool gateway_domain_ok(const char *domain);
/* Parses 1 to 65535, decimal, without a sign or leading zeros. Returns false otherwise. */
bool gateway_port_parse(const char *s, size_t n, uint16_t *ret_port);
