#include "cli/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define HELD_MAX (64 * 1024) /* bytes, in each direction */

typedef struct side {
    buf held;           /* read, not yet written to the other side */
    bool ended, broken; /* read to its end; failed */
    bool shut;          /* the other side was notified of the end */
} side;

typedef struct pump {
    int local;
    client_stream *remote;
    side up, down; /* from the local side; from the remote one */
} pump;

static ssize_t read_local(pump *p, void *to, size_t n)
{
    ssize_t got = recv(p->local, to, n, MSG_DONTWAIT);

    return got < 0 ? -errno : got;
}

static ssize_t write_local(pump *p, const void *from, size_t n)
{
    ssize_t sent = send(p->local, from, n, MSG_DONTWAIT | MSG_NOSIGNAL);

    return sent < 0 ? -errno : sent;
}

static ssize_t read_remote(pump *p, void *to, size_t n)
{
    return client_stream_recv(p->remote, to, n);
}

static ssize_t write_remote(pump *p, const void *from, size_t n)
{
    return client_stream_send(p->remote, from, n);
}

static bool wants_read(const side *s)
{
    return !s->ended && s->held.len < HELD_MAX;
}

/* Returns true if something moved. */
static bool read_side(pump *p, side *s, ssize_t (*get)(pump *, void *, size_t))
{
    char bytes[16384];

    if (!wants_read(s))
        return false;
    ssize_t n = get(p, bytes, sizeof bytes);
    if (n == -EAGAIN || n == -EINTR)
        return false;
    if (n > 0)
        buf_append(&s->held, bytes, (size_t)n);
    s->ended = n <= 0;
    s->broken |= n < 0;
    return true;
}

static bool write_side(pump *p, side *s, ssize_t (*put)(pump *, const void *, size_t))
{
    if (!s->held.len || s->broken)
        return false;
    ssize_t n = put(p, s->held.p, s->held.len);
    if (n == -EAGAIN || n == -EINTR)
        return false;
    if (n < 0)
        s->broken = true;
    else
        buf_consume(&s->held, (size_t)n);
    return true;
}

/* Passes the end on, after all bytes before it. */
static bool end_side(pump *p, side *s)
{
    if (!s->ended || s->held.len || s->shut)
        return false;
    s->shut = true;
    if (s == &p->up)
        client_stream_shut(p->remote);
    else
        shutdown(p->local, SHUT_WR);
    return true;
}

static bool pump_step(pump *p)
{
    bool moved = read_side(p, &p->up, read_local);

    moved |= read_side(p, &p->down, read_remote);
    moved |= write_side(p, &p->up, write_remote);
    moved |= write_side(p, &p->down, write_local);
    moved |= end_side(p, &p->up);
    return end_side(p, &p->down) || moved;
}

/* Returns what to poll a descriptor for. Skips it if nothing is wanted: poll would report its
 * hang-up for ever. */
static struct pollfd pump_wish(int fd, const side *from, const side *to)
{
    short events =
        (short)((wants_read(from) ? POLLIN : 0) | (to->held.len && !to->broken ? POLLOUT : 0));

    return (struct pollfd){.fd = events ? fd : -1, .events = events};
}

void pump_run(int local, client_stream *remote)
{
    pump p = {.local = local, .remote = remote};

    fcntl(local, F_SETFL, fcntl(local, F_GETFL) | O_NONBLOCK);
    while (!p.up.broken && !p.down.broken && !(p.up.shut && p.down.shut)) {
        if (pump_step(&p))
            continue;
        struct pollfd fds[] = {pump_wish(local, &p.up, &p.down),
                               pump_wish(client_stream_fd(remote), &p.down, &p.up)};
        poll(fds, 2, -1);
    }
    buf_done(&p.up.held);
    buf_done(&p.down.held);
}
