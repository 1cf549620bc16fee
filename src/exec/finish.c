/* The end record of an exec: how it ended, appended once. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/count.h"
#include "exec/internal.h"

/* Returns true if the time limit ended the exec. For an exec of an earlier process, which may have
 * been killed before it noted that, the kernel's times decide. For an exec of this process the
 * timer alone decides, because the wall clock may be set. */
static bool ran_out(const exec *x, const struct sp_rec *rec)
{
    uint64_t still = pause_spans_between(&x->table->pauses, x->begin_ns, rec->end_real);

    return x->timed_out || (!x->here && x->timeout_ms &&
                            rec->end_real >= x->begin_ns + x->timeout_ms * NS_PER_MS + still);
}

enum exec_how exec_how_of(const exec *x, const struct sp_rec *rec)
{
    if (rec->state == SP_FAILED)
        return EXEC_NOT_STARTED;
    if (ran_out(x, rec))
        return EXEC_TIMED_OUT;
    if (!WIFSIGNALED(rec->status))
        return EXEC_EXITED;
    int signo = WTERMSIG(rec->status);
    return signo < 32 && x->asked & 1u << signo ? EXEC_KILLED : EXEC_SIGNALLED;
}

/* Returns true if the exec died of a SIGKILL that no caller sent, or exited as a shell does whose
 * command died so. */
static bool may_be_oom(const exec *x, enum exec_how how)
{
    if (!x->exited)
        return false;
    if (how == EXEC_SIGNALLED)
        return WTERMSIG(x->rec.status) == SIGKILL;
    return how == EXEC_EXITED && WIFEXITED(x->rec.status) &&
           WEXITSTATUS(x->rec.status) == 128 + SIGKILL;
}

/* Notes a new count of kills for memory. The node counts a kill before the process is gone, so a
 * check for a command may already include the end of the box: see exec_table_ooms(). Lock held. */
static void note_ooms(exec_table *t, uint64_t n)
{
    uint64_t now = now_mono_ns();

    if (!t->ooms_ns || now - t->ooms_ns >= OOMS_SETTLE_NS)
        t->ooms_before = t->ooms;
    t->ooms_ns = now;
    t->ooms = n;
}

/* Receives the box's count: the exec was killed for memory if the count has risen since the last
 * check. The count of a dead box is not noted, as it may include the end of the box. */
static void fate_came(void *arg, err *failure, const box_fate *fate)
{
    exec *x = arg;
    exec_table *t = x->table;

    {
        LOCK_SCOPE(&t->lock);
        bool more = !failure && fate->oom_kills > t->ooms;
        x->oom = more ? OOM_YES : OOM_NO;
        x->ooms = more ? (uint32_t)fate->oom_kills : 0;
        if (more && !fate->dead && !x->reset)
            note_ooms(t, fate->oom_kills);
    }
    err_drop(failure, "out of memory");
    pump_kick(&x->job);
    exec_unref(x);
}

typedef struct oom_ask {
    exec_table *t;
    oom_done *done;
    void *arg;
    uint64_t reset_id;
} oom_ask;

static void ooms_came(void *arg, err *failure, const box_fate *fate)
{
    CLEANUP(freep) oom_ask *q = arg;
    uint32_t ooms = 0;

    {
        LOCK_SCOPE(&q->t->lock);
        if (!failure && q->reset_id == q->t->reset_id && fate->oom_kills > q->t->ooms) {
            ooms = (uint32_t)fate->oom_kills;
            if (!fate->dead)
                note_ooms(q->t, fate->oom_kills);
        }
    }
    err_drop(failure, "out of memory");
    q->done(q->arg, ooms);
    exec_table_unref(q->t);
}

void exec_table_ask_ooms(exec_table *t, oom_done *done, void *arg)
{
    char box_id[SANDBOX_ID_LEN + 1];
    const backend_ops *ops;
    uint64_t reset_id;
    backend *b;

    {
        LOCK_SCOPE(&t->lock);
        ops = t->ops;
        b = t->backend;
        reset_id = t->reset_id;
        memcpy(box_id, t->box_id, sizeof box_id);
    }
    if (!ops || !ops->fate) {
        done(arg, 0);
        return;
    }
    oom_ask *q = xcalloc(1, sizeof *q);
    *q = (oom_ask){exec_table_ref(t), done, arg, reset_id};
    ops->fate(b, box_id, 0, ooms_came, q);
}

/* Asks the node once; no thread waits for the answer. */
bool exec_oom_known(exec *x, enum exec_how how)
{
    char box_id[SANDBOX_ID_LEN + 1];
    exec_table *t = x->table;

    {
        LOCK_SCOPE(&t->lock);
        if (x->oom != OOM_UNASKED || x->reset || !may_be_oom(x, how) || !t->ops || !t->ops->fate)
            return x->oom != OOM_ASKED;
        x->oom = OOM_ASKED;
        memcpy(box_id, t->box_id, sizeof box_id);
    }
    exec_ref(x);
    t->ops->fate(t->backend, box_id, 0, fate_came, x);
    LOCK_SCOPE(&t->lock);
    return x->oom != OOM_ASKED;
}

static void finish_fill(const exec *x, enum exec_how how, int errnum, const uint64_t length[2],
                        journal_rec *ret_rec)
{
    *ret_rec = (journal_rec){.type = JOURNAL_END, .exec = x->id};
    struct journal_end *e = &ret_rec->end;

    if (x->exited) {
        e->rec = x->rec;
        if (x->rec.state == SP_FAILED)
            errnum = x->rec.status;
    } else {
        e->rec.id = x->id;
        e->rec.uid = e->rec.gid = UINT32_MAX;
        e->rec.pid = x->pid;
        e->rec.start_real = x->answered ? x->rec.start_real : 0;
        e->rec.end_real = now_real_ns();
        if (how == EXEC_KILLED) { /* its box was killed, so init reported no end */
            e->rec.state = SP_EXITED;
            e->rec.status = SIGKILL;
        }
    }
    e->how = (uint32_t)how;
    e->errnum = errnum;
    e->length[0] = length[0];
    e->length[1] = length[1];
    e->flags = x->oom == OOM_YES ? JOURNAL_E_OOM : 0;
    e->ooms = x->ooms;
}

bool exec_finish(exec *x, enum exec_how how, int errnum, const uint64_t length[2])
{
    exec_table *t = x->table;
    journal_rec r;
    uint32_t index;

    {
        LOCK_SCOPE(&t->lock);
        struct past *p = table_past(t, x->id);
        if (x->ended || !p || p->end)
            return true;
        finish_fill(x, how, errnum, length, &r);
        err *e = journal_append(&t->journal, &r, &index);
        if (e) {
            err_drop(e, "end record");
            return false;
        }
        FAULT_KILL("exec.ended");
        p->end = index + 1;
        if (!p->transient && (length[0] || length[1]))
            sync_note(t, x->id);
        exec_end_of(&r, &x->end);
        x->ended = x->stdin_over = true;
        reader_ended(t, x->id);
        count_ended(x);
        t->busy_ns = now_mono_ns();
        table_never_forked(t, x->id, x->key, &r.end);
    }
    pump_timer_cancel(t->hub->pump, &x->deadline);
    exec_notify(x);
    return true;
}
