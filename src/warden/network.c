#include "warden/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/sysctl.h"
#include "base/thread.h"
#include "warden/counters.h"
#include "warden/nethelper.h"
#include "warden/netlink.h"
#include "warden/stage.h"
#include "warden/walls.h"
#include "warden/warden.h"

#define ANSWER_S 30   /* for the helper's answer; loading a large table takes seconds */
#define TRY_MS   2000 /* until packets sent from inside have been counted */
#define DISCARD  9
#define DNS      53

struct network {
    net_plan plan;
    pthread_mutex_t lock; /* of the two sockets: one question at a time */
    int helper;           /* -1: none */
    int route;            /* on the host's side; for queries only */
    atomic_bool offered;
};

/* ---- options ---- */

static bool parse_address(const char *text, uint32_t *ret_address)
{
    struct in_addr a;

    if (inet_pton(AF_INET, text, &a) != 1)
        return false;
    *ret_address = ntohl(a.s_addr);
    return true;
}

bool network_parse_subnet(const char *text, net_plan *ret_plan)
{
    CLEANUP(freep) char *copy = xstrdup(text);
    char *slash = strchr(copy, '/');

    if (!slash || !str_eq(slash + 1, "18"))
        return false;
    *slash = 0;
    return parse_address(copy, &ret_plan->subnet) && ret_plan->subnet &&
           !(ret_plan->subnet & ((1u << (32 - NET_PREFIX)) - 1));
}

/* Refuses an address of the loopback: a sandbox could not reach the host's. */
bool network_parse_resolver(const char *text, net_plan *ret_plan)
{
    uint32_t a;

    if (ret_plan->nresolvers == NET_RESOLVERS_MAX || !parse_address(text, &a) || !a ||
        a >> 24 == 127)
        return false;
    ret_plan->resolver[ret_plan->nresolvers++] = a;
    return true;
}

void network_resolv_conf(const warden *w, char *ret_text, size_t max)
{
    const net_plan *p = &w->network->plan;
    size_t at = 0;

    *ret_text = 0;
    for (uint32_t i = 0; i < p->nresolvers && at < max; i++) {
        uint32_t a = p->resolver[i];
        at += (size_t)snprintf(ret_text + at, max - at, "nameserver %u.%u.%u.%u\n", a >> 24,
                               a >> 16 & 255, a >> 8 & 255, a & 255);
    }
}

/* ---- the helper ---- */

/* Gives the helper up. A new warden starts another one; this one cannot be sure what was half
 * done. */
static int network_lose(struct network *net, int r)
{
    if (atomic_exchange(&net->offered, false))
        log_error("network",
                  "the helper is gone (errno %d): no sandbox gets a network until the "
                  "warden is started again",
                  -r);
    return r;
}

static int network_ask(const warden *w, const struct iovec *iov, size_t niov, int netns,
                       struct net_answer *ret_answer)
{
    struct network *net = w->network;
    LOCK_SCOPE(&net->lock);

    if (net->helper < 0)
        return -ENOTCONN;
    int r = sock_send(net->helper, iov, niov, &netns, netns >= 0, 0);
    if (r)
        return network_lose(net, r);
    ssize_t n = recv(net->helper, ret_answer, sizeof *ret_answer, 0);
    if (n != (ssize_t)sizeof *ret_answer) {
        closep(&net->helper); /* a late answer must not be taken for the next one's */
        net->helper = -1;
        return network_lose(net, -EPIPE);
    }
    return ret_answer->err;
}

static int ask_op(const warden *w, enum net_op op, uint32_t n, int netns, uint64_t *ret_value)
{
    const struct net_request q = {.op = op, .n = n};
    struct net_answer a;
    int r = network_ask(w, &(struct iovec){(void *)&q, sizeof q}, 1, netns, &a);

    if (!r && ret_value)
        *ret_value = a.value;
    return r;
}

static err *start_helper(struct network *net)
{
    char *argv[] = {"/proc/self/exe", "--network-helper", NULL};
    const char *faults = getenv("BOTHY_FAULTS"); /* NOLINT(concurrency-mt-unsafe): one thread yet */
    CLEANUP(freep) char *armed = str_printf("BOTHY_FAULTS=%s", str_or(faults, ""));
    char *env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   "LANG=C.UTF-8", faults ? armed : NULL, NULL};
    const struct timeval wait = {.tv_sec = ANSWER_S};
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot make a socket for the network helper");
    const int size = 1 << 20; /* the list of slots is one packet */
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    const int fds[] = {pair[1], STDERR_FILENO, STDERR_FILENO};
    err *e = spawn_start(&(spawn_spec){.argv = argv, .envp = env, .fds = fds, .nfds = 3}, &pid);
    close(pair[1]);
    net->helper = pair[0];
    return err_wrap(e, "the network helper");
}

static err *network_forward(bool raise)
{
    static const char NAME[] = "net.ipv4.ip_forward";
    CLEANUP(closep) int proc = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    uint64_t have = 0;
    int r = raise ? sysctl_raise(proc, NAME, 1) : 0;

    if (!r)
        r = sysctl_get(proc, NAME, &have);
    if (!r && have)
        return NULL;
    return err_remedy(err_sys(ERR_UNAVAILABLE, r ? -r : EPERM, "the host forwards nothing"),
                      "Set the sysctl net.ipv4.ip_forward to 1, or leave --network out.");
}

/* Makes five characters from the state directory's path, so that two nodes of a host do not
 * collide. */
static void make_tag(const char *state, char ret_tag[NET_TAG_LEN + 1])
{
    static const char DIGITS[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

    for (const char *p = state; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(1099511628211);
    h ^= h >> 32;
    for (int i = 0; i < NET_TAG_LEN; i++, h /= 36)
        ret_tag[i] = DIGITS[h % 36];
    ret_tag[NET_TAG_LEN] = 0;
}

static struct network *network_new(const warden *w)
{
    struct network *net = xcalloc(1, sizeof *net);

    pthread_mutex_init(&net->lock, NULL);
    net->plan = w->o.network;
    make_tag(w->o.state, net->plan.tag);
    net->helper = -1;
    net->route = nl_open(NETLINK_ROUTE);
    return net;
}

err *network_start(warden *w)
{
    w->network = network_new(w);
    if (!w->o.network.subnet)
        return NULL;
    TRY(network_forward(!w->o.keep_sysctls));
    return start_helper(w->network);
}

/* Lists the slots with a network that are claimed and whole; all others are on their way out. */
static uint32_t list_live(warden *w, uint32_t *ret_live)
{
    LOCK_SCOPE(&w->lock);
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->nslots && n < NET_LIVE_MAX; i++)
        if (w->slots[i] && w->slots[i]->state == SLOT_CLAIMED && w->slots[i]->network)
            ret_live[n++] = i;
    return n;
}

err *network_recover(warden *w)
{
    CLEANUP(freep) uint32_t *live = xcalloc(NET_LIVE_MAX, sizeof *live);
    struct net_request q = {.op = NET_LOAD, .n = list_live(w, live), .plan = w->network->plan};
    struct net_answer a = {0};

    if (w->network->helper < 0) {
        if (q.n)
            log_warn("network", "%u sandboxes keep the network that an earlier warden gave them",
                     q.n);
        return NULL;
    }
    int r = network_ask(w, (struct iovec[]){{&q, sizeof q}, {live, q.n * sizeof *live}}, 2, -1, &a);
    if (r)
        return err_remedy(
            err_because(err_sys(ERR_WALL_FAILED, -r, "the nft table of the node cannot be made"),
                        "%s", *a.text ? a.text : "the network helper gave no answer"),
            "--network needs CAP_NET_ADMIN, the program nft (package nftables), nf_tables and "
            "nf_conntrack_netlink in the kernel.");
    atomic_store(&w->network->offered, true);
    log_info("network", "sandboxes may have a network; %u do", q.n);
    return NULL;
}

void network_end(const warden *w)
{
    struct network *net = network_new(w);
    struct if_nameindex *all = if_nameindex();
    int filter = nl_open(NETLINK_NETFILTER);
    uint32_t n;

    for (struct if_nameindex *i = all; i && i->if_index; i++)
        if (net_number(&net->plan, i->if_name, &n))
            (void)net_pair_delete(net->route, i->if_name);
    if_freenameindex(all);
    if (filter >= 0)
        (void)net_table_delete(filter, &net->plan);
    closep(&filter);
    closep(&net->route);
    free(net);
}

bool network_offered(const warden *w)
{
    return atomic_load(&w->network->offered);
}

bool network_has(const warden *w, uint32_t n)
{
    return w->network && net_pair_index(&w->network->plan, n);
}

/* ---- inside ---- */

err *network_socket(const warden *w, const slot *s, int domain, int type, int protocol, int *ret_fd)
{
    static _Thread_local int home = -1;

    if (home < 0)
        home = openat(w->proc_fd, "thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(s->pidfd, CLONE_NEWNET))
        return err_sys(ERR_INTERNAL, errno, "cannot enter the network of slot %u", s->n);
    int fd = socket(domain, type | SOCK_CLOEXEC, protocol);
    int errnum = errno;
    if (stage_return(home, CLONE_NEWNET)) {
        log_error("network", "no way back to our network: errno %d", errno);
        abort();
    }
    if (fd < 0)
        return err_sys(ERR_INTERNAL, errnum, "cannot make a socket in slot %u", s->n);
    *ret_fd = fd;
    return NULL;
}

/* Makes an error with EIO instead of the step's own number: EEXIST and ENOENT of a claim stand for
 * the sandbox and its image. */
static err *network_broken(const char *step, int r)
{
    return err_because(err_sys(ERR_CREATE_FAILED, EIO, "%s", step), "%s%s", strerrordesc_np(-r),
                       r == -EEXIST ? ": another node of this host may have the same --network"
                                    : "");
}

/* Opens the network namespace of pid 1. If pid 1 lives afterwards, it is pid 1's: its number was
 * not reused. */
static err *namespace_of(const warden *w, const slot *s, int *ret_fd)
{
    char name[32];

    snprintf(name, sizeof name, "%d/ns/net", s->pid);
    CLEANUP(closep) int fd = openat(w->proc_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || slot_dead(s))
        return network_broken("finding the slot's network", -ESRCH);
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

static err *network_dress(const warden *w, const slot *s, int inside)
{
    CLEANUP(closep) int route = -1;
    struct ifreq q = {.ifr_name = NET_INSIDE};

    TRY(network_socket(w, s, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, &route));
    if (ioctl(inside, SIOCGIFINDEX, &q))
        return network_broken("finding the interface inside", -errno);
    int r = net_pair_dress(route, q.ifr_ifindex, net_address(&w->network->plan, s->n));
    return r ? network_broken("giving the sandbox an address", r) : NULL;
}

/* ---- the self-test ---- */

static bool send_to(int fd, uint32_t address, uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(address)}};

    return sendto(fd, "", 1, MSG_DONTWAIT, (const struct sockaddr *)&to, sizeof to) == 1;
}

/* Returns an address that the host has at this moment, or 0 if it has no way out at all. */
static uint32_t host_address(void)
{
    const struct sockaddr_in far = {
        .sin_family = AF_INET, .sin_port = htons(DISCARD), .sin_addr = {htonl(0xc6336401)}};
    struct sockaddr_in own = {0};
    socklen_t len = sizeof own;
    CLEANUP(closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&far, sizeof far) ||
        getsockname(fd, (struct sockaddr *)&own, &len))
        return 0;
    return ntohl(own.sin_addr.s_addr);
}

/* Sends one packet of each kind that must not pass. Returns how many were sent, or 0 if not all
 * could be. */
static uint64_t send_forbidden(const warden *w, const slot *s, int fd)
{
    const struct {
        uint32_t to;
        uint16_t port;
    } TRIED[] = {
        {0xa9fea9fe, 80},                                    /* metadata of clouds */
        {0x0a000001, DISCARD},                               /* private: 10.0.0.1 */
        {0xac100001, DISCARD},                               /* 172.16.0.1 */
        {0xc0a80001, DISCARD},                               /* 192.168.0.1 */
        {0x64400001, DISCARD},                               /* 100.64.0.1 */
        {net_address(&w->network->plan, s->n ^ 1), DISCARD}, /* a neighbour */
        {0xc6336435, DNS},                                   /* not its own resolver */
        {0xe0000001, DISCARD},                               /* multicast: all hosts */
        {host_address(), DISCARD},
    };
    uint64_t sent = 0;

    for (size_t i = 0; i < ARRAY_LEN(TRIED); i++) {
        if (!TRIED[i].to)
            continue;
        if (!send_to(fd, TRIED[i].to, TRIED[i].port))
            return 0;
        sent++;
    }
    return sent;
}

static err *network_failed(const char *what)
{
    return err_because(walls_failed(WALL_BIT(EGRESS), WALLS_AT_CLAIM, "inside"), "%s", what);
}

/* Sends forbidden packets from inside. That none arrived would prove little, as they might only
 * have lost their way: the table must have counted each as refused, for this sandbox. */
static err *try_walls(const warden *w, const slot *s, int fd)
{
    uint64_t end = now_mono_ns() + TRY_MS * NS_PER_MS, sent = send_forbidden(w, s, fd), refused = 0;
    char what[128];

    if (!sent)
        return network_failed("not all forbidden packets could be tried");
    for (;;) {
        int r = ask_op(w, NET_DROPPED, s->n, -1, &refused);
        if (r) {
            snprintf(what, sizeof what, "its packets are not judged: errno %d", -r);
            return network_failed(what);
        }
        if (refused >= sent)
            return NULL;
        if (now_mono_ns() > end)
            break;
        usleep(200);
    }
    snprintf(what, sizeof what, "%u of %u forbidden packets were not refused",
             (unsigned)(sent - refused), (unsigned)sent);
    return network_failed(what);
}

/* ---- a sandbox's ---- */

static err *network_add(const warden *w, const slot *s)
{
    const struct net_request q = {.op = NET_ADD, .n = s->n};
    CLEANUP(closep) int netns = -1;
    struct net_answer a = {0};
    char what[64];

    TRY(namespace_of(w, s, &netns));
    int r = network_ask(w, &(struct iovec){(void *)&q, sizeof q}, 1, netns, &a);
    if (!r)
        return NULL;
    snprintf(what, sizeof what, "the table does not take it: errno %d", -r);
    return a.value == NET_BY_TABLE ? network_failed(what)
                                   : network_broken("making the sandbox's network", r);
}

err *network_open(warden *w, slot *s)
{
    CLEANUP(closep) int inside = -1;
    uint64_t from = now_mono_ns();

    FAULT_KILL("network.begun");
    s->network = true;
    TRY(network_add(w, s));
    FAULT_KILL("network.added");
    TRY(network_socket(w, s, AF_INET, SOCK_DGRAM, 0, &inside));
    TRY(network_dress(w, s, inside));
    FAULT_KILL("network.dressed");
    TRY(try_walls(w, s, inside));
    FAULT_KILL("network.tried");
    count_network(now_mono_ns() - from);
    return NULL;
}

void network_close(warden *w, uint32_t n)
{
    int r = ask_op(w, NET_REMOVE, n, -1, NULL);

    if (r && r != -ENOTCONN)
        log_warn("network", "slot %u stays in the table: errno %d", n, -r);
}

bool network_usage(warden *w, uint32_t n, net_bytes *ret_bytes, uint64_t *ret_dropped)
{
    struct network *net = w->network;

    {
        LOCK_SCOPE(&net->lock);
        if (net->route < 0 || net_pair_bytes(net->route, &net->plan, n, ret_bytes))
            return false;
    }
    if (!network_offered(w) || ask_op(w, NET_DROPPED, n, -1, ret_dropped))
        *ret_dropped = 0;
    return true;
}
