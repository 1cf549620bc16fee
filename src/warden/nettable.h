/* The node's nft table: one for all sandboxes, whatever their number. A sandbox is one element in
 * two of its sets, keyed by the name of its interface and its address; a table, a chain or a rule
 * for each would make every change slower than the one before (docs/decisions/0011-network.md).
 *
 *     bothy_<tag>             the table; the tag is the state directory's
 *     by<tag>-<slot>          the host's end of a sandbox's pair
 *
 * Packets of a sandbox are judged as they come in, before they are routed, so that it does not
 * matter whether they are meant for the host, a neighbour or the world. Every refused packet goes
 * through one chain, which counts it for the sandbox it came from. The self-test reads that
 * count. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define NET_TAG_LEN       5
#define NET_RESOLVERS_MAX 3  /* as many as a C library uses */
#define NET_NAME_MAX      16 /* IFNAMSIZ */
#define NET_PREFIX        18 /* addresses for every slot there may be */

typedef struct net_plan { /* of the node; the same in warden and helper */
    char tag[NET_TAG_LEN + 1];
    uint32_t subnet; /* host byte order; slot n has subnet + n */
    uint32_t nresolvers;
    uint32_t resolver[NET_RESOLVERS_MAX];
} net_plan;

static inline uint32_t net_address(const net_plan *p, uint32_t n)
{
    return p->subnet + n;
}
void net_name(const net_plan *p, uint32_t n, char ret_name[NET_NAME_MAX]);
void net_table_name(const net_plan *p, char ret_name[NET_NAME_MAX]);
/* Finds the slot of an interface by its name. Returns false if the interface is not this node's. */
bool net_number(const net_plan *p, const char *name, uint32_t *ret_n);

/* Writes the table as nft reads it, with the living sandboxes in it. It replaces the table before
 * it in one step, so that there is no moment without walls. */
void net_table_text(const net_plan *p, const uint32_t *live, size_t n, buf *out);

/* Adds a sandbox. Here and below, fd is a NETLINK_NETFILTER socket; 0 or a negative errno is
 * returned. */
int net_table_add(int fd, const net_plan *p, uint32_t n);
/* Removes a sandbox: from now on its packets are refused. If this table has counted any of its
 * connections, they are forgotten, which takes milliseconds, so that no reply reaches it any more.
 * older: it may have connections from before this table. */
int net_table_remove(int fd, const net_plan *p, uint32_t n, bool older);
/* Reads how many packets of the sandbox were refused. */
int net_table_dropped(int fd, const net_plan *p, uint32_t n, uint64_t *ret_packets);
int net_table_delete(int fd, const net_plan *p);
