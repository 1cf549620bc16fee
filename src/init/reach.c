/* `bothy-init reach ADDRESS PORT TIMES`: tests whether packets reach an IPv4 address, for the
 * self-test of a cluster's NetworkPolicies. A refused connection counts as reached. Tries TIMES
 * times, once a second, because policies take effect a moment after a pod starts. Exit status 3 as
 * soon as one try gets no answer, 0 if all were answered. */
#include "init/init.h"

enum {
    R_AF_INET = 2,
    R_SO_SNDTIMEO = 21,
    R_ECONNREFUSED = 111,
    R_TIMES_MAX = 60,
};

struct r_sockaddr_in {
    unsigned short family, port;
    unsigned char address[4], zero[8];
};
struct r_timeval {
    long seconds, micro;
};

/* Parses digits up to `end`, at most max; moves *text behind `end`. */
static u32 reach_number(const char **text, char end, u32 max)
{
    u32 v = 0;
    const char *s = *text;

    for (; *s >= '0' && *s <= '9'; s++) {
        v = v * 10 + (u32)(*s - '0');
        if (v > max)
            fatal(2);
    }
    if (s == *text || *s != end)
        fatal(2);
    *text = end ? s + 1 : s;
    return v;
}

static bool reach_answers(const struct r_sockaddr_in *to)
{
    struct r_timeval second = {1, 0};
    long fd = SYS(socket, R_AF_INET, K_SOCK_STREAM | K_SOCK_CLOEXEC, 0);

    if (fd < 0)
        fatal(1);
    SYS(setsockopt, fd, K_SOL_SOCKET, R_SO_SNDTIMEO, &second, sizeof second);
    long r = SYS(connect, fd, to, sizeof *to);
    SYS(close, fd);
    return r == 0 || r == -R_ECONNREFUSED;
}

void reach_main(const char *address, const char *port, const char *times)
{
    struct r_sockaddr_in to = {.family = R_AF_INET};

    for (int i = 0; i < 4; i++)
        to.address[i] = (unsigned char)reach_number(&address, i < 3 ? '.' : 0, 255);
    to.port = __builtin_bswap16((unsigned short)reach_number(&port, 0, 65535));
    for (u32 n = reach_number(&times, 0, R_TIMES_MAX); n; n--) {
        if (!reach_answers(&to))
            fatal(3);
        struct __kernel_timespec second = {.tv_sec = 1}; /* the kernel counts it down */
        if (n > 1)
            SYS(ppoll, NULL, 0, &second, NULL, 0);
    }
    fatal(0);
}
