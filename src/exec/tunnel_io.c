/* The bytes of a tunnel. splice on a pipe does not block for bytes or room, whatever init does to
 * its own copy of the descriptor. It still waits for the pipe's mutex, so the lock is released
 * around each such call. Only the job makes these calls, and changes descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "exec/tunnel.h"

#define CHUNK   (64u * 1024)
#define QUANTUM (512u * 1024)        /* per run and direction */
#define HELD    (UINT64_C(64) << 20) /* held by all tunnels together */
#define LITTLE  4096u                /* what one tunnel may hold beyond that */
#define DEAF_NS (5 * NS_PER_S)
#define HANGUP  ((uint32_t)EPOLLHUP) /* always reported; alone: nothing else is watched */

/* ---- how much is kept ---- */

static void tunnel_io_weigh(struct tunnel *u)
{
    uint64_t now = u->held.len + u->in.len;

    atomic_fetch_add(&u->table->hub->tunnel_bytes, now - u->weight);
    u->weight = now;
}

static size_t tunnel_io_ceiling(const struct tunnel *u, size_t otherwise)
{
    return atomic_load(&u->table->hub->tunnel_bytes) < HELD ? otherwise : LITTLE;
}

/* ---- ends ---- */

void tunnel_close_pipe(struct tunnel *u, int i)
{
    if (u->pipe[i] < 0)
        return;
    pump_watch(&u->job, u->pipe[i], 0);
    u->closing[i] = TAKE_FD(u->pipe[i]); /* closed by the job, after the lock */
}

static ssize_t tunnel_splice(struct tunnel *u, int from, int to, size_t n)
{
    pthread_mutex_unlock(&u->lock);
    ssize_t r = splice(from, NULL, to, NULL, n < CHUNK ? n : CHUNK, SPLICE_F_NONBLOCK);
    pthread_mutex_lock(&u->lock);
    return r;
}

/* Closes init's copies of the descriptors. */
static void close_there(struct tunnel *u, uint32_t mask)
{
    if (!u->over && !u->lost && u->answered)
        u->table->ops->close(u->box, u->id, mask);
}

static void say_no_more(struct tunnel *u)
{
    tunnel_close_pipe(u, SP_FD_IN);
    if (!u->table->frames)
        close_there(u, 1u << SP_FD_IN);
}

void tunnel_shut(struct tunnel *u)
{
    if (u->fd >= 0) {
        pump_watch(&u->job, u->fd, 0);
        close(TAKE_FD(u->fd));
    }
    buf_done(&u->held);
    tunnel_io_weigh(u);
    if (!u->in_eof)
        say_no_more(u);
    u->in_eof = true; /* bytes that were sent before are still delivered */
}

static void takes_no_more(struct tunnel *u)
{
    u->in_over = true;
    buf_done(&u->in);
    tunnel_io_weigh(u);
    say_no_more(u);
}

/* Handles a peer that has closed its end: the command's output is closed, so that it notices. */
static void peer_left(struct tunnel *u)
{
    u->gone = true;
    buf_done(&u->held);
    tunnel_io_weigh(u);
    tunnel_close_pipe(u, SP_FD_OUT);
    tunnel_close_pipe(u, SP_FD_ERR);
    close_there(u, 1u << SP_FD_OUT | 1u << SP_FD_ERR);
}

/* Returns true if the peer has closed its end. Once both directions have ended, a closed end looks
 * like one that was shut; then it does not matter. */
static bool has_left(const struct tunnel *u)
{
    struct pollfd p = {.fd = u->fd};

    return !u->whole && poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR);
}

/* ---- from the command ---- */

static void tunnel_io_sent(struct tunnel *u, size_t n)
{
    u->moved += n;
    u->full = false;
}

/* Returns how many bytes the socket took; fewer than n if it is full. Without a reader all count as
 * taken. */
static size_t tunnel_io_push(struct tunnel *u, const char *p, size_t n)
{
    size_t done = 0;

    while (done < n && u->fd >= 0 && !u->gone) {
        ssize_t r = send(u->fd, p + done, n - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno != EAGAIN) {
            peer_left(u);
            return n;
        }
        if (r < 0) {
            u->full = true;
            break;
        }
        done += (size_t)r;
        tunnel_io_sent(u, (size_t)r);
    }
    return u->fd >= 0 && !u->gone ? done : n;
}

static void tunnel_io_acknowledge(struct tunnel *u)
{
    if (!u->over && !u->lost)
        u->table->ops->received(u->box, u->id, 1, u->out_at - u->held.len);
}

static void take_out(struct tunnel *u, uint64_t offset, const char *p, size_t n)
{
    if (u->gone && offset > u->out_at) /* an earlier process took the bytes before it */
        u->out_at = offset;
    if (offset > u->out_at) { /* bytes in between are missing */
        u->stalled = true;
        return;
    }
    uint64_t known = u->out_at - offset;
    if (!n && !known)
        u->out_eof = true;
    if (known >= n)
        return;
    p += known;
    n -= (size_t)known;
    size_t done = u->held.len ? 0 : tunnel_io_push(u, p, n);
    if (done < n && u->held.len + n - done <= tunnel_io_ceiling(u, TUNNEL_OUT_MAX)) {
        buf_append(&u->held, p + done, n - done);
        tunnel_io_weigh(u);
        done = n;
    }
    u->out_at += done;
    u->stalled = done < n;
    tunnel_io_acknowledge(u);
}

static void take_err(struct tunnel *u, uint64_t offset, size_t n)
{
    if (offset > u->err_at)
        return;
    u->err_said |= n > 0;
    u->err_eof |= !n;
    if (offset + n > u->err_at)
        u->err_at = offset + n;
    if (!u->over && !u->lost)
        u->table->ops->received(u->box, u->id, 2, u->err_at);
}

void tunnel_take(struct tunnel *u, int stream, uint64_t offset, const char *p, size_t n)
{
    if (u->stalled || u->fetching || u->lost || n > SP_PAYLOAD_MAX || offset > INT64_MAX)
        return; /* will be fetched again */
    if (stream == 1)
        take_out(u, offset, p, n);
    else
        take_err(u, offset, n);
}

void tunnel_fetch(struct tunnel *u)
{
    u->stalled = false;
    if (u->over || u->lost)
        return;
    u->taken_known = false;
    u->table->ops->received(u->box, u->id, 1, u->out_at - u->held.len);
    u->table->ops->received(u->box, u->id, 2, u->err_at);
    err *e = u->table->ops->fetch(u->box, u->id);
    u->fetching = !e;
    if (!e)
        return;
    err_drop(e, "tunnel");
    u->lost = true;
}

/* Sends held bytes; when all are sent and there is room, fetches dropped ones. */
static void flush_held(struct tunnel *u)
{
    if (u->held.len) {
        size_t n = tunnel_io_push(u, u->held.p, u->held.len);
        buf_consume(&u->held, n < u->held.len ? n : u->held.len);
        if (!u->held.len)
            buf_done(&u->held); /* thousands of tunnels may wait */
        tunnel_io_weigh(u);
        tunnel_io_acknowledge(u);
    }
    struct pollfd p = {.fd = u->fd, .events = POLLOUT};
    if (u->stalled && !u->held.len && (u->fd < 0 || u->gone || poll(&p, 1, 0) == 1)) {
        u->full = false;
        tunnel_fetch(u);
    }
}

static int tunnel_io_waiting(struct tunnel *u, int fd)
{
    int n = 0;

    pthread_mutex_unlock(&u->lock);
    if (fd < 0 || ioctl(fd, FIONREAD, &n))
        n = 0;
    pthread_mutex_lock(&u->lock);
    return n;
}

static void splice_out(struct tunnel *u)
{
    size_t left = QUANTUM;

    if (u->answered && u->pipe[SP_FD_OUT] < 0) /* the box sent no such descriptor */
        u->out_eof = u->err_eof = true;
    while (u->pipe[SP_FD_OUT] >= 0 && u->fd >= 0 && left) {
        ssize_t n = tunnel_splice(u, u->pipe[SP_FD_OUT], u->fd, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            u->full = tunnel_io_waiting(u, u->pipe[SP_FD_OUT]) > 0;
            return;
        }
        if (n < 0) {
            peer_left(u);
            return;
        }
        if (!n) {
            u->out_eof = true;
            u->err_said = tunnel_io_waiting(u, u->pipe[SP_FD_ERR]) > 0; /* it came before the end */
            u->err_eof = true;
            tunnel_close_pipe(u, SP_FD_OUT);
            return;
        }
        left -= (size_t)n;
        tunnel_io_sent(u, (size_t)n);
    }
}

/* Ends the socket once all of stdout is in it: shuts it if stdout ended whole, else closes it. */
static void end_output(struct tunnel *u)
{
    bool silent = u->err_eof || u->exited || u->lost;

    if (!u->out_eof || u->held.len || u->stalled || u->whole || u->fd < 0 || u->gone)
        return;
    if (u->err_said) {
        shutdown(u->fd, SHUT_WR);
        u->whole = true;
        u->whole_ns = now_mono_ns();
    } else if (silent) {
        tunnel_shut(u);
    }
}

void tunnel_output(struct tunnel *u)
{
    if (u->fd >= 0 && !u->gone && has_left(u))
        peer_left(u);
    if (u->table->frames)
        flush_held(u);
    else
        splice_out(u);
    /* In the frames form no output comes after the exit, so stdout is whole, unless frames must be
     * fetched again. If the tunnel was lost, output may be missing: the socket is closed, which
     * tells the peer that stdout was cut off. */
    if (u->exited && u->table->frames && !u->stalled)
        u->out_eof = true;
    if (u->lost && u->fd >= 0 && !u->out_eof)
        tunnel_shut(u);
    end_output(u);
}

/* ---- to the command ---- */

static void splice_in(struct tunnel *u)
{
    size_t left = QUANTUM;

    while (u->pipe[SP_FD_IN] >= 0 && u->fd >= 0 && left && !u->in_eof) {
        ssize_t n = tunnel_splice(u, u->fd, u->pipe[SP_FD_IN], left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            u->in_full = tunnel_io_waiting(u, u->fd) > 0;
            return;
        }
        if (n < 0 && errno != ECONNRESET) { /* EPIPE: the command has closed it */
            takes_no_more(u);
            return;
        }
        u->in_full = false;
        if (n <= 0) {
            u->in_eof = true;
            say_no_more(u);
            return;
        }
        left -= (size_t)n;
    }
}

static void read_in(struct tunnel *u)
{
    size_t max = tunnel_io_ceiling(u, TUNNEL_IN_MAX);

    while (u->in.len < max && !u->in_eof && u->fd >= 0) {
        size_t room = max - u->in.len;
        buf_reserve(&u->in, room < CHUNK ? room : CHUNK);
        ssize_t n = recv(u->fd, u->in.p + u->in.len, room < CHUNK ? room : CHUNK, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0)
            u->in_eof = true;
        else
            u->in.len += (size_t)n;
    }
    if (!u->in.len)
        buf_done(&u->in);
    tunnel_io_weigh(u);
}

static void send_in(struct tunnel *u)
{
    const backend_ops *ops = u->table->ops;
    uint64_t end = u->in_at + u->in.len;
    size_t took = 1;

    if (!u->taken_known)
        return;
    while (u->in_sent < end && took) {
        uint64_t n = end - u->in_sent < CHUNK ? end - u->in_sent : CHUNK;
        took = frames_write_piece(ops, u->box, u->id, u->in_sent, u->in.p + (u->in_sent - u->in_at),
                                  (size_t)n);
        u->in_sent += took;
    }
    if (u->in_sent == end && u->in_eof && !u->in_eof_sent)
        u->in_eof_sent = !frames_is_full(ops->stdin_write(u->box, u->id, end, NULL, 0, true));
}

void tunnel_taken(struct tunnel *u, uint64_t offset)
{
    if (offset == UINT64_MAX && !u->in_over)
        takes_no_more(u);
    if (u->in_over)
        return;
    if (offset >= u->in_at && offset <= u->in_at + u->in.len) {
        buf_consume(&u->in, (size_t)(offset - u->in_at));
        u->in_at = offset;
        tunnel_io_weigh(u);
    }
    if (!u->taken_known) { /* first report on this connection: later bytes are sent again */
        u->in_sent = u->in_at;
        u->in_eof_sent = false;
    }
    if (u->in_sent < u->in_at)
        u->in_sent = u->in_at;
    u->taken_known = true;
}

/* Drops input that the command does not take. A peer that still sends long after its output has
 * ended is not reading: the socket is closed, as a server would do. */
static void drop_in(struct tunnel *u)
{
    char some[4096];
    size_t left = QUANTUM;
    ssize_t n = 1;

    while (u->fd >= 0 && !u->in_eof && left > sizeof some) {
        n = recv(u->fd, some, sizeof some, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            u->in_eof = true;
        else if (u->whole && now_mono_ns() - u->whole_ns > DEAF_NS)
            tunnel_shut(u);
        left -= n > 0 ? (size_t)n : 0;
    }
}

void tunnel_input(struct tunnel *u)
{
    if ((u->over || u->lost) && !u->in_over)
        takes_no_more(u);
    if (u->in_over) {
        drop_in(u);
    } else if (u->answered && !u->table->frames) {
        splice_in(u);
    } else if (u->answered) {
        read_in(u);
        send_in(u);
    }
}

/* ---- waiting ---- */

static void tunnel_io_watch(struct tunnel *u, int fd, uint32_t events)
{
    if (fd >= 0)
        pump_watch(&u->job, fd, events);
}

static bool wants_in(const struct tunnel *u)
{
    if (u->in_eof || (!u->answered && !u->in_over))
        return false;
    return u->in_over         ? true
           : u->table->frames ? u->in.len < tunnel_io_ceiling(u, TUNNEL_IN_MAX)
                              : !u->in_full;
}

void tunnel_rewatch(struct tunnel *u)
{
    bool out = u->full || (u->stalled && !u->gone) || u->held.len;

    /* A peer that has left, or may have, would be reported all the time. */
    if ((u->gone || u->whole) && !wants_in(u))
        tunnel_io_watch(u, u->fd, 0);
    else
        tunnel_io_watch(u, u->fd,
                        HANGUP | (wants_in(u) ? EPOLLIN : 0) | (out && !u->gone ? EPOLLOUT : 0));
    if (u->table->frames)
        return;
    tunnel_io_watch(u, u->pipe[SP_FD_OUT], u->full ? 0 : EPOLLIN);
    tunnel_io_watch(u, u->pipe[SP_FD_IN], u->in_full ? EPOLLOUT : 0);
}
