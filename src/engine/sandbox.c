/* One sandbox: its value, its form in the store, its end. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

sandbox *sandbox_new(engine *e, const char *owner)
{
    sandbox *sb = xcalloc(1, sizeof *sb);

    sb->refs = 1;
    sb->engine = e;
    sb->owner = xstrdup(owner);
    pthread_mutex_init(&sb->lock, NULL);
    pthread_mutex_init(&sb->event_lock, NULL);
    pthread_cond_init(&sb->moved, NULL);
    sb->state = LIFE_CREATING;
    return sb;
}

sandbox *sandbox_ref(sandbox *sb)
{
    atomic_fetch_add(&sb->refs, 1);
    return sb;
}

void sandbox_unref(sandbox *sb)
{
    if (!sb || atomic_fetch_sub(&sb->refs, 1) > 1)
        return;
    if (sb->box)
        sb->engine->o.backend->ops->box_unref(sb->box);
    session_table_close(sb->sessions);
    exec_table_unref(sb->table);
    free(sb->measured);
    image_unref(sb->image);
    sandbox_spec_done(&sb->spec);
    json_decref(sb->tmpfs);
    json_decref(sb->start);
    strv_free(sb->labels);
    free(sb->template);
    free(sb->snapshot);
    free(sb->owner);
    free(sb->name);
    free(sb->image_name);
    free(sb->user);
    free(sb->cwd);
    free(sb->door);
    free(sb->cause);
    free(sb->deleted_by);
    pthread_cond_destroy(&sb->moved);
    free(sb->meter);
    pthread_mutex_destroy(&sb->event_lock);
    pthread_mutex_destroy(&sb->lock);
    free(sb);
}

const char *sandbox_id(const sandbox *sb)
{
    return sb->id;
}

const char *sandbox_user(const sandbox *sb)
{
    return sb->user;
}

const char *sandbox_owner(const sandbox *sb)
{
    return sb->owner;
}

const char *sandbox_door(const sandbox *sb)
{
    return sb->door;
}

enum lifecycle sandbox_state(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sb->cause ? LIFE_GONE : sb->state;
}

static char *copy_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

bool sandbox_enter(sandbox *sb, enum lifecycle state)
{
    if (!lifecycle_allows(sb->state, state)) {
        log_error("lifecycle", "sandbox %s may not go from %s to %s", sb->id,
                  lifecycle_name(sb->state), lifecycle_name(state));
        return false;
    }
    sb->state = state;
    return true;
}

/* ---- the store's form ---- */

json_t *limits_json(const limits *l)
{
    return json_pack("{s:I,s:I,s:i,s:i,s:i,s:i,s:i,s:i}", "memory", (json_int_t)l->memory, "disk",
                     (json_int_t)l->disk, "cpu_milli", (int)l->cpu_milli, "pids", (int)l->pids,
                     "nofile", (int)l->nofile, "nofile_hard", (int)l->nofile_hard, "shm_mib",
                     (int)l->shm_mib, "execs", (int)l->execs);
}

void limits_read(const json_t *o, limits *l)
{
    l->memory = (uint64_t)json_int(o, "memory", 0);
    l->disk = (uint64_t)json_int(o, "disk", 0);
    l->cpu_milli = (uint32_t)json_int(o, "cpu_milli", 0);
    l->pids = (uint32_t)json_int(o, "pids", 0);
    l->nofile = (uint32_t)json_int(o, "nofile", 0);
    l->nofile_hard = (uint32_t)json_int(o, "nofile_hard", SPEC_NOFILE_HARD);
    l->shm_mib = (uint32_t)json_int(o, "shm_mib", 0);
    l->execs = (uint32_t)json_int(o, "execs", 0);
}

json_t *strv_json(char *const *v)
{
    json_t *list = json_array();

    for (size_t i = 0; v && v[i]; i++)
        json_array_append_new(list, json_string(v[i]));
    return list;
}

char **strv_of_json(const json_t *list)
{
    char **v = NULL;
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one) if (json_is_string(one))
        strv_push(&v, xstrdup(json_string_value(one)));
    return v;
}

char *sandbox_spec_text(const sandbox *sb)
{
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(json_decrefp) json_t *labels = strv_json(sb->labels);

    CLEANUP(json_decrefp)
    json_t *o = json_pack(
        "{s:o,s:O,s:s?,s:s?,s:b,s:b,s:i,s:O?,s:s}", "limits", limits_json(&sb->limits), "labels",
        labels, "user", sb->user, "cwd", sb->cwd, "read_only", sb->read_only, "setuid", sb->setuid,
        "umask", (int)sb->umask, "tmpfs", sb->tmpfs, "network", network_grant_name(sb->network));
    if (sb->idle_ms)
        json_object_set_new(o, "idle_ms", json_integer((json_int_t)sb->idle_ms));
    if (sb->ttl_pauses)
        json_object_set_new(o, "ttl_pauses", json_true());
    if (sb->door)
        json_object_set_new(o, "door", json_string(sb->door));
    if (sb->start)
        json_object_set(o, "start", sb->start);
    if (sb->template)
        json_object_set_new(o, "template", json_string(sb->template));
    if (sb->secrets)
        json_object_set_new(o, "secrets", json_true());
    if (sb->snapshot)
        json_object_set_new(o, "snapshot", json_string(sb->snapshot));
    if (strcmp(sb->box_id, sb->id) != 0)
        json_object_set_new(o, "box", json_string(sb->box_id));
    json_write(&b, o);
    return buf_take(&b);
}

void sandbox_to_row(const sandbox *sb, sandbox_row *ret_row)
{
    sandbox_row r = {.owner = sb->owner,
                     .name = sb->name,
                     .state = (char *)lifecycle_name(sb->state),
                     .cause = sb->cause,
                     .image = sb->image_name,
                     .spec = sandbox_spec_text(sb),
                     .created_ns = sb->created_ns,
                     .ttl_ns = sb->ends_ns,
                     .ended_ns = sb->ended_ns,
                     .paused_ns = sb->paused_ns};

    memcpy(r.id, sb->id, sizeof r.id);
    memcpy(r.digest, sb->digest, sizeof r.digest);
    memcpy(r.key, sb->key, sizeof r.key);
    memcpy(r.body, sb->body, sizeof r.body);
    *ret_row = r;
}

static void spec_read(sandbox *sb, const json_t *o)
{
    limits_read(json_object_get(o, "limits"), &sb->limits);
    sb->labels = strv_of_json(json_object_get(o, "labels"));
    sb->user = copy_or_null(json_str(o, "user"));
    sb->cwd = copy_or_null(json_str(o, "cwd"));
    sb->template = copy_or_null(json_str(o, "template"));
    sb->snapshot = copy_or_null(json_str(o, "snapshot"));
    sb->start = start_of_row(json_object_get(o, "start"), sb->id);
    sb->door = copy_or_null(json_str(o, "door"));
    sb->ttl_pauses = json_flag(o, "ttl_pauses");
    sb->secrets = json_flag(o, "secrets");
    sb->read_only = json_flag(o, "read_only");
    sb->setuid = json_flag(o, "setuid");
    sb->network = network_grant_by_name(json_str(o, "network"));
    sb->umask = (uint32_t)json_int(o, "umask", UMASK_DEFAULT);
    sandbox_set_idle(sb, (uint64_t)json_int(o, "idle_ms", 0));
    sb->tmpfs = json_deep_copy(json_object_get(o, "tmpfs"));
}

/* Logs that a part of a row cannot be read. A damaged row must not end a sandbox or fail a list:
 * its readable parts are shown, the others as unknown. */
static void sandbox_damaged(const sandbox_row *r, const char *what, const char *why)
{
    LOG_ABOUT(r->id, NULL, 0);
    log_error("store", "sandbox %s: its %s in the store cannot be read (%s)", r->id, what, why);
}

static box_name box_of_spec(const sandbox_row *r, const json_t *spec)
{
    const char *said = json_str(spec, "box");
    box_name n;

    memcpy(n.id, r->id, sizeof n.id);
    if (said && id_is_sandbox(said))
        str_copy(n.id, sizeof n.id, said);
    return n;
}

static json_t *spec_of_row(const sandbox_row *r)
{
    json_t *spec = NULL;
    CLEANUP(err_freep) err *e = json_parse(r->spec, strlen(r->spec), &spec);

    if (!e && json_is_object(spec))
        return spec;
    sandbox_damaged(r, "spec: limits, labels, user", e ? e->message : "not an object");
    json_decref(spec);
    return json_object();
}

box_name box_of_row(const sandbox_row *r)
{
    CLEANUP(json_decrefp) json_t *spec = spec_of_row(r);

    return box_of_spec(r, spec);
}

box_name sandbox_box(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    box_name n;

    memcpy(n.id, sb->box_id, sizeof n.id);
    return n;
}

static enum lifecycle state_of_row(const sandbox_row *r)
{
    enum lifecycle state = lifecycle_by_name(r->state);

    if (state != LIFE_STATES)
        return state;
    sandbox_damaged(r, "state", r->state);
    return r->ended_ns ? LIFE_GONE : LIFE_RUNNING; /* sandbox_of_row() corrects it if it is gone */
}

sandbox *sandbox_from_row(engine *e, const sandbox_row *r)
{
    CLEANUP(json_decrefp) json_t *spec = spec_of_row(r);
    enum lifecycle state = state_of_row(r);
    sandbox *sb = sandbox_new(e, r->owner);

    memcpy(sb->id, r->id, sizeof sb->id);
    box_name in = box_of_spec(r, spec);
    memcpy(sb->box_id, in.id, sizeof sb->box_id);
    sb->name = r->name ? xstrdup(r->name) : NULL;
    sb->image_name = xstrdup(r->image);
    sb->cause = r->cause ? xstrdup(r->cause) : NULL;
    sb->state = state;
    memcpy(sb->digest, r->digest, sizeof sb->digest);
    memcpy(sb->key, r->key, sizeof sb->key);
    memcpy(sb->body, r->body, sizeof sb->body);
    sb->created_ns = r->created_ns;
    sb->ends_ns = r->ttl_ns;
    sb->ended_ns = r->ended_ns;
    sb->paused_ns = state == LIFE_PAUSED ? r->paused_ns : 0;
    receipt_read(&sb->receipt, r->walls);
    spec_read(sb, spec);
    return sb;
}

static void tmpfs_of(const json_t *list, sandbox_spec *s)
{
    const json_t *one;
    size_t i;

    s->tmpfs = xcalloc(json_array_size(list) + 1, sizeof *s->tmpfs);
    json_array_foreach(list, i, one)
    {
        s->tmpfs[s->ntmpfs++] =
            (tmpfs_spec){.path = xstrdup(str_or(json_str(one, "path"), "")),
                         .size = (uint64_t)json_int(one, "size", 0),
                         .mode = (uint32_t)strtoul(str_or(json_str(one, "mode"), "0"), NULL, 8),
                         .exec = json_flag(one, "exec")};
    }
}

void sandbox_to_spec(sandbox *sb, sandbox_spec *ret)
{
    LOCK_SCOPE(&sb->lock);

    *ret = (sandbox_spec){.image = xstrdup(str_or(sb->image_name, "")),
                          .user = copy_or_null(sb->user),
                          .cwd = copy_or_null(sb->cwd),
                          .limits = sb->limits,
                          .read_only = sb->read_only,
                          .setuid = sb->setuid,
                          .has_network = true,
                          .network = sb->network,
                          .has_umask = true,
                          .umask = sb->umask};
    tmpfs_of(sb->tmpfs, ret);
}

sandbox *engine_find_live(engine *e, const char *id)
{
    LOCK_SCOPE(&e->lock);
    sandbox *sb = map_get_str(&e->live, id);

    return sb ? sandbox_ref(sb) : NULL;
}

/* Finds the sandbox of a row. A sandbox is live before its row is written, and kept until the row
 * of its end is written: a row without either has ended since it was read, or its end was given
 * up. */
err *sandbox_of_row(engine *e, const sandbox_row *r, sandbox **ret_sandbox)
{
    CLEANUP(sandbox_row_done) sandbox_row settled = {0};
    sandbox *sb = engine_find_live(e, r->id);

    if (!sb)
        sb = ended_find(e, r->id);
    if (sb) {
        *ret_sandbox = sb;
        return NULL;
    }
    if (strcmp(r->state, lifecycle_name(LIFE_GONE)) != 0) {
        TRY(store_sandbox_get(e->o.store, r->id, &settled));
        r = &settled;
    }
    sb = sandbox_from_row(e, r);
    if (sb->state != LIFE_GONE) {
        sb->state = LIFE_GONE;
        sb->cause = cause_json(&(cause){.kind = CAUSE_INTERNAL});
    }
    *ret_sandbox = sb;
    return NULL;
}

/* ---- what callers see ---- */

/* Fills the times of a view. Lock held. */
static void view_pause(const sandbox *sb, sandbox_view *v)
{
    uint64_t now = sandbox_now(sb);

    v->ends_ns = sb->ends_ns;
    v->ttl_left_ns = UINT64_MAX;
    if (sb->ends_ns && sb->state != LIFE_GONE)
        v->ttl_left_ns = sb->ends_ns > now ? sb->ends_ns - now : 0;
    if (sb->state != LIFE_PAUSED)
        return;
    v->paused_ns = sb->paused_ns;
    v->ends_ns = sb->paused_ns + sb->engine->o.keep_paused_ms * NS_PER_MS;
}

void sandbox_get(sandbox *sb, sandbox_view *ret_view)
{
    exec_table *table = NULL;

    {
        LOCK_SCOPE(&sb->lock);
        *ret_view =
            (sandbox_view){.owner = xstrdup(sb->owner),
                           .name = copy_or_null(sb->name),
                           .state = xstrdup(lifecycle_name(sb->cause ? LIFE_GONE : sb->state)),
                           .cause = copy_or_null(sb->cause),
                           .image_name = xstrdup(str_or(sb->image_name, "")),
                           .user = copy_or_null(sb->user),
                           .cwd = copy_or_null(sb->cwd),
                           .door = copy_or_null(sb->door),
                           .image = sb->image ? image_ref(sb->image) : NULL,
                           .labels = strv_copy(sb->labels),
                           .limits = sb->limits,
                           .read_only = sb->read_only,
                           .setuid = sb->setuid,
                           .network = sb->network,
                           .umask = sb->umask,
                           .tmpfs = json_deep_copy(sb->tmpfs),
                           .start = json_deep_copy(sb->start),
                           .template = copy_or_null(sb->template),
                           .snapshot = copy_or_null(sb->snapshot),
                           .secrets = sb->secrets,
                           .created_ns = sb->created_ns,
                           .ended_ns = sb->ended_ns,
                           .idle_ms = sb->idle_ms,
                           .ttl_pauses = sb->ttl_pauses,
                           .idle_for_ns = sandbox_idle_for(sb),
                           .receipt = sb->receipt,
                           .has_timing = sb->has_timing,
                           .timing = sb->timing};
        memcpy(ret_view->id, sb->id, sizeof ret_view->id);
        memcpy(ret_view->box, sb->box_id, sizeof ret_view->box);
        memcpy(ret_view->digest, sb->digest, sizeof ret_view->digest);
        view_pause(sb, ret_view);
        if (sb->table && (sb->state == LIFE_RUNNING || sb->state == LIFE_PAUSED))
            table = exec_table_ref(sb->table);
    }
    if (ret_view->paused_ns) {
        LOCK_SCOPE(&sb->engine->lock);
        ret_view->resume = resume_times_estimate(&sb->engine->resumes);
    }
    ret_view->live_execs = table ? exec_count_running(table) : 0;
    ret_view->start_exec = table ? exec_table_start_id(table) : 0;
    exec_table_unref(table);
}

void sandbox_view_done(sandbox_view *v)
{
    free(v->owner);
    free(v->name);
    free(v->state);
    free(v->cause);
    free(v->image_name);
    free(v->user);
    free(v->cwd);
    free(v->door);
    image_unref(v->image);
    json_decref(v->tmpfs);
    json_decref(v->start);
    free(v->template);
    free(v->snapshot);
    strv_free(v->labels);
    *v = (sandbox_view){0};
}

/* ---- the end ---- */

char *cause_json(const cause *c)
{
    CLEANUP(buf_done) buf b = {0};

    cause_write(&b, c);
    return buf_take(&b);
}

bool sandbox_decide(sandbox *sb, const cause *c)
{
    if (sb->cause)
        return false;
    sb->cause = cause_json(c);
    sb->ended_ns = clock_real(sb->engine->o.clock);
    return true;
}

void sandbox_finish(sandbox *sb, const cause *c)
{
    engine *e = sb->engine;
    exec_table *table = NULL;
    bool was_live;

    {
        LOCK_SCOPE(&sb->lock);
        if (sb->state == LIFE_GONE)
            return;
        sandbox_enter(sb, LIFE_GONE);
        sandbox_decide(sb, c);
        table = sb->table ? exec_table_ref(sb->table) : NULL;
    }
    if (table)
        exec_table_end(table);
    exec_table_unref(table);
    {
        LOCK_SCOPE(&e->lock);
        was_live = map_take_str(&e->live, sb->id) != NULL;
        metric_set(&ENGINE_METRICS[M_LIVE], 0, (int64_t)e->live.count);
    }
    snapshot_let_go(e, sb);
    sleep_changed(e);
    if (was_live)
        sandbox_unref(sb); /* the live map's reference */
}
