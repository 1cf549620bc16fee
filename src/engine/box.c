/* Events of a box on their way to the sandbox's exec table.
 *
 * The box holds a reference to its sandbox from create or attach until `gone`, its last event.
 *
 * A box may speak before create or attach has returned it to us, or while its record is still on
 * the way to the disk. Only `attached` and `gone` can be that early (nothing else happens before an
 * exec or a fetch), so these are kept and delivered by sandbox_bind. */
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

void sandbox_give_up(sandbox *sb)
{
    store_sandbox_free_key_queued(sb->engine->o.store, sb->id);
    engine_end(sb->engine, sb, &(cause){.kind = CAUSE_CREATE_FAILED, .stage = "interrupted"});
    create_tell(sb, err_new(ERR_CREATE_FAILED, "the create of sandbox %s was interrupted", sb->id));
}

/* A create that a crash of ours interrupted: init's claimed bit decides what became of it. */
static void settle_creating(sandbox *sb, const struct sp_hello *hello)
{
    engine *e = sb->engine;

    if (hello->flags & SP_HELLO_CLAIMED) {
        box_walls walls = box_walls_of(hello); /* what the warden tried itself is not in it */
        pthread_mutex_lock(&sb->lock);
        if (sb->state == LIFE_CREATING && !sb->deleting && sandbox_enter(sb, LIFE_RUNNING)) {
            receipt_take(sb, &walls);
            CLEANUP(freep) char *text = receipt_text(&sb->receipt);
            store_sandbox_running_queued(e->o.store, sb->id, lifecycle_name(sb->state), text);
        }
        pthread_mutex_unlock(&sb->lock);
        create_tell(sb, NULL);
        return;
    }
    sandbox_give_up(sb);
}

static void deliver_attached(sandbox *sb, const struct sp_hello *hello, const struct sp_rec *recs)
{
    bool interrupted;

    {
        LOCK_SCOPE(&sb->lock);
        interrupted = sb->recovering;
        sb->recovering = false;
    }
    EXEC_BOX_EVENTS.attached(sb->table, hello, recs);
    if (interrupted)
        settle_creating(sb, hello);
    sandbox_start(sb, false); /* if a kill of ours came before it */
}

static void on_attached(void *arg, const struct sp_hello *hello, const struct sp_rec *recs)
{
    sandbox *sb = arg;

    {
        LOCK_SCOPE(&sb->lock);
        if (!sb->bound) {
            size_t n = sizeof *hello + hello->nrec * sizeof *recs;
            free(sb->hello);
            sb->hello = xmalloc(n);
            memcpy(sb->hello, hello, sizeof *hello);
            if (hello->nrec)
                memcpy(sb->hello + 1, recs, hello->nrec * sizeof *recs);
            return;
        }
    }
    deliver_attached(sb, hello, recs);
}

static void on_started(void *arg, uint64_t exec_id, int errnum, const struct sp_started *st,
                       int fd[SP_FDS_MAX])
{
    sandbox *sb = arg;

    EXEC_BOX_EVENTS.started(sb->table, exec_id, errnum, st, fd);
}

static void on_frame(void *arg, uint64_t exec_id, int stream, uint64_t offset, const void *p,
                     size_t n)
{
    sandbox *sb = arg;

    EXEC_BOX_EVENTS.frame(sb->table, exec_id, stream, offset, p, n);
}

static void on_exited(void *arg, const struct sp_rec *rec)
{
    sandbox *sb = arg;

    EXEC_BOX_EVENTS.exited(sb->table, rec);
}

static void on_stdin_taken(void *arg, uint64_t exec_id, uint64_t offset)
{
    sandbox *sb = arg;

    EXEC_BOX_EVENTS.stdin_taken(sb->table, exec_id, offset);
}

static void on_signalled(void *arg, uint64_t exec_id, uint64_t cookie, int errnum)
{
    sandbox *sb = arg;

    EXEC_BOX_EVENTS.signalled(sb->table, exec_id, cookie, errnum);
}

static void on_distrusted(void *arg)
{
    sandbox *sb = arg;
    LOCK_SCOPE(&sb->lock);

    sb->distrusted = true;
}

/* An interrupted create waits for the bothyd that made it, however long that takes. */
static void on_newer(void *arg)
{
    sandbox *sb = arg;
    LOCK_SCOPE(&sb->lock);

    sb->recover_by_ns = UINT64_MAX;
}

static void on_gone(void *arg, const char *why)
{
    sandbox *sb = arg;

    {
        LOCK_SCOPE(&sb->lock);
        if (!sb->bound) {
            free(sb->gone_early);
            sb->gone_early = xstrdup(why);
            return;
        }
    }
    pthread_mutex_lock(&sb->lock);
    bool surprise = !sb->deleting && sb->state != LIFE_GONE;
    pthread_mutex_unlock(&sb->lock);
    if (surprise) {
        ending_begin(sb, why); /* the box's reference goes with it */
        return;
    }
    EXEC_BOX_EVENTS.gone(sb->table, why);
    sandbox_unref(sb); /* the box's */
}

const box_events ENGINE_BOX_EVENTS = {
    .attached = on_attached,
    .started = on_started,
    .frame = on_frame,
    .exited = on_exited,
    .stdin_taken = on_stdin_taken,
    .signalled = on_signalled,
    .distrusted = on_distrusted,
    .newer = on_newer,
    .gone = on_gone,
};

void sandbox_bind(sandbox *sb, box *x)
{
    struct sp_hello *early;
    CLEANUP(freep) char *gone = NULL;

    exec_table_bind(sb->table, sb->engine->o.backend, x, NULL, NULL);
    {
        LOCK_SCOPE(&sb->lock);
        sb->box = x;
        sb->bound = true;
        early = TAKE_PTR(sb->hello);
        gone = TAKE_PTR(sb->gone_early);
    }
    if (early)
        deliver_attached(sb, early, (const struct sp_rec *)(early + 1));
    free(early);
    if (gone)
        on_gone(sb, gone);
}
