/* The end record: how it was, appended once. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/thread.h"
#include "exec/count.h"
#include "exec/internal.h"

/* A time limit that has passed by the kernel's own account counts also when the process that sent
 * the signals was killed before it could say so. */
static bool ran_out(const exec *x, const struct sp_rec *rec)
{
    uint64_t still = pause_spans_between(&x->table->pauses, x->begin_ns, rec->end_real);

    return x->timed_out ||
           (x->timeout_ms && rec->end_real >= x->begin_ns + x->timeout_ms * NS_PER_MS + still);
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

/* Died of a SIGKILL that nobody asked for while the box counted an out-of-memory kill. After a
 * restart the first such death finds the whole count. Not under the lock: it may take a moment. */
static bool was_oom(exec *x, enum exec_how how)
{
    exec_table *t = x->table;
    box_usage u;

    if (how != EXEC_SIGNALLED || WTERMSIG(x->rec.status) != SIGKILL ||
        t->backend->caps.stats == CAP_ABSENT)
        return false;
    err *e = t->ops->usage(t->backend, t->sandbox, &u);
    if (e) {
        err_drop(e, "usage");
        return false;
    }
    LOCK_SCOPE(&t->lock);
    bool more = (int64_t)u.oom_kills > (t->ooms < 0 ? 0 : t->ooms);
    t->ooms = (int64_t)u.oom_kills;
    return more;
}

static void fill(const exec *x, enum exec_how how, int errnum, const uint64_t length[2], bool oom,
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
    }
    e->how = (uint32_t)how;
    e->errnum = errnum;
    e->length[0] = length[0];
    e->length[1] = length[1];
    e->flags = oom ? JOURNAL_E_OOM : 0;
}

bool exec_finish(exec *x, enum exec_how how, int errnum, const uint64_t length[2])
{
    exec_table *t = x->table;
    bool oom = was_oom(x, how);
    journal_rec r;
    uint32_t index;

    {
        LOCK_SCOPE(&t->lock);
        struct past *p = table_past(t, x->id);
        if (x->ended || !p || p->end)
            return true;
        fill(x, how, errnum, length, oom, &r);
        err *e = journal_append(&t->journal, &r, &index);
        if (e) {
            err_drop(e, "end record");
            return false;
        }
        FAULT_KILL("exec.ended");
        p->end = index + 1;
        exec_end_of(&r, &x->end);
        x->ended = x->stdin_over = true;
        count_ended(x);
        if (how == EXEC_NOT_STARTED && r.end.rec.state != SP_FAILED)
            table_key_free(t, x->key, x->id);
    }
    pump_timer_cancel(t->hub->pump, &x->deadline);
    exec_notify(x);
    return true;
}
