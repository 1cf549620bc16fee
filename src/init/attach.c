/* `bothy-init attach`: connects its stdio to the socket of the container's pid 1 and copies bytes
 * in both directions. It holds no key and parses no message. A tenant that stops it, kills it or
 * starts its own gets a broken stream, as any network failure would cause. */
#include "init/init.h"

#define COPY_MAX (64u * 1024)

struct copy {
    int from, to; /* -1: this direction has ended */
    size_t at, len;
    char bytes[COPY_MAX];
};
static struct copy in, out;

/* Ignores every signal that can be ignored, so that kill(-1, TERM) by the tenant or by bothyd does
 * not end the stream. */
static void ignore_signals(void)
{
    struct k_sigaction ignore = {.words = {1}}; /* SIG_IGN */

    for (int s = 1; s <= K_NSIG; s++)
        SYS(rt_sigaction, s, &ignore, 0, K_SIGSET_SIZE);
}

static int connect_init(void)
{
    struct k_unix name = {.family = K_AF_UNIX};
    long n = serve_name(name.path);
    long fd = SYS(socket, K_AF_UNIX, K_SOCK_STREAM | K_SOCK_CLOEXEC, 0);

    if (n < 0 || fd < 0 || SYS(connect, fd, &name, offsetof(struct k_unix, path) + (size_t)n) < 0)
        fatal(1);
    SYS(fcntl, fd, F_SETFL, O_NONBLOCK);
    return (int)fd;
}

/* Returns false when this direction has ended. */
static bool copy_read(struct copy *c)
{
    long n = SYS(read, c->from, c->bytes, COPY_MAX);

    if (n == -EAGAIN || n == -EINTR)
        return true;
    c->at = 0;
    c->len = n > 0 ? (size_t)n : 0;
    return n > 0;
}

static bool copy_write(struct copy *c)
{
    long n = SYS(write, c->to, c->bytes + c->at, c->len - c->at);

    if (n == -EAGAIN || n == -EINTR)
        return true;
    if (n > 0)
        c->at += (size_t)n;
    return n > 0;
}

static struct pollfd copy_poll(const struct copy *c)
{
    bool full = c->at < c->len;

    if (c->from < 0)
        return (struct pollfd){-1, 0, 0};
    return (struct pollfd){full ? c->to : c->from, full ? POLLOUT : POLLIN, 0};
}

static bool copy_step(struct copy *c, const struct pollfd *p)
{
    if (!p->revents)
        return true;
    return p->events & POLLOUT ? copy_write(c) : copy_read(c);
}

void attach_main(void)
{
    SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    ignore_signals();
    int fd = connect_init();
    in = (struct copy){.from = 0, .to = fd};
    out = (struct copy){.from = fd, .to = 1};
    SYS(fcntl, 0, F_SETFL, O_NONBLOCK);
    SYS(fcntl, 1, F_SETFL, O_NONBLOCK);
    for (;;) {
        struct pollfd p[2] = {copy_poll(&in), copy_poll(&out)};
        if (SYS(ppoll, p, 2, 0, 0, K_SIGSET_SIZE) < 0)
            continue;
        if (!copy_step(&out, &p[1]))
            fatal(0);
        if (!copy_step(&in, &p[0])) { /* init closes its end then, or has already */
            SYS(shutdown, fd, K_SHUT_WR);
            in.from = -1;
        }
    }
}
