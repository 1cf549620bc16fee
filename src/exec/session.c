/* Functions for the session layer: its records in the journal, frames in stdin, signals to parts of
 * a shell's tree, and a ceiling that moves from command to command. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

uint64_t exec_id(const exec *x)
{
    return x->id;
}

void exec_mark_shell(exec *x)
{
    LOCK_SCOPE(&x->table->lock);
    x->shell = true;
}

void exec_table_touch(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    t->busy_ns = now_mono_ns();
}

pump *exec_table_pump(exec_table *t)
{
    return t->hub->pump;
}

void exec_pump_beside(exec *x, pump_job *j)
{
    pump_beside(j, &x->job);
}

const char *exec_table_sandbox(const exec_table *t)
{
    return t->sandbox;
}

bool exec_table_is_over(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return t->gone || t->ended;
}

bool exec_is_known(exec_table *t, const exec_key *key)
{
    LOCK_SCOPE(&t->lock);
    return exec_key_is_set(key->key) && table_key(t, key->key);
}

/* ---- records ---- */

void table_log(exec_table *t, uint32_t index)
{
    if (t->nlogs == t->logs_cap) {
        t->logs_cap = t->logs_cap ? 2 * t->logs_cap : 16;
        t->logs = xrealloc(t->logs, t->logs_cap * sizeof *t->logs);
    }
    t->logs[t->nlogs++] = index;
}

err *table_admit_log(const exec_table *t)
{
    if (t->nlogs < LOGS_MAX)
        return NULL;
    return err_remedy(err_new(ERR_SANDBOX_EXHAUSTED,
                              "the sessions of the sandbox have %zu records, the limit is %u",
                              t->nlogs, LOGS_MAX),
                      "Make a new sandbox, or run commands without a session.");
}

err *exec_log(exec_table *t, journal_rec *r, uint32_t *ret_index)
{
    uint32_t index;

    LOCK_SCOPE(&t->lock);
    if (r->type == JOURNAL_COMMAND)
        TRY(table_admit_log(t));
    TRY(journal_append(&t->journal, r, &index));
    table_log(t, index);
    if (ret_index)
        *ret_index = index;
    return NULL;
}

err *exec_log_end(exec *x, journal_rec *r, uint32_t *ret_index)
{
    {
        LOCK_SCOPE(&x->table->lock);
        sync_note(x->table, x->id);
    }
    return exec_log(x->table, r, ret_index);
}

err *exec_log_read(exec_table *t, uint32_t index, journal_rec *ret_rec)
{
    LOCK_SCOPE(&t->lock);
    return journal_read(&t->journal, index, ret_rec);
}

err *exec_log_each(exec_table *t, void (*each)(void *arg, uint32_t index, const journal_rec *r),
                   void *arg)
{
    for (size_t i = 0;; i++) {
        journal_rec r;
        uint32_t index;
        {
            LOCK_SCOPE(&t->lock);
            if (i >= t->nlogs)
                return NULL;
            index = t->logs[i];
            TRY(journal_read(&t->journal, index, &r));
        }
        each(arg, index, &r);
    }
}

err *exec_feed_read(exec *x, size_t n, buf *out)
{
    char path[SPOOL_PATH_MAX];

    input_path(x, path);
    CLEANUP(closep)
    int fd = openat(x->table->hub->o.spool_dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    buf_reserve(out, n);
    ssize_t got = fd < 0 ? -1 : pread(fd, out->p, n, 0);
    if (got < 0 || (size_t)got != n)
        return err_new(ERR_NOT_FOUND, "the frame of exec %lu is gone", x->id);
    out->len = n;
    return NULL;
}

/* ---- signals ---- */

err *exec_signal_part(exec *x, int signo, uint32_t scope, uint32_t pid, uint64_t since_ns)
{
    exec_table *t = x->table;
    signal_spec s = {
        .exec = x->id, .signo = (uint32_t)signo, .scope = scope, .pid = pid, .since = since_ns};

    LOCK_SCOPE(&t->lock);
    if (t->gone || t->ended || !x->live || x->reset || !t->box)
        return err_kind(err_new(ERR_CONFLICT, "exec %lu cannot be signalled", x->id), "exec");
    atomic_fetch_add(&x->signals, 1);
    err *e = t->ops->signal(t->box, &s);
    if (e)
        atomic_fetch_sub(&x->signals, 1);
    return e;
}

bool exec_signals_pending(exec *x)
{
    return atomic_load(&x->signals) > 0;
}

/* ---- streams ---- */

void exec_set_base(exec *x, const uint64_t base[2])
{
    for (int i = 0; i < 2; i++)
        spool_set_base(&x->out[i], base[i]);
}

uint64_t exec_dropped(exec *x, int stream, uint64_t from, uint64_t to)
{
    return spool_dropped(&x->out[stream - 1], from, to);
}

uint64_t exec_length(exec *x, int stream)
{
    return atomic_load(&x->out[stream - 1].length);
}
