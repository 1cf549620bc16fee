/* Reset: a fresh slot under the same id.
 *
 * The new box has an id of its own, so that both can exist at a time. Nothing of the old one is
 * touched before the record names the new one:
 *
 *   request's thread   claims a slot for a new box id
 *   backend's thread   the box has come: puts the job on the list
 *   resetter           journal: later execs belong to the new box  →  store: the record names it
 *                      →  binds the exec table to it, ends what ran  →  destroys the old box
 *
 * A kill before the store's commit leaves the old box, and the new one is an orphan; behind the
 * commit the old box is the orphan. Orphans are destroyed at the next start. A reset that fails
 * leaves everything as it was. The resetter takes all waiting jobs at a time, so that they share a
 * commit. */
#include <string.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

typedef struct reset_job {
    struct reset_job *next;
    sandbox *sb; /* referenced; sandbox_move_begin() was called */
    char *by;
    bool wake; /* wakes a hibernated sandbox */
    box_tie *tie;
    char box_id[SANDBOX_ID_LEN + 1];
    exec_key key;
    sandbox_spec spec; /* until the box is made, because it holds env and secrets */
    box *made;
    bool has_timing;
    bool secrets; /* it gets secrets, or the files that it begins with may hold some */
    box_timing timing;
    receipt receipt;
    char *text, *walls; /* for the record */
    sandbox_reset row;
    store_pending *commit;
    err *failure;
    uint64_t first; /* first exec id of the new box */
    created_fn *done;
    void *arg;
} reset_job;

/* Notes the box that a reset is making, so that the sweeper does not destroy it; "": none. */
static void reset_note_box(sandbox *sb, const char *box_id)
{
    LOCK_SCOPE(&sb->lock);
    str_copy(sb->next_box_id, sizeof sb->next_box_id, box_id);
}

static void job_free(reset_job *j)
{
    sandbox_spec_done(&j->spec);
    free(j->by);
    free(j->text);
    free(j->walls);
    free(j);
}

/* Ends a reset: ends the change of the sandbox and calls done. Takes ownership of failure and j. */
static void reset_tell(reset_job *j, err *failure)
{
    sandbox *sb = TAKE_PTR(j->sb);

    LOG_ABOUT(sb->id, NULL, 0);
    metric_add(&ENGINE_METRICS[M_RESETS], 0, 1);
    if (failure)
        metric_add(&ENGINE_METRICS[M_RESETS_FAILED], 0, 1);
    else
        log_info("reset", "sandbox %s: by %s", sb->id, j->by);
    reset_note_box(sb, "");
    sandbox_move_end(sb);
    j->done(j->arg, failure, failure ? NULL : sandbox_ref(sb), false);
    sandbox_unref(sb);
    job_free(j);
}

/* Returns true if the sandbox is hibernated. Lock held. */
static bool is_asleep(const sandbox *sb)
{
    return sb->state == LIFE_HIBERNATED && !sb->cause;
}

/* Checks that the sandbox can be reset, or woken. Lock held. */
static err *check_there(sandbox *sb, bool wake)
{
    bool asleep = wake && is_asleep(sb);

    if (!asleep)
        TRY(sandbox_usable_locked(sb));
    if (sb->ending || sb->deleting || (!sb->tie && !asleep))
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s is being ended", sb->id), "sandbox");
    return NULL;
}

/* ---- the resetter ---- */

/* Prepares the texts of the new record. */
static err *reset_plan(reset_job *j)
{
    sandbox *sb = j->sb;
    LOCK_SCOPE(&sb->lock);
    box_name now;
    receipt before = sb->receipt;
    bool secrets = sb->secrets;

    TRY(check_there(sb, j->wake));
    j->secrets |= sb->snapshot && secrets;
    sb->secrets = j->secrets;
    memcpy(now.id, sb->box_id, sizeof now.id);
    memcpy(sb->box_id, j->box_id, sizeof sb->box_id);
    j->text = sandbox_spec_text(sb);
    memcpy(sb->box_id, now.id, sizeof sb->box_id);
    sb->secrets = secrets;
    sb->receipt = (receipt){0};
    if (j->has_timing)
        receipt_take(sb, &j->timing.walls, j->timing.klass);
    j->receipt = sb->receipt;
    sb->receipt = before;
    j->walls = receipt_text(&j->receipt);
    return NULL;
}

static err *reset_note(reset_job *j)
{
    TRY(j->failure); /* of the claim */
    FAULT_KILL("reset.claimed");
    TRY(reset_plan(j));
    return exec_table_reset_begin(j->sb->table, j->box_id, &j->key, &j->first);
}

static void begin_commit(reset_job *j)
{
    j->failure = reset_note(j);
    j->row = (sandbox_reset){j->sb->id, j->text, j->walls};
    if (!j->failure)
        j->commit = store_sandbox_reset_begin(j->sb->engine->o.store, &j->row);
}

/* Swaps the boxes. event_lock held, so no event is being delivered. Fails if the sandbox has ended
 * meanwhile. */
static err *reset_swap(reset_job *j, box **ret_box, box_name *ret_name)
{
    sandbox *sb = j->sb;
    LOCK_SCOPE(&sb->lock);

    TRY(check_there(sb, j->wake));
    if (is_asleep(sb) && !sandbox_enter(sb, LIFE_RUNNING))
        return err_new(ERR_CONFLICT, "sandbox %s cannot wake now", sb->id);
    if (sb->tie)
        sb->tie->loose = true; /* its end is expected */
    *ret_box = sb->box;
    memcpy(ret_name->id, sb->box_id, sizeof ret_name->id);
    memcpy(sb->box_id, j->box_id, sizeof sb->box_id);
    sb->tie = j->tie;
    sb->box = j->made;
    sb->receipt = j->receipt;
    sb->secrets = j->secrets;
    sb->has_timing = j->has_timing;
    sb->timing = j->timing;
    sb->start_again_ns = 0;
    sb->start_tries = 0;
    sb->start_told = 0;
    sandbox_set_idle(sb, sb->idle_ms); /* the new box has used nothing yet */
    return NULL;
}

static void end_sessions(reset_job *j)
{
    session_table *sessions;

    {
        LOCK_SCOPE(&j->sb->lock);
        sessions = j->sb->sessions;
    }
    if (sessions)
        session_table_reset(sessions, j->first);
}

/* Moves the sandbox to the new box. From now on all requests go there. */
static err *go_over(reset_job *j)
{
    sandbox *sb = j->sb;
    engine *e = sb->engine;
    CLEANUP(freep) char *gone = NULL;
    box *left = NULL;
    box_name name;

    end_sessions(j); /* before their shells end, which sessions would restart */
    {
        LOCK_SCOPE(&sb->event_lock);
        TRY(reset_swap(j, &left, &name));
        exec_table_reset_end(sb->table, j->made);
        gone = tie_bind(j->tie);
    }
    end_sessions(j); /* those that were loaded from the journal meanwhile */
    FAULT_KILL("reset.swapped");
    engine_destroy_soon(e, name.id, "reset");
    if (left)
        e->o.backend->ops->box_unref(left);
    tie_over(j->tie, gone);
    sandbox_start(sb, true); /* before the caller can ask for it */
    sleep_changed(e);
    FAULT_KILL("reset.started");
    return NULL;
}

/* Drops the new box of a failed reset. */
static void give_up(reset_job *j)
{
    engine *e = j->sb->engine;

    if (!j->made) {
        tie_free(j->tie); /* no events will come */
        return;
    }
    engine_destroy_soon(e, j->box_id, "reset");
    tie_loosen(j->tie);
    e->o.backend->ops->box_unref(j->made);
}

/* Replaces NOT_FOUND of the store by the sandbox's own error if it has ended. */
static err *or_gone(sandbox *sb, err *failure)
{
    if (!failure || failure->code != ERR_NOT_FOUND)
        return failure;
    err *gone = sandbox_usable(sb);
    if (!gone)
        return failure;
    err_free(failure);
    return gone;
}

static void reset_finish(reset_job *j)
{
    err *failure = TAKE_PTR(j->failure);
    bool noted = j->commit;

    if (noted)
        failure = or_gone(j->sb, store_pending_end(j->sb->engine->o.store, TAKE_PTR(j->commit)));
    if (!failure) {
        FAULT_KILL("reset.committed");
        failure = go_over(j);
    }
    if (failure && noted)
        exec_table_reset_undo(j->sb->table);
    if (failure)
        give_up(j);
    reset_tell(j, failure);
}

static reset_job *take_all(engine *e)
{
    LOCK_SCOPE(&e->lock);

    while (!e->resets && !e->stopping)
        pthread_cond_wait(&e->reset_wake, &e->lock);
    return TAKE_PTR(e->resets);
}

void *engine_resetter(void *arg)
{
    for (reset_job *all; (all = take_all(arg));) {
        for (reset_job *j = all; j; j = j->next)
            begin_commit(j);
        for (reset_job *next; all; all = next) {
            next = all->next;
            reset_finish(all);
        }
    }
    return NULL;
}

static void on_box(void *arg, err *failure, box *made, const box_timing *timing)
{
    box_tie *tie = arg;
    reset_job *j = tie->reset;
    engine *e = j->sb->engine;

    sandbox_spec_done(&j->spec);
    j->failure = failure;
    j->made = failure ? NULL : made;
    j->has_timing = made && timing;
    if (j->has_timing)
        j->timing = *timing;
    LOCK_SCOPE(&e->lock);
    j->next = e->resets;
    e->resets = j;
    pthread_cond_signal(&e->reset_wake);
}

/* ---- requests ---- */

/* Fills a spec from the sandbox, with the caller's env and secrets. */
static void spec_of(sandbox *sb, sandbox_spec *with, sandbox_spec *ret)
{
    sandbox_to_spec(sb, ret);
    ret->env = TAKE_PTR(with->env);
    ret->secrets = TAKE_PTR(with->secrets);
    ret->queue_ms = with->queue_ms ? with->queue_ms : sb->engine->o.queue_ms;
}

/* Adds the variables of the sandbox's template as it is now; those of the create were not kept. */
static err *template_env(engine *e, const sandbox *sb, sandbox_spec *spec)
{
    CLEANUP(template_view_done) template_view t = {0};
    const caller owner = {.owner = sb->owner, .role = CALLER_USER};

    if (!sb->template)
        return NULL;
    err *failure = engine_template_find(e, &owner, sb->template, &t);
    if (failure)
        return err_remedy(
            err_wrap(failure, "its variables are needed again"),
            "Make the template again, or make a new sandbox instead of resetting this one.");
    const sandbox_spec env = {.env = t.spec.env};
    sandbox_spec_fill(spec, &env);
    return NULL;
}

static err *find_image(engine *e, sandbox *sb)
{
    char hex[2 * sizeof sb->digest + 1];
    image *found = NULL;

    {
        LOCK_SCOPE(&sb->lock);
        if (sb->image)
            return NULL;
    }
    hex_encode(sb->digest, sizeof sb->digest, hex);
    CLEANUP(freep) char *by_digest = str_printf("sha256:%s", hex);
    if (e->o.backend->caps.images == CAP_ABSENT)
        found = image_by_name_only(sb->image_name);
    else if (sb->snapshot)
        TRY(image_derived(e->o.images, sb->snapshot, &found));
    else
        TRY(err_remedy(image_find(e->o.images, by_digest, &found),
                       "The image was removed from this node: pull it again."));
    LOCK_SCOPE(&sb->lock);
    sb->image = found; /* no other change is under way */
    return NULL;
}

static err *check_can(engine *e, const caller *c)
{
    backend *b = e->o.backend;

    TRY(caller_require(c, CALLER_USER));
    if (!b->ops->names || b->ops->names(b))
        return NULL;
    return err_remedy(err_new(ERR_UNSUPPORTED, "this node's bothy-warden is older than its bothyd"),
                      "Let an administrator start the node's new bothy-warden; sandboxes live on.");
}

static err *check_state(sandbox *sb, bool wake)
{
    LOCK_SCOPE(&sb->lock);
    return check_there(sb, wake);
}

/* Checks a reset and completes its spec. sandbox_move_begin() was called. *ret_was: this reset was
 * done already. */
static err *reset_prepare(reset_job *j, bool *ret_was)
{
    sandbox *sb = j->sb;
    engine *e = sb->engine;

    if (j->wake)
        *ret_was = sandbox_state(sb) == LIFE_RUNNING;
    else
        TRY(exec_table_reset_was(sb->table, &j->key, ret_was));
    if (*ret_was)
        return NULL;
    TRY(sandbox_not_copied(sb));
    TRY(check_state(sb, j->wake));
    TRY(template_env(e, sb, &j->spec));
    TRY(sandbox_spec_check(&j->spec));
    return find_image(e, sb);
}

static void reset_start(reset_job *j)
{
    sandbox *sb = j->sb;
    bool was = false;
    err *failure = reset_prepare(j, &was);

    if (failure) {
        reset_tell(j, failure);
        return;
    }
    if (was) {
        sandbox_move_end(sb);
        j->done(j->arg, NULL, sb, true); /* passes on this reference */
        job_free(j);
        return;
    }
    id_sandbox(sb->engine->o.cell, j->box_id);
    reset_note_box(sb, j->box_id);
    j->tie = tie_new(sb);
    j->tie->reset = j;
    box_ask(sb, &j->spec, j->box_id, j->tie, on_box);
}

/* Begins a reset, or with idem NULL a wake. */
static void reset_begin(engine *e, const caller *c, sandbox *sb, sandbox_spec *with,
                        const idempotency *idem, created_fn *done, void *arg)
{
    bool wake = !idem;
    err *failure = check_can(e, c);
    exec_table *table = NULL;

    if (!failure && !wake)
        failure = sandbox_usable(sb);
    if (!failure)
        failure = sandbox_table(sb, &table);
    if (!failure)
        failure = sandbox_move_begin(sb);
    if (failure) {
        done(arg, failure, NULL, false);
        return;
    }
    reset_job *j = xcalloc(1, sizeof *j);
    *j = (reset_job){
        .sb = sandbox_ref(sb), .by = xstrdup(c->owner), .wake = wake, .done = done, .arg = arg};
    spec_of(sb, with, &j->spec);
    j->secrets = j->spec.secrets && *j->spec.secrets;
    if (idem && idem->key)
        idempotency_hash(c->owner, "reset", sb->id, idem, j->key.key, j->key.body);
    reset_start(j);
}

void engine_reset(engine *e, const caller *c, sandbox *sb, sandbox_spec *with,
                  const idempotency *idem, created_fn *done, void *arg)
{
    reset_begin(e, c, sb, with, idem, done, arg);
}

void engine_wake(engine *e, const caller *c, sandbox *sb, sandbox_spec *with, created_fn *done,
                 void *arg)
{
    reset_begin(e, c, sb, with, NULL, done, arg);
}
