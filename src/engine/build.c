/* Builds: their ids, queue and logs. build_run.c runs one. */
#include "engine/build.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/build_internal.h"
#include "engine/files.h"

#define LOGS_KEPT  256u /* of finished builds */
#define LOGS_BYTES (UINT64_C(64) << 20)
#define FORGET_NS  (24 * 3600 * NS_PER_S)
#define LINE_COST  (sizeof(build_line) + 32) /* memory of a line without its text */

const char *const BUILD_VERB_NAMES[BUILD_VERBS] = {"RUN", "COPY", "ENV", "WORKDIR", "USER"};

void build_recipe_done(build_recipe *r)
{
    sandbox_spec_done(&r->base);
    for (size_t i = 0; i < r->nsteps; i++) {
        strv_free(r->steps[i].args);
        free(r->steps[i].files);
    }
    free(r->steps);
    free(r->start);
    free(r->ready);
    *r = (build_recipe){0};
}

void build_free(build *b)
{
    build_lines_free(b->lines, b->nlines);
    build_recipe_done(&b->recipe);
    strv_free(b->env);
    free(b->who.owner);
    free(b->name);
    free(b->user);
    free(b->cwd);
    free(b->shell);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

/* ---- the log ---- */

void build_lines_free(build_line *lines, size_t n)
{
    while (n)
        free(lines[--n].text);
    free(lines);
}

static void add_line(build *b, const char *level, char *owned)
{
    build_line l = {.at_ns = clock_real(b->e->o.clock), .level = level, .text = owned};

    memcpy(l.step, b->step, sizeof l.step);
    if (!(b->nlines & (b->nlines + 1))) /* 0, 1, 3, 7, …: doubled */
        b->lines = xrealloc(b->lines, (2 * b->nlines + 1) * sizeof *b->lines);
    b->bytes += strlen(owned) + LINE_COST;
    b->lines[b->nlines++] = l;
}

/* Adds a line to the log. Readers continue by line number, so no line is ever removed: a full log
 * takes no more lines, and a later failure shows in the build's state only. */
void build_say_line(build *b, const char *level, const char *p, size_t n)
{
    LOCK_SCOPE(&b->lock);

    if (b->full)
        return;
    if (b->bytes + n + 2 * LINE_COST > BUILD_LOG_MAX) {
        b->full = true;
        add_line(b, "warn", xstrdup("the log is full: what follows is left out"));
        return;
    }
    add_line(b, level, xstrndup(p, n));
}

void build_say(build *b, const char *level, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *text = str_vprintf(fmt, ap);
    va_end(ap);
    build_say_line(b, level, text, strlen(text));
}

void engine_build_log(engine *e, const char *id, size_t from, size_t max, build_line **ret_lines,
                      size_t *ret_n)
{
    build_desk *d = e->builds;
    LOCK_SCOPE(&d->lock);
    build *b = map_get_str(&d->known, id);

    *ret_lines = NULL;
    *ret_n = 0;
    if (!b)
        return;
    LOCK_SCOPE(&b->lock);
    size_t n = from < b->nlines ? b->nlines - from : 0;
    n = n < max ? n : max;
    build_line *copy = xcalloc(n, sizeof *copy);
    for (size_t i = 0; i < n; i++) {
        copy[i] = b->lines[from + i];
        copy[i].text = xstrdup(copy[i].text);
    }
    *ret_lines = copy;
    *ret_n = n;
}

/* ---- the queue ---- */

bool build_is_off(build *b)
{
    LOCK_SCOPE(&b->e->lock);
    return b->e->stopping || b->cancelled;
}

static void forget_log(build_desk *d, build **at)
{
    build *b = *at;

    *at = b->next;
    d->nold--;
    d->old_bytes -= b->bytes;
    map_take_str(&d->known, b->id);
    build_free(b);
}

/* Forgets the oldest logs: first those of this owner while they are too large, then any owner's
 * while there are too many. */
static void forget_logs(build_desk *d, const char *owner)
{
    uint64_t mine = 0;

    for (const build *b = d->old; b; b = b->next)
        mine += str_eq(b->who.owner, owner) ? b->bytes : 0;
    for (build **at = &d->old; *at && mine > BUILD_LOGS_OWNER;) {
        if (str_eq((*at)->who.owner, owner)) {
            mine -= (*at)->bytes;
            forget_log(d, at);
        } else {
            at = &(*at)->next;
        }
    }
    while (d->old && (d->nold > LOGS_KEPT || d->old_bytes > LOGS_BYTES))
        forget_log(d, &d->old);
}

void build_retire(build_desk *d, build *b)
{
    build **end = &d->old;

    d->running -= b->runs;
    b->over = true;
    b->runs = false;
    build_recipe_done(&b->recipe);
    strv_free(TAKE_PTR(b->env));
    while (*end)
        end = &(*end)->next;
    b->next = NULL;
    *end = b;
    d->nold++;
    d->old_bytes += b->bytes;
    forget_logs(d, b->who.owner); /* never this one: it is smaller than an owner's limit */
}

static char *reason_text(const build *b, const err *failure)
{
    CLEANUP(buf_done) buf out = {0}, message = {0};

    buf_printf(&message, "%s%s%s", failure->message, failure->cause ? ": " : "",
               str_or(failure->cause, ""));
    if (failure->remedy)
        buf_printf(&message, ". %s", failure->remedy);
    buf_str(&out, "{\"message\":");
    buf_json_string(&out, message.p, message.len);
    buf_str(&out, ",\"step\":");
    buf_json_string(&out, b->step, strlen(b->step));
    buf_char(&out, '}');
    return buf_take(&out);
}

static bool build_stopping(engine *e)
{
    LOCK_SCOPE(&e->lock);
    return e->stopping;
}

/* Records how a build ended. If the engine stops, the row stays `building`: the next start finds it
 * and what the build left. */
static void build_settle(build *b, build_row *row, err *failure)
{
    if (failure && build_stopping(b->e)) {
        err_free(failure);
        return;
    }
    if (failure) {
        build_say(b, "error", "%s", failure->message);
        log_info("build", "build %s of '%s' failed at step %s: %s", b->id, b->name, b->step,
                 failure->message);
        free(row->state);
        row->state = xstrdup("error");
        free(row->reason);
        row->reason = reason_text(b, failure);
        free(row->snapshot);
        row->snapshot = NULL;
        row->changed_ns = clock_real(b->e->o.clock);
        err_free(failure);
        err_drop(store_build_update(b->e->o.store, row, 1), "build");
        return;
    }
    build_say(b, "info", "the template is ready");
    log_info("build", "build %s of '%s' is ready", b->id, b->name);
}

static void run_one(build *b)
{
    build_row *rows = NULL;
    size_t n = 0;
    err *failure = store_build_list(b->e->o.store, b->who.owner, b->id, &rows, &n);

    if (!failure && n == 1) {
        failure = build_run(b, rows);
        if (!failure)
            failure = build_publish(b, rows);
        build_settle(b, rows, failure);
    } else {
        err_drop(failure, "build"); /* it was removed meanwhile */
    }
    build_rows_free(rows, n);
}

/* Returns how many builds of this owner run. Desk's lock held. */
static unsigned running_of(build_desk *d, const char *owner)
{
    map_iter it = {0};
    unsigned n = 0;

    while (map_next(&d->known, &it)) {
        const build *b = it.entry->value;
        n += b->runs && str_eq(b->who.owner, owner);
    }
    return n;
}

bool build_has_place(build_desk *d, const char *owner)
{
    return d->running < BUILDS_RUNNING && running_of(d, owner) < BUILDS_SHARE;
}

static void count_running(build_desk *d, build *b)
{
    b->next = NULL;
    b->runs = true;
    d->running++;
}

bool build_place(build_desk *d, build *b)
{
    build **end = &d->queue;

    if (build_has_place(d, b->who.owner)) {
        count_running(d, b);
        return true;
    }
    while (*end)
        end = &(*end)->next;
    *end = b;
    return false;
}

build *build_next(build_desk *d)
{
    build **best = NULL, *b;
    unsigned fewest = BUILDS_SHARE;

    for (build **at = &d->queue; *at && d->running < BUILDS_RUNNING; at = &(*at)->next) {
        unsigned n = running_of(d, (*at)->who.owner);
        if (n < fewest) {
            fewest = n;
            best = at;
        }
    }
    if (!best)
        return NULL;
    b = *best;
    *best = b->next;
    count_running(d, b);
    return b;
}

static void *build_worker(void *arg)
{
    build *b = arg;
    engine *e = b->e;
    build_desk *d = e->builds;

    while (b) {
        run_one(b);
        LOCK_SCOPE(&d->lock);
        build_retire(d, b);
        b = build_next(d);
        if (!d->running)
            pthread_cond_broadcast(&d->idle);
    }
    return NULL;
}

static size_t recipe_bytes(const build_recipe *r)
{
    size_t n = r->nsteps * sizeof *r->steps;

    for (size_t i = 0; i < r->nsteps; i++)
        for (size_t k = 0; r->steps[i].args && r->steps[i].args[k]; k++)
            n += strlen(r->steps[i].args[k]) + 32;
    return n;
}

/* Checks that this build is not under way already, and that the owner may have another one. Desk's
 * lock held. */
static err *check_room(build_desk *d, const build *b)
{
    size_t bytes = recipe_bytes(&b->recipe);
    unsigned mine = 0;
    map_iter it = {0};

    if (map_get_str(&d->known, b->id))
        return err_new(ERR_CONFLICT, "build %s is under way already", b->id);
    while (map_next(&d->known, &it)) {
        const build *other = it.entry->value;
        if (other->over || !str_eq(other->who.owner, b->who.owner))
            continue;
        mine++;
        bytes += recipe_bytes(&other->recipe);
    }
    if (mine < BUILDS_OWNER && (!mine || bytes <= BUILD_RECIPES_OWNER))
        return NULL;
    return err_retry_after(
        err_new(ERR_QUOTA_EXCEEDED, "'%s' has %u builds under way, as many%s as one may have",
                b->who.owner, mine, mine < BUILDS_OWNER ? " bytes of steps" : ""),
        5);
}

/* Starts the build's thread, or queues the build. Desk's lock held. */
static err *build_enqueue(build_desk *d, build *b)
{
    bool runs = build_place(d, b);

    if (runs && !thread_try_detach(build_worker, b)) {
        d->running--;
        b->runs = false;
        return err_retry_after(err_new(ERR_UNAVAILABLE, "there is no room for a thread"), 5);
    }
    if (!runs)
        build_say(b, "info", "%u builds are under way: it waits for its turn", d->running);
    map_put_str(&d->known, b->id, b);
    return NULL;
}

/* Admits a build. If it is refused, its row stays as it was, so that it can be started later.
 * Desk's lock held. */
static err *build_admit(build_desk *d, build *b, build_row *row)
{
    store *s = b->e->o.store;

    TRY(check_room(d, b));
    free(row->state);
    row->state = xstrdup("building");
    row->changed_ns = clock_real(b->e->o.clock);
    TRY(store_build_update(s, row, 1));
    err *failure = build_enqueue(d, b);
    if (failure) {
        free(row->state);
        row->state = xstrdup("waiting");
        err_drop(store_build_update(s, row, 1), "build");
    }
    return failure;
}

/* ---- verbs ---- */

static err *no_build(const char *template, const char *id)
{
    return err_kind(
        err_new(ERR_NOT_FOUND, "there is no build %.64s of template %.64s", id, template), "build");
}

err *engine_build_find(engine *e, const caller *c, const char *template, const char *id,
                       build_row *ret_row)
{
    const char *owner = c->role == CALLER_ADMIN ? NULL : c->owner;
    build_row *rows = NULL;
    size_t n = 0;

    TRY(store_build_list(e->o.store, owner, id, &rows, &n));
    bool found = n == 1 && str_eq(rows->id, id) &&
                 (str_eq(rows->template, template) || str_eq(rows->name, template));
    if (found) {
        *ret_row = *rows;
        *rows = (build_row){0};
    }
    build_rows_free(rows, n);
    return found ? NULL : no_build(template, id);
}

static void build_uuid(char ret_text[BUILD_ID_LEN + 1])
{
    uint8_t r[16];
    char hex[33];

    random_bytes(r, sizeof r);
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40); /* version 4, */
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80); /* variant 1 */
    hex_encode(r, sizeof r, hex);
    snprintf(ret_text, BUILD_ID_LEN + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
             hex + 16, hex + 20);
}

/* Returns the id of the caller's template of this name, also of one that is only being built; else
 * a new id. */
static err *template_id(engine *e, const caller *c, const char *name,
                        char ret_id[SANDBOX_ID_LEN + 1])
{
    CLEANUP(template_view_done) template_view t = {0};
    build_row *rows = NULL;
    size_t n = 0;
    err *failure = engine_template_find(e, c, name, &t);

    if (failure && failure->code != ERR_NOT_FOUND)
        return failure;
    bool known = !failure && str_eq(t.owner, c->owner);
    err_free(failure);
    if (known) {
        memcpy(ret_id, t.id, sizeof t.id);
        return NULL;
    }
    id_sandbox(e->o.cell, ret_id);
    TRY(store_build_list(e->o.store, c->owner, NULL, &rows, &n));
    for (size_t i = 0; i < n; i++)
        if (str_eq(rows[i].name, name))
            memcpy(ret_id, rows[i].template, sizeof rows[i].template);
    build_rows_free(rows, n);
    return NULL;
}

bool build_tag_valid(const char *tag)
{
    size_t n = strlen(tag);

    return n && n <= BUILD_TAG_LEN && tag[0] != '-' && tag[0] != '.' &&
           strspn(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

static err *check_new(const engine *e, const caller *c, const char *name, char *const *tags,
                      const limits *l)
{
    TRY(caller_require(c, CALLER_USER));
    if (!name || !spec_name_valid(name))
        return err_new(ERR_INVALID_REQUEST,
                       "name must be 1 to 64 letters, digits, _ . - beginning with a letter or "
                       "digit, and not look like an id; '%.128s' is not",
                       str_or(name, ""));
    if (strv_len(tags) > BUILD_TAGS_MAX)
        return err_new(ERR_INVALID_REQUEST, "tags: at most %u", BUILD_TAGS_MAX);
    for (size_t i = 0; tags && tags[i]; i++)
        if (!build_tag_valid(tags[i]))
            return err_new(ERR_INVALID_REQUEST,
                           "a tag is 1 to %u letters, digits, _ . -; '%.64s' is not", BUILD_TAG_LEN,
                           tags[i]);
    TRY(limits_check(l));
    return quota_ceilings(e, c, l);
}

err *engine_build_new(engine *e, const caller *c, const char *name, char *const *tags,
                      const limits *l, build_row *ret_row)
{
    CLEANUP(build_row_done)
    build_row row = {.owner = xstrdup(c->owner),
                     .name = xstrdup(str_or(name, "")),
                     .state = xstrdup("waiting"),
                     .spec = template_spec_text(&(sandbox_spec){.limits = *l})};
    CLEANUP(json_decrefp) json_t *list = strv_json((char **)tags);
    CLEANUP(buf_done) buf text = {0};

    TRY(check_new(e, c, name, tags, l));
    if (!tags || !*tags)
        json_array_append_new(list, json_string(BUILD_DEFAULT));
    json_write(&text, list);
    row.tags = xstrdup(buf_cstr(&text));
    build_uuid(row.id);
    row.created_ns = row.changed_ns = clock_real(e->o.clock);
    LOCK_SCOPE(&e->builds->tags); /* two builds of one new name at a time get one template */
    TRY(template_id(e, c, name, row.template));
    TRY(store_build_insert(e->o.store, &row, BUILDS_MAX));
    *ret_row = row;
    row = (build_row){0};
    return NULL;
}

/* Checks that the owner may have a new template with this name. */
static err *check_new_template(engine *e, const build_row *row)
{
    const caller owner = {.owner = row->owner, .role = CALLER_USER};
    template_view *all = NULL;
    size_t n = 0, mine = 0;
    bool taken = false;

    TRY(engine_template_list(e, &owner, &all, &n));
    for (size_t i = 0; i < n; i++) {
        mine += str_eq(all[i].owner, row->owner);
        taken |= str_eq(all[i].owner, row->owner) && str_eq(all[i].name, row->name);
        template_view_done(&all[i]);
    }
    free(all);
    if (taken)
        return err_remedy(err_new(ERR_CONFLICT, "there is a template named '%s'", row->name),
                          "Begin the build anew, or choose another name.");
    if (mine < TEMPLATES_MAX)
        return NULL;
    return err_remedy(err_new(ERR_QUOTA_EXCEEDED, "'%s' has %zu templates, as many as one may have",
                              row->owner, mine),
                      "Remove those that are not used any more.");
}

/* Refuses before the build what would certainly be refused when its template is published. */
static err *check_publish(engine *e, const caller *c, const build_row *row)
{
    const caller owner = {.owner = row->owner, .role = c->role};
    CLEANUP(template_view_done) template_view t = {0};

    TRY(store_snapshot_room(e->o.store, row->owner, SNAPSHOTS_MAX));
    if (!build_has_tag(row, BUILD_DEFAULT))
        return NULL;
    err *unknown = engine_template_find(e, &owner, row->template, &t);
    if (unknown && unknown->code != ERR_NOT_FOUND)
        return unknown;
    bool known = !unknown;
    err_free(unknown);
    if (!known)
        return check_new_template(e, row);
    if (t.public && c->role < CALLER_ADMIN)
        return err_remedy(err_new(ERR_FORBIDDEN,
                                  "the template '%s' is everybody's: only an "
                                  "administrator builds it",
                                  t.name),
                          "Build it under another name, or with a tag.");
    return NULL;
}

static err *check_recipe(engine *e, const caller *c, const build_row *row, const build_recipe *r)
{
    backend *b = e->o.backend;

    TRY(caller_require(c, CALLER_USER));
    if (!build_row_is(row, "waiting"))
        return err_kind(err_new(ERR_CONFLICT, "build %s is %s already", row->id, row->state),
                        "build");
    if (!b->ops->snapshot || b->caps.snapshot == CAP_ABSENT || engine_files_cap(e) != CAP_NATIVE)
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "the backend '%s' builds no templates", b->caps.name),
            "Build an image elsewhere and name it as the template.");
    for (size_t i = 0; i < r->nsteps; i++)
        if (r->steps[i].verb == BUILD_COPY &&
            !engine_upload_present(e, row->owner, r->steps[i].files))
            return err_remedy(err_new(ERR_INVALID_REQUEST,
                                      "step %zu: the files of this COPY were not sent", i + 1),
                              "Send them to the address that …/files/{hash} gives.");
    return check_publish(e, c, row);
}

err *engine_build_start(engine *e, const caller *c, const char *template, const char *id,
                        build_recipe *r)
{
    CLEANUP(build_row_done) build_row row = {0};
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};

    TRY(engine_build_find(e, c, template, id, &row));
    TRY(check_recipe(e, c, &row, r));
    TRY(template_spec_read(row.name, row.spec, &spec));
    build *b = xcalloc(1, sizeof *b);
    b->e = e;
    memcpy(b->id, row.id, sizeof b->id);
    memcpy(b->template, row.template, sizeof b->template);
    b->who = *c;
    b->who.owner = xstrdup(row.owner);
    b->name = xstrdup(row.name);
    b->recipe = *r;
    *r = (build_recipe){0};
    b->limits = spec.limits;
    strcpy(b->step, "base");
    pthread_mutex_init(&b->lock, NULL);
    LOCK_SCOPE(&e->builds->lock);
    err *failure = build_admit(e->builds, b, &row);
    if (failure)
        build_free(b);
    return failure;
}

/* ---- upkeep and restart ---- */

void builds_open(engine *e)
{
    build_desk *d = e->builds = xcalloc(1, sizeof *d);

    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->tags, NULL);
    pthread_mutex_init(&d->uploads, NULL);
    d->upload_owner_max = UPLOAD_OWNER_MAX;
    d->upload_node_max = UPLOAD_NODE_MAX;
    d->upload_floor = UPLOAD_FLOOR;
    cond_init(&d->idle);
}

void builds_close(engine *e)
{
    build_desk *d = e->builds;
    map_iter it = {0};

    pthread_mutex_lock(&d->lock);
    d->queue = NULL; /* `known` has them and frees them below */
    while (d->running)
        cond_wait_until(&d->idle, &d->lock, 0);
    pthread_mutex_unlock(&d->lock);
    while (map_next(&d->known, &it))
        build_free(it.entry->value);
    map_done(&d->known);
    pthread_cond_destroy(&d->idle);
    pthread_mutex_destroy(&d->uploads);
    pthread_mutex_destroy(&d->tags);
    pthread_mutex_destroy(&d->lock);
    free(d);
    e->builds = NULL;
}

void builds_keep(engine *e)
{
    build_desk *d = e->builds;
    uint64_t now = clock_mono(e->o.clock), real = clock_real(e->o.clock);

    if (d->swept_ns && now - d->swept_ns < 3600 * NS_PER_S)
        return;
    d->swept_ns = now;
    err_drop(store_build_forget(e->o.store, real > FORGET_NS ? real - FORGET_NS : 0), "build");
    upload_sweep(e);
}

/* Returns true if the sandbox belongs to a build that was under way. The label alone proves
 * nothing: any caller may set it. */
static bool is_of_build(sandbox *sb, const build_row *rows, size_t n)
{
    LOCK_SCOPE(&sb->lock);
    const char *id = strv_env_get(sb->labels, BUILD_LABEL);

    for (size_t i = 0; id && i < n; i++)
        if (str_eq(rows[i].id, id) && str_eq(rows[i].owner, sb->owner) &&
            build_row_is(&rows[i], "building"))
            return true;
    return false;
}

/* Removes snapshots that a build took just before bothyd was killed: its row does not name them. */
static void drop_snapshots(engine *e, sandbox *sb)
{
    const caller owner = {.owner = sb->owner, .role = CALLER_USER};
    snapshot_row *rows = NULL;
    size_t n = 0;

    err_drop(engine_snapshot_list(e, &owner, sb, &rows, &n), "build");
    for (size_t i = 0; i < n; i++) {
        err_drop(snapshot_remove_built(e, &owner, rows[i].id), "build");
        snapshot_row_done(&rows[i]);
    }
    free(rows);
}

/* Ends sandboxes of builds that were under way when bothyd was killed. */
static void end_sandboxes(engine *e, const build_row *rows, size_t nrows)
{
    size_t n = 0;
    CLEANUP(freep) sandbox **all = engine_live_all(e, &n);

    for (size_t i = 0; i < n; i++) {
        if (is_of_build(all[i], rows, nrows)) {
            drop_snapshots(e, all[i]);
            engine_end(all[i], &(cause){.kind = CAUSE_INTERNAL, .detail = "its build was lost"});
        }
        sandbox_unref(all[i]);
    }
}

/* Returns true if the build's template was published, but bothyd was killed before the build's own
 * row was written: the build is ready. */
static bool is_published(engine *e, const build_row *r)
{
    const caller owner = {.owner = r->owner, .role = CALLER_USER};
    CLEANUP(template_view_done) template_view t = {0};
    err *failure = r->snapshot ? engine_template_find(e, &owner, r->template, &t) : NULL;
    bool found = r->snapshot && !failure && str_eq(t.spec.snapshot, r->snapshot);

    err_free(failure);
    return found;
}

static err *settle_lost(engine *e, build_row *r)
{
    const caller owner = {.owner = r->owner, .role = CALLER_USER};

    if (is_published(e, r))
        return build_take_tags(e, CALLER_ADMIN, r); /* the builder's role was checked before */
    free(r->state);
    r->changed_ns = clock_real(e->o.clock);
    r->state = xstrdup("error");
    free(r->reason);
    r->reason = xstrdup("{\"message\":\"the build was lost by a restart of the node: start it "
                        "again\",\"step\":\"base\"}");
    if (r->snapshot)
        err_drop(snapshot_remove_built(e, &owner, r->snapshot), "build");
    free(r->snapshot);
    r->snapshot = NULL;
    return store_build_update(e->o.store, r, 1);
}

err *builds_reconcile(engine *e)
{
    build_row *rows = NULL;
    size_t n = 0;
    err *failure = NULL;

    TRY(store_build_list(e->o.store, NULL, NULL, &rows, &n));
    end_sandboxes(e, rows, n);
    for (size_t i = 0; i < n && !failure; i++)
        if (build_row_is(&rows[i], "building"))
            failure = settle_lost(e, &rows[i]);
    build_drop_bare(e, rows, n);
    build_rows_free(rows, n);
    return failure;
}
