/* Snapshots: the files that a sandbox has written become a layer of this node. Its image's layers
 * and this one are an image (image_derive()), whose name callers cannot use. The snapshot's row
 * says whose it is.
 *
 * The image is made before the row. After the row is removed, it stays while a sandbox made from it
 * lives, because a snapshot of that sandbox needs it. Images with neither are removed by a prune,
 * which the keeper begins when a snapshot, or a sandbox made from one, has ended. */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define PRUNES      2u /* tries: a slot that is ending holds its image a little longer */
#define PRUNE_EVERY 3u /* seconds */
#define TURN_NS     (UINT64_C(180) * NS_PER_S) /* how long a snapshot waits for its turn */

err *under_way_begin(engine *e, struct sandbox **all, const char *what, sandbox *sb)
{
    struct sandbox **place = NULL;
    unsigned own = 0;
    LOCK_SCOPE(&e->lock);

    for (size_t i = 0; i < SNAPSHOTS_AT_ONCE; i++) {
        if (!all[i])
            place = &all[i];
        else
            own += str_eq(all[i]->owner, sb->owner);
    }
    if (!place || own >= SNAPSHOTS_OF_OWNER || e->stopping)
        return err_retry_after(err_new(ERR_UNAVAILABLE, "too many %s are under way already", what),
                               1);
    *place = sb;
    return NULL;
}

void under_way_end(engine *e, struct sandbox **all, const sandbox *sb)
{
    size_t i = 0;

    while (all[i] != sb)
        i++;
    all[i] = NULL;
    e->leaving++;
}

void under_way_left(engine *e)
{
    LOCK_SCOPE(&e->lock);

    e->leaving--;
    pthread_cond_broadcast(&e->wake);
}

static bool is_under_way(struct sandbox *const *all)
{
    for (size_t i = 0; i < SNAPSHOTS_AT_ONCE; i++)
        if (all[i])
            return true;
    return false;
}

/* Counts the bytes of all the owner's snapshots, except those of forks. */
static err *count_bytes(engine *e, const char *owner, uint64_t *ret_bytes)
{
    snapshot_row *rows = NULL;
    uint64_t bytes = 0;
    size_t n = 0;

    TRY(store_snapshot_list(e->o.store, owner, NULL, false, &rows, &n));
    for (size_t i = 0; i < n; i++) {
        bytes = rows[i].bytes > UINT64_MAX - bytes ? UINT64_MAX : bytes + rows[i].bytes;
        snapshot_row_done(&rows[i]);
    }
    free(rows);
    *ret_bytes = bytes;
    return NULL;
}

/* Returns ERR_QUOTA_EXCEEDED if `more` bytes are beyond what the owner's snapshots may still have,
 * or if nothing is left. max: the limit in bytes; 0: none. */
static err *check_bytes(engine *e, const char *owner, uint64_t max, uint64_t more)
{
    uint64_t have = 0;

    if (!max)
        return NULL;
    TRY(count_bytes(e, owner, &have));
    if (have < max && more <= max - have)
        return NULL;
    return err_remedy(
        err_kind(err_new(ERR_QUOTA_EXCEEDED,
                         "the snapshots of '%s' have %llu bytes of files, %llu are allowed "
                         "(quota.max_snapshot_bytes)%s",
                         owner, (unsigned long long)have, (unsigned long long)max,
                         more > 1 ? ", and this one would be more than what is left" : ""),
                 "snapshot_bytes"),
        "Remove snapshots that are not needed any more: bothy snapshot rm.");
}

static err *engine_snapshot_begin(engine *e, sandbox *sb, const snapshot_config *as)
{
    if (!as->fork) { /* before anything is copied */
        TRY(store_snapshot_room(e->o.store, sb->owner, SNAPSHOTS_MAX));
        TRY(check_bytes(e, sb->owner, as->max_bytes, 1));
    }
    return under_way_begin(e, e->snapshotting, "snapshots", sb);
}

/* Ends a snapshot. failed: a layer may have been left behind. */
static void snapshot_end(engine *e, const sandbox *sb, bool failed)
{
    LOCK_SCOPE(&e->lock);

    if (failed)
        e->sweeps = e->prunes = PRUNES;
    under_way_end(e, e->snapshotting, sb);
}

err *snapshot_check_can(engine *e, const caller *c)
{
    backend *b = e->o.backend;

    TRY(caller_require(c, CALLER_USER));
    if (b->ops->snapshot && b->caps.snapshot != CAP_ABSENT)
        return NULL;
    return err_remedy(err_new(ERR_UNSUPPORTED, "the backend '%s' takes no snapshots", b->caps.name),
                      "Fetch the files as an archive: GET …/files/archive.");
}

/* ---- taking one ---- */

typedef struct taking {
    engine *e;
    sandbox *sb;
    box_snapshot what;
} taking;

static err *make_layer(void *arg, const uint8_t layer[32], uint64_t *ret_bytes)
{
    taking *t = arg;
    backend *b = t->e->o.backend;

    if (!turns_take(&t->e->copies, t->sb->owner, now_mono_ns() + TURN_NS))
        return err_retry_after(
            err_new(ERR_UNAVAILABLE, "too many snapshots were to be copied before this one"), 5);
    exec_table_hold(t->sb->table);
    err *failure = b->ops->snapshot(b, sandbox_box(t->sb).id, layer, &t->what);
    sandbox_let_go(t->sb, failure ? UINT64_MAX : t->what.still_ns);
    turns_give(&t->e->copies, t->sb->owner);
    if (failure)
        return failure;
    *ret_bytes = t->what.bytes;
    return NULL;
}

/* Returns a reference to the image of a sandbox that runs or is paused. */
static err *base_of(sandbox *sb, image **ret_base)
{
    LOCK_SCOPE(&sb->lock);

    if (sb->state != LIFE_PAUSED || sb->cause)
        TRY(sandbox_usable_locked(sb));
    if (!sb->image)
        return err_remedy(
            err_new(ERR_CONFLICT, "the image of sandbox %s is not here any more", sb->id),
            "Fetch it again ('bothy image pull'), start bothyd again, and try once more.");
    *ret_base = image_ref(sb->image);
    return NULL;
}

static err *snapshot_record(engine *e, const sandbox *sb, const taking *t, uint64_t max_bytes,
                            snapshot_row *row)
{
    row->owner = xstrdup(sb->owner);
    row->image = xstrdup(str_or(sb->image_name, ""));
    memcpy(row->sandbox, sb->id, sizeof row->sandbox);
    row->bytes = t->what.bytes;
    row->entries = t->what.entries;
    row->created_ns = clock_real(e->o.clock);
    row->secrets = sb->secrets;
    LOCK_SCOPE(&e->snapshot_lock);
    if (!row->fork)
        TRY(check_bytes(e, sb->owner, max_bytes, row->bytes));
    return store_snapshot_insert(e->o.store, row, SNAPSHOTS_MAX);
}

static err *engine_snapshot_take(engine *e, sandbox *sb, const snapshot_config *as,
                                 snapshot_row *ret_row, uint64_t *ret_still_ns)
{
    CLEANUP(image_unrefp) image *base = NULL;
    CLEANUP(image_unrefp) image *made = NULL;
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    taking t = {.e = e, .sb = sb};

    row.fork = as->fork;
    TRY(base_of(sb, &base));
    id_sandbox(e->o.cell, row.id);
    TRY(sandbox_told(sb, image_derive(e->o.images,
                                      &(derivation){.id = row.id,
                                                    .base = base,
                                                    .env = as->env,
                                                    .user = as->user ? as->user : sb->user,
                                                    .cwd = as->cwd ? as->cwd : sb->cwd,
                                                    .make = make_layer,
                                                    .arg = &t},
                                      &made)));
    FAULT_KILL("derive.named");
    err *failure = snapshot_record(e, sb, &t, as->max_bytes, &row);
    if (failure) {
        err_drop(image_derived_remove(e->o.images, row.id), "snapshot");
        return failure;
    }
    FAULT_KILL("derive.recorded");
    *ret_still_ns = t.what.still_ns;
    *ret_row = row;
    row = (snapshot_row){0};
    return NULL;
}

/* Takes a snapshot, between engine_snapshot_begin() and snapshot_end(). */
static err *copy_and_take(engine *e, sandbox *sb, const snapshot_config *as, snapshot_row *ret_row,
                          uint64_t *ret_still_ns)
{
    sandbox_copy_begin(sb);
    bool used = sandbox_stream_begin(sb); /* keeps it from being idle meanwhile */
    err *failure = engine_snapshot_take(e, sb, as, ret_row, ret_still_ns);
    if (used)
        sandbox_stream_end(sb);
    sandbox_copy_end(sb);
    return failure;
}

err *snapshot_as(engine *e, const caller *c, sandbox *sb, const snapshot_config *as,
                 snapshot_row *ret_snapshot, uint64_t *ret_still_ns)
{
    TRY(snapshot_check_can(e, c));
    snapshot_config within = *as;
    within.max_bytes = quota_of(e, c).snapshot_bytes;
    TRY(engine_snapshot_begin(e, sb, &within));
    err *failure = copy_and_take(e, sb, &within, ret_snapshot, ret_still_ns);
    snapshot_end(e, sb, failure);
    under_way_left(e);
    return failure;
}

err *engine_snapshot(engine *e, const caller *c, sandbox *sb, snapshot_row *ret_snapshot,
                     uint64_t *ret_still_ns)
{
    return snapshot_as(e, c, sb, &(snapshot_config){0}, ret_snapshot, ret_still_ns);
}

typedef struct snapshot_job {
    sandbox *sb;
    snapshot_config as;
    snapshot_done *done;
    void *arg;
} snapshot_job;

static void *run_job(void *arg)
{
    snapshot_job *j = arg;
    engine *e = j->sb->engine;
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    uint64_t still_ns = 0;

    LOG_ABOUT(j->sb->id, NULL, 0);
    err *failure = copy_and_take(e, j->sb, &j->as, &row, &still_ns);
    bool failed = failure;
    j->done(j->arg, failure, failure ? NULL : &row, still_ns);
    snapshot_end(e, j->sb, failed);
    sandbox_unref(j->sb);
    free(j);
    under_way_left(e);
    return NULL;
}

err *engine_snapshot_start(engine *e, const caller *c, sandbox *sb, snapshot_done *done, void *arg)
{
    TRY(snapshot_check_can(e, c));
    const snapshot_config as = {.max_bytes = quota_of(e, c).snapshot_bytes};
    TRY(engine_snapshot_begin(e, sb, &as));
    snapshot_job *j = xcalloc(1, sizeof *j);
    *j = (snapshot_job){.sb = sandbox_ref(sb), .as = as, .done = done, .arg = arg};
    if (thread_try_detach(run_job, j))
        return NULL;
    snapshot_end(e, sb, false);
    sandbox_unref(j->sb);
    free(j);
    under_way_left(e);
    return err_retry_after(err_new(ERR_UNAVAILABLE, "there is no thread for a snapshot"), 1);
}

/* ---- find, list, remove ---- */

static const char *snapshot_whose(const caller *c)
{
    return c->role == CALLER_ADMIN ? NULL : c->owner;
}

err *engine_snapshot_find(engine *e, const caller *c, const char *id, snapshot_row *ret_snapshot)
{
    return store_snapshot_find(e->o.store, snapshot_whose(c), id, false, ret_snapshot);
}

err *engine_snapshot_list(engine *e, const caller *c, const sandbox *sb, snapshot_row **ret_rows,
                          size_t *ret_n)
{
    return store_snapshot_list(e->o.store, snapshot_whose(c), sb ? sb->id : NULL, false, ret_rows,
                               ret_n);
}

/* Fails if a template names the snapshot: the template would be useless without it. */
static err *check_unnamed(engine *e, const snapshot_row *row)
{
    const caller owner = {.owner = row->owner, .role = CALLER_USER};
    template_view *all = NULL;
    size_t n = 0;
    err *failure = NULL;

    TRY(engine_template_list(e, &owner, &all, &n));
    for (size_t i = 0; i < n; i++) {
        if (!failure && str_eq(all[i].spec.snapshot, row->id))
            failure = err_remedy(
                err_kind(err_new(ERR_CONFLICT, "the template '%s' is made of snapshot %s",
                                 all[i].name, row->id),
                         "template"),
                "Remove the template, or have it name something else, first.");
        template_view_done(&all[i]);
    }
    free(all);
    return failure;
}

/* Fails if a build has the snapshot, whatever its tags, also if it is not ready yet. */
static err *check_unbuilt(engine *e, const snapshot_row *row)
{
    build_row *all = NULL;
    size_t n = 0;
    err *failure = NULL;

    TRY(store_build_list(e->o.store, row->owner, NULL, &all, &n));
    for (size_t i = 0; i < n && !failure; i++)
        if (str_eq(all[i].snapshot, row->id))
            failure = err_remedy(
                err_kind(err_new(ERR_CONFLICT, "snapshot %s is the files of build %s of '%s'",
                                 row->id, all[i].id, all[i].name),
                         "build"),
                "Remove the template, or the build's tags.");
    build_rows_free(all, n);
    return failure;
}

err *snapshot_forget(engine *e, const char *id)
{
    TRY(store_snapshot_remove(e->o.store, id));
    FAULT_KILL("snapshot.forgotten");
    LOCK_SCOPE(&e->lock);
    e->sweeps = PRUNES;
    return NULL;
}

static err *remove_one(engine *e, const caller *c, const char *id, bool built)
{
    CLEANUP(snapshot_row_done) snapshot_row row = {0};

    TRY(caller_require(c, CALLER_USER));
    TRY(engine_snapshot_find(e, c, id, &row));
    TRY(check_unnamed(e, &row));
    if (!built)
        TRY(check_unbuilt(e, &row));
    return snapshot_forget(e, row.id);
}

err *engine_snapshot_remove(engine *e, const caller *c, const char *id)
{
    return remove_one(e, c, id, false);
}

err *snapshot_remove_built(engine *e, const caller *c, const char *id)
{
    return remove_one(e, c, id, true);
}

err *snapshot_apply(engine *e, const char *owner, sandbox_spec *spec)
{
    CLEANUP(snapshot_row_done) snapshot_row row = {0};

    if (!spec->snapshot)
        return NULL;
    TRY(store_snapshot_find(e->o.store, owner, spec->snapshot, spec->of_fork, &row));
    free(spec->image);
    spec->image = TAKE_PTR(row.image);
    spec->holds_secrets |= row.secrets;
    return NULL;
}

/* ---- sweeping and pruning ---- */

void snapshot_reconcile(engine *e)
{
    CLEANUP(strv_freep) char **ids = image_derived_ids(e->o.images);
    LOCK_SCOPE(&e->lock);

    if (ids) /* a kill may have come right after a record was removed */
        e->sweeps = PRUNES;
    if (image_derive_was_cut(e->o.images))
        e->prunes = PRUNES;
}

static err *sweep_one(engine *e, const char *id, bool *ret_removed)
{
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    CLEANUP(image_unrefp) image *i = NULL;
    err *failure = store_snapshot_find(e->o.store, NULL, id, true, &row);

    if (!failure || failure->code != ERR_NOT_FOUND)
        return failure;
    err_free(failure);
    failure = image_derived(e->o.images, id, &i);
    if (failure) { /* another thread removed it */
        err_free(failure);
        return NULL;
    }
    if (engine_uses_image(e, i->digest))
        return NULL;
    *ret_removed = true;
    return image_derived_remove(e->o.images, id);
}

/* Removes orphaned images. A snapshot under way has an image and no row yet. So the names are read
 * first: if no snapshot is under way after that, each of them has a row, or never will. */
err *snapshot_sweep(engine *e)
{
    CLEANUP(strv_freep) char **ids = image_derived_ids(e->o.images);
    bool removed = false;
    err *failure = NULL;

    {
        LOCK_SCOPE(&e->lock);
        if (is_under_way(e->snapshotting)) {
            e->sweeps = PRUNES;
            return NULL;
        }
    }
    for (char **id = ids; !failure && id && *id; id++)
        failure = sweep_one(e, *id, &removed);
    LOCK_SCOPE(&e->lock);
    if (removed)
        e->prunes = PRUNES;
    return failure;
}

void snapshot_let_go(engine *e, const sandbox *sb)
{
    if (!sb->snapshot)
        return;
    LOCK_SCOPE(&e->lock);
    e->sweeps = PRUNES;
}

/* Takes one pending prune. There may be none: sandboxes made from snapshots that stay end all the
 * time without leaving anything to prune. */
static bool has_to_prune(engine *e)
{
    LOCK_SCOPE(&e->lock);
    bool has = e->prunes;

    e->prunes -= has;
    return has;
}

static void *engine_snapshot_prune(void *arg)
{
    engine *e = arg;
    const caller us = {.owner = (char *)"bothyd", .role = CALLER_ADMIN};
    uint64_t bytes = 0;

    err_drop(snapshot_sweep(e), "snapshot");
    err *failure = has_to_prune(e) ? engine_prune_images(e, &us, false, &bytes) : NULL;
    bool failed = failure;
    err_drop(failure, "snapshot");
    LOCK_SCOPE(&e->lock);
    e->prunes += failed; /* retried: the warden may be away */
    e->pruning = false;
    pthread_cond_broadcast(&e->wake);
    return NULL;
}

/* Starts a prune if one is due, on a thread of its own, because a disk may be slow. */
void snapshot_prune(engine *e)
{
    LOCK_SCOPE(&e->lock);

    if (e->pruning || !(e->sweeps || e->prunes) || (e->prune_wait && --e->prune_wait))
        return;
    e->prune_wait = PRUNE_EVERY;
    e->pruning = thread_try_detach(engine_snapshot_prune, e);
    e->sweeps -= e->pruning && e->sweeps;
}

void snapshot_wait_all(engine *e)
{
    turns_close(&e->copies);
    turns_close(&e->freezes);
    turns_close(&e->limits);
    LOCK_SCOPE(&e->lock);

    while (is_under_way(e->snapshotting) || is_under_way(e->forking) || e->leaving || e->pruning)
        pthread_cond_wait(&e->wake, &e->lock);
}
