/* Attempts to reach the host, a neighbour or the hypervisor by sockets. The environment names what
 * listens outside: PORT (TCP on 127.0.0.1 and ::1), NAME (an abstract unix socket), SOCKET (a
 * path). */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "intruder.h"

static const char *given(const char *name)
{
    const char *v = getenv(name);
    return v ? v : "0";
}

static long connect_inet(const char *address)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)atoi(given("PORT")))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, address, &a.sin_addr);
    return connect(fd, (struct sockaddr *)&a, sizeof a);
}

static long loopback(void)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)atoi(given("PORT"))),
                               .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    say_result("127.0.0.1", connect_inet("127.0.0.1"));
    say_result("127.1.2.3", connect_inet("127.1.2.3"));
    say_result("::1", connect(fd, (struct sockaddr *)&six, sizeof six));
    return 0;
}

static long addresses(void)
{
    static const char *const ADDRESSES[] = {"10.0.0.1", "172.17.0.1", "192.168.0.1",
                                            "169.254.169.254", "8.8.8.8"};

    for (size_t i = 0; i < sizeof ADDRESSES / sizeof *ADDRESSES; i++)
        say_unless(ADDRESSES[i], connect_inet(ADDRESSES[i]), ENETUNREACH);
    errno = ENETUNREACH;
    return -1;
}

static long connect_unix(const char *path, int abstract)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = strlen(path);

    memcpy(a.sun_path + abstract, path, n);
    return connect(fd, (struct sockaddr *)&a,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1));
}

static long unix_sockets(void)
{
    say_result("abstract", connect_unix(given("NAME"), 1));
    say_result("path", connect_unix(given("SOCKET"), 0));
    say_result("pid 1", connect_unix("/proc/1/fd/0", 0));
    return 0;
}

static long lines_of(const char *path)
{
    FILE *f = fopen(path, "re");
    char line[512];
    long n = 0;

    while (f && fgets(line, sizeof line, f))
        n++;
    if (f)
        fclose(f);
    return n;
}

/* One line is the heading. */
static long tables(void)
{
    say("unix=%ld tcp=%ld tcp6=%ld udp=%ld", lines_of("/proc/net/unix") - 1,
        lines_of("/proc/net/tcp") - 1, lines_of("/proc/net/tcp6") - 1,
        lines_of("/proc/net/udp") - 1);
    return 0;
}

/* As netlink lists them. */
static long interfaces(void)
{
    struct if_nameindex *all = if_nameindex();
    long n = 0;

    for (struct if_nameindex *i = all; i && i->if_index; i++)
        n++;
    if_freenameindex(all);
    say("%ld", n);
    return 0;
}

static long new_link(int type)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg body;
        char rest[64];
    } ask = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof ask.body),
                      .nlmsg_type = (unsigned short)type,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
             .body = {.ifi_index = 1, .ifi_change = IFF_UP}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr body;
        char rest[512];
    } got = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (send(fd, &ask, ask.head.nlmsg_len, 0) < 0 || recv(fd, &got, sizeof got, 0) < 0)
        return -1;
    errno = -got.body.error;
    return got.body.error;
}

static long netlink_change(void)
{
    return new_link(RTM_NEWLINK);
}

static long netlink_audit(void)
{
    struct sockaddr_nl all = {.nl_family = AF_NETLINK, .nl_groups = 1};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_AUDIT);

    return fd < 0 ? -1 : bind(fd, (struct sockaddr *)&all, sizeof all);
}

/* Raw and packet sockets are root's by Docker's default, and meet nothing but the own loopback. */
static long raw(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct sockaddr_ll eth = {.sll_family = AF_PACKET, .sll_ifindex = 2, .sll_halen = 6};
    int icmp = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
    int packet = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    char bytes[64] = {8};

    inet_pton(AF_INET, "10.0.0.1", &to.sin_addr);
    say_result("icmp",
               icmp < 0 ? -1 : sendto(icmp, bytes, 8, 0, (struct sockaddr *)&to, sizeof to));
    say_result("packet",
               packet < 0 ? -1 : sendto(packet, bytes, 64, 0, (struct sockaddr *)&eth, sizeof eth));
    return 0;
}

/* Every address family there is; those that can be had. */
static long families(void)
{
    for (int family = 0; family < 64; family++) {
        int fd = -1;
        for (int type = 1; fd < 0 && type <= 5; type++)
            fd = socket(family, type | SOCK_CLOEXEC, 0);
        if (fd >= 0) {
            say(" %d", family);
            close(fd);
        }
    }
    return 0;
}

static long nested_net(void)
{
    if (nest(CLONE_NEWNET) < 0)
        return -1;
    say_unless("loopback", connect_inet("127.0.0.1"), ENETUNREACH);
    say_unless("out", connect_inet("10.0.0.1"), ENETUNREACH);
    say_unless("abstract", connect_unix(given("NAME"), 1), ECONNREFUSED);
    errno = ENETUNREACH;
    return -1;
}

static long vsock(void)
{
    return socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

const attempt NET_ATTEMPTS[] = {
    {"loopback", loopback},
    {"addresses", addresses},
    {"unix-sockets", unix_sockets},
    {"net-tables", tables},
    {"interfaces", interfaces},
    {"netlink-change", netlink_change},
    {"netlink-audit", netlink_audit},
    {"raw", raw},
    {"families", families},
    {"nested-net", nested_net},
    {"vsock", vsock},
    {NULL, NULL},
};
