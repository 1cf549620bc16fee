/* Networks of sandboxes: `open` is a pair of interfaces and an element in the node's nft table
 * (nettable.h), made at the claim; `none` has nothing and costs nothing.
 *
 * The host's side is changed by a process of its own (nethelper.h). The claimer itself works inside
 * the slot's namespace: the creator of a user namespace needs no capability for what belongs to it.
 * A pair ends with its namespace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "warden/netpair.h"
#include "warden/nettable.h"

struct warden;
struct slot;

/* Starts the helper, before the warden drops its capabilities, and raises net.ipv4.ip_forward.
 * Without --network it starts nothing. */
err *network_start(struct warden *w) ERR_MUST;
/* Makes the table again with the living sandboxes, once the slots were found, and removes remains.
 * Without --network it only warns of sandboxes that still have one. */
err *network_recover(struct warden *w) ERR_MUST;
/* Removes all interfaces and the table, at the end of a node. Needs CAP_NET_ADMIN. */
void network_end(const struct warden *w);
/* Returns true if claims may ask for a network now. */
bool network_offered(const struct warden *w);

/* Gives the slot its network, then tests from inside that forbidden packets are refused. Claimer
 * threads only. */
err *network_open(struct warden *w, struct slot *s) ERR_MUST;
/* Takes the slot out of the table. Cleaner thread only. */
void network_close(struct warden *w, uint32_t n);
/* Returns true if there is an interface of the slot; for use after a restart. */
bool network_has(const struct warden *w, uint32_t n);
/* Reads bytes and refused packets. Returns false if they cannot be read. */
bool network_usage(struct warden *w, uint32_t n, net_bytes *ret_bytes, uint64_t *ret_dropped);

/* Makes a socket in the slot's network namespace. The calling thread enters it and returns. */
err *network_socket(const struct warden *w, const struct slot *s, int domain, int type,
                    int protocol, int *ret_fd) ERR_MUST;
/* Writes the resolv.conf of a sandbox with a network; "" without resolvers. */
void network_resolv_conf(const struct warden *w, char *ret_text, size_t max);
/* Parse --network ADDRESS/18 and --resolver ADDRESS. Return false if the text is malformed. */
bool network_parse_subnet(const char *text, net_plan *ret_plan);
bool network_parse_resolver(const char *text, net_plan *ret_plan);
