/* Changes of a live sandbox: time, idleness, labels, limits.
 *
 * Limits are in force at the node and stored in the row. The row is marked `pending` before the
 * node is asked, and unmarked with the new values. After a kill in between, the start applies the
 * row's limits, so a change that was not answered has not happened. */
#include <string.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define TURN_NS (15 * NS_PER_S) /* how long a change of limits waits for its turn */

/* The new values. It owns its fields until they are swapped with the sandbox's. */
typedef struct change {
    char **labels;
    limits limits, before;
    uint64_t idle_ms, ends_ns;
    bool ttl_pauses;
} change;

static void change_done(change *c)
{
    strv_free(c->labels);
}

/* ---- labels ---- */

static bool is_named(const char *pair, const char *name)
{
    size_t n = strlen(name);

    return !strncmp(pair, name, n) && pair[n] == '=';
}

static char **labels_without(char **labels, const char *name)
{
    char **left = NULL;

    for (size_t i = 0; labels && labels[i]; i++)
        if (!is_named(labels[i], name))
            strv_push(&left, xstrdup(labels[i]));
    strv_free(labels);
    return left;
}

/* Returns true for label names that the operator uses to recognize its sandboxes. */
static bool is_reserved(const char *name)
{
    static const char OURS[] = "bothy.dev/";
    const char *at = strstr(name, OURS);

    return at && (at == name || at[-1] == '.');
}

static err *merge_labels(char ***labels, const json_t *patch)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)patch, name, value)
    {
        if (!json_is_null(value) && !json_is_string(value))
            return err_new(ERR_INVALID_REQUEST, "labels.%.64s must be a string or null", name);
        if (is_reserved(name))
            return err_remedy(
                err_new(ERR_INVALID_REQUEST, "the label '%.128s' is bothy's own", name),
                "Use a name without the prefix bothy.dev/.");
        *labels = labels_without(*labels, name);
        if (json_is_string(value))
            strv_push(labels, str_printf("%s=%s", name, json_string_value(value)));
    }
    return spec_labels_check(*labels);
}

/* ---- limits ---- */

static err *check_limits(const engine *e, const caller *c, const limits *l)
{
    TRY(limits_check(l));
    TRY(quota_ceilings(e, c, l));
    TRY(create_check_limits(e, l));
    if (l->shm_mib)
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "limits.shm of a live sandbox cannot be changed"),
            "Name it when the sandbox is created.");
    if ((l->memory || l->cpu_milli || l->pids || l->disk) && !e->o.backend->ops->limits)
        return err_new(ERR_UNSUPPORTED, "the backend '%s' has no limits", e->o.backend->caps.name);
    return NULL;
}

static void merge_limits(limits *l, const limits *patch)
{
    limits merged = *patch;

    limits_fill(&merged, l); /* all but disk */
    merged.disk = patch->disk ? patch->disk : l->disk;
    *l = merged;
}

/* Fills the limits that differ and that the node enforces. Returns false if there are none. */
static bool node_limits(const limits *from, const limits *to, limits *ret)
{
    *ret = (limits){.memory = to->memory != from->memory ? to->memory : 0,
                    .cpu_milli = to->cpu_milli != from->cpu_milli ? to->cpu_milli : 0,
                    .pids = to->pids != from->pids ? to->pids : 0,
                    .disk = to->disk != from->disk ? to->disk : 0};
    return ret->memory || ret->cpu_milli || ret->pids || ret->disk;
}

/* Gives the node the former limits. Returns true if it has them again. */
static bool unlimit_node(engine *e, sandbox *sb, const change *c)
{
    limits l;
    err *failure = node_limits(&c->limits, &c->before, &l)
                       ? e->o.backend->ops->limits(e->o.backend, sandbox_box(sb).id, &l)
                       : NULL;
    bool done = !failure;

    err_drop(failure, "update");
    return done;
}

/* Changes the limits at the node. A failed change may have been done in part, and the outcome of an
 * unanswered one is unknown, so the row stays pending until the node is known to have the former
 * limits. */
static err *limit_in_turn(engine *e, sandbox *sb, const change *c)
{
    backend *b = e->o.backend;
    limits l;

    (void)node_limits(&c->before, &c->limits, &l);
    TRY(store_sandbox_pending(e->o.store, sb->id, true));
    FAULT_KILL("update.intended");
    err *failure = b->ops->limits(b, sandbox_box(sb).id, &l);
    FAULT_KILL("update.applied");
    if (failure && unlimit_node(e, sb, c))
        err_drop(store_sandbox_pending(e->o.store, sb->id, false), "update");
    return failure;
}

static err *limit_node(engine *e, sandbox *sb, const change *c)
{
    limits l;

    if (!node_limits(&c->before, &c->limits, &l))
        return NULL;
    if (!turns_take(&e->limits, sb->owner, now_mono_ns() + TURN_NS))
        return err_retry_after(err_new(ERR_UNAVAILABLE, "too many changes of limits are under way"),
                               1);
    err *failure = limit_in_turn(e, sb, c);
    turns_give(&e->limits, sb->owner);
    return failure;
}

void update_settle(engine *e, sandbox *sb)
{
    const limits l = {.memory = sb->limits.memory,
                      .cpu_milli = sb->limits.cpu_milli,
                      .pids = sb->limits.pids,
                      .disk = sb->limits.disk};

    if (!e->o.backend->ops->limits)
        return;
    err *failure = e->o.backend->ops->limits(e->o.backend, sandbox_box(sb).id, &l);
    if (!failure)
        failure = store_sandbox_pending(e->o.store, sb->id, false);
    err_drop(failure, "update");
}

/* ---- the whole ---- */

static err *update_check(engine *e, const caller *c, const sandbox_patch *p)
{
    uint64_t ttl = p->ttl_ms;

    TRY(caller_require(c, CALLER_USER));
    if (p->has_ttl && (!ttl || ttl > SPEC_TTL_MAX_MS))
        return err_new(ERR_INVALID_REQUEST, "ttl must be from 1 second to 30 days");
    if (p->has_ttl)
        TRY(quota_ttl(e, c, &ttl, ttl));
    if (p->has_idle && p->idle_ms > SPEC_IDLE_MAX_MS)
        return err_new(ERR_INVALID_REQUEST, "idle must be at most 30 days");
    if (p->has_idle && p->idle_ms && engine_stats_cap(e) == CAP_ABSENT)
        return err_new(ERR_UNSUPPORTED, "idle: the backend '%s' does not measure",
                       e->o.backend->caps.name);
    if (p->has_ttl_pauses && p->ttl_pauses && !e->o.backend->ops->freeze)
        return err_new(ERR_UNSUPPORTED, "the backend '%s' cannot pause a sandbox",
                       e->o.backend->caps.name);
    return check_limits(e, c, &p->limits);
}

/* Checks the state: time and labels of a paused sandbox can be changed, its limits cannot. */
static err *check_state(sandbox *sb, const sandbox_patch *p)
{
    const limits *l = &p->limits;
    bool inside =
        l->memory || l->disk || l->cpu_milli || l->pids || l->nofile || l->nofile_hard || l->execs;
    LOCK_SCOPE(&sb->lock);

    return sb->state == LIFE_PAUSED && !sb->cause && !inside ? NULL : sandbox_usable_locked(sb);
}

/* Returns the new end of the sandbox. Lock held. */
static uint64_t new_end(const sandbox *sb, const sandbox_patch *p)
{
    uint64_t ends = sandbox_now(sb) + p->ttl_ms * NS_PER_MS;

    if (!p->has_ttl || (p->ttl_only_later && (!sb->ends_ns || sb->ends_ns > ends)))
        return sb->ends_ns;
    return ends;
}

static err *update_plan(sandbox *sb, const sandbox_patch *p, change *ret)
{
    LOCK_SCOPE(&sb->lock);

    *ret = (change){.labels = strv_copy(sb->labels),
                    .limits = sb->limits,
                    .before = sb->limits,
                    .idle_ms = p->has_idle ? p->idle_ms : sb->idle_ms,
                    .ttl_pauses = p->has_ttl_pauses ? p->ttl_pauses : sb->ttl_pauses,
                    .ends_ns = new_end(sb, p)};
    merge_limits(&ret->limits, &p->limits);
    TRY(limits_check(&ret->limits)); /* new and unchanged limits must fit together */
    return p->labels ? merge_labels(&ret->labels, p->labels) : NULL;
}

static char *text_of(sandbox *sb, const change *c)
{
    LOCK_SCOPE(&sb->lock);
    change now = {.labels = sb->labels,
                  .limits = sb->limits,
                  .idle_ms = sb->idle_ms,
                  .ttl_pauses = sb->ttl_pauses};

    sb->ttl_pauses = c->ttl_pauses;
    sb->labels = c->labels;
    sb->limits = c->limits;
    sb->idle_ms = c->idle_ms;
    char *text = sandbox_spec_text(sb);
    sb->labels = now.labels;
    sb->limits = now.limits;
    sb->idle_ms = now.idle_ms;
    sb->ttl_pauses = now.ttl_pauses;
    return text;
}

static void update_take(sandbox *sb, change *c, bool idle)
{
    LOCK_SCOPE(&sb->lock);
    char **old = sb->labels;

    sb->labels = c->labels;
    c->labels = old;
    sb->limits = c->limits;
    if (sb->ends_ns != c->ends_ns) /* earlier failures to pause belong to the former TTL */
        pause_forgive(sb);
    sb->ends_ns = c->ends_ns;
    sb->ttl_pauses = c->ttl_pauses;
    if (idle)
        sandbox_set_idle(sb, c->idle_ms);
    if (sb->table)
        exec_table_limit(sb->table, sb->limits.execs);
}

static err *update_commit(engine *e, sandbox *sb, change *c, bool idle)
{
    CLEANUP(freep) char *text = text_of(sb, c);

    TRY(store_sandbox_spec(e->o.store, sb->id, text, c->ends_ns));
    FAULT_KILL("update.committed");
    update_take(sb, c, idle);
    return NULL;
}

static err *update_update(engine *e, const caller *who, sandbox *sb, const sandbox_patch *p)
{
    CLEANUP(change_done) change c = {0};

    TRY(update_plan(sb, p, &c));
    TRY(quota_raise(e, who, sb, &c.limits));
    TRY(limit_node(e, sb, &c));
    err *failure = update_commit(e, sb, &c, p->has_idle);
    if (failure)
        (void)unlimit_node(e, sb, &c);
    return failure;
}

err *engine_update(engine *e, const caller *c, sandbox *sb, const sandbox_patch *p)
{
    TRY(update_check(e, c, p));
    TRY(sandbox_move_begin(sb));
    err *failure = check_state(sb, p);
    if (!failure)
        failure = update_update(e, c, sb, p);
    quota_raised(e, sb);
    sandbox_move_end(sb);
    if (!failure || (failure->code != ERR_NOT_FOUND && failure->code != ERR_SANDBOX_GONE))
        return failure;
    err *gone = sandbox_usable(sb); /* it has ended meanwhile, with a cause */
    if (!gone)
        return failure;
    err_free(failure);
    return gone;
}

/* ---- the end time ---- */

/* Checks that the end time can be changed: a hibernated sandbox is not woken for it. */
static err *check_timed(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    bool asleep = sb->state == LIFE_HIBERNATED && !sb->cause && !sb->deleting;

    return asleep ? NULL : sandbox_usable_locked(sb);
}

static err *end_at(engine *e, sandbox *sb, uint64_t ends_ns)
{
    CLEANUP(change_done) change c = {0};
    uint64_t latest = clock_real(e->o.clock) + SPEC_TTL_MAX_MS * NS_PER_MS;

    TRY(check_timed(sb));
    TRY(update_plan(sb, &(sandbox_patch){0}, &c));
    c.ends_ns = ends_ns < latest ? ends_ns : latest;
    return update_commit(e, sb, &c, false);
}

err *engine_end_at(engine *e, sandbox *sb, uint64_t ends_ns)
{
    TRY(sandbox_move_try(sb));
    err *failure = end_at(e, sb, ends_ns);
    sandbox_move_end(sb);
    return failure;
}
