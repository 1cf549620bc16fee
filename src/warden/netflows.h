/* Connections that the host remembers of a sandbox's address. The next slot of the same number has
 * the same address: what is still remembered then would bring it the replies to the one before.
 * Through a socket of NETLINK_NETFILTER; 0 or a negative errno. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "warden/nettable.h"

/* Of one slot, which sends nothing any more. */
int net_flows_forget(int fd, const net_plan *p, uint32_t n);
/* Of all but those that live. */
int net_flows_forget_others(int fd, const net_plan *p, const uint32_t *live, size_t nlive);
