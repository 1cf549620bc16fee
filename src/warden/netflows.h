/* Forgets connections that the host tracks for a sandbox's address. The next slot of the same
 * number has the same address: connections that are still tracked then would bring it the replies
 * to the sandbox before it. fd is a NETLINK_NETFILTER socket; the functions return 0 or a negative
 * errno. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "warden/nettable.h"

/* Forgets those of one slot, which sends nothing any more. */
int net_flows_forget(int fd, const net_plan *p, uint32_t n);
/* Forgets those of all slots that are not in live. */
int net_flows_forget_others(int fd, const net_plan *p, const uint32_t *live, size_t nlive);
