/* Handles events of the backend, and recovers execs that an earlier process began (the recovery
 * table of README.md). An event only notes what happened and kicks the exec's job: only the job
 * drains streams, appends END and sends ACK. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/count.h"
#include "exec/internal.h"

/* Returns the exec if it is live, else NULL. Lock held. */
static exec *live_exec(exec_table *t, uint64_t id)
{
    exec *x = map_get_u64(&t->execs, id);

    return x && x->live ? x : NULL;
}

static exec *live_ref(exec_table *t, uint64_t id)
{
    LOCK_SCOPE(&t->lock);
    exec *x = live_exec(t, id);
    return x ? exec_ref(x) : NULL;
}

/* Asks the box for the streams of an exec again. Lock held. */
static void events_fetch(exec_table *t, exec *x)
{
    if (t->frames) {
        x->taken_known = false;
        x->stalled = false;
        x->fetching = true;
        for (int i = 0; i < 2; i++)
            t->ops->received(t->box, x->id, i + 1, atomic_load(&x->out[i].length));
    }
    err *e = t->ops->fetch(t->box, x->id);
    if (e) {
        err_drop(e, "fetch");
        x->fetching = false;
        x->fetch_failed = true;
    }
}

/* Sets the time limit of an adopted exec, which is counted from BEGIN's wall clock. Lock held. */
static void events_rearm(exec_table *t, exec *x)
{
    if (x->discarded && !x->ended) { /* its verb ended with an earlier process */
        x->timed_out = true;
        atomic_store(&x->due, true);
        pump_kick(&x->limit);
    }
    if (x->timeout_ms && !x->ended && !x->here)
        exec_deadline(x, table_left(t, x->begin_ns, x->timeout_ms));
}

/* Handles an exec that the box remembers. Lock held. */
static void events_meet(exec_table *t, const struct sp_rec *rec)
{
    struct past *p = table_past(t, rec->id);
    exec *x;

    if (tunnels_meet(t, rec))
        return;
    if (!p) {
        log_warn("recover", "sandbox %s runs exec %lu, which its journal does not know", t->sandbox,
                 rec->id);
        if (rec->state != SP_LIVE)
            t->ops->ack(t->box, rec->id, 15);
        return;
    }
    err *e = table_exec(t, p, &x);
    if (e) {
        err_drop(e, "recover");
        return;
    }
    table_live_add(x);
    x->pid = rec->pid;
    if (!x->ended && !x->exited)
        x->rec = *rec;
    /* In the frames form the exit counts only when it comes again, behind the last frame. */
    if (!x->ended && rec->state != SP_LIVE && !t->frames)
        x->exited = true;
    if (x->ended)
        t->ops->ack(t->box, x->id, x->flags & JOURNAL_F_PTY ? 8 : 1 | 8);
    events_rearm(t, x);
    if (t->frames || !x->fds_have)
        events_fetch(t, x);
    pump_kick(&x->job);
    exec_unref(x);
}

static bool events_remembered(const struct sp_hello *h, const struct sp_rec *recs, uint64_t id)
{
    for (uint32_t i = 0; i < h->nrec; i++)
        if (recs[i].id == id)
            return true;
    return false;
}

/* Handles an exec without END that the box does not remember. Lock held. */
static void events_miss(exec_table *t, exec *x, uint64_t high)
{
    if (x->reset)
        return; /* it ran in an earlier box: its job ends it */
    if (x->here && !x->answered)
        return; /* queued by this process: `started` will answer */
    if (x->ended || x->answered || x->exited || t->journal.damaged)
        x->lost = true;
    else
        x->refused = x->id > high ? -1 : EAGAIN;
    pump_kick(&x->job);
}

/* Recovers the execs of a table from a HELLO. Lock held. */
static void settle_hello(exec_table *t, const struct sp_hello *h, const struct sp_rec *recs)
{
    for (uint32_t i = 0; i < h->nrec; i++)
        events_meet(t, &recs[i]);
    for (exec *x = t->live; x; x = x->live_next)
        if (!events_remembered(h, recs, x->id))
            events_miss(t, x, h->high);
    tunnels_miss(t, h, recs);
    if (t->next_id <= h->high) {
        t->behind = true;
        t->next_id = h->high + 1;
    }
    FAULT_KILL("exec.recovered");
    t->attached = true;
}

static void on_attached(void *arg, const struct sp_hello *h, const struct sp_rec *recs)
{
    exec_table *t = arg;
    size_t n = h->nrec * sizeof *recs;

    LOCK_SCOPE(&t->lock);
    if (t->ended || t->gone)
        return;
    if (t->box) {
        settle_hello(t, h, recs);
        return;
    }
    free(t->early);
    t->early = xmalloc(sizeof *h + n);
    memcpy(t->early, h, sizeof *h);
    if (n)
        memcpy(t->early + 1, recs, n);
}

void exec_table_limit(exec_table *t, uint32_t live_max)
{
    LOCK_SCOPE(&t->lock);

    t->live_max = live_max ? live_max : t->hub->o.live_max;
}

void exec_table_bind(exec_table *t, backend *b, box *x, void (*on_gone)(void *arg, const char *why),
                     void *arg)
{
    bool gone;

    {
        LOCK_SCOPE(&t->lock);
        b->ops->box_ref(x);
        if (t->box)
            t->ops->box_unref(t->box);
        t->backend = b;
        t->ops = b->ops;
        t->box = x;
        t->frames = b->caps.frames;
        t->on_gone = on_gone;
        t->on_gone_arg = arg;
        gone = t->gone;
        if (!t->bound && !gone) {
            t->bound = true; /* events refer to the table until `gone` */
            exec_table_ref(t);
        }
        if (t->early && !gone)
            settle_hello(t, t->early, (const struct sp_rec *)(t->early + 1));
        free(TAKE_PTR(t->early));
    }
    if (gone && on_gone)
        on_gone(arg, "pid 1 is dead");
}

/* Takes the descriptors of `started`. The keep descriptor is the same open file that was sent
 * along. Lock held. */
static void take_fds(exec *x, int fd[SP_FDS_MAX])
{
    for (int i = 0; i < SP_FDS_MAX; i++) {
        if (i == SP_FD_KEEP && x->fd[i] >= 0)
            x->keep_copy = TAKE_FD(fd[i]);
        else
            x->fd[i] = TAKE_FD(fd[i]);
    }
    x->fds_have = x->fds_new = true;
}

static void on_started(void *arg, uint64_t id, int errnum, const struct sp_started *st,
                       int fd[SP_FDS_MAX])
{
    exec_table *t = arg;

    if (tunnel_started(t, id, errnum, fd))
        return;
    CLEANUP(exec_unrefp) exec *x = live_ref(t, id);
    FAULT_KILL("exec.started");
    {
        LOCK_SCOPE(&t->lock);
        if (x)
            x->fetching = false;
        if (x && errnum) {
            if (x->here && !x->answered)
                x->refused = errnum;
            else
                x->fetch_failed = true;
        } else if (x) {
            if (x->here && !x->answered)
                count_started(x);
            x->answered = true;
            x->pid = st->pid;
            if (!x->rec.state) {
                x->rec.start_real = st->start_real;
                x->rec.start_mono = st->start_mono;
            }
            if (!t->frames && !x->fds_have)
                take_fds(x, fd);
        }
        if (x)
            pump_kick(&x->job);
    }
    if (!errnum)
        close_soon(t, fd, SP_FDS_MAX); /* left over: the exec has its own, or has ended */
    if (x)
        exec_notify(x); /* for watchers of a command that writes nothing */
}

/* Writes a frame on the backend's thread, so that no copy of it waits in memory. */
static void on_frame(void *arg, uint64_t id, int stream, uint64_t offset, const void *p, size_t n)
{
    exec_table *t = arg;
    size_t moved = 0;

    if (tunnel_frame(t, id, stream, offset, p, n))
        return;
    CLEANUP(exec_unrefp) exec *x = live_ref(t, id);
    if (!x || (stream != 1 && stream != 2))
        return;
    spool *s = &x->out[stream - 1];
    {
        LOCK_SCOPE(&t->lock);
        if (x->stalled || x->fetching || x->reset)
            return; /* will be fetched again from the end of the file, or is of an earlier box */
        if (!n && offset == atomic_load(&s->length))
            x->stream_eof[stream - 1] = true;
    }
    enum spool_status st = n ? exec_choke(x, stream - 1) : SPOOL_EMPTY;
    if (st == SPOOL_MORE)
        st = spool_write(s, offset, p, n, &moved);
    table_count_bytes(t, (int64_t)moved);
    count_spooled(moved);
    if (st == SPOOL_NOSPACE || st == SPOOL_HELD || st == SPOOL_GAP) {
        LOCK_SCOPE(&t->lock);
        x->stalled = true;
        x->stalled_by = st;
    }
    box *in = moved || st == SPOOL_EMPTY ? exec_box(x) : NULL;
    if (in) {
        t->ops->received(in, id, stream, atomic_load(&s->length));
        t->ops->box_unref(in);
    }
    if (moved)
        exec_notify(x);
    if (!n || (st != SPOOL_EMPTY && st != SPOOL_CEILING) || table_is_over(t))
        pump_kick(&x->job);
}

static void on_exited(void *arg, const struct sp_rec *rec)
{
    exec_table *t = arg;

    if (tunnel_exited(t, rec))
        return;
    LOCK_SCOPE(&t->lock);
    exec *x = live_exec(t, rec->id);
    if (!x || x->ended || x->exited || x->stalled || x->fetching || rec->state == SP_LIVE)
        return;
    FAULT_KILL("exec.exited");
    x->exited = true;
    x->exited_ns = now_mono_ns();
    x->rec = *rec;
    x->pid = rec->pid;
    for (int i = 0; i < 2; i++)
        x->at_exit[i] = atomic_load(&x->out[i].length);
    pump_kick(&x->job);
}

static void on_stdin_taken(void *arg, uint64_t id, uint64_t offset)
{
    exec_table *t = arg;

    if (tunnel_stdin_taken(t, id, offset))
        return;
    CLEANUP(exec_unrefp) exec *x = live_ref(t, id);
    if (!x)
        return;
    {
        LOCK_SCOPE(&t->lock);
        if (x->fetching)
            return;
        if (offset == UINT64_MAX)
            x->stdin_over = true;
        else if (offset <= atomic_load(&x->in_len))
            atomic_store(&x->in_taken, offset);
        if (!x->taken_known)
            x->in_resync = true;
        x->taken_known = true;
    }
    pump_kick(&x->job);
    exec_notify(x); /* there is room again */
}

static void on_probed(exec *x, int errnum)
{
    if (!x || errnum)
        return;
    atomic_store(&x->runs, true);
    exec_notify(x);
}

static void on_signalled(void *arg, uint64_t id, uint64_t cookie, int errnum)
{
    exec_table *t = arg;
    CLEANUP(exec_unrefp) exec *x = live_ref(t, id);
    unsigned n = x ? atomic_load(&x->signals) : 0;

    if (cookie == EXEC_PROBE) {
        on_probed(x, errnum);
        return;
    }
    while (n && !atomic_compare_exchange_weak(&x->signals, &n, n - 1))
        continue;
    if (n)
        exec_notify(x);
    if (errnum && errnum != ESRCH) {
        LOG_ABOUT(t->sandbox, NULL, id);
        log_warn("signal", "sandbox %s, exec %lu: %s", t->sandbox, id,
                 str_or(strerrordesc_np(errnum), "an unknown error"));
    }
}

/* Marks all live execs and tunnels as lost. Lock held. */
static void lose_all(exec_table *t)
{
    for (exec *x = t->live; x; x = x->live_next) {
        x->lost = true;
        pump_kick(&x->job);
    }
    tunnels_lose(t);
}

static void on_gone(void *arg, const char *why)
{
    exec_table *t = arg;
    void (*tell)(void *, const char *);
    void *tell_arg;
    bool bound;

    {
        LOCK_SCOPE(&t->lock);
        if (t->gone)
            return;
        t->gone = true;
        lose_all(t);
        tell = t->on_gone;
        tell_arg = t->on_gone_arg;
        bound = t->bound;
        t->bound = false;
    }
    if (tell)
        tell(tell_arg, why);
    if (bound)
        exec_table_unref(t);
}

void exec_table_end(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    t->ended = true;
    lose_all(t);
}

const box_events EXEC_BOX_EVENTS = {
    .attached = on_attached,
    .started = on_started,
    .frame = on_frame,
    .exited = on_exited,
    .stdin_taken = on_stdin_taken,
    .signalled = on_signalled,
    .gone = on_gone,
};
