/* A sandbox's pair of interfaces: eth0 inside, by<tag>-<slot> on the host. Routed, point to point,
 * no bridge: the two ends know each other's hardware address and ask nobody (no ARP), and neither
 * has an IPv6 address. Each function wants a NETLINK_ROUTE socket of the namespace it works on, and
 * answers 0 or a negative errno. */
#pragma once

#include <stdint.h>

#include "warden/nettable.h"

#define NET_INSIDE  "eth0"
#define NET_GATEWAY 0xa9fe0101u /* 169.254.1.1: only a name for the other end, nobody has it */

typedef struct net_bytes { /* as the sandbox sees them */
    uint64_t rx, tx;
} net_bytes;

/* Host's side. netns: a descriptor of the slot's. One that is there already belongs to nobody and
 * goes first. */
int net_pair_make(int fd, const net_plan *p, uint32_t n, int netns);
/* Waits until the kernel has taken it apart. */
int net_pair_delete(int fd, const char *name);
/* 0: there is none. */
int net_pair_index(const net_plan *p, uint32_t n);
/* Needs no privilege. */
int net_pair_bytes(int fd, const net_plan *p, uint32_t n, net_bytes *ret_bytes);

/* Inside: up, an address, the way out. */
int net_pair_dress(int fd, int index, uint32_t address);
