#include "warden/nettable.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/str.h"
#include "warden/netflows.h"
#include "warden/netlink.h"

#define CONNECTIONS "1024" /* of one sandbox at a time: all share the host's table of connections */

void net_name(const net_plan *p, uint32_t n, char ret_name[NET_NAME_MAX])
{
    snprintf(ret_name, NET_NAME_MAX, "by%s-%u", p->tag, n % 100000);
}

void net_table_name(const net_plan *p, char ret_name[NET_NAME_MAX])
{
    snprintf(ret_name, NET_NAME_MAX, "bothy_%s", p->tag);
}

bool net_number(const net_plan *p, const char *name, uint32_t *ret_n)
{
    char first[NET_NAME_MAX];
    uint64_t n;

    snprintf(first, sizeof first, "by%s-", p->tag);
    if (!str_starts(name, first) || !str_to_u64(name + strlen(first), 99999, &n))
        return false;
    *ret_n = (uint32_t)n;
    return true;
}

/* ---- the text ---- */

static void nettable_address(buf *out, uint32_t a)
{
    buf_printf(out, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
}

/* Begins a list of elements. nft has no empty one. */
static void begin_elements(buf *out, size_t n)
{
    buf_str(out, n ? " elements = {" : "");
}

static void nettable_resolvers(const net_plan *p, buf *out)
{
    buf_str(out, "  set resolvers { type ipv4_addr;");
    begin_elements(out, p->nresolvers);
    for (uint32_t i = 0; i < p->nresolvers; i++) {
        buf_str(out, i ? ", " : " ");
        nettable_address(out, p->resolver[i]);
    }
    buf_str(out, p->nresolvers ? " }; }\n" : " }\n");
}

static void nettable_sandboxes(const net_plan *p, const uint32_t *live, size_t n, buf *out)
{
    char name[NET_NAME_MAX];

    buf_str(out, "  set sandboxes { type ifname . ipv4_addr;");
    begin_elements(out, n);
    for (size_t i = 0; i < n; i++) {
        net_name(p, live[i], name);
        buf_printf(out, "%s\"%s\" . ", i ? ", " : " ", name);
        nettable_address(out, net_address(p, live[i]));
    }
    buf_str(out, n ? " }; }\n" : " }\n");
    buf_str(out, "  set refused { type ifname; counter;");
    begin_elements(out, n);
    for (size_t i = 0; i < n; i++) {
        net_name(p, live[i], name);
        buf_printf(out, "%s\"%s\"", i ? ", " : " ", name);
    }
    buf_str(out, n ? " }; }\n" : " }\n");
}

/* Addresses that no sandbox reaches, whatever the host's routes say. 64:ff9b::/96 and other ways of
 * writing these in IPv6 need no row: there is no IPv6. */
static const char NEVER[] =
    "  set never { type ipv4_addr; flags interval; elements = {\n"
    "    0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16,\n"
    "    172.16.0.0/12, 192.0.0.0/24, 192.88.99.0/24, 192.168.0.0/16,\n"
    "    198.18.0.0/15, 224.0.0.0/3 }; }\n";

/* A packet is judged in this order: its source; the one exception, for resolvers; forbidden
 * destinations; allowed protocols. */
static const char JUDGE[] =
    "  chain refuse {\n"
    "    iifname @refused drop\n"
    "    drop\n"
    "  }\n"
    "  chain judge {\n"
    "    meta nfproto != ipv4 goto refuse\n"
    "    iifname . ip saddr != @sandboxes goto refuse\n"
    "    ct state invalid goto refuse\n"
    "    ip daddr @resolvers meta l4proto { tcp, udp } th dport 53 goto pass\n";
static const char JUDGE_WHERE[] =
    "    fib daddr type != unicast goto refuse\n"
    "    ip daddr @never goto refuse\n"
    "    meta l4proto { tcp, udp } th dport { 53, 853 } goto refuse\n";
static const char JUDGE_WHAT[] = "    meta l4proto { tcp, udp } goto pass\n"
                                 "    icmp type echo-request goto pass\n"
                                 "    goto refuse\n"
                                 "  }\n";

void net_table_text(const net_plan *p, const uint32_t *live, size_t n, buf *out)
{
    char t[NET_NAME_MAX];

    net_table_name(p, t);
    buf_printf(out, "add table inet %s\ndelete table inet %s\ntable inet %s {\n", t, t, t);
    nettable_sandboxes(p, live, n, out);
    nettable_resolvers(p, out);
    buf_str(out, NEVER);
    buf_str(out, "  set connections { type ifname; size 65535; flags dynamic; }\n"
                 "  chain pass {\n"
                 "    ct state new add @connections { iifname ct count over " CONNECTIONS
                 " } goto refuse\n"
                 "    accept\n"
                 "  }\n");
    buf_str(out, JUDGE);
    if (!FAULT("wall.egress.rules"))
        buf_str(out, JUDGE_WHERE);
    buf_str(out, JUDGE_WHAT);
    buf_printf(out,
               "  chain arrives { type filter hook prerouting priority -150; policy accept;\n"
               "    iifname \"by%s-*\" goto judge\n  }\n",
               p->tag);
    /* No connection to a sandbox can be opened: not from the world, not from a neighbour, not from
     * the host. */
    buf_printf(out,
               "  chain toward {\n"
               "    ct state established accept\n"
               "    ct state related meta l4proto icmp accept\n"
               "    drop\n  }\n"
               "  chain crosses { type filter hook forward priority 0; policy accept;\n"
               "    iifname \"by%s-*\" oifname \"by%s-*\" goto refuse\n"
               "    iifname \"by%s-*\" tcp flags & (syn | rst) == syn "
               "tcp option maxseg size set rt mtu\n"
               "    oifname \"by%s-*\" goto toward\n  }\n"
               "  chain leaves { type filter hook output priority 0; policy accept;\n"
               "    oifname \"by%s-*\" goto toward\n  }\n",
               p->tag, p->tag, p->tag, p->tag, p->tag);
    buf_printf(out,
               "  chain masks { type nat hook postrouting priority 100; policy accept;\n"
               "    oifname != \"by%s-*\" ip saddr ",
               p->tag);
    nettable_address(out, p->subnet);
    buf_printf(out, "/%u masquerade\n  }\n}\n", NET_PREFIX);
}

/* ---- elements ---- */

static void nettable_begin(nl_batch *b, uint16_t type, uint16_t flags)
{
    const struct nfgenmsg g = {.nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0};

    nl_begin(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, &g, sizeof g);
}

static void nettable_edge(nl_batch *b, uint16_t type)
{
    const struct nfgenmsg g = {
        .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)};

    nl_begin(b, type, 0, &g, sizeof g);
    nl_silent(b);
}

static void nettable_element(nl_batch *b, const net_plan *p, const char *set, const void *key,
                             size_t n)
{
    char table[NET_NAME_MAX];

    net_table_name(p, table);
    nl_put_text(b, NFTA_SET_ELEM_LIST_TABLE, table);
    nl_put_text(b, NFTA_SET_ELEM_LIST_SET, set);
    size_t list = nl_nest(b, NFTA_SET_ELEM_LIST_ELEMENTS);
    size_t one = nl_nest(b, NFTA_LIST_ELEM);
    size_t data = nl_nest(b, NFTA_SET_ELEM_KEY);
    nl_put(b, NFTA_DATA_VALUE, key, n);
    nl_nest_end(b, data);
    nl_nest_end(b, one);
    nl_nest_end(b, list);
}

typedef struct keys { /* the first 16 bytes are the interface's name */
    char name[NET_NAME_MAX];
    uint8_t address[4];
} keys;

static keys keys_of(const net_plan *p, uint32_t n)
{
    keys k = {0};
    uint32_t a = htonl(net_address(p, n));

    net_name(p, n, k.name);
    memcpy(k.address, &a, sizeof a);
    return k;
}

static void nettable_change(nl_batch *b, const net_plan *p, uint16_t type, uint16_t flags,
                            uint32_t n)
{
    const keys k = keys_of(p, n);

    nettable_begin(b, type, flags);
    nettable_element(b, p, "sandboxes", &k, sizeof k);
    nettable_begin(b, type, flags);
    nettable_element(b, p, "refused", k.name, sizeof k.name);
}

int net_table_add(int fd, const net_plan *p, uint32_t n)
{
    nl_batch b = {0};

    nettable_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nettable_change(&b, p, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL, n);
    nettable_edge(&b, NFNL_MSG_BATCH_END);
    int r = nl_send(fd, &b);
    if (r != -EEXIST)
        return r;
    /* The elements are of a sandbox before it, whose removal did not reach the table: its count
     * must go. */
    r = net_table_remove(fd, p, n, true);
    if (r)
        return r;
    nettable_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nettable_change(&b, p, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL, n);
    nettable_edge(&b, NFNL_MSG_BATCH_END);
    return nl_send(fd, &b);
}

/* Removes the sandbox's count of connections. Returns -ENOENT if no connection of it is alive. */
static int remove_count(int fd, const net_plan *p, uint32_t n)
{
    const keys k = keys_of(p, n);
    nl_batch b = {0};

    nettable_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nettable_begin(&b, NFT_MSG_DELSETELEM, 0);
    nettable_element(&b, p, "connections", k.name, sizeof k.name);
    nettable_edge(&b, NFNL_MSG_BATCH_END);
    return nl_send(fd, &b);
}

int net_table_remove(int fd, const net_plan *p, uint32_t n, bool older)
{
    nl_batch b = {0};

    nettable_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nettable_change(&b, p, NFT_MSG_DELSETELEM, 0, n);
    nettable_edge(&b, NFNL_MSG_BATCH_END);
    int r = nl_send(fd, &b);
    r = r == -ENOENT ? 0 : r;
    if (remove_count(fd, p, n) == -ENOENT && !older)
        return r;
    int forgotten = net_flows_forget(fd, p, n);
    return r ? r : forgotten;
}

/* Finds the number of packets: list > element > expression (the set has one, a counter) > data >
 * packets. */
static const void *nettable_dig(const void *p, size_t *n)
{
    static const uint16_t PATH[] = {NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_LIST_ELEM, NFTA_SET_ELEM_EXPR,
                                    NFTA_EXPR_DATA, NFTA_COUNTER_PACKETS};

    for (size_t i = 0; p && i < sizeof PATH / sizeof *PATH; i++)
        p = nl_find(p, *n, PATH[i], n);
    return p;
}

int net_table_dropped(int fd, const net_plan *p, uint32_t n, uint64_t *ret_packets)
{
    const keys k = keys_of(p, n);
    uint8_t answer[1024];
    nl_batch b = {0};
    size_t got;
    uint64_t be;

    nettable_begin(&b, NFT_MSG_GETSETELEM, 0);
    nettable_element(&b, p, "refused", k.name, sizeof k.name);
    int r = nl_ask(fd, &b, answer, sizeof answer, &got);
    if (r)
        return r;
    if (got < sizeof(struct nfgenmsg))
        return -EPROTO;
    got -= sizeof(struct nfgenmsg);
    const void *packets = nettable_dig(answer + sizeof(struct nfgenmsg), &got);
    if (!packets || got != sizeof be)
        return -EPROTO;
    memcpy(&be, packets, sizeof be);
    *ret_packets = be64toh(be);
    return 0;
}

int net_table_delete(int fd, const net_plan *p)
{
    char table[NET_NAME_MAX];
    nl_batch b = {0};

    net_table_name(p, table);
    nettable_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nettable_begin(&b, NFT_MSG_DELTABLE, 0);
    nl_put_text(&b, NFTA_TABLE_NAME, table);
    nettable_edge(&b, NFNL_MSG_BATCH_END);
    int r = nl_send(fd, &b);
    return r == -ENOENT ? 0 : r;
}
