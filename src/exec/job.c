/* An exec's work on its pump thread: time limits, bytes, and the way to its end record. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/thread.h"
#include "exec/internal.h"

#define TERM_NS (2 * NS_PER_S)
#define KILL_NS (5 * NS_PER_S)

#define ALL_FDS 15u

static exec *exec_of(pump_job *j)
{
    return (exec *)((char *)j - offsetof(exec, job));
}

/* Sends TERM to the tree when the time is over, KILL two seconds later, and KILL again until it is
 * gone. */
static void on_deadline(exec *x)
{
    exec_table *t = x->table;

    LOCK_SCOPE(&t->lock);
    if (t->paused_mono || !atomic_exchange(&x->due, false) || x->ended || x->exited || x->lost ||
        !t->box)
        return;
    signal_spec s = {.exec = x->id, .signo = x->timed_out ? SIGKILL : SIGTERM, .scope = SP_TO_TREE};
    err_drop(t->ops->signal(t->box, &s), "time limit");
    exec_deadline(x, x->timed_out ? KILL_NS : TERM_NS);
    x->timed_out = true;
}

struct snapshot {
    int refused;
    bool exited, lost, ended, fetch_failed, gone, eof, discarded;
};

static bool job_look(exec *x, struct snapshot *ret)
{
    exec_table *t = x->table;

    LOCK_SCOPE(&t->lock);
    *ret = (struct snapshot){
        .refused = x->refused,
        .exited = x->exited,
        .lost = x->lost,
        .ended = x->ended,
        .fetch_failed = x->fetch_failed,
        .gone = t->gone || t->ended || !t->box || x->reset,
        .discarded = x->discarded,
        .eof =
            x->stream_eof[0] && (x->stream_eof[1] || x->flags & (JOURNAL_F_PTY | JOURNAL_F_MERGED)),
    };
    x->io.saw_exit = x->exited || x->lost || x->ended;
    return x->live;
}

/* Returns true if the exec has ended and every byte before its end is in the spool. */
static bool find_end(exec *x, const struct snapshot *s, enum exec_how *ret_how, uint64_t length[2])
{
    exec_table *t = x->table;
    bool reachable = x->io.installed || s->fetch_failed || s->lost;

    length[0] = length[1] = 0;
    *ret_how = EXEC_NOT_STARTED;
    if (s->refused)
        return true;
    if (!s->exited && !s->lost && !s->fetch_failed)
        return false;
    if (!t->frames && !s->discarded && (!reachable || !io_drain(x)))
        return false;
    LOCK_SCOPE(&t->lock);
    for (int i = 0; i < 2; i++)
        length[i] = t->frames && x->exited ? x->at_exit[i] : atomic_load(&x->out[i].length);
    *ret_how = x->exited ? exec_how_of(x, &x->rec) : x->reset ? EXEC_KILLED : EXEC_UNKNOWN;
    return true;
}

static bool job_finish(exec *x, const struct snapshot *s)
{
    enum exec_how how;
    uint64_t length[2];

    if (!find_end(x, s, &how, length) || !exec_oom_known(x, how))
        return false;
    if (!exec_finish(x, how, s->refused > 0 ? s->refused : 0, length)) {
        io_retry_later(x, SPOOL_NOSPACE);
        return false;
    }
    FAULT_KILL("stdin.left");
    input_over(x);
    return true;
}

static bool is_discarded(exec *x)
{
    LOCK_SCOPE(&x->table->lock);
    return x->discarded;
}

/* Acknowledges the exit to init, after END was written to the journal. Once no more output can
 * come, closes all descriptors, so that init forgets the exec, and takes it off the table's list of
 * live execs. */
static void after_end(exec *x, const struct snapshot *s)
{
    exec_table *t = x->table;
    bool eof = t->frames ? s->eof : io_all_eof(x);
    bool over = s->refused || s->lost || s->fetch_failed || s->discarded || eof;
    box *in = s->refused || s->gone ? NULL : exec_box(x);

    if (in) {
        if (!x->io.acked)
            t->ops->ack(in, x->id,
                        over                       ? ALL_FDS
                        : x->flags & JOURNAL_F_PTY ? 1u << SP_FD_KEEP
                                                   : 1u << SP_FD_IN | 1u << SP_FD_KEEP);
        else if (over)
            t->ops->close(in, x->id, ALL_FDS);
        t->ops->box_unref(in);
        FAULT_KILL("exec.acked");
        x->io.acked = true;
    }
    if (!over)
        return;
    io_close_all(x);
    table_live_drop(x);
    if (is_discarded(x)) /* from here on, exec_discard() removes them itself */
        table_forget_streams(x);
    exec_notify(x);
}

static void job_run(pump_job *j)
{
    exec *x = exec_of(j);
    struct snapshot s;

    if (!job_look(x, &s))
        return;
    if (x->table->frames) {
        frames_refetch(x);
        frames_input(x);
    } else {
        io_install(x);
        io_output(x);
        io_input(x);
    }
    table_make_room(x->table);
    /* Read the state again: it may show an exit that came meanwhile; job_finish() moves the bytes
     * before it. */
    if (job_look(x, &s) && (s.ended || job_finish(x, &s)))
        after_end(x, &s);
    if (!x->table->frames)
        io_choose_lane(x);
}

static void job_ref(pump_job *j)
{
    exec_ref(exec_of(j));
}

static void job_unref(pump_job *j)
{
    exec_unref(exec_of(j));
}

static exec *limit_exec(pump_job *j)
{
    return (exec *)((char *)j - offsetof(exec, limit));
}

static void limit_run(pump_job *j)
{
    on_deadline(limit_exec(j));
}

static void limit_ref(pump_job *j)
{
    exec_ref(limit_exec(j));
}

static void limit_unref(pump_job *j)
{
    exec_unref(limit_exec(j));
}

static void deadline_fire(pump_timer *t)
{
    exec *x = (exec *)((char *)t - offsetof(exec, deadline));

    atomic_store(&x->due, true);
    pump_kick(&x->limit);
}

static void retry_fire(pump_timer *t)
{
    exec *x = (exec *)((char *)t - offsetof(exec, retry));

    atomic_store(&x->retry_due, true);
    pump_kick(&x->job);
}

void job_init(exec *x)
{
    uint64_t spread = hash_bytes(&x->table, sizeof(void *)) + x->id;

    x->job =
        (pump_job){.run = job_run, .ref = job_ref, .unref = job_unref, .party = &x->table->party};
    x->limit = (pump_job){.run = limit_run, .ref = limit_ref, .unref = limit_unref};
    pump_job_init(x->table->hub->pump, &x->job, spread);
    pump_job_init(x->table->hub->pump, &x->limit, spread);
    x->keep_copy = -1;
    x->deadline.fire = deadline_fire;
    x->retry.fire = retry_fire;
    x->taken_known = true;
}

void job_done(exec *x)
{
    buf_done(&x->io.tty);
    closep(&x->keep_copy);
    pump_job_done(&x->job);
}
