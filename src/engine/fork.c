/* Fork: a snapshot of a sandbox, and sandboxes created from it: all that were asked for, or none.
 *
 * The snapshot is temporary: its record is removed when the last child is made, its image when the
 * last child has ended. Each fork has a thread, because it waits for the disk and then for
 * slots. */
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define LOOK_NS (NS_PER_S / 2) /* how often it checks whether the caller has disconnected */

typedef struct fork_job {
    engine *e;
    sandbox *parent;
    caller who; /* a copy */
    sandbox_spec spec;
    unsigned count;
    fork_done *done;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t answered_all;
    sandbox **made;
    size_t nmade, nanswered;
    sandbox **asked; /* creates under way, for give_up() */
    size_t nasked;
    unsigned left;     /* children still to be requested */
    uint64_t again_ns; /* no create before: the key's rate or concurrency refused one */
    uint64_t by_ns;    /* until when such refusals are retried */
    bool (*is_left)(void *arg);
    char *heir_of; /* template that the children's own forks take variables from; or NULL */
    err *failure;  /* the first failure */
} fork_job;

static void job_free(fork_job *j)
{
    for (size_t i = 0; i < j->nmade; i++)
        sandbox_unref(j->made[i]);
    free(j->made);
    for (size_t i = 0; i < j->nasked; i++)
        sandbox_unref(j->asked[i]);
    free(j->asked);
    sandbox_spec_done(&j->spec);
    sandbox_unref(j->parent);
    free(j->who.owner);
    free(j->heir_of);
    pthread_cond_destroy(&j->answered_all);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

/* ---- what the children are ---- */

static char *copy_of(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

/* Fills a spec from the sandbox: all but name, image, env, secrets and TTL. */
static void spec_of(sandbox *sb, sandbox_spec *ret)
{
    sandbox_to_spec(sb, ret);
    free(ret->image);
    ret->image = NULL;
    LOCK_SCOPE(&sb->lock);
    ret->labels = strv_copy(sb->labels);
    ret->idle_ms = sb->idle_ms;
    ret->ttl_pauses = sb->ttl_pauses;
    ret->start = (start_spec){.argv = strv_of_json(json_object_get(sb->start, "argv")),
                              .user = copy_of(json_str(sb->start, "user")),
                              .cwd = copy_of(json_str(sb->start, "cwd"))};
}

/* Adds the variables of the parent's template. A sandbox does not keep its own; if the template is
 * gone, there are none. */
static void fill_env(fork_job *j)
{
    CLEANUP(template_view_done) template_view t = {0};
    const caller owner = {.owner = j->parent->owner, .role = CALLER_USER};

    if (!j->parent->template)
        return;
    CLEANUP(err_freep) err *gone = engine_template_find(j->e, &owner, j->parent->template, &t);
    if (gone)
        return;
    sandbox_spec_fill(&j->spec, &(sandbox_spec){.env = t.spec.env});
    if (t.public || str_eq(j->who.owner, owner.owner)) /* else the caller may not use it */
        j->heir_of = xstrdup(t.id);
}

/* Fills what the request does not set from the parent. */
static void fork_plan(fork_job *j)
{
    CLEANUP(sandbox_spec_done) sandbox_spec parent = {0};

    spec_of(j->parent, &parent);
    sandbox_spec_fill(&j->spec, &parent);
    j->spec.ttl_pauses |= parent.ttl_pauses;
    j->spec.holds_secrets = j->parent->secrets;
    fill_env(j);
}

static sandbox_spec child_spec(const fork_job *j, const char *snapshot)
{
    sandbox_spec s = {.snapshot = xstrdup(snapshot),
                      .secrets = strv_copy(j->spec.secrets),
                      .door = copy_of(j->spec.door),
                      .ttl_pauses = j->spec.ttl_pauses,
                      .holds_secrets = j->spec.holds_secrets,
                      .of_fork = true,
                      .heir_of = copy_of(j->heir_of),
                      .queue_ms = j->spec.queue_ms};

    sandbox_spec_fill(&s, &j->spec);
    return s;
}

/* ---- making them ---- */

/* Returns true if a refused create is to be retried: the key's rate or concurrency will allow it
 * later. */
static bool asks_again(fork_job *j, const err *failure)
{
    uint64_t pause = failure ? quota_pause_ns(failure) : 0, now = now_mono_ns();

    if (!pause || j->failure || now + pause > j->by_ns)
        return false;
    j->again_ns = now + pause;
    j->left++;
    return true;
}

static void on_child(void *arg, err *failure, sandbox *sb, bool replay)
{
    fork_job *j = arg;
    LOCK_SCOPE(&j->lock);

    (void)replay;
    if (sb)
        j->made[j->nmade++] = sb;
    if (asks_again(j, failure)) {
        err_free(failure);
        return; /* make_all() requests another one after again_ns */
    }
    if (j->failure)
        err_free(failure);
    else
        j->failure = failure;
    j->nanswered++;
    pthread_cond_signal(&j->answered_all);
}

/* Cancels the creates under way, and requests no more. Lock held. */
static void give_up(fork_job *j)
{
    j->nanswered += j->left;
    j->left = 0;
    while (j->nasked) {
        sandbox *one = j->asked[--j->nasked];
        engine_create_leave(j->e, one);
        sandbox_unref(one);
    }
}

/* Requests one child. Lock held; it is released meanwhile. */
static void ask_one(fork_job *j, const char *snapshot)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = child_spec(j, snapshot);

    j->left--;
    pthread_mutex_unlock(&j->lock);
    sandbox *one = engine_create(j->e, &j->who, &s, PULL_NEVER, &(idempotency){0}, on_child, j);
    pthread_mutex_lock(&j->lock);
    if (!one)
        return;
    j->asked = xrealloc(j->asked, (j->nasked + 1) * sizeof(sandbox *));
    j->asked[j->nasked++] = one;
    FAULT_KILL("fork.asked");
}

/* Returns why the fork must stop (its caller disconnected, or the engine stops), or NULL. */
static err *fork_cut(fork_job *j)
{
    if (j->is_left && j->is_left(j->arg))
        return err_new(ERR_UNAVAILABLE, "nobody waits for it any more");
    LOCK_SCOPE(&j->e->lock);
    return j->e->stopping ? err_new(ERR_UNAVAILABLE, "the node is being stopped") : NULL;
}

static void make_all(fork_job *j, const char *snapshot)
{
    uint64_t queue_ms = j->spec.queue_ms ? j->spec.queue_ms : j->e->o.queue_ms;

    j->made = xcalloc(j->count, sizeof(sandbox *));
    j->left = j->count;
    j->by_ns = now_mono_ns() + queue_ms * NS_PER_MS;
    LOCK_SCOPE(&j->lock);
    while (j->nanswered < j->count) {
        uint64_t now = now_mono_ns(), look = now + LOOK_NS;
        if (!j->failure)
            j->failure = fork_cut(j);
        if (j->failure) {
            give_up(j);
            if (j->nanswered < j->count)
                pthread_cond_wait(&j->answered_all, &j->lock);
        } else if (j->left && now >= j->again_ns) {
            ask_one(j, snapshot);
        } else {
            bool again = j->left && j->again_ns < look;
            cond_wait_until(&j->answered_all, &j->lock, again ? j->again_ns : look);
        }
    }
}

static err *engine_fork_run(fork_job *j, uint64_t *ret_still_ns)
{
    CLEANUP(snapshot_row_done) snapshot_row row = {0};

    TRY(snapshot_as(j->e, &j->who, j->parent, &(snapshot_config){.fork = true}, &row,
                    ret_still_ns));
    make_all(j, row.id);
    FAULT_KILL("fork.made");
    if (!j->failure)
        j->failure = fork_cut(j);
    if (!j->failure) /* completes the fork: a start ends children of forks with a record */
        j->failure = snapshot_forget(j->e, row.id);
    if (!j->failure)
        return NULL;
    for (size_t i = 0; i < j->nmade; i++)
        err_drop(engine_delete(j->e, &j->who, j->made[i], CAUSE_REQUESTED, NULL), "fork");
    err_free(snapshot_forget(j->e, row.id)); /* else the next start does */
    return err_wrap(TAKE_PTR(j->failure), "a child of sandbox %s", j->parent->id);
}

static void fork_end(engine *e, fork_job *j)
{
    {
        LOCK_SCOPE(&e->lock);
        under_way_end(e, e->forking, j->parent);
    }
    job_free(j);
    under_way_left(e);
}

static void *fork_thread(void *arg)
{
    fork_job *j = arg;
    engine *e = j->e;
    uint64_t still_ns = 0;

    LOG_ABOUT(j->parent->id, NULL, 0);
    err *failure = engine_fork_run(j, &still_ns);
    j->done(j->arg, failure, j->made, failure ? 0 : j->nmade, still_ns);
    fork_end(e, j);
    return NULL;
}

static err *fork_check(const sandbox *sb, const fork_request *r)
{
    if (!r->count || r->count > FORK_MAX)
        return err_new(ERR_INVALID_REQUEST, "count must be 1 to %u", FORK_MAX);
    if (!sb->secrets || r->despite_secrets)
        return NULL;
    return err_remedy(
        err_kind(err_new(ERR_CONFLICT,
                         "sandbox %s was given secrets, or began with files of one that was: its "
                         "files may hold them",
                         sb->id),
                 "secrets"),
        "Say despite_secrets: true (REST, 'bothy fork --despite-secrets') if every child may have "
        "what is in its files.");
}

err *engine_fork(engine *e, const caller *c, sandbox *sb, fork_request *r, fork_done *done,
                 void *arg)
{
    TRY(snapshot_check_can(e, c));
    TRY(fork_check(sb, r));
    TRY(quota_room(e, c, r->count)); /* before the parent is frozen */
    TRY(under_way_begin(e, e->forking, "forks", sb));
    fork_job *j = xcalloc(1, sizeof *j);
    *j = (fork_job){.e = e,
                    .parent = sandbox_ref(sb),
                    .is_left = r->is_left,
                    .who = *c,
                    .spec = r->spec,
                    .count = r->count,
                    .done = done,
                    .arg = arg};
    j->who.owner = xstrdup(c->owner);
    r->spec = (sandbox_spec){0};
    pthread_mutex_init(&j->lock, NULL);
    cond_init(&j->answered_all);
    fork_plan(j);
    if (thread_try_detach(fork_thread, j))
        return NULL;
    fork_end(e, j);
    return err_retry_after(err_new(ERR_UNAVAILABLE, "there is no thread for a fork"), 1);
}

/* ---- after a kill ---- */

static bool began_with(const sandbox *sb, const snapshot_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(sb->snapshot, rows[i].id))
            return true;
    return false;
}

static void end_children(engine *e, const snapshot_row *rows, size_t nrows)
{
    size_t n = 0;
    CLEANUP(freep) sandbox **all = engine_live_all(e, &n);

    for (size_t i = 0; i < n; i++) {
        if (began_with(all[i], rows, nrows))
            engine_end(all[i], &(cause){.kind = CAUSE_INTERNAL, .detail = "its fork was lost"});
        sandbox_unref(all[i]);
    }
}

err *forks_reconcile(engine *e)
{
    CLEANUP(freep) snapshot_row *rows = NULL;
    size_t n = 0;

    TRY(store_snapshot_list(e->o.store, NULL, NULL, true, &rows, &n));
    if (n)
        end_children(e, rows, n);
    for (size_t i = 0; i < n; i++) {
        err_drop(snapshot_forget(e, rows[i].id), "fork");
        snapshot_row_done(&rows[i]);
    }
    return NULL;
}
