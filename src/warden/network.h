/* Networks of sandboxes: `open` is a pair of interfaces and an element in the node's nft table
 * (nettable.h), made at the claim; `none` costs nothing and has nothing.
 *
 * The host's side is changed by a process of its own (nethelper.h), inside the slot's namespace the
 * claimer works itself: whoever made a user namespace needs no capability for what belongs to it. A
 * pair's end comes with its namespace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "warden/netpair.h"
#include "warden/nettable.h"

struct warden;
struct slot;

/* Starts the helper, before our capabilities go, and raises net.ipv4.ip_forward. Without --network
 * nothing, but what is left of an earlier one is told. */
err *network_start(struct warden *w) ERR_MUST;
/* After slots were found: the table is made again with those that live, remains go. */
err *network_recover(struct warden *w) ERR_MUST;
/* Everything that is left of it, at the end of a node. Needs CAP_NET_ADMIN. */
void network_end(const struct warden *w);
/* True if claims may ask for one now. */
bool network_offered(const struct warden *w);

/* Claimer: gives the slot its network, then tries from inside what must not pass. */
err *network_open(struct warden *w, struct slot *s) ERR_MUST;
/* Cleaner: out of the table. */
void network_close(struct warden *w, uint32_t n);
/* Whether an interface says that the slot has one; after a restart. */
bool network_has(const struct warden *w, uint32_t n);
/* Bytes and refused packets; false: not to be had. */
bool network_usage(struct warden *w, uint32_t n, net_bytes *ret_bytes, uint64_t *ret_dropped);

/* A socket made in the slot's network namespace, by a thread that comes back from there. */
err *network_socket(const struct warden *w, const struct slot *s, int domain, int type,
                    int protocol, int *ret_fd) ERR_MUST;
/* resolv.conf of such a sandbox; "" without resolvers. */
void network_resolv_conf(const struct warden *w, char *ret_text, size_t max);
/* --network ADDRESS/18, --resolver ADDRESS */
bool network_parse_subnet(const char *text, net_plan *ret_plan);
bool network_parse_resolver(const char *text, net_plan *ret_plan);
