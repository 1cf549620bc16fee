/* A sandbox's pair of interfaces: eth0 inside, by<tag>-<slot> on the host. Routed, point to point,
 * no bridge: the two ends know each other's hardware address and need no ARP, and neither has an
 * IPv6 address. fd is a NETLINK_ROUTE socket of the namespace that a function works on; functions
 * return 0 or a negative errno. */
#pragma once

#include <stdint.h>

#include "warden/nettable.h"

#define NET_INSIDE  "eth0"
#define NET_GATEWAY 0xa9fe0101u /* 169.254.1.1: only a name for the other end; unassigned */

typedef struct net_bytes { /* as the sandbox sees them */
    uint64_t rx, tx;
} net_bytes;

/* Makes the pair, on the host's side. netns: a descriptor of the slot's network namespace. A pair
 * of that name that exists already is an orphan and is deleted first. */
int net_pair_make(int fd, const net_plan *p, uint32_t n, int netns);
/* Deletes a pair and waits until the kernel has taken it apart. Succeeds if there is none. */
int net_pair_delete(int fd, const char *name);
/* Returns the index of the host's end, 0 if there is none. */
int net_pair_index(const net_plan *p, uint32_t n);
/* Reads the bytes that have passed. Needs no privilege. */
int net_pair_bytes(int fd, const net_plan *p, uint32_t n, net_bytes *ret_bytes);

/* Configures the end inside: up, an address, the default route. */
int net_pair_dress(int fd, int index, uint32_t address);
