#include "warden/netpair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>

#include "warden/netlink.h"

static const uint8_t MAC_HOST[6] = {0x02, 'b', 'o', 't', 'h', 1};
static const uint8_t MAC_INSIDE[6] = {0x02, 'b', 'o', 't', 'h', 2};

/* ---- messages ---- */

static void put_no_ipv6(nl_batch *b)
{
    const uint8_t none = IN6_ADDR_GEN_MODE_NONE;
    size_t spec = nl_nest(b, IFLA_AF_SPEC);
    size_t v6 = nl_nest(b, AF_INET6);

    nl_put(b, IFLA_INET6_ADDR_GEN_MODE, &none, sizeof none);
    nl_nest_end(b, v6);
    nl_nest_end(b, spec);
}

static int no_ipv6(int fd, int index)
{
    const struct ifinfomsg i = {.ifi_index = index};
    nl_batch b = {0};

    nl_begin(&b, RTM_NEWLINK, 0, &i, sizeof i);
    put_no_ipv6(&b);
    int r = nl_send(fd, &b);
    return r == -EAFNOSUPPORT || r == -EOPNOTSUPP ? 0 : r; /* a kernel without IPv6 */
}

static void put_up(nl_batch *b, int index)
{
    const struct ifinfomsg i = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};

    nl_begin(b, RTM_NEWLINK, 0, &i, sizeof i);
}

/* Adds a route. to 0: the default route. via 0: the destination is on the link. The host's end of a
 * pair has no address, so the kernel takes a source address from another interface, oldest first.
 * It finds one early if the host has an address; otherwise it searches all sandboxes' pairs. */
static void put_route(nl_batch *b, int index, uint32_t to, uint32_t via)
{
    const struct rtmsg m = {.rtm_family = AF_INET,
                            .rtm_dst_len = to ? 32 : 0,
                            .rtm_table = RT_TABLE_MAIN,
                            .rtm_protocol = RTPROT_STATIC,
                            .rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
                            .rtm_type = RTN_UNICAST};

    nl_begin(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m);
    if (to)
        nl_put_u32(b, RTA_DST, htonl(to));
    if (via)
        nl_put_u32(b, RTA_GATEWAY, htonl(via));
    nl_put_u32(b, RTA_OIF, (uint32_t)index);
}

/* Adds a permanent neighbour: all share the kernel's table of neighbours, and permanent ones do not
 * count in it. */
static void put_neighbour(nl_batch *b, int index, uint32_t address, const uint8_t mac[6])
{
    const struct ndmsg m = {
        .ndm_family = AF_INET, .ndm_ifindex = index, .ndm_state = NUD_PERMANENT};

    nl_begin(b, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m);
    nl_put_u32(b, NDA_DST, htonl(address));
    nl_put(b, NDA_LLADDR, mac, 6);
}

/* ---- the host's side ---- */

static int netpair_make(int fd, const char *name, int netns)
{
    const struct ifinfomsg i = {.ifi_flags = IFF_NOARP, .ifi_change = IFF_NOARP};
    nl_batch b = {0};

    nl_begin(&b, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &i, sizeof i);
    nl_put_text(&b, IFLA_IFNAME, name);
    nl_put(&b, IFLA_ADDRESS, MAC_HOST, sizeof MAC_HOST);
    size_t info = nl_nest(&b, IFLA_LINKINFO);
    nl_put_text(&b, IFLA_INFO_KIND, "veth");
    size_t data = nl_nest(&b, IFLA_INFO_DATA);
    size_t peer = nl_nest(&b, VETH_INFO_PEER);
    nl_nest_header(&b, &i, sizeof i);
    nl_put_text(&b, IFLA_IFNAME, NET_INSIDE);
    nl_put(&b, IFLA_ADDRESS, MAC_INSIDE, sizeof MAC_INSIDE);
    nl_put_u32(&b, IFLA_NET_NS_FD, (uint32_t)netns);
    nl_nest_end(&b, peer);
    nl_nest_end(&b, data);
    nl_nest_end(&b, info);
    return nl_send(fd, &b);
}

int net_pair_index(const net_plan *p, uint32_t n)
{
    char name[NET_NAME_MAX];

    net_name(p, n, name);
    return (int)if_nametoindex(name);
}

int net_pair_delete(int fd, const char *name)
{
    const struct ifinfomsg i = {0};
    nl_batch b = {0};

    nl_begin(&b, RTM_DELLINK, 0, &i, sizeof i);
    nl_put_text(&b, IFLA_IFNAME, name);
    int r = nl_send(fd, &b);
    return r == -ENODEV ? 0 : r;
}

int net_pair_make(int fd, const net_plan *p, uint32_t n, int netns)
{
    char name[NET_NAME_MAX];
    nl_batch b = {0};

    net_name(p, n, name);
    int r = netpair_make(fd, name, netns);
    if (r == -EEXIST) { /* an earlier namespace of this slot is still on its way out */
        r = net_pair_delete(fd, name);
        r = r ? r : netpair_make(fd, name, netns);
    }
    if (r)
        return r;
    int index = net_pair_index(p, n);
    if (!index)
        return -ENODEV;
    r = no_ipv6(fd, index);
    if (r)
        return r;
    put_up(&b, index);
    put_route(&b, index, net_address(p, n), 0);
    put_neighbour(&b, index, net_address(p, n), MAC_INSIDE);
    return nl_send(fd, &b);
}

int net_pair_bytes(int fd, const net_plan *p, uint32_t n, net_bytes *ret_bytes)
{
    const struct ifinfomsg i = {0};
    struct rtnl_link_stats64 st;
    _Alignas(8) uint8_t answer[8000];
    char name[NET_NAME_MAX];
    nl_batch b = {0};
    size_t got;

    net_name(p, n, name);
    nl_begin(&b, RTM_GETLINK, 0, &i, sizeof i);
    nl_put_text(&b, IFLA_IFNAME, name);
    int r = nl_ask(fd, &b, answer, sizeof answer, &got);
    if (r || got < sizeof i)
        return r ? r : -EPROTO;
    got -= sizeof i;
    const void *found = nl_find(answer + sizeof i, got, IFLA_STATS64, &got);
    if (!found)
        return -EPROTO;
    memset(&st, 0, sizeof st);
    memcpy(&st, found, got < sizeof st ? got : sizeof st);
    *ret_bytes = (net_bytes){.rx = st.tx_bytes, .tx = st.rx_bytes};
    return 0;
}

/* ---- inside ---- */

int net_pair_dress(int fd, int index, uint32_t address)
{
    const struct ifaddrmsg a = {
        .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = (uint32_t)index};
    nl_batch b = {0};
    int r = no_ipv6(fd, index);

    if (r)
        return r;
    put_up(&b, index);
    nl_begin(&b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &a, sizeof a);
    nl_put_u32(&b, IFA_LOCAL, htonl(address));
    nl_put_u32(&b, IFA_ADDRESS, htonl(address));
    put_route(&b, index, NET_GATEWAY, 0);
    put_neighbour(&b, index, NET_GATEWAY, MAC_HOST);
    put_route(&b, index, 0, NET_GATEWAY);
    return nl_send(fd, &b);
}
