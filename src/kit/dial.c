/* dial: connects stdin and stdout to a port of this network's loopback. It opens no file. It ends
 * when both directions have ended, or when the reader of stdout has gone. */
#include "kit/kit.h"

#define ROOM   (64u * 1024)
#define LEFT_S 30 /* seconds without progress once the reader has gone */

enum {
    K_AF_INET = 2,
    K_AF_INET6 = 10,
    K_IPPROTO_TCP = 6,
    K_TCP_NODELAY = 1,
};

struct k_sockaddr_in {
    unsigned short family, port;
    unsigned char address[4], zero[8];
};
struct k_sockaddr_in6 {
    unsigned short family, port;
    u32 flow;
    unsigned char address[16];
    u32 scope;
};

struct way {
    int from, to;
    size_t at, n; /* bytes [at, n) of room are still to be written */
    bool over;
    char room[ROOM];
};
static struct way up, down;
static int server = -1;
static bool left; /* the reader of stdout has gone */

/* ---- connecting ---- */

static long dial_try(int family, const void *address, size_t n)
{
    long fd = SYS(socket, family, K_SOCK_STREAM | K_SOCK_CLOEXEC, 0);

    if (fd < 0)
        return fd;
    long r = SYS(connect, fd, address, n);
    if (r >= 0)
        return fd;
    SYS(close, fd);
    return r;
}

/* Connects over IPv4, then IPv6, with a new socket for each: a refused one cannot be used for the
 * other. Returns the first error: a kernel without IPv6 refuses the second try for that reason
 * alone. */
static long connect_port(u64 port)
{
    unsigned short p = __builtin_bswap16((unsigned short)port);
    struct k_sockaddr_in v4 = {K_AF_INET, p, {127, 0, 0, 1}, {0}};
    struct k_sockaddr_in6 v6 = {K_AF_INET6, p, 0, {[15] = 1}, 0};
    long first = dial_try(K_AF_INET, &v4, sizeof v4);

    if (first >= 0)
        return first;
    long second = dial_try(K_AF_INET6, &v6, sizeof v6);
    return second >= 0 ? second : first;
}

/* Reports the result in one write, so that the reader gets all of it or nothing. */
static void dial_tell(long r)
{
    struct kit_dialled d = {KIT_DIALLED_MAGIC, r < 0 ? (int32_t)-r : 0};

    SYS(write, 1, &d, sizeof d);
    if (r < 0)
        kit_exit(0);
}

/* ---- bytes ---- */

/* Stops sending: the server takes no more. Bytes it sent before are still read. */
static void up_broken(void)
{
    SYS(close, 0);
    up.over = true;
}

static void up_ended(void)
{
    SYS(shutdown, server, K_SHUT_WR);
    up.over = true;
}

/* Ends stdout. The byte on stderr is written first, so that it is there when the end of stdout is
 * seen. */
static void down_ended(void)
{
    SYS(write, 2, "", 1);
    SYS(close, 1);
    down.over = true;
}

static void nobody_reads(void)
{
    SYS(close, 1);
    down.over = left = true;
}

static void dial_fill(struct way *w)
{
    long n = SYS(read, w->from, w->room, ROOM);

    if (n == -EAGAIN || n == -EINTR)
        return;
    w->at = 0;
    w->n = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return;
    if (w == &up)
        up_ended();
    else if (n)
        kit_exit(1); /* connection reset */
    else
        down_ended();
}

static void dial_empty(struct way *w)
{
    const char *p = w->room + w->at;
    long n = w == &up ? SYS(sendto, w->to, p, w->n - w->at, K_MSG_NOSIGNAL, 0, 0)
                      : SYS(write, w->to, p, w->n - w->at);

    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n < 0 && w == &up)
        up_broken();
    else if (n < 0)
        nobody_reads();
    else
        w->at += (size_t)n;
}

static bool is_empty(const struct way *w)
{
    return w->at == w->n;
}

static struct pollfd waits_for(const struct way *w)
{
    if (w->over)
        return (struct pollfd){.fd = -1};
    return is_empty(w) ? (struct pollfd){.fd = w->from, .events = POLLIN}
                       : (struct pollfd){.fd = w->to, .events = POLLOUT};
}

static void dial_step(struct way *w, const struct pollfd *p)
{
    if (w->over || !p->revents)
        return;
    if (is_empty(w))
        dial_fill(w);
    else
        dial_empty(w);
}

/* Copies in both directions. An open stdin may have more to send, but once the reader of stdout has
 * gone, the wait is limited. */
static void copy_both(void)
{
    while (!up.over || !down.over) {
        struct pollfd p[] = {waits_for(&up), waits_for(&down), {.fd = down.over ? -1 : 1}};
        struct __kernel_timespec limit = {.tv_sec = LEFT_S};
        long r = SYS(ppoll, p, 3, left ? &limit : 0, 0, 0);
        if (r == -EINTR)
            continue;
        if (r <= 0)
            kit_exit(1);
        dial_step(&up, &p[0]);
        dial_step(&down, &p[1]);
        if (!down.over && p[2].revents & (POLLERR | POLLNVAL))
            nobody_reads();
    }
}

void verb_dial(const kit_request *rq)
{
    u64 pipe = 1ull << (SIGPIPE - 1);
    int on = 1;

    SYS(rt_sigprocmask, K_SIG_BLOCK, &pipe, 0, K_SIGSET_SIZE);
    if (!rq->offset || rq->offset > 65535)
        dial_tell(-EINVAL);
    long r = connect_port(rq->offset);
    dial_tell(r);
    server = (int)r;
    SYS(setsockopt, server, K_IPPROTO_TCP, K_TCP_NODELAY, &on, sizeof on);
    for (int i = 0; i < 2; i++)
        SYS(fcntl, i, F_SETFL, O_NONBLOCK);
    SYS(fcntl, server, F_SETFL, O_NONBLOCK);
    up.from = 0;
    up.to = down.from = server;
    down.to = 1;
    copy_both();
    kit_exit(0);
}
