/* Cancels creates: the sandbox was deleted, or its caller disconnected. A cancelled create leaves
 * the queue at once.
 *
 *   no claim yet     the create ends before it asks for a slot
 *   claim under way  DESTROY takes it out of the warden's FIFO, or dooms the slot; the create ends
 *                    with that answer
 *   running          too late: an ordinary delete */
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

bool create_cancelled(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sb->cancelled;
}

err *create_cancel_error(sandbox *sb)
{
    CLEANUP(freep)
    char *why = cause_json(
        &(cause){.kind = CAUSE_REQUESTED, .by = sb->deleted_by ? sb->deleted_by : sb->owner});

    return err_because(err_new(ERR_SANDBOX_GONE, "sandbox %s was %s while it was created", sb->id,
                               sb->deleted_by ? "deleted" : "given up"),
                       "%s", why);
}

bool create_begin_claim(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    sb->claiming = !sb->cancelled;
    return sb->claiming;
}

/* Records the end, so that it is durable before the caller is answered. The create's row is queued
 * before its claim is sent, so it comes first. */
static err *record_end(sandbox *sb)
{
    cause why = {.kind = CAUSE_REQUESTED, .by = sb->deleted_by};
    CLEANUP(freep) char *text = cause_json(&why);

    return store_sandbox_state(sb->engine->o.store, sb->id, lifecycle_name(LIFE_GONE), text,
                               clock_real(sb->engine->o.clock));
}

bool create_cancel(sandbox *sb, const char *by, err **ret_failure)
{
    engine *e = sb->engine;
    bool claiming, again;

    *ret_failure = NULL;
    {
        LOCK_SCOPE(&sb->lock);
        if (sb->state != LIFE_CREATING || sb->recovering)
            return false;
        again = sb->cancelled;
        sb->cancelled = sb->deleting = true;
        if (!again)
            sb->deleted_by = by ? xstrdup(by) : NULL;
        claiming = sb->claiming;
    }
    if (!claiming)
        return true;
    if (by && sb->deleted_by)
        *ret_failure = record_end(sb);
    if (again)
        return true;
    engine_destroy_soon(e, sb->id, "cancel");
    return true;
}

/* ---- callers that left ---- */

static const cause LEFT = {.kind = CAUSE_REQUESTED};

/* Decides the end of a create that had succeeded already: from now on the sandbox reads as gone.
 * Returns false if it is still being made, or has ended. */
static bool decide_left(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    if (sb->state == LIFE_CREATING || sb->state == LIFE_GONE || sb->deleting)
        return false;
    sb->deleting = true;
    sandbox_decide(sb, &LEFT);
    return true;
}

void engine_create_leave(engine *e, sandbox *sb)
{
    if (sb->has_key)
        return; /* a retry with the key gets it */
    left_create one = {.sb = sandbox_ref(sb), .decided = decide_left(sb)};
    LOCK_SCOPE(&e->lock);
    e->left = xrealloc(e->left, (e->nleft + 1) * sizeof one);
    e->left[e->nleft++] = one;
    pthread_cond_signal(&e->wake);
}

static void cancel_left(const left_create *l)
{
    err *failure = NULL;

    if (l->decided)
        engine_end_decided(l->sb, &LEFT);
    else if (!create_cancel(l->sb, NULL, &failure))
        engine_end(l->sb, &LEFT);
    err_drop(failure, "cancel");
}

void create_cancel_left(engine *e)
{
    left_create *left;
    size_t n;

    {
        LOCK_SCOPE(&e->lock);
        left = TAKE_PTR(e->left);
        n = e->nleft;
        e->nleft = 0;
    }
    for (size_t i = 0; i < n; i++) {
        cancel_left(&left[i]);
        sandbox_unref(left[i].sb);
    }
    free(left);
}
