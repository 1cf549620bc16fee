#include "warden/netflows.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "warden/netlink.h"

/* CTA_FILTER, from 5.8 on; older headers do not have it. A kernel that does not know it returns all
 * connections, and is_wanted() leaves out the others. */
#define FILTER       25
#define FILTER_ORIG  1
#define FILTER_REPLY 2
#define BY_SOURCE    1u
#define TUPLE_MAX    120 /* that of ICMP, the longest, takes 64 */

typedef struct flow { /* the direction that began it, as the kernel gave it */
    uint16_t n;
    bool zoned;
    uint16_t zone;
    uint8_t tuple[TUPLE_MAX];
} flow;

typedef struct search {
    const net_plan *plan;
    const uint8_t *kept; /* by slot; NULL: connections of `only` are wanted */
    uint32_t only;
    buf found; /* flow */
    int failure;
} search;

static void netflows_begin(nl_batch *b, uint16_t type, uint16_t flags)
{
    const struct nfgenmsg g = {.nfgen_family = AF_INET, .version = NFNETLINK_V0};

    nl_begin(b, (uint16_t)(NFNL_SUBSYS_CTNETLINK << 8 | type), flags, &g, sizeof g);
}

/* ---- looking ---- */

static bool is_wanted(const search *s, uint32_t address)
{
    uint32_t n = address - s->plan->subnet;

    if (n >= 1u << (32 - NET_PREFIX))
        return false;
    return s->kept ? !s->kept[n] : n == s->only;
}

static bool source_of(const void *tuple, size_t n, uint32_t *ret_address)
{
    const void *ip = nl_find(tuple, n, CTA_TUPLE_IP, &n);
    const void *source = ip ? nl_find(ip, n, CTA_IP_V4_SRC, &n) : NULL;

    if (!source || n != sizeof *ret_address)
        return false;
    memcpy(ret_address, source, n);
    *ret_address = ntohl(*ret_address);
    return true;
}

static void on_flow(void *arg, const void *body, size_t n)
{
    search *s = arg;
    flow f = {0};
    size_t len = 0, zone_len = 0;
    uint32_t address;

    if (n < sizeof(struct nfgenmsg))
        return;
    const uint8_t *attrs = (const uint8_t *)body + sizeof(struct nfgenmsg);
    n -= sizeof(struct nfgenmsg);
    const void *tuple = nl_find(attrs, n, CTA_TUPLE_ORIG, &len);
    const void *zone = nl_find(attrs, n, CTA_ZONE, &zone_len);
    if (!tuple || !source_of(tuple, len, &address) || !is_wanted(s, address))
        return;
    if (len > sizeof f.tuple) {
        s->failure = -EMSGSIZE;
        return;
    }
    f.n = (uint16_t)len;
    memcpy(f.tuple, tuple, len);
    f.zoned = zone && zone_len == sizeof f.zone;
    if (f.zoned)
        memcpy(&f.zone, zone, sizeof f.zone);
    buf_append(&s->found, &f, sizeof f);
}

static void put_filter(nl_batch *b, uint32_t address)
{
    size_t tuple = nl_nest(b, CTA_TUPLE_ORIG);
    size_t ip = nl_nest(b, CTA_TUPLE_IP);

    nl_put_u32(b, CTA_IP_V4_SRC, htonl(address));
    nl_nest_end(b, ip);
    nl_nest_end(b, tuple);
    size_t filter = nl_nest(b, FILTER);
    nl_put_u32(b, FILTER_ORIG, BY_SOURCE);
    nl_put_u32(b, FILTER_REPLY, 0);
    nl_nest_end(b, filter);
}

/* ---- forgetting ---- */

static int netflows_forget(int fd, const flow *f)
{
    nl_batch b = {0};

    netflows_begin(&b, IPCTNL_MSG_CT_DELETE, 0);
    nl_put(&b, CTA_TUPLE_ORIG | NLA_F_NESTED, f->tuple, f->n);
    if (f->zoned)
        nl_put(&b, CTA_ZONE, &f->zone, sizeof f->zone);
    int r = nl_send(fd, &b);
    return r == -ENOENT ? 0 : r; /* it has timed out meanwhile */
}

/* Finds all connections before it forgets the first: until then a search is under way on the same
 * socket. */
static int netflows_run(int fd, search *s)
{
    nl_batch b = {0};

    netflows_begin(&b, IPCTNL_MSG_CT_GET, NLM_F_DUMP);
    if (!s->kept)
        put_filter(&b, net_address(s->plan, s->only));
    int r = nl_dump(fd, &b, on_flow, s);
    r = r ? r : s->failure;
    for (size_t at = 0; !r && at < s->found.len; at += sizeof(flow)) {
        flow f;
        memcpy(&f, s->found.p + at, sizeof f);
        r = netflows_forget(fd, &f);
    }
    buf_done(&s->found);
    return r;
}

int net_flows_forget(int fd, const net_plan *p, uint32_t n)
{
    search s = {.plan = p, .only = n};

    return netflows_run(fd, &s);
}

int net_flows_forget_others(int fd, const net_plan *p, const uint32_t *live, size_t nlive)
{
    uint8_t kept[1u << (32 - NET_PREFIX)] = {0};
    search s = {.plan = p, .kept = kept};

    for (size_t i = 0; i < nlive; i++)
        if (live[i] < sizeof kept)
            kept[live[i]] = 1;
    return netflows_run(fd, &s);
}
