/* Delivers events of a box to the sandbox's exec table.
 *
 * A box_tie is the argument of a box's events. It holds a reference to the sandbox from create or
 * attach until `gone`, the last event. After a reset the sandbox has another box; the tie of the
 * earlier box is then loose, and its events are dropped.
 *
 * A box may send events before create or attach has returned it, or before its record is on the
 * disk. Only `attached` and `gone` can come that early (everything else follows an exec or a
 * fetch), so these two are kept and delivered when the tie is bound. */
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

void sandbox_give_up(sandbox *sb)
{
    store_sandbox_free_key_queued(sb->engine->o.store, sb->id);
    engine_end(sb, &(cause){.kind = CAUSE_CREATE_FAILED, .stage = "interrupted"});
    create_tell(sb, err_new(ERR_CREATE_FAILED, "the create of sandbox %s was interrupted", sb->id));
}

/* Settles a create that a crash of bothyd interrupted: it has succeeded if init carries the claimed
 * bit, else it is given up. */
static void settle_creating(sandbox *sb, const struct sp_hello *hello)
{
    engine *e = sb->engine;

    if (hello->flags & SP_HELLO_CLAIMED) {
        box_walls walls = box_walls_of(hello); /* lacks the walls that the warden checked itself */
        pthread_mutex_lock(&sb->lock);
        sb->recovering = false; /* not earlier: a delete would treat it as a create under way */
        if (sb->state == LIFE_CREATING && !sb->deleting && sandbox_enter(sb, LIFE_RUNNING)) {
            receipt_take(sb, &walls, NULL);
            CLEANUP(freep) char *text = receipt_text(&sb->receipt);
            store_sandbox_running_queued(e->o.store, sb->id, lifecycle_name(sb->state), text);
        }
        pthread_mutex_unlock(&sb->lock);
        create_tell(sb, NULL);
        sleep_changed(e);
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
    }
    EXEC_BOX_EVENTS.attached(sb->table, hello, recs);
    if (interrupted)
        settle_creating(sb, hello);
    sandbox_start(sb, false); /* if bothyd was killed before it began the command */
}

box_tie *tie_new(sandbox *sb)
{
    box_tie *t = xcalloc(1, sizeof *t);

    t->sb = sandbox_ref(sb);
    return t;
}

/* Frees a tie and returns its reference to the sandbox. */
static sandbox *tie_take(box_tie *t)
{
    sandbox *sb = t->sb;

    {
        LOCK_SCOPE(&sb->lock);
        if (sb->tie == t)
            sb->tie = NULL;
    }
    free(t->hello);
    free(t->gone_early);
    free(t);
    return sb;
}

void tie_free(box_tie *t)
{
    sandbox_unref(tie_take(t));
}

void tie_loosen(box_tie *t)
{
    bool over;

    {
        LOCK_SCOPE(&t->sb->lock);
        t->loose = true;
        over = t->gone_early;
    }
    if (over)
        tie_free(t);
}

/* Keeps an `attached` that came before the tie was bound. Lock held. */
static void keep_hello(box_tie *t, const struct sp_hello *hello, const struct sp_rec *recs)
{
    size_t n = hello->nrec * sizeof *recs;

    free(t->hello);
    t->hello = xmalloc(sizeof *hello + n);
    memcpy(t->hello, hello, sizeof *hello);
    if (n)
        memcpy(t->hello + 1, recs, n);
}

enum when {
    EARLY,
    NOW,
    NEVER
};

static enum when when_of(const box_tie *t)
{
    LOCK_SCOPE(&t->sb->lock);
    return t->loose ? NEVER : t->bound ? NOW : EARLY;
}

static void on_attached(void *arg, const struct sp_hello *hello, const struct sp_rec *recs)
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->event_lock);

    switch (when_of(t)) {
    case EARLY: {
        LOCK_SCOPE(&t->sb->lock);
        keep_hello(t, hello, recs);
        break;
    }
    case NOW:
        deliver_attached(t->sb, hello, recs);
        break;
    case NEVER:
        break;
    }
}

static void on_started(void *arg, uint64_t exec_id, int errnum, const struct sp_started *st,
                       int fd[SP_FDS_MAX])
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->event_lock);

    if (when_of(t) == NOW) {
        EXEC_BOX_EVENTS.started(t->sb->table, exec_id, errnum, st, fd);
        return;
    }
    for (int i = 0; !errnum && i < SP_FDS_MAX; i++)
        closep(&fd[i]);
}

static void on_frame(void *arg, uint64_t exec_id, int stream, uint64_t offset, const void *p,
                     size_t n)
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->event_lock);

    if (when_of(t) == NOW)
        EXEC_BOX_EVENTS.frame(t->sb->table, exec_id, stream, offset, p, n);
}

static void on_exited(void *arg, const struct sp_rec *rec)
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->event_lock);

    if (when_of(t) == NOW)
        EXEC_BOX_EVENTS.exited(t->sb->table, rec);
}

static void on_stdin_taken(void *arg, uint64_t exec_id, uint64_t offset)
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->event_lock);

    if (when_of(t) == NOW)
        EXEC_BOX_EVENTS.stdin_taken(t->sb->table, exec_id, offset);
}

static void on_signalled(void *arg, uint64_t exec_id, uint64_t cookie, int errnum)
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->event_lock);

    if (when_of(t) == NOW)
        EXEC_BOX_EVENTS.signalled(t->sb->table, exec_id, cookie, errnum);
}

static void on_distrusted(void *arg)
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->lock);

    t->sb->distrusted |= !t->loose;
}

/* Lets an interrupted create wait, however long, for a bothyd that is as new as its init. */
static void on_newer(void *arg)
{
    box_tie *t = arg;
    LOCK_SCOPE(&t->sb->lock);

    if (!t->loose)
        t->sb->recover_by_ns = UINT64_MAX;
}

/* Keeps a `gone` that came before the tie was bound. Returns false if it is not early. */
static bool keep_gone(box_tie *t, const char *why)
{
    LOCK_SCOPE(&t->sb->lock);

    if (t->bound || t->loose)
        return false;
    free(t->gone_early);
    t->gone_early = xstrdup(why);
    return true;
}

static void on_gone(void *arg, const char *why)
{
    box_tie *t = arg;
    bool loose, surprise, interrupted;

    if (keep_gone(t, why))
        return;
    {
        LOCK_SCOPE(&t->sb->lock);
        loose = t->loose;
        /* A create that a crash of bothyd interrupted, and whose init never reported that it was
         * claimed, counts as dead at the start. A retry with its key makes another sandbox. */
        interrupted =
            !loose && t->sb->recovering && t->sb->state == LIFE_CREATING && !t->sb->deleting;
        surprise = !loose && !interrupted && !t->sb->deleting && t->sb->state != LIFE_GONE;
        t->sb->ending |= surprise; /* no reset replaces the box from now on */
    }
    if (loose) {
        tie_free(t);
        return;
    }
    sandbox *sb = tie_take(t);
    if (surprise) {
        ending_begin(sb, why); /* takes the box's reference */
        return;
    }
    if (interrupted)
        sandbox_give_up(sb);
    EXEC_BOX_EVENTS.gone(sb->table, why);
    sandbox_unref(sb); /* the box's reference */
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

char *tie_bind(box_tie *t)
{
    CLEANUP(freep) struct sp_hello *early = NULL;
    char *gone;

    {
        LOCK_SCOPE(&t->sb->lock);
        t->bound = true;
        early = TAKE_PTR(t->hello);
        gone = TAKE_PTR(t->gone_early);
    }
    if (early)
        deliver_attached(t->sb, early, (const struct sp_rec *)(early + 1));
    return gone;
}

void tie_over(box_tie *t, const char *why)
{
    if (why)
        on_gone(t, why);
}

void sandbox_bind(sandbox *sb, box_tie *t, box *x)
{
    CLEANUP(freep) char *gone = NULL;

    {
        LOCK_SCOPE(&sb->event_lock);
        exec_table_bind(sb->table, sb->engine->o.backend, x, NULL, NULL);
        {
            LOCK_SCOPE(&sb->lock);
            sb->box = x;
            sb->tie = t;
            sb->bound = true;
        }
        gone = tie_bind(t);
    }
    tie_over(t, gone);
}
