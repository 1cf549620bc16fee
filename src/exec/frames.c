/* The frames form: the job's work when bytes go through the backend. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

#define WINDOW (256u * 1024)
#define CHUNK  (64u * 1024)

#define PIECE_MIN 512u

/* Fetches frames again, after a while, that were dropped for want of space. */
void frames_refetch(exec *x)
{
    exec_table *t = x->table;

    LOCK_SCOPE(&t->lock);
    if (!x->stalled || x->lost || !t->box) {
        if (!x->stalled)
            x->io.backoff_ms = 0;
        return;
    }
    if (!x->io.parked) {
        io_retry_later(x, x->stalled_by);
        return;
    }
    if (!atomic_exchange(&x->retry_due, false))
        return;
    x->io.parked = false;
    io_set_full(x, false);
    x->taken_known = false;
    for (int i = 0; i < 2; i++)
        t->ops->received(t->box, x->id, i + 1, atomic_load(&x->out[i].length));
    err *e = t->ops->fetch(t->box, x->id);
    x->fetching = !e;
    x->stalled = e;
    if (e)
        io_retry_later(x, x->stalled_by);
    err_drop(e, "fetch");
}

/* Returns true if stdin can be sent: the box has reported how much it has, and is reachable. */
static bool may_send(exec *x)
{
    LOCK_SCOPE(&x->table->lock);
    if (x->in_resync) {
        x->in_resync = false;
        x->io.in_sent = atomic_load(&x->in_taken);
        x->io.in_eof_sent = false;
    }
    return x->answered && x->taken_known && !x->stdin_over && !x->lost && x->table->box;
}

static err *write_end(exec *x, uint64_t at)
{
    const backend_ops *ops = x->table->ops;
    box *in = exec_box(x);

    if (!in)
        return NULL; /* no box is left to read it */
    err *e = ops->stdin_write(in, x->id, at, NULL, 0, true);
    ops->box_unref(in);
    return e;
}

bool frames_is_full(err *e)
{
    bool full = e && e->errnum == EAGAIN;

    if (full)
        err_free(e);
    else
        err_drop(e, "stdin");
    return full;
}

size_t frames_write_piece(const backend_ops *ops, box *in, uint64_t id, uint64_t at, const char *p,
                          size_t n)
{
    err *e = ops->stdin_write(in, id, at, p, n, false);

    while (e && e->errnum == EAGAIN && n > PIECE_MIN) {
        n = n / 4 > PIECE_MIN ? n / 4 : PIECE_MIN;
        err_free(e);
        e = ops->stdin_write(in, id, at, p, n, false);
    }
    bool sent = !e;
    frames_is_full(e);
    return sent ? n : 0;
}

static size_t write_piece(exec *x, const char *chunk, size_t n)
{
    box *in = exec_box(x);

    if (!in)
        return n; /* no box is left to read it */
    n = frames_write_piece(x->table->ops, in, x->id, x->io.in_sent, chunk, n);
    x->table->ops->box_unref(in);
    return n;
}

static bool send_chunk(exec *x, int fd, char *chunk, uint64_t len)
{
    uint64_t left = len - x->io.in_sent;
    ssize_t n = pread(fd, chunk, left < CHUNK ? (size_t)left : CHUNK, (off_t)x->io.in_sent);
    size_t sent = n > 0 ? write_piece(x, chunk, (size_t)n) : 0;

    x->io.in_sent += sent;
    return sent;
}

void frames_input(exec *x)
{
    char path[SPOOL_PATH_MAX];

    if (!(x->flags & JOURNAL_F_STDIN) || !may_send(x))
        return;
    bool eof = atomic_load(&x->in_eof); /* read before the length: nothing follows the end */
    uint64_t len = atomic_load(&x->in_len), taken = atomic_load(&x->in_taken);
    /* The box received more on the last connection than it first reported. */
    if (x->io.in_sent < taken)
        x->io.in_sent = taken;
    if (x->io.in_sent < len && x->io.in_sent - taken < WINDOW) {
        CLEANUP(freep) char *chunk = xmalloc(CHUNK);
        input_path(x, path);
        CLEANUP(closep) int fd = openat(x->table->hub->o.spool_dir, path, O_RDONLY | O_CLOEXEC);
        while (fd >= 0 && x->io.in_sent < len && x->io.in_sent - taken < WINDOW)
            if (!send_chunk(x, fd, chunk, len))
                break;
    }
    if (eof && x->io.in_sent == len && !x->io.in_eof_sent)
        x->io.in_eof_sent = !frames_is_full(write_end(x, len));
    if (!eof)
        input_punch(x, taken);
}
