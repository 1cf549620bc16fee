/* The descriptors form: pipes and ptys, by splice only. With read and write a kill would lose the
 * bytes in between; a splice takes from the pipe exactly what it puts into the file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/thread.h"
#include "exec/count.h"
#include "exec/internal.h"

#define QUANTUM     (1u << 20)
#define TTY_CHUNK   16384u
#define IN_CHUNK    (64u * 1024)
#define DRAIN_MAX   (2u << 20) /* above any pipe's size: limits output that goes on after exit */
#define PIPE_BULK   (1u << 18) /* below DRAIN_MAX */
#define HANGUP_MS   200
#define BACKOFF_MIN 100
#define BACKOFF_MAX 5000
#define FLOOD_BYTES (8u << 20) /* a second */
#define CALM_BYTES  (1u << 20)

static bool is_pty(const exec *x)
{
    return x->flags & JOURNAL_F_PTY;
}

/* ---- descriptors from the box are not trusted ---- */

static bool is_kind(int fd, int i, bool pty, int root, const char *in_path)
{
    struct statx st, own;
    int flags = fcntl(fd, F_GETFL), mode = flags & O_ACCMODE;

    /* Not synced: the server of a FUSE file could delay its attributes. */
    if (flags < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &st))
        return false;
    if (i == SP_FD_KEEP)
        return !statx(root, in_path, AT_SYMLINK_NOFOLLOW, STATX_INO, &own) &&
               S_ISREG(st.stx_mode) && mode == O_RDONLY && own.stx_ino == st.stx_ino &&
               own.stx_dev_major == st.stx_dev_major && own.stx_dev_minor == st.stx_dev_minor;
    if (pty && i == SP_FD_IN)
        return S_ISCHR(st.stx_mode) && st.stx_rdev_major == 5 && st.stx_rdev_minor == 2 &&
               mode == O_RDWR && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    bool wr = pty ? i == SP_FD_ERR : i == SP_FD_IN;
    return S_ISFIFO(st.stx_mode) && mode == (wr ? O_WRONLY : O_RDONLY);
}

static void io_shut(exec *x, int i)
{
    int fd;

    if (x->fd[i] < 0)
        return;
    pump_watch(&x->job, x->fd[i], 0);
    {
        LOCK_SCOPE(&x->table->lock);
        fd = TAKE_FD(x->fd[i]);
    }
    close(fd);
}

static void io_resize(exec *x)
{
    uint32_t size = is_pty(x) && x->fd[SP_FD_IN] >= 0 ? atomic_exchange(&x->size, 0) : 0;
    struct winsize ws = {.ws_row = (uint16_t)(size >> 16), .ws_col = (uint16_t)size};

    if (size)
        ioctl(x->fd[SP_FD_IN], TIOCSWINSZ, &ws);
}

void io_install(exec *x)
{
    char path[SPOOL_PATH_MAX];

    {
        LOCK_SCOPE(&x->table->lock);
        if (!x->fds_new)
            return;
        x->fds_new = false;
    }
    closep(&x->keep_copy);
    x->keep_copy = -1;
    input_path(x, path);
    for (int i = 0; i < SP_FDS_MAX; i++)
        if (x->fd[i] >= 0 && !is_kind(x->fd[i], i, is_pty(x), x->table->hub->o.spool_dir, path)) {
            LOG_ABOUT(x->table->sandbox, NULL, x->id);
            log_error("spine", "sandbox %s, exec %lu: descriptor %d is not what it should be",
                      x->table->sandbox, x->id, i);
            io_shut(x, i);
        }
    x->io.installed = true;
}

/* ---- output ---- */

static int source_of(const exec *x, int s)
{
    return is_pty(x) ? (s ? -1 : x->fd[SP_FD_OUT]) : x->fd[SP_FD_OUT + s];
}

bool io_all_eof(const exec *x)
{
    if (!x->io.installed)
        return false;
    for (int s = 0; s < 2; s++)
        if (source_of(x, s) >= 0 && !x->io.eof[s] && !x->io.ceiling[s])
            return false;
    return true;
}

void io_set_full(exec *x, bool full)
{
    if (full == x->io.full)
        return;
    x->io.full = full;
    if (!full) {
        atomic_fetch_sub(&x->table->hub->full, 1);
        return;
    }
    atomic_fetch_add(&x->table->hub->full, 1);
    LOG_ABOUT(x->table->sandbox, NULL, x->id);
    log_warn("disk_full", "sandbox %s, exec %lu waits for space", x->table->sandbox, x->id);
}

void io_retry_later(exec *x, enum spool_status why)
{
    unsigned ms = x->io.backoff_ms ? 2 * x->io.backoff_ms : BACKOFF_MIN;

    x->io.backoff_ms = ms < BACKOFF_MAX ? ms : BACKOFF_MAX;
    x->io.parked = true;
    io_set_full(x, why == SPOOL_NOSPACE);
    pump_timer_set(x->table->hub->pump, &x->retry, now_mono_ns() + x->io.backoff_ms * NS_PER_MS);
}

static void io_unpark(exec *x)
{
    x->io.backoff_ms = 0;
    x->io.parked = false;
    io_set_full(x, false);
}

/* Moves bytes from a pipe until it is empty or max bytes are moved. */
static enum spool_status io_move(exec *x, int s, int from, size_t max, size_t *moved)
{
    enum spool_status st = SPOOL_MORE;

    while (st == SPOOL_MORE && max) {
        size_t n;
        st = spool_splice(&x->out[s], from, max, &n);
        *moved += n;
        max -= n;
    }
    return st;
}

/* Moves a terminal's output: master → relay pipe → file. Bytes that an earlier process left in the
 * relay go first. */
static enum spool_status move_tty(exec *x, size_t max, size_t *moved)
{
    size_t begun = *moved;

    for (;;) {
        enum spool_status st = io_move(x, 0, x->fd[SP_FD_OUT], DRAIN_MAX, moved);
        if (st != SPOOL_EMPTY)
            return st;
        if (*moved - begun >= max)
            return SPOOL_MORE;
        ssize_t n =
            splice(x->fd[SP_FD_IN], NULL, x->fd[SP_FD_ERR], NULL, TTY_CHUNK, SPLICE_F_NONBLOCK);
        if (n > 0)
            FAULT_KILL("exec.relayed");
        if (n < 0 && errno == EAGAIN)
            return SPOOL_EMPTY;
        if (n == 0 || (n < 0 && errno != EINTR))
            return SPOOL_EOF; /* EIO: no slave is open now */
    }
}

static enum spool_status nothing_is_eof(enum spool_status st)
{
    return st == SPOOL_EMPTY ? SPOOL_EOF : st;
}

static enum spool_status move_stream(exec *x, int s, size_t max, size_t *moved)
{
    if (!is_pty(x))
        return io_move(x, s, x->fd[SP_FD_OUT + s], max, moved);
    if (x->fd[SP_FD_IN] < 0 || x->fd[SP_FD_ERR] < 0) /* only the relay is left */
        return nothing_is_eof(io_move(x, 0, x->fd[SP_FD_OUT], max, moved));
    return move_tty(x, max, moved);
}

/* Moves bytes of stream s. Returns SPOOL_MORE, or why it must wait: the disk is full
 * (SPOOL_NOSPACE), or a follower must read first (SPOOL_HELD). */
static enum spool_status io_turn(exec *x, int s, size_t max, size_t *moved)
{
    enum spool_status st = move_stream(x, s, max, moved);

    switch (st) {
    case SPOOL_EOF:
        if (is_pty(x) && !x->io.saw_exit && x->fd[SP_FD_IN] >= 0) {
            x->io.hung_up = true; /* a slave may be opened again */
            pump_timer_set(x->table->hub->pump, &x->retry, now_mono_ns() + HANGUP_MS * NS_PER_MS);
        } else {
            x->io.eof[s] = true;
            if (!is_pty(x))
                io_shut(x, SP_FD_OUT + s);
        }
        return SPOOL_MORE;
    case SPOOL_CEILING:
        x->io.ceiling[s] = true;
        return SPOOL_MORE;
    case SPOOL_NOSPACE:
    case SPOOL_HELD:
        return st;
    default:
        x->io.hung_up = false;
        return SPOOL_MORE;
    }
}

static void io_watch(exec *x, int i, uint32_t events)
{
    if (x->fd[i] < 0)
        return;
    if (!pump_watch(&x->job, x->fd[i], events) && events) /* it is not watched: retry later */
        pump_timer_set(x->table->hub->pump, &x->retry, now_mono_ns() + BACKOFF_MIN * NS_PER_MS);
}

static void io_rewatch(exec *x)
{
    for (int s = 0; s < 2; s++) {
        bool want = !x->io.parked && !x->io.eof[s] && !x->io.ceiling[s];
        if (!is_pty(x))
            io_watch(x, SP_FD_OUT + s, want ? EPOLLIN : 0);
        else if (!s)
            io_watch(x, SP_FD_IN,
                     (want && !x->io.hung_up ? EPOLLIN : 0) |
                         (x->io.tty_full && !x->io.hung_up ? EPOLLOUT : 0));
    }
}

/* Enlarges the pipes of a command that floods, so that it and the pump run in parallel. The memory
 * counts as the sandbox's. */
static void io_widen(const exec *x)
{
    for (int i = SP_FD_OUT; i <= SP_FD_ERR; i++)
        if (x->fd[i] >= 0)
            (void)!fcntl(x->fd[i], F_SETPIPE_SZ, PIPE_BULK); /* refused: slower, and works */
}

/* Moves a job that floods to the bulk lane, and back when it has been calm for a second. */
void io_choose_lane(exec *x)
{
    uint64_t now = now_mono_ns();
    bool bulk = pump_is_bulk(&x->job), want = bulk;

    if (x->io.window_bytes >= FLOOD_BYTES)
        want = true;
    if (now - x->io.window_ns >= NS_PER_S) {
        want = want && x->io.window_bytes >= CALM_BYTES;
        x->io.window_ns = now;
        x->io.window_bytes = 0;
    }
    if (want == bulk)
        return;
    if (want && !is_pty(x))
        io_widen(x);
    pump_move(x->table->hub->pump, &x->job, want);
}

void io_output(exec *x)
{
    size_t moved = 0;
    enum spool_status st = SPOOL_MORE;

    if (!x->io.installed || io_all_eof(x))
        return;
    if (atomic_exchange(&x->retry_due, false))
        x->io.parked = false;
    else if (x->io.parked)
        return;
    for (int s = 0; s < 2 && st == SPOOL_MORE; s++)
        if (source_of(x, s) >= 0 && !x->io.eof[s] && !x->io.ceiling[s]) {
            st = exec_choke(x, s);
            if (st == SPOOL_MORE)
                st = io_turn(x, s, exec_quantum(x, QUANTUM / 2), &moved);
        }
    table_count_bytes(x->table, (int64_t)moved);
    count_spooled(moved);
    if (st != SPOOL_MORE)
        io_retry_later(x, st);
    else
        io_unpark(x);
    io_rewatch(x);
    x->io.window_bytes += moved;
    if (moved)
        exec_notify(x);
}

bool io_drain(exec *x)
{
    size_t moved = 0;
    enum spool_status st = SPOOL_MORE;

    for (int s = 0; s < 2 && st == SPOOL_MORE && x->io.installed && !x->io.drained; s++)
        if (source_of(x, s) >= 0 && !x->io.eof[s] && !x->io.ceiling[s])
            st = io_turn(x, s, DRAIN_MAX, &moved);
    table_count_bytes(x->table, (int64_t)moved);
    count_spooled(moved);
    if (moved)
        exec_notify(x);
    if (st != SPOOL_MORE) {
        io_retry_later(x, st);
        io_rewatch(x);
        return false;
    }
    FAULT_KILL("exec.drained");
    x->io.drained = true;
    return true;
}

void io_close_all(exec *x)
{
    io_unpark(x);
    for (int i = 0; i < SP_FDS_MAX; i++)
        io_shut(x, i);
    pump_timer_cancel(x->table->hub->pump, &x->retry);
}

/* ---- input ---- */

/* Ends the input. Closes init's copies, too, otherwise the command would wait for ever. */
static void end_input(exec *x)
{
    exec_table *t = x->table;

    io_shut(x, SP_FD_IN);
    io_shut(x, SP_FD_KEEP);
    LOCK_SCOPE(&t->lock);
    x->stdin_over = true;
    if (t->box && !t->gone && !x->reset)
        t->ops->close(t->box, x->id, 1u << SP_FD_IN | 1u << SP_FD_KEEP);
}

static void note_taken(exec *x, uint64_t position)
{
    int queued = 0;

    atomic_store(&x->in_taken, position);
    if (!ioctl(x->fd[SP_FD_IN], FIONREAD, &queued) && (uint64_t)queued <= position &&
        !atomic_load(&x->in_eof))
        input_punch(x, position - (uint64_t)queued);
}

/* Moves stdin into the pipe. The file position belongs to the open file, which init keeps; the
 * kernel moves it in the same call that fills the pipe, so after a kill the next process continues
 * exactly there. Only the job calls this: two callers would move the same bytes twice. */
static ssize_t move_input(exec *x, uint64_t left)
{
    ssize_t n;

    do
        n = splice(x->fd[SP_FD_KEEP], NULL, x->fd[SP_FD_IN], NULL,
                   left < IN_CHUNK ? (size_t)left : IN_CHUNK, SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        FAULT_KILL("stdin.moved");
    return n;
}

static void pipe_input(exec *x)
{
    bool eof = atomic_load(&x->in_eof); /* read before the length: nothing follows the end */
    uint64_t len = atomic_load(&x->in_len);
    off_t at = x->fd[SP_FD_KEEP] >= 0 ? lseek(x->fd[SP_FD_KEEP], 0, SEEK_CUR) : -1;

    if (at < 0) {
        end_input(x);
        return;
    }
    while ((uint64_t)at < len) {
        ssize_t n = move_input(x, len - (uint64_t)at);
        if (n < 0 && errno == EAGAIN) {
            note_taken(x, (uint64_t)at);
            io_watch(x, SP_FD_IN, EPOLLOUT);
            return;
        }
        if (n <= 0) { /* EPIPE: the command has closed it */
            end_input(x);
            return;
        }
        at += n;
    }
    bool news = atomic_load(&x->in_taken) != (uint64_t)at;
    note_taken(x, (uint64_t)at);
    io_watch(x, SP_FD_IN, 0);
    if (eof)
        end_input(x);
    if (news)
        exec_notify(x);
}

/* Returns how many bytes of waiting input the terminal took; *ret_full: it takes no more now. */
static size_t tty_write(exec *x, const buf *in, bool *ret_full)
{
    size_t done = 0;

    *ret_full = false;
    while (done < in->len && !*ret_full) {
        ssize_t n = write(x->fd[SP_FD_IN], in->p + done, in->len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            *ret_full = true;
        else if (n == 0 || errno != EINTR)
            done = in->len; /* it has no reader */
    }
    return done;
}

static void tty_input(exec *x)
{
    {
        LOCK_SCOPE(&x->table->lock);
        buf_append(&x->io.tty, x->tty_in.p, x->tty_in.len);
        buf_clear(&x->tty_in);
    }
    size_t done = tty_write(x, &x->io.tty, &x->io.tty_full);
    buf_consume(&x->io.tty, done);
    if (done) {
        LOCK_SCOPE(&x->table->lock);
        atomic_store(&x->in_taken, atomic_load(&x->in_len) - x->tty_in.len - x->io.tty.len);
    }
    io_rewatch(x);
    if (done)
        exec_notify(x);
}

void io_input(exec *x)
{
    if (!x->io.installed || x->fd[SP_FD_IN] < 0)
        return;
    io_resize(x);
    if (is_pty(x))
        tty_input(x);
    else if (!(x->flags & JOURNAL_F_STDIN))
        end_input(x);
    else if (!x->stdin_over)
        pipe_input(x);
}
