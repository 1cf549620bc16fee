/* Create: record, image, slot, answer.
 *
 *   request thread   checks the request, searches for the key, finds the image
 *   image worker     continues if the image had to be fetched first
 *   either           commits `creating`; meanwhile the backend makes the box
 *   the last half    running or create_failed; all waiters are called
 *
 * The commit and the claim take about the same time and do not depend on each other. After a kill
 * before the commit the box is an orphan, and engine_reconcile() destroys it; after a kill behind
 * the commit, engine_reconcile() settles the create. Waiters are called after both halves. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

void create_tell(sandbox *sb, err *failure)
{
    create_waiter *w;

    {
        LOCK_SCOPE(&sb->lock);
        w = TAKE_PTR(sb->waiters);
    }
    while (w) {
        create_waiter *next = w->next;
        w->done(w->arg, failure ? err_copy(failure) : NULL, failure ? NULL : sandbox_ref(sb),
                w->replay);
        free(w);
        w = next;
    }
    err_free(failure);
}

static void create_failed(sandbox *sb, err *failure, const char *stage, bool recorded)
{
    engine *e = sb->engine;
    cause why = {.kind = CAUSE_CREATE_FAILED, .stage = stage, .detail = failure->message};
    if (create_cancelled(sb) && sb->deleted_by)
        why = (cause){.kind = CAUSE_REQUESTED, .by = sb->deleted_by};

    metric_add(&ENGINE_METRICS[M_CREATE_FAILED], 0, 1);
    LOG_ABOUT(sb->id, sb->request, 0);
    log_warn("create", "sandbox %s failed at %s: %s%s%s", sb->id, stage, failure->message,
             failure->cause ? ": " : "", str_or(failure->cause, ""));
    if (recorded) {
        store_sandbox_free_key_queued(e->o.store, sb->id);
        end_record(sb, &why, false);
    }
    create_forget(sb);
    sandbox_finish(sb, &why);
    if (!recorded) /* without a record, retention would never remove the spool */
        err_drop(exec_table_remove(e->o.execs, sb->id, false), "create");
    create_tell(sb, failure);
    sandbox_unref(sb); /* the create's own */
}

/* ---- step 3: the record is written, the box is made ---- */

static void note_phases(const box_timing *t)
{
    metric *m = &ENGINE_METRICS[M_PHASE_SECONDS];

    metric_observe_ns(m, 0, t->queue_ns);
    metric_observe_ns(m, 1, t->build_ns);
    metric_observe_ns(m, 2, t->swap_ns);
    metric_observe_ns(m, 3, t->claim_ns);
    metric_observe_ns(m, 4, t->commit_ns);
    metric_add(&ENGINE_METRICS[M_CLAIMS], receipt_class(t->klass), 1);
}

static bool become_running(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (sb->state != LIFE_CREATING || sb->deleting || !sandbox_enter(sb, LIFE_RUNNING))
        return false;
    if (sb->has_timing)
        receipt_take(sb, &sb->timing.walls, sb->timing.klass);
    CLEANUP(freep) char *walls = receipt_text(&sb->receipt);
    /* Lock held: a delete that sees it running queues its write behind this one. */
    store_sandbox_running_queued(sb->engine->o.store, sb->id, lifecycle_name(LIFE_RUNNING), walls);
    return true;
}

/* Ends a cancelled create and destroys its box. */
static void create_undo(sandbox *sb)
{
    if (sb->made)
        engine_destroy_soon(sb->engine, sb->id, "create");
    create_failed(sb, create_cancel_error(sb), "cancelled", true);
}

static void create_succeed(sandbox *sb)
{
    engine *e = sb->engine;
    const char *klass = str_or(sb->timing.klass, "unknown");

    if (sb->has_timing)
        note_phases(&sb->timing);
    bool running = become_running(sb);
    FAULT_KILL("create.running");
    if (!running && create_cancelled(sb)) {
        create_undo(sb);
        return;
    }
    sandbox_start(sb, true); /* before a caller can ask for it */
    create_forget(sb);
    create_tell(sb, NULL);
    FAULT_KILL("create.told");
    if (running) {
        uint64_t took = clock_real(e->o.clock) - sb->created_ns;
        metric_observe_ns(&ENGINE_METRICS[M_CREATE_SECONDS], 0, took);
        LOG_ABOUT(sb->id, sb->request, 0);
        log_info("create", "sandbox %s: %s, after %" PRIu64 " ms", sb->id, klass, took / NS_PER_MS);
    } /* else pid 1 has ended already, and the waiters were called */
    sandbox_unref(sb);
}

static void yield_to_first(sandbox *sb);

/* Ends a create whose record or spool could not be made. No caller has seen its box, which is
 * destroyed. */
static void create_unrecorded(sandbox *sb, err *failure)
{
    if (sb->made)
        engine_destroy_soon(sb->engine, sb->id, "create");
    if (failure->code == ERR_CONFLICT && str_eq(failure->kind, "key")) {
        err_free(failure);
        yield_to_first(sb);
        return;
    }
    create_failed(sb, failure, sb->recorded ? "spool" : "record", sb->recorded);
}

/* Ends one half of a create, record or box, in either order, from any thread; the second one
 * continues the create. */
static void half_done(sandbox *sb)
{
    if (atomic_fetch_sub(&sb->halves, 1) > 1)
        return;
    err *no_record = TAKE_PTR(sb->no_record), *no_box = TAKE_PTR(sb->no_box);
    if (sb->made)
        sandbox_bind(sb, sb->made_tie, sb->made);
    else
        tie_free(sb->made_tie); /* the box's reference: it will send no events */
    if (no_record) {
        err_free(no_box);
        create_unrecorded(sb, no_record);
    } else if (no_box && create_cancelled(sb)) {
        err_free(no_box);
        create_undo(sb);
    } else if (no_box) {
        create_failed(sb, no_box, "claim", true);
    } else {
        create_succeed(sb);
    }
}

static void on_box(void *arg, err *failure, box *made, const box_timing *timing)
{
    box_tie *tie = arg;
    sandbox *sb = tie->sb;

    {
        LOCK_SCOPE(&sb->lock);
        sandbox_spec_done(&sb->spec);
        sb->has_timing = made && timing;
        uint64_t commit_ns = sb->timing.commit_ns;
        sb->timing = sb->has_timing ? *timing : (box_timing){0};
        sb->timing.commit_ns = commit_ns;
    }
    sb->no_box = failure;
    sb->made = failure ? NULL : made;
    sb->made_tie = tie;
    half_done(sb);
}

/* ---- step 2: the image is here ---- */

static void merge_env(char ***env, char *const *more)
{
    for (size_t i = 0; more && more[i]; i++) {
        char *eq = strchr(more[i], '=');
        if (!eq)
            continue;
        CLEANUP(freep) char *name = xstrndup(more[i], (size_t)(eq - more[i]));
        strv_env_set(env, name, eq + 1);
    }
}

static void wipe_env(char ***env)
{
    for (size_t i = 0; *env && (*env)[i]; i++)
        secret_wipe((*env)[i], strlen((*env)[i]));
    strv_free(*env);
}

void box_ask(sandbox *sb, const sandbox_spec *s, const char *id, box_tie *tie, create_done *done)
{
    engine *e = sb->engine;
    CLEANUP(wipe_env) char **env = NULL;

    merge_env(&env, sb->image->env);
    merge_env(&env, s->env);
    merge_env(&env, s->secrets);
    box_spec spec = {.hostname = str_eq(id, sb->id) ? NULL : sb->id,
                     .image_name = sb->image->name,
                     .spec = s,
                     .env = env,
                     .user = s->user ? s->user : sb->image->user,
                     .cwd = s->cwd ? s->cwd : sb->image->cwd,
                     .umask = sb->umask,
                     .queue_ms = s->queue_ms,
                     .owner = hash_bytes(sb->owner, strlen(sb->owner))};
    str_copy(spec.id, sizeof spec.id, id);
    memcpy(spec.image, sb->digest, sizeof spec.image);
    e->o.backend->ops->create(e->o.backend, &spec, &ENGINE_BOX_EVENTS, tie, done);
}

/* Another create with the same key was committed between this one's check of the store and its
 * commit. Answers all waiters with the first sandbox. */
static void yield_to_first(sandbox *sb)
{
    CLEANUP(sandbox_unrefp) sandbox *first = NULL;
    err *failure = create_find(sb->engine, "?", sb->key, sb->body, &first);
    create_waiter *w;

    if (!failure && !first)
        failure = err_new(ERR_CONFLICT, "the Idempotency-Key is in use");
    if (failure) {
        create_failed(sb, failure, "record", false);
        return;
    }
    assert(first);
    create_forget(sb); /* no request joins this one any more */
    {
        LOCK_SCOPE(&sb->lock);
        w = TAKE_PTR(sb->waiters);
    }
    create_hand_over(first, w);
    sandbox_finish(sb, &(cause){.kind = CAUSE_CREATE_FAILED, .stage = "replay"});
    err_drop(exec_table_remove(sb->engine->o.execs, sb->id, false), "create");
    sandbox_unref(sb);
}

static err *open_table(sandbox *sb)
{
    exec_table *table = NULL;

    TRY(exec_table_new(sb->engine->o.execs, sb->id, &table));
    exec_table_limit(table, sb->limits.execs);
    exec_table_own(table, sb->owner);
    LOCK_SCOPE(&sb->lock);
    sb->table = table;
    return NULL;
}

/* Refuses a name that is in use before a slot is spent. Two creates that pass this check together
 * collide at the insert. */
static err *check_name(const sandbox *sb)
{
    store *st = sb->engine->o.store;
    err *taken = sb->name ? store_sandbox_name_free(st, sb->owner, sb->name) : NULL;

    if (!taken)
        return NULL;
    err_free(taken);
    TRY(store_flush(st)); /* an end may be queued that frees the name */
    return store_sandbox_name_free(st, sb->owner, sb->name);
}

/* Queues the row, then sends the claim: later writes about the sandbox come after the row, and a
 * cancel from now on finds a claim to take back. */
static void record_and_claim(sandbox *sb)
{
    engine *e = sb->engine;
    sandbox_row row;

    sandbox_to_row(sb, &row);
    atomic_store(&sb->halves, 2);
    uint64_t begun = now_mono_ns();
    store_pending *commit = store_sandbox_insert_begin(e->o.store, &row);
    FAULT_KILL("create.queued");
    if (create_begin_claim(sb))
        box_ask(sb, &sb->spec, sb->id, tie_new(sb), on_box);
    else
        on_box(tie_new(sb), create_cancel_error(sb), NULL, NULL);
    FAULT_KILL("create.claim_sent");
    err *no_spool = exec_table_make(sb->table);
    FAULT_KILL("create.spool");
    sb->no_record = store_pending_end(e->o.store, commit);
    FAULT_KILL("create.committed");
    sb->recorded = !sb->no_record;
    free(row.spec);
    if (sb->recorded)
        sb->no_record = no_spool;
    else
        err_free(no_spool);
    {
        LOCK_SCOPE(&sb->lock);
        sb->timing.commit_ns = now_mono_ns() - begun;
        sb->deleting |= sb->no_record != NULL; /* the end of its box is expected */
    }
    if (sb->no_record) /* its claim must not stay in the warden's queue */
        engine_destroy_soon(e, sb->id, "create");
    half_done(sb);
}

static void go_on(sandbox *sb, image *img)
{
    err *failure = NULL;

    assert(img);
    {
        LOCK_SCOPE(&sb->lock);
        sb->image = img;
        memcpy(sb->digest, img->digest, sizeof sb->digest);
        if (!sb->user && img->user[0])
            sb->user = xstrdup(img->user);
        if (!sb->cwd && img->cwd[0])
            sb->cwd = xstrdup(img->cwd);
    }
    failure = create_cancelled(sb) ? create_cancel_error(sb) : check_name(sb);
    if (!failure)
        failure = open_table(sb);
    if (failure) {
        create_failed(sb, failure, "record", false);
        return;
    }
    record_and_claim(sb);
}

/* Returns an image that is only a name, for a backend that fetches none (the fake one). */
image *image_by_name_only(const char *name)
{
    image *i = xcalloc(1, sizeof *i);

    i->refs = 1;
    i->name = xstrdup(name);
    i->user = xstrdup("");
    i->cwd = xstrdup("");
    i->os = xstrdup("linux");
    i->architecture = xstrdup("");
    return i;
}

static void on_image(void *arg, err *failure, image *got)
{
    if (failure)
        create_failed(arg, failure, "image", false);
    else
        go_on(arg, got);
}

/* ---- step 1: the request ---- */

/* Returns the tmpfs mounts as the API shows them. tmpfs_of() in sandbox.c reads this form. */
static json_t *tmpfs_json(const sandbox_spec *s)
{
    json_t *all = json_array();

    for (size_t i = 0; i < s->ntmpfs; i++) {
        const tmpfs_spec *t = &s->tmpfs[i];
        char mode[16];
        snprintf(mode, sizeof mode, "%o", t->mode);
        json_array_append_new(all, json_pack("{s:s,s:I,s:s,s:b}", "path", t->path, "size",
                                             (json_int_t)t->size, "mode", mode, "exec", t->exec));
    }
    return all;
}

static void take_spec(sandbox *sb, sandbox_spec *spec)
{
    engine *e = sb->engine;

    id_sandbox(e->o.cell, sb->id);
    memcpy(sb->box_id, sb->id, sizeof sb->box_id);
    log_id(LOG_SANDBOX, sb->id);
    memcpy(sb->request, log_ids_now()->request, sizeof sb->request);
    sb->created_ns = clock_real(e->o.clock);
    sb->spec = *spec;
    *spec = (sandbox_spec){0};
    spec = &sb->spec;
    sb->image_name = xstrdup(spec->image);
    sb->name = spec->name ? xstrdup(spec->name) : NULL;
    sb->user = spec->user ? xstrdup(spec->user) : NULL;
    sb->cwd = spec->cwd ? xstrdup(spec->cwd) : NULL;
    sb->labels = strv_copy(spec->labels);
    sb->limits = spec->limits;
    sb->read_only = spec->read_only;
    sb->setuid = spec->setuid;
    sb->network = spec->network;
    sb->umask = spec->has_umask ? spec->umask : UMASK_DEFAULT;
    sb->tmpfs = tmpfs_json(spec);
    sb->door = spec->door ? xstrdup(spec->door) : NULL;
    sb->start = start_json(&spec->start);
    const char *template = spec->template ? spec->template : spec->heir_of;
    sb->template = template ? xstrdup(template) : NULL;
    sb->snapshot = spec->snapshot ? xstrdup(spec->snapshot) : NULL;
    sb->secrets = spec->holds_secrets || (spec->secrets && *spec->secrets);
    sandbox_set_idle(sb, spec->idle_ms);
    sb->ttl_pauses = spec->ttl_pauses;
    if (spec->ttl_ms)
        sb->ends_ns = sb->created_ns + spec->ttl_ms * NS_PER_MS;
}

static void fill_defaults(const engine *e, sandbox_spec *s)
{
    limits_fill(&s->limits, &e->o.defaults);
    if (!s->limits.disk && e->o.backend->caps.disk_limit != CAP_ABSENT)
        s->limits.disk = e->o.defaults.disk;
    s->queue_ms = s->queue_ms ? s->queue_ms : e->o.queue_ms;
}

err *create_check_limits(const engine *e, const limits *l)
{
    const backend_caps *c = &e->o.backend->caps;
    const struct {
        const char *name;
        uint64_t asked;
        enum cap_level cap;
    } rows[] = {{"memory", l->memory, c->memory_limit},
                {"cpu", l->cpu_milli, c->cpu_limit},
                {"pids", l->pids, c->pids_limit}};

    if (l->disk && c->disk_limit == CAP_ABSENT)
        return err_remedy(err_new(ERR_UNSUPPORTED, "this node cannot limit disk space"),
                          "Leave limits.disk out, or use a node whose store has project quotas.");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].asked && rows[i].cap == CAP_ABSENT)
            return err_remedy(
                err_new(ERR_UNSUPPORTED, "limits.%s: the backend '%s' does not hold it here",
                        rows[i].name, c->name),
                "Leave it out, or use a node whose caps have it; 'bothy doctor' says what lacks.");
    return NULL;
}

/* Refuses what the backend cannot do, before anything is made. */
static err *check_caps(const engine *e, const sandbox_spec *s)
{
    const backend_caps *c = &e->o.backend->caps;

    if (s->read_only && c->read_only == CAP_ABSENT)
        return err_new(ERR_UNSUPPORTED, "this backend has no read-only root");
    if (s->idle_ms && engine_stats_cap(e) == CAP_ABSENT)
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "idle: the backend '%s' does not measure", c->name),
            "Leave idle out; ttl ends it.");
    if (s->ttl_pauses && !e->o.backend->ops->freeze)
        return err_new(ERR_UNSUPPORTED, "the backend '%s' cannot pause a sandbox", c->name);
    if (s->ntmpfs && c->tmpfs == CAP_ABSENT)
        return err_new(ERR_UNSUPPORTED, "this backend has no tmpfs mounts");
    if (s->setuid && c->setuid == CAP_ABSENT)
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "setuid: on '%s' no command gains privileges", c->name),
            "Leave the grant out, or use a backend whose caps have it.");
    return NULL;
}

/* Checks the caller's right first, then whether the node can: callers without the right learn
 * nothing about the node. */
static err *check_network(const engine *e, const caller *c, const sandbox_spec *s)
{
    backend *b = e->o.backend;

    if (s->network == NETWORK_NONE)
        return NULL;
    if (c->role < CALLER_ADMIN && !c->granted && !e->o.network_for_users)
        return err_remedy(
            err_new(ERR_FORBIDDEN, "network: only an administrator may ask for '%s'",
                    network_grant_name(s->network)),
            "Leave network out, or let an administrator of the node set network.allow: "
            "users.");
    if (!b->ops->network || b->ops->network(b) == CAP_ABSENT)
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "network: this node offers none"),
            "Leave network out and bring files in through the API, or have one offered: a node's "
            "bothy-warden by its option --network, Docker's or Podman's by backend.network in "
            "bothy.yaml.");
    return NULL;
}

err *engine_check_network(engine *e, const caller *c)
{
    return check_network(e, c, &(sandbox_spec){.network = NETWORK_OPEN});
}

static err *check_create(engine *e, const caller *c, sandbox_spec *spec)
{
    bool public = false;

    TRY(caller_require(c, CALLER_USER));
    TRY(quota_ceilings(e, c, &spec->limits));
    TRY(template_apply(e, c, spec, &public));
    if (!public) /* a public template's limits were set by an administrator */
        TRY(quota_ceilings(e, c, &spec->limits));
    const limits asked = spec->limits;
    fill_defaults(e, spec);
    TRY(quota_ttl(e, c, &spec->ttl_ms, e->o.ttl_ms));
    TRY(sandbox_spec_check(spec));
    if (!spec->snapshot && image_is_local_source(spec->image) && c->role != CALLER_ADMIN)
        return err_remedy(err_new(ERR_FORBIDDEN, "only an admin may name a path of the node"),
                          "Let an admin pull it under a name, then use that name.");
    TRY(check_network(e, c, spec));
    TRY(create_check_limits(e, &asked));
    return check_caps(e, spec);
}

/* Answers a repeated create with its sandbox, even if its template or snapshot is gone by now.
 * Returns false if it is not a repetition. */
static bool replay_without_source(engine *e, const caller *c, const sandbox_spec *spec,
                                  const idempotency *idem, created_fn *done, void *arg)
{
    CLEANUP(sandbox_unrefp) sandbox *known = NULL;
    uint8_t key[16], body[16];

    if ((!spec->template && !spec->snapshot) || !idem->key)
        return false;
    idempotency_hash(c->owner, "create", "", idem, key, body);
    err_free(create_find(e, idem->key, key, body, &known)); /* the earlier failure is answered */
    if (!known)
        return false;
    create_waiter *w = xcalloc(1, sizeof *w);
    *w = (create_waiter){.done = done, .arg = arg};
    create_hand_over(known, w);
    return true;
}

sandbox *engine_create(engine *e, const caller *c, sandbox_spec *spec, enum pull_policy pull,
                       const idempotency *idem, created_fn *done, void *arg)
{
    enum key_outcome outcome = KEY_NEW;
    sandbox *known = NULL;
    image *img = NULL;
    err *failure = check_create(e, c, spec);

    metric_add(&ENGINE_METRICS[M_CREATES], 0, 1);
    if (failure && replay_without_source(e, c, spec, idem, done, arg)) {
        err_free(failure);
        return NULL;
    }
    if (failure) {
        done(arg, failure, NULL, false);
        return NULL;
    }
    sandbox *sb = sandbox_new(e, c->owner);
    take_spec(sb, spec);
    create_waiter *w = xcalloc(1, sizeof *w);
    *w = (create_waiter){.done = done, .arg = arg};
    failure = create_enter(e, sb, idem, w, &outcome, &known);
    if (failure || outcome != KEY_NEW) {
        sandbox_unref(sb);
        if (outcome == KEY_JOINED && !failure) {
            sandbox_unref(known);
            return NULL;
        }
        free(w);
        done(arg, failure, known, !failure);
        return NULL;
    }
    sandbox *creating = sandbox_ref(sb); /* the create may end before this function returns */
    failure = quota_admit(e, c, sb);
    if (failure) {
        create_failed(sb, failure, "quota", false);
        return creating;
    }
    if (e->o.backend->caps.images == CAP_ABSENT) {
        go_on(sb, image_by_name_only(sb->image_name));
        return creating;
    }
    if (sb->snapshot) {
        failure = image_derived(e->o.images, sb->snapshot, &img);
        if (failure)
            create_failed(sb, failure, "snapshot", false);
        else
            go_on(sb, img);
        return creating;
    }
    failure = pull == PULL_ALWAYS || e->o.backend->caps.images == CAP_EMULATED
                  ? err_new(ERR_NOT_FOUND, "somebody else is to be asked")
                  : image_find(e->o.images, sb->image_name, &img);
    if (!failure) {
        go_on(sb, img);
        return creating;
    }
    err_free(failure);
    image_ensure(e->o.images, sb->image_name, NULL, pull,
                 &(pull_events){.owner = sb->owner, .done = on_image, .arg = sb});
    return creating;
}
