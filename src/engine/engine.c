/* The engine itself: start, find, list, exec, delete. create.c has creates. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

/* Names of causes, filled from their table before the metrics are registered. */
static const char *cause_labels[CAUSES + 1];
static const char *const PHASES[] = {"queue", "build", "swap", "claim", "commit", NULL};
/* BOX_CLASSES, and a last one for an unknown class: receipt_class(). */
static const char *const CLASSES[] = {"slot", "exact", "cold", "kubelet", "unknown", NULL};
metric ENGINE_METRICS[M_COUNT] = {
    [M_CREATES] = METRIC_COUNTER("bothy_creates_total", "Sandboxes asked for."),
    [M_CREATE_FAILED] = METRIC_COUNTER("bothy_creates_failed_total", "Creates that failed."),
    [M_CREATE_SECONDS] = METRIC_HISTOGRAM("bothy_create_seconds", "From the request to running."),
    [M_PHASE_SECONDS] =
        METRIC_HISTOGRAM_BY("bothy_create_phase_seconds", "Parts of a create.", "phase", PHASES),
    [M_CLAIMS] = METRIC_COUNTER_BY("bothy_claims_total",
                                   "Creates that came to a sandbox, by what it was made of.",
                                   "class", CLASSES),
    [M_ENDED] = METRIC_COUNTER_BY("bothy_sandboxes_ended_total", "Sandboxes ended, by cause.",
                                  "cause", cause_labels),
    [M_EXECS] = METRIC_COUNTER("bothy_execs_total", "Commands asked for."),
    [M_RESETS] = METRIC_COUNTER("bothy_resets_total", "Resets that were tried."),
    [M_RESETS_FAILED] = METRIC_COUNTER("bothy_resets_failed_total",
                                       "Resets that failed: the sandbox stayed as it was."),
    [M_LIVE] = METRIC_GAUGE("bothy_sandboxes_live", "Sandboxes that live or are being made."),
};

err *engine_new(const engine_options *o, engine **ret_engine)
{
    engine *e = xcalloc(1, sizeof *e);

    e->o = *o;
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->look_lock, NULL);
    pthread_mutex_init(&e->snapshot_lock, NULL);
    cond_init(&e->wake);
    turns_init(&e->copies, SNAPSHOT_COPIES, SNAPSHOT_COPIES);
    turns_init(&e->freezes, FREEZES, FREEZES_OWNER);
    turns_init(&e->limits, LIMITINGS, LIMITINGS_OWNER);
    for (enum cause_kind k = 0; k < CAUSES; k++)
        cause_labels[k] = cause_name(k);
    metric_register(ENGINE_METRICS, M_COUNT);
    session_count();
    engine_count_init(e);
    events_open(e);
    ended_open(e);
    pause_recall(e);
    builds_open(e);
    usage_open(e);
    pthread_mutex_init(&e->sleep.lock, NULL);
    cond_init(&e->sleep.changed);
    cond_init(&e->reset_wake);
    cond_init(&e->sweep_wake);
    err *failure = keys_open(e);
    e->keeper = thread_start("keeper", engine_keeper, e);
    engine_recall_dropped(e);
    e->sweeper = thread_start("sweeper", engine_sweeper, e);
    e->resetter = thread_start("resetter", engine_resetter, e);
    if (failure) {
        engine_free(e);
        return failure;
    }
    *ret_engine = e;
    return NULL;
}

void engine_free(engine *e)
{
    map_iter it = {0};

    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->wake);
    pthread_cond_signal(&e->reset_wake);
    pthread_cond_signal(&e->sweep_wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->keeper, NULL);
    pthread_join(e->sweeper, NULL);
    builds_close(e);
    snapshot_wait_all(e);
    pthread_join(e->resetter, NULL);
    usage_close(e);
    ended_close(e);
    for (size_t i = 0; i < e->nleft; i++)
        sandbox_unref(e->left[i].sb);
    free(e->left);
    ending_drop_all(e);
    while (map_next(&e->live, &it))
        sandbox_unref(it.entry->value);
    map_done(&e->live);
    map_done(&e->creating);
    quota_done(e);
    keys_close(e);
    store_event_watch(e->o.store, NULL, NULL);
    pthread_mutex_destroy(&e->event_lock);
    turns_done(&e->copies);
    turns_done(&e->freezes);
    turns_done(&e->limits);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->reset_wake);
    pthread_cond_destroy(&e->sweep_wake);
    pthread_cond_destroy(&e->sleep.changed);
    pthread_mutex_destroy(&e->sleep.lock);
    pthread_mutex_destroy(&e->snapshot_lock);
    pthread_mutex_destroy(&e->look_lock);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- start-up ---- */

/* How long an interrupted create may wait for its init to report. */
#define RECOVER_NS (60 * NS_PER_S)

/* Makes a sandbox in memory from its row, with its journal read, without a box. */
static err *take_up(engine *e, const sandbox_row *row, sandbox **ret_sandbox)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = sandbox_from_row(e, row);

    TRY(exec_table_open_box(e->o.execs, sb->id, sb->box_id, &sb->table));
    exec_table_limit(sb->table, sb->limits.execs);
    exec_table_own(sb->table, sb->owner);
    sb->image = image_by_digest(e->o.images, sb->digest); /* may be gone */
    *ret_sandbox = TAKE_PTR(sb);
    return NULL;
}

static void make_live(engine *e, sandbox *sb)
{
    LOCK_SCOPE(&e->lock);

    map_put_str(&e->live, sb->id, sandbox_ref(sb));
    sb->counted = true;
    metric_set(&ENGINE_METRICS[M_LIVE], 0, (int64_t)e->live.count);
}

/* Adopts a hibernated sandbox. It has no box: if one is still there, it is destroyed as an
 * orphan. */
static err *adopt_asleep(engine *e, const sandbox_row *row)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(take_up(e, row, &sb));
    exec_table_sleep(sb->table, e->o.backend);
    make_live(e, sb);
    return NULL;
}

/* Adopts a sandbox with its box. *ret_unread: its journal cannot be read; the sandbox is then left
 * alone, because its disk may be repaired. */
static err *engine_adopt(engine *e, const sandbox_row *row, const box_status *status,
                         bool *ret_unread)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    box *x = NULL;

    if (lifecycle_by_name(row->state) == LIFE_STATES) /* such a row must not be touched */
        return err_new(ERR_INTERNAL, "sandbox %s has the unknown state '%s' in the store", row->id,
                       row->state);
    err *unread = take_up(e, row, &sb);
    *ret_unread = unread != NULL;
    TRY(unread);
    if (sb->state == LIFE_PAUSED)
        exec_table_pause(sb->table, sb->paused_ns);
    make_live(e, sb);
    sb->recovering = sb->state == LIFE_CREATING;
    sb->recover_by_ns = clock_mono(e->o.clock) + RECOVER_NS;
    box_tie *tie = tie_new(sb);
    err *failure = e->o.backend->ops->attach(e->o.backend, sb->box_id, &ENGINE_BOX_EVENTS, tie, &x);
    if (failure) {
        tie_free(tie); /* the box's reference: there is no box */
        sandbox_finish(sb, &(cause){.kind = CAUSE_INTERNAL});
        return failure;
    }
    sandbox_bind(sb, tie, x);
    sandbox_settle_pause(sb, status->frozen);
    if (row->pending)
        update_settle(e, sb);
    session_table *sessions = NULL; /* the time limits of their commands run on */
    err_drop(sandbox_sessions(sb, &sessions), "sessions");
    return NULL;
}

/* Adds a remedy to a failure that stops the start: without the journal the node would have to end
 * the sandbox or forget its commands. */
static err *cannot_read(const char *id, err *why)
{
    if (why->code != ERR_UNSUPPORTED)
        why = err_remedy(why,
                         "Sandbox %s lives on. Mend the disk and start bothyd again; or move "
                         "spool/%s/journal of the state directory away: then the sandbox is kept "
                         "and its commands so far are forgotten.",
                         id, id);
    return why;
}

static err *reconcile_row(engine *e, map *boxes, const sandbox_row *row)
{
    bool unread = false;

    if (!strcmp(row->state, lifecycle_name(LIFE_GONE)))
        return NULL;
    LOG_ABOUT(row->id, NULL, 0);
    if (!strcmp(row->state, lifecycle_name(LIFE_HIBERNATED))) {
        err *unread_asleep = adopt_asleep(e, row);
        return unread_asleep ? cannot_read(row->id, unread_asleep) : NULL;
    }
    const box_name in = box_of_row(row);
    box_status *b = map_get_str(boxes, in.id);
    if (!b || b->dead) {
        char detail[CAUSE_DETAIL_MAX];
        cause known = b ? ending_cause(e, in.id, detail) : (cause){0};
        end_row(e, row, b ? &known : NULL, b);
        /* Not an orphan: the box keeps its exit status until the row is written. */
        map_take_str(boxes, in.id);
        return NULL;
    }
    err *failure = engine_adopt(e, row, b, &unread);
    if (unread)
        return cannot_read(row->id, failure);
    if (failure) {
        log_error("reconcile", "sandbox %s cannot be taken up: %s", row->id, failure->message);
        err_drop(e->o.backend->ops->destroy(e->o.backend, in.id), "reconcile");
        end_row(e, row, &(cause){.kind = CAUSE_INTERNAL, .detail = failure->message}, false);
        err_free(failure);
        return NULL;
    }
    map_take_str(boxes, in.id);
    FAULT_KILL("reconcile.adopted");
    return NULL;
}

static err *reconcile_rows(engine *e, map *boxes)
{
    char after[SANDBOX_ID_LEN + 1] = "";

    for (;;) {
        sandbox_row *rows = NULL;
        size_t n = 0;
        err *failure = NULL;
        const sandbox_page page = {.after = after, .max = 256, .without_gone = true};
        TRY(store_sandbox_list(e->o.store, &page, &rows, &n));
        for (size_t i = 0; i < n; i++) {
            if (!failure)
                failure = reconcile_row(e, boxes, &rows[i]);
            memcpy(after, rows[i].id, sizeof after);
            sandbox_row_done(&rows[i]);
        }
        free(rows);
        if (failure || !n)
            return failure;
    }
}

err *engine_reconcile(engine *e)
{
    CLEANUP(freep) box_status *list = NULL;
    map boxes = {0};
    map_iter it = {0};
    size_t n = 0;

    snapshot_reconcile(e);
    FAULT_KILL("reconcile.begun");
    TRY(e->o.backend->ops->list(e->o.backend, &list, &n));
    for (size_t i = 0; i < n; i++)
        map_put_str(&boxes, list[i].id, &list[i]);
    err *failure = reconcile_rows(e, &boxes);
    /* The boxes that are left are orphans. */
    while (!failure && map_next(&boxes, &it)) {
        const box_status *b = it.entry->value;
        LOG_ABOUT(b->id, NULL, 0);
        log_info("reconcile", "destroying %s: nobody owns it", b->id);
        err_drop(e->o.backend->ops->destroy(e->o.backend, b->id), "reconcile");
    }
    map_done(&boxes);
    if (!failure)
        failure = forks_reconcile(e);
    if (!failure)
        failure = builds_reconcile(e);
    if (!failure)
        sweep_orphans(e);
    return failure;
}

/* ---- find and list ---- */

static bool may_see(const caller *c, const char *owner)
{
    return c->role == CALLER_ADMIN || !strcmp(c->owner, owner);
}

static err *no_sandbox(const char *id)
{
    return err_kind(err_new(ERR_NOT_FOUND, "there is no sandbox '%s'", id), "sandbox");
}

sandbox **engine_live_where(engine *e, bool (*wanted)(sandbox *sb), size_t *ret_n)
{
    LOCK_SCOPE(&e->lock);
    sandbox **all = xcalloc(e->live.count + 1, sizeof(sandbox *));
    map_iter it = {0};
    size_t n = 0;

    while (map_next(&e->live, &it))
        if (!wanted || wanted(it.entry->value))
            all[n++] = sandbox_ref(it.entry->value);
    *ret_n = n;
    return all;
}

sandbox **engine_live_all(engine *e, size_t *ret_n)
{
    return engine_live_where(e, NULL, ret_n);
}

static sandbox *find_live(engine *e, const caller *c, const char *id_or_name)
{
    LOCK_SCOPE(&e->lock);
    sandbox *sb = map_get_str(&e->live, id_or_name);
    map_iter it = {0};

    if (sb)
        return may_see(c, sb->owner) ? sandbox_ref(sb) : NULL;
    if (id_is_sandbox(id_or_name)) /* names never look like ids */
        return NULL;
    while (map_next(&e->live, &it)) {
        sb = it.entry->value;
        if (sb->name && !strcmp(sb->name, id_or_name) && !strcmp(sb->owner, c->owner))
            return sandbox_ref(sb);
    }
    return NULL;
}

err *engine_find(engine *e, const caller *c, const char *id_or_name, sandbox **ret_sandbox)
{
    sandbox_row row = {0};
    sandbox *sb = find_live(e, c, id_or_name);

    log_id(LOG_SANDBOX, sb ? sb->id : id_is_sandbox(id_or_name) ? id_or_name : NULL);
    if (sb) {
        *ret_sandbox = sb;
        return NULL;
    }
    if (!id_is_sandbox(id_or_name))
        return no_sandbox(id_or_name);
    err *failure = store_sandbox_get(e->o.store, id_or_name, &row);
    if (failure && failure->code == ERR_NOT_FOUND) {
        err_free(failure);
        return no_sandbox(id_or_name);
    }
    TRY(failure);
    failure = may_see(c, row.owner) ? sandbox_of_row(e, &row, &sb) : no_sandbox(id_or_name);
    sandbox_row_done(&row);
    TRY(failure);
    *ret_sandbox = sb;
    return NULL;
}

static bool label_match(char *const *have, char *const *want)
{
    for (size_t i = 0; want && want[i]; i++) {
        bool found = false;
        size_t n = strlen(want[i]);
        bool whole = strchr(want[i], '=') != NULL;
        for (size_t k = 0; have && have[k] && !found; k++)
            found = !strncmp(have[k], want[i], n) && (whole ? !have[k][n] : have[k][n] == '=');
        if (!found)
            return false;
    }
    return true;
}

static bool engine_matches(const caller *c, const sandbox_filter *f, const sandbox_view *v)
{
    enum lifecycle state = lifecycle_by_name(v->state);
    bool wanted = f->states ? f->states & 1u << state : state != LIFE_GONE;

    return wanted && may_see(c, v->owner) && (!f->name || str_eq(f->name, v->name)) &&
           label_match(v->labels, f->labels);
}

/* Views the row's sandbox as it is now: the live one if there is one. */
static err *view_of_row(engine *e, const sandbox_row *row, sandbox_view *ret_view)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(sandbox_of_row(e, row, &sb));
    sandbox_get(sb, ret_view);
    return NULL;
}

/* A list under way. */
typedef struct listing {
    sandbox_view *views;
    size_t n;
    char after[SANDBOX_ID_LEN + 1]; /* id of the last row that was read */
} listing;

static err *list_row(engine *e, const caller *c, const sandbox_filter *f, const sandbox_row *row,
                     listing *l)
{
    sandbox_view v = {0};

    TRY(view_of_row(e, row, &v));
    memcpy(l->after, row->id, sizeof l->after);
    if (engine_matches(c, f, &v))
        l->views[l->n++] = v;
    else
        sandbox_view_done(&v);
    return NULL;
}

static err *list_page(engine *e, const caller *c, const sandbox_filter *f, listing *l,
                      bool *ret_more)
{
    /* Rows of other owners, which may be many, are not read. */
    const sandbox_page page = {.after = l->after,
                               .max = 256,
                               .owner = c->role == CALLER_ADMIN ? NULL : c->owner,
                               .without_gone = !f->states || !(f->states & 1u << LIFE_GONE)};
    sandbox_row *rows = NULL;
    size_t n = 0;
    err *failure = NULL;

    TRY(store_sandbox_list(e->o.store, &page, &rows, &n));
    for (size_t i = 0; i < n; i++) {
        if (!failure && l->n < f->max)
            failure = list_row(e, c, f, &rows[i], l);
        sandbox_row_done(&rows[i]);
    }
    free(rows);
    *ret_more = n > 0;
    return failure;
}

err *engine_list(engine *e, const caller *c, const sandbox_filter *f, sandbox_view **ret_views,
                 size_t *ret_n, char **ret_next)
{
    listing l = {.views = xcalloc(f->max, sizeof *l.views)};
    err *failure = NULL;

    if (f->after)
        snprintf(l.after, sizeof l.after, "%s", f->after);
    for (bool more = true; more && !failure && l.n < f->max;)
        failure = list_page(e, c, f, &l, &more);
    if (failure) {
        while (l.n)
            sandbox_view_done(&l.views[--l.n]);
        free(l.views);
        return failure;
    }
    *ret_next = l.n == f->max ? xstrdup(l.after) : NULL;
    *ret_views = l.views;
    *ret_n = l.n;
    return NULL;
}

/* ---- exec ---- */

static err *gone_error(const sandbox *sb)
{
    return err_because(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", sb->id), "%s",
                       str_or(sb->cause, "not known"));
}

static err *paused_error(const sandbox *sb)
{
    return err_kind(err_new(ERR_SANDBOX_PAUSED, "sandbox %s is paused", sb->id), "sandbox");
}

err *engine_awake(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    return sb->state == LIFE_PAUSED ? paused_error(sb) : NULL;
}

err *sandbox_usable(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sandbox_usable_locked(sb);
}

err *sandbox_usable_locked(sandbox *sb)
{
    if (sb->cause)
        return gone_error(sb);
    switch (sb->state) {
    case LIFE_RUNNING:
        return NULL;
    case LIFE_PAUSED:
        return paused_error(sb);
    case LIFE_CREATING:
        if (sb->recovering) /* adopted at start: pid 1 will report whether it was claimed */
            return err_retry_after(err_new(ERR_UNAVAILABLE,
                                           "sandbox %s is being taken up again after a restart",
                                           sb->id),
                                   1);
        return err_new(ERR_CONFLICT, "sandbox %s is still being created", sb->id);
    case LIFE_HIBERNATED:
        return asleep_error(sb);
    default:
        return gone_error(sb);
    }
}

/* Adds the cause to an error of a lower layer, which may notice the end first. */
err *sandbox_told(sandbox *sb, err *failure)
{
    err *why = failure && failure->code == ERR_SANDBOX_GONE ? sandbox_usable(sb) : NULL;

    if (why)
        err_free(failure);
    return why ? why : failure;
}

void sandbox_files(sandbox *sb, uint32_t *ret_soft, uint32_t *ret_hard)
{
    LOCK_SCOPE(&sb->lock);
    *ret_soft = sb->limits.nofile;
    *ret_hard = sb->limits.nofile_hard;
}

/* Limits an owner's live commands: each has descriptors of this process, which all owners share. */
err *sandbox_check_commands(engine *e, const caller *c, const sandbox *sb)
{
    unsigned max = exec_hub_owner_max(e->o.execs);

    if (c->role == CALLER_ADMIN || exec_table_owner_live(sb->table) < max)
        return NULL;
    return err_retry_after(err_new(ERR_QUOTA_EXCEEDED,
                                   "'%s' has %u live commands, as many as one owner may have",
                                   sb->owner, max),
                           5);
}

err *engine_exec_for_verb(engine *e, const caller *c, sandbox *sb, exec_spec *spec, exec **ret_exec)
{
    bool replay;

    TRY(engine_wait_awake(sb));
    TRY(exec_spec_check(spec));
    TRY(sandbox_check_commands(e, c, sb));
    TRY(sandbox_use_begin(sb));
    sandbox_files(sb, &spec->nofile, &spec->nofile_hard);
    err *failure = exec_start(sb->table, spec, NULL, ret_exec, &replay);
    sandbox_use_end(sb);
    return sandbox_told(sb, failure);
}

/* Finds the command that was begun with this key, whatever the sandbox's state and the owner's
 * quota are now. *ret_exec is NULL if there is none. */
static err *find_replay(sandbox *sb, const exec_key *key, exec **ret_exec)
{
    exec_table *t = NULL;

    *ret_exec = NULL;
    {
        LOCK_SCOPE(&sb->lock);
        if (!sb->table && sb->state != LIFE_GONE)
            return NULL;
    }
    TRY(sandbox_table(sb, &t));
    return exec_replay(t, key, ret_exec);
}

err *engine_exec(engine *e, const caller *c, sandbox *sb, exec_spec *spec, const idempotency *idem,
                 exec **ret_exec, bool *ret_replay)
{
    exec_key key = {0};

    TRY(caller_require(c, CALLER_USER));
    if (idem->key) {
        idempotency_hash(c->owner, "exec", sb->id, idem, key.key, key.body);
        TRY(find_replay(sb, &key, ret_exec));
        *ret_replay = *ret_exec;
        if (*ret_exec)
            return NULL;
    }
    TRY(engine_wait_awake(sb));
    TRY(exec_spec_check(spec));
    TRY(sandbox_check_commands(e, c, sb));
    spec->setuid = sb->setuid;
    metric_add(&ENGINE_METRICS[M_EXECS], 0, 1);
    TRY(sandbox_use_begin(sb));
    sandbox_files(sb, &spec->nofile, &spec->nofile_hard);
    err *failure = exec_start(sb->table, spec, idem->key ? &key : NULL, ret_exec, ret_replay);
    sandbox_use_end(sb);
    if (!failure)
        log_id_number(LOG_EXEC, exec_id(*ret_exec));
    return sandbox_told(sb, failure);
}

err *sandbox_table(sandbox *sb, exec_table **ret_table)
{
    LOCK_SCOPE(&sb->lock);

    if (!sb->table) {
        if (sb->state != LIFE_GONE)
            return err_new(ERR_CONFLICT, "sandbox %s is still being created", sb->id);
        TRY(exec_table_open_box(sb->engine->o.execs, sb->id, sb->box_id, &sb->table));
        exec_table_end(sb->table);
    }
    *ret_table = sb->table;
    return NULL;
}

err *engine_exec_find(sandbox *sb, const char *id, exec **ret_exec)
{
    exec_table *t = NULL;
    uint64_t n = 0;

    TRY(sandbox_table(sb, &t));
    if (!str_to_u64(id, UINT64_MAX, &n) || !n)
        return err_kind(err_new(ERR_NOT_FOUND, "there is no exec '%s'", id), "exec");
    log_id_number(LOG_EXEC, n);
    return exec_find(t, n, ret_exec);
}

err *engine_exec_list(sandbox *sb, exec ***ret_execs, size_t *ret_n)
{
    exec_table *t = NULL;

    TRY(sandbox_table(sb, &t));
    exec_list(t, EXEC_LIST_MAX, ret_execs, ret_n);
    return NULL;
}

/* ---- delete ---- */

static err *check_cause(const caller *c, enum cause_kind kind)
{
    TRY(caller_require(c, CALLER_USER));
    if (kind == CAUSE_REQUESTED)
        return NULL;
    if (kind != CAUSE_BUDGET && kind != CAUSE_POLICY)
        return err_new(ERR_INVALID_REQUEST, "cause: '%s' cannot be given", cause_name(kind));
    return caller_require(c, CALLER_ADMIN);
}

/* Undoes a deletion that could not be recorded: the sandbox lives on. If pid 1 has ended meanwhile,
 * its end was taken for a part of the deletion, and is handled now. */
static void delete_failed(sandbox *sb)
{
    bool lost;

    {
        LOCK_SCOPE(&sb->lock);
        sb->deleting = false;
        lost = !sb->tie && sb->state != LIFE_GONE && !sb->ending;
        sb->ending |= lost;
    }
    if (lost)
        ending_begin(sandbox_ref(sb), "it ended while its deletion could not be recorded");
}

err *engine_end_for(engine *e, sandbox *sb, const cause *why)
{
    CLEANUP(freep) char *text = cause_json(why);
    err *not_recorded;
    bool asleep;

    if (create_cancel(sb, why->by, &not_recorded))
        return not_recorded;
    {
        LOCK_SCOPE(&sb->lock);
        asleep = sb->state == LIFE_HIBERNATED;
        if (sb->state == LIFE_GONE || sb->deleting)
            return NULL;
        if (sb->state == LIFE_CREATING)
            return err_retry_after(err_new(ERR_UNAVAILABLE,
                                           "sandbox %s is being taken up again after a restart",
                                           sb->id),
                                   1);
        sb->deleting = true;
    }
    err *failure = store_sandbox_state(e->o.store, sb->id, lifecycle_name(LIFE_GONE), text,
                                       clock_real(e->o.clock));
    if (failure) {
        delete_failed(sb);
        return failure;
    }
    {
        LOCK_SCOPE(&sb->lock);
        sandbox_decide(sb, why); /* before its commands end */
    }
    FAULT_KILL("delete.committed");
    /* The end is committed: the request does not wait for a silent node. */
    engine_destroy_soon(e, sandbox_box(sb).id, "delete");
    FAULT_KILL("delete.destroyed");
    metric_add(&ENGINE_METRICS[M_ENDED], why->kind, 1);
    sandbox_finish(sb, why);
    if (asleep)
        EXEC_BOX_EVENTS.gone(sb->table, "it was hibernated"); /* there is no box to report it */
    FAULT_KILL("delete.finished");
    return NULL;
}

err *engine_delete(engine *e, const caller *c, sandbox *sb, enum cause_kind kind,
                   const char *detail)
{
    TRY(check_cause(c, kind));
    return engine_end_for(e, sb, &(cause){.kind = kind, .by = c->owner, .detail = detail});
}

/* ---- miscellaneous ---- */

bool engine_uses_image(engine *e, const uint8_t digest[32])
{
    LOCK_SCOPE(&e->lock);
    map_iter it = {0};

    while (map_next(&e->live, &it)) {
        sandbox *sb = it.entry->value;
        LOCK_SCOPE(&sb->lock);
        if (!memcmp(sb->digest, digest, sizeof sb->digest))
            return true;
    }
    return false;
}

static bool image_in_use(void *arg, const uint8_t digest[32])
{
    return engine_uses_image(arg, digest);
}

err *engine_prune_images(engine *e, const caller *c, bool all, uint64_t *ret_bytes)
{
    TRY(caller_require(c, CALLER_ADMIN));
    TRY(snapshot_sweep(e));
    return image_prune(e->o.images, image_in_use, e, all, ret_bytes);
}

image_store *engine_images(engine *e)
{
    return e->o.images;
}

backend *engine_backend(const engine *e)
{
    return e->o.backend;
}

const char *engine_cell(engine *e)
{
    return e->o.cell;
}

engine_counts engine_count(engine *e)
{
    engine_counts n = {0};
    LOCK_SCOPE(&e->lock);
    map_iter it = {0};

    while (map_next(&e->live, &it)) {
        sandbox *sb = it.entry->value;
        LOCK_SCOPE(&sb->lock);
        if (sb->state == LIFE_CREATING)
            n.creating++;
        else if (sb->state == LIFE_PAUSED)
            n.paused++;
        else
            n.running++;
    }
    return n;
}

err *engine_ready(engine *e, pool_status *ret_pool, bool *ret_pooled)
{
    const backend_ops *ops = e->o.backend->ops;
    CLEANUP(freep) box_status *list = NULL;
    size_t n = 0;

    *ret_pooled = false;
    if (!ops->pool)
        return ops->list(e->o.backend, &list, &n);
    TRY(ops->pool(e->o.backend, NULL, ret_pool));
    *ret_pooled = true;
    return NULL;
}
