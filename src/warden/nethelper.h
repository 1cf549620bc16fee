/* The process that changes the host's network. It has CAP_NET_ADMIN and no other capability. It is
 * a child of the warden, started only with --network, and ends with it.
 *
 * Its first request loads the nft table. After that it can open no file and run no program, and
 * makes no system call but those for its two sockets. The later requests are slot numbers; it
 * parses nothing but them and the kernel's answers. */
#pragma once

#include <stdint.h>

#include "warden/nettable.h"

enum net_op {
    NET_LOAD = 1, /* once: the plan, and the slots with a network. Other slots' remains go */
    NET_ADD,      /* comes with a descriptor: the slot's network namespace */
    NET_REMOVE,
    NET_DROPPED,
};
#define NET_LIVE_MAX 16384u
#define NET_BY_TABLE 1u /* value beside an error of NET_ADD: the nft table refused it */

struct net_request {
    uint32_t op, n; /* of NET_LOAD: how many slots follow */
    net_plan plan;  /* of NET_LOAD */
};
struct net_answer {
    int32_t err; /* negative errno */
    uint32_t reserved;
    uint64_t value;
    char text[256]; /* for people */
};

/* Runs the helper (bothy-warden --network-helper); its stdin is the socket. Returns the exit
 * status. */
int net_helper_run(void);
