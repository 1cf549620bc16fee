/* Sandboxes whose pid 1 ended by itself. The node is asked how it ended, and the end is not visible
 * before its cause is known.
 *
 *   backend's thread   gone: sends the question
 *   backend's thread   the answer comes: puts it on the list
 *   keeper             records the cause, destroys the slot, ends commands, notifies callers; a
 *                      sandbox whose box was taken away and whose disk is kept is hibernated
 *                      instead (hibernate.c) */
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define WAIT_MS 500

typedef struct ending {
    struct ending *next;
    sandbox *sb; /* the box's reference to it */
    char *why;
    end_facts facts;
} ending;

static void take_facts(end_facts *f, err *failure, const box_fate *fate)
{
    f->missing = failure && failure->code == ERR_NOT_FOUND;
    if (failure) {
        err_drop(failure, "fate");
        return;
    }
    f->told = true;
    f->has_status = fate->has_status;
    f->status = fate->status;
    f->ooms = fate->oom_kills;
    f->limit = fate->memory_limit;
    f->peak = fate->memory_peak;
    f->lost = fate->lost;
    str_copy(f->by, sizeof f->by, fate->by);
}

static void on_fate(void *arg, err *failure, const box_fate *fate)
{
    ending *x = arg;
    engine *e = x->sb->engine;

    take_facts(&x->facts, failure, fate);
    LOCK_SCOPE(&e->lock);
    x->next = e->endings;
    e->endings = x;
    pthread_cond_signal(&e->wake);
}

static void ending_free(ending *x)
{
    sandbox_unref(x->sb);
    free(x->why);
    free(x);
}

/* Returns true if the box was ended from outside, not by a process in it. If its disk is kept, the
 * sandbox may continue. */
static bool was_taken(const end_facts *f)
{
    return f->told && !f->distrusted && (f->lost || *f->by);
}

static void ending_finish(ending *x)
{
    sandbox *sb = x->sb;
    char detail[CAUSE_DETAIL_MAX];

    LOG_ABOUT(sb->id, NULL, 0);
    if (was_taken(&x->facts) && sleep_instead(sb)) {
        log_warn("gone", "sandbox %s sleeps: its box is gone: %s", sb->id, x->why);
        ending_free(x);
        return;
    }
    x->facts.ooms_ago = exec_table_ooms(sb->table);
    cause why = cause_of_end(&x->facts, detail);
    log_warn("gone", "sandbox %s: pid 1 has ended: %s", sb->id, x->why);
    engine_end(sb, &why);
    EXEC_BOX_EVENTS.gone(sb->table, x->why);
    create_tell(sb, err_new(ERR_CREATE_FAILED, "sandbox %s ended while it was created", sb->id));
    ending_free(x);
}

void ending_begin(sandbox *sb, const char *why)
{
    backend *b = sb->engine->o.backend;
    ending *x = xcalloc(1, sizeof *x);

    *x = (ending){.sb = sb, .why = xstrdup(why)};
    x->facts.why = x->why;
    {
        LOCK_SCOPE(&sb->lock);
        x->facts.distrusted = sb->distrusted;
    }
    if (b->ops->fate)
        b->ops->fate(b, sandbox_box(sb).id, WAIT_MS, on_fate, x);
    else
        ending_finish(x);
}

void ending_finish_all(engine *e)
{
    ending *all;

    {
        LOCK_SCOPE(&e->lock);
        all = TAKE_PTR(e->endings);
    }
    for (ending *next; all; all = next) {
        next = all->next;
        ending_finish(all);
    }
}

/* Drops ends that are not finished: the next start finds their boxes dead. */
void ending_drop_all(engine *e)
{
    ending *all = TAKE_PTR(e->endings);

    for (ending *next; all; all = next) {
        next = all->next;
        ending_free(all);
    }
}

/* ---- at start ---- */

typedef struct answer {
    pthread_mutex_t lock;
    pthread_cond_t came;
    bool done;
    end_facts facts;
} answer;

static void on_answer(void *arg, err *failure, const box_fate *fate)
{
    answer *a = arg;
    LOCK_SCOPE(&a->lock);

    take_facts(&a->facts, failure, fate);
    a->done = true;
    pthread_cond_signal(&a->came);
}

/* Leaves out kills for memory that commands have in their end records: the journal is not read
 * here. */
cause ending_cause(engine *e, const char *id, char buffer[CAUSE_DETAIL_MAX])
{
    answer a = {.facts = {.why = "pid 1 had ended when bothyd was started"}};

    if (!e->o.backend->ops->fate)
        return cause_of_end(&a.facts, buffer);
    pthread_mutex_init(&a.lock, NULL);
    cond_init(&a.came);
    e->o.backend->ops->fate(e->o.backend, id, WAIT_MS, on_answer, &a);
    pthread_mutex_lock(&a.lock);
    while (!a.done)
        pthread_cond_wait(&a.came, &a.lock);
    pthread_mutex_unlock(&a.lock);
    pthread_cond_destroy(&a.came);
    pthread_mutex_destroy(&a.lock);
    return cause_of_end(&a.facts, buffer);
}
