/* Closes descriptors of sandboxes on a lane of the pump: the last close of a pipe waits for its
 * mutex, which a command can hold. */
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

static exec_table *close_table(pump_job *j)
{
    return (exec_table *)((char *)j - offsetof(exec_table, close_job));
}

static void close_all(int *fd, size_t n)
{
    while (n)
        close(fd[--n]);
    free(fd);
}

static void close_run(pump_job *j)
{
    exec_table *t = close_table(j);
    int *fd;
    size_t n;

    {
        LOCK_SCOPE(&t->lock);
        fd = TAKE_PTR(t->closing);
        n = t->nclosing;
        t->nclosing = 0;
    }
    close_all(fd, n);
}

static void close_ref(pump_job *j)
{
    exec_table_ref(close_table(j));
}

static void close_unref(pump_job *j)
{
    exec_table_unref(close_table(j));
}

void close_init(exec_table *t)
{
    t->party.name = t->sandbox;
    t->close_job =
        (pump_job){.run = close_run, .ref = close_ref, .unref = close_unref, .party = &t->party};
    pump_job_init(t->hub->pump, &t->close_job, hash_bytes(&t, sizeof(void *)));
}

void close_done(exec_table *t)
{
    close_all(TAKE_PTR(t->closing), t->nclosing);
    pump_job_done(&t->close_job);
    pump_party_done(&t->party);
}

void close_soon(exec_table *t, int *fd, size_t n)
{
    size_t open = 0;

    for (size_t i = 0; i < n; i++)
        open += fd[i] >= 0;
    if (!open)
        return;
    LOCK_SCOPE(&t->lock);
    t->closing = xrealloc(t->closing, (t->nclosing + open) * sizeof *t->closing);
    for (size_t i = 0; i < n; i++)
        if (fd[i] >= 0)
            t->closing[t->nclosing++] = TAKE_FD(fd[i]);
    pump_kick(&t->close_job);
}
