/* Tags of builds, and the native template that the tag "default" makes.
 *
 * A tag belongs to one build of its template. When a build loses its last tag, its files are
 * removed; sandboxes made from them stay, and for a day its row still tells its builder that it is
 * ready. The desk's `tags` is held while any of this changes. */
#include <string.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/build_internal.h"

bool build_row_is(const build_row *r, const char *state)
{
    return str_eq(r->state, state);
}

static json_t *tags_of(const build_row *r)
{
    json_t *list = NULL;

    err_drop(json_parse(r->tags, strlen(r->tags), &list), "build");
    return json_is_array(list) ? list : json_array();
}

bool build_has_tag(const build_row *r, const char *tag)
{
    CLEANUP(json_decrefp) json_t *list = tags_of(r);
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one) if (str_eq(json_string_value(one), tag)) return true;
    return false;
}

static void set_tags(build_row *r, const json_t *list)
{
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, list);
    free(r->tags);
    r->tags = xstrdup(buf_cstr(&text));
}

static bool change_tag(build_row *r, const char *tag, bool has)
{
    CLEANUP(json_decrefp) json_t *list = tags_of(r);

    if (build_has_tag(r, tag) == has)
        return false;
    if (has) {
        json_array_append_new(list, json_string(tag));
    } else {
        for (size_t i = json_array_size(list); i > 0; i--)
            if (str_eq(json_string_value(json_array_get(list, i - 1)), tag))
                json_array_remove(list, i - 1);
    }
    set_tags(r, list);
    return true;
}

static bool is_bare(const build_row *r)
{
    CLEANUP(json_decrefp) json_t *list = tags_of(r);
    return json_array_size(list) == 0;
}

/* Fills the spec of a create from this build. */
static err *spec_of(const build_row *r, sandbox_spec *ret_spec)
{
    TRY(template_spec_read(r->name, r->spec, ret_spec));
    free(ret_spec->snapshot);
    ret_spec->snapshot = r->snapshot ? xstrdup(r->snapshot) : NULL;
    return NULL;
}

static err *make_default(engine *e, enum caller_role role, const build_row *r)
{
    const caller owner = {.owner = r->owner, .role = role};
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};

    TRY(spec_of(r, &spec));
    return template_put(e, &owner, r->template, r->name, &spec);
}

static void drop_files(engine *e, const build_row *r)
{
    const caller owner = {.owner = r->owner, .role = CALLER_USER};
    err *failure = r->snapshot ? snapshot_remove_built(e, &owner, r->snapshot) : NULL;

    if (failure && failure->code == ERR_NOT_FOUND) {
        err_free(failure);
        failure = NULL;
    }
    err_drop(failure, "build");
}

void build_drop_bare(engine *e, build_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        build_row *r = &rows[i];
        if (!build_row_is(r, "ready") || !is_bare(r) || !r->snapshot)
            continue;
        drop_files(e, r); /* first: after a kill in between the next start repeats it */
        free(TAKE_PTR(r->snapshot));
        r->changed_ns = clock_real(e->o.clock);
        err_drop(store_build_update(e->o.store, r, 1), "build");
    }
}

/* Writes the rows of ready builds; rows of other builds are written by their threads. */
static err *update_ready(engine *e, build_row *rows, size_t n)
{
    CLEANUP(freep) build_row *ready = xcalloc(n + 1, sizeof *ready); /* borrowed */
    size_t nready = 0;

    for (size_t i = 0; i < n; i++)
        if (build_row_is(&rows[i], "ready"))
            ready[nready++] = rows[i];
    TRY(store_build_update(e->o.store, ready, nready));
    build_drop_bare(e, rows, n);
    return NULL;
}

/* Moves these tags to a build from the others of its template. Desk's `tags` held. */
static err *build_tags_assign(engine *e, enum caller_role role, build_row *rows, size_t n,
                              build_row *to, json_t *tags)
{
    size_t i, k;
    json_t *tag;

    json_array_foreach(tags, i, tag)
    {
        const char *name = json_string_value(tag);
        if (str_eq(name, BUILD_DEFAULT))
            TRY(make_default(e, role, to));
        for (k = 0; k < n; k++)
            if (&rows[k] != to && build_row_is(&rows[k], "ready"))
                change_tag(&rows[k], name, false);
        change_tag(to, name, true);
    }
    FAULT_KILL("build.named");
    to->changed_ns = clock_real(e->o.clock);
    return update_ready(e, rows, n);
}

err *build_take_tags(engine *e, enum caller_role role, const build_row *row)
{
    build_row *rows = NULL, *mine = NULL;
    size_t n = 0;

    TRY(store_build_list(e->o.store, row->owner, row->template, &rows, &n));
    for (size_t i = 0; i < n; i++)
        if (str_eq(rows[i].id, row->id))
            mine = &rows[i];
    err *failure = NULL;
    if (!mine) {
        failure = err_new(ERR_CONFLICT, "the template was removed meanwhile");
    } else {
        CLEANUP(json_decrefp) json_t *tags = tags_of(mine);
        free(mine->state);
        mine->state = xstrdup("ready");
        failure = build_tags_assign(e, role, rows, n, mine, tags);
    }
    build_rows_free(rows, n);
    return failure;
}

err *build_publish(build *b, build_row *row)
{
    engine *e = b->e;
    LOCK_SCOPE(&e->builds->tags);
    err *failure = store_build_update(e->o.store, row, 1);

    if (!failure && build_is_off(b))
        failure = err_new(ERR_CONFLICT, "the template was removed meanwhile");
    if (!failure)
        failure = build_take_tags(e, b->who.role, row);
    if (failure)
        drop_files(e, row);
    return failure;
}

/* ---- by name ---- */

static err *no_template(const char *name)
{
    return err_kind(err_new(ERR_NOT_FOUND, "there is no template '%.128s'", name), "template");
}

/* Splits "name:tag" in two; without a tag the tag is "default". */
static void build_tags_split(const char *text, char **ret_name, char **ret_tag)
{
    const char *colon = strrchr(text, ':');

    *ret_name = colon ? xstrndup(text, (size_t)(colon - text)) : xstrdup(text);
    *ret_tag = xstrdup(colon ? colon + 1 : BUILD_DEFAULT);
}

static err *rows_of(engine *e, const caller *c, const char *name, build_row **ret_rows,
                    size_t *ret_n)
{
    build_row *rows = NULL;
    size_t n = 0, kept = 0;

    TRY(store_build_list(e->o.store, c->owner, NULL, &rows, &n));
    for (size_t i = 0; i < n; i++) {
        bool fits = !name || str_eq(rows[i].name, name) || str_eq(rows[i].template, name);
        if (!fits)
            build_row_done(&rows[i]);
        else if (kept++ != i)
            rows[kept - 1] = rows[i];
    }
    *ret_rows = rows;
    *ret_n = kept;
    return NULL;
}

static build_row *build_tags_tagged(build_row *rows, size_t n, const char *tag)
{
    for (size_t i = 0; i < n; i++)
        if (build_row_is(&rows[i], "ready") && build_has_tag(&rows[i], tag))
            return &rows[i];
    return NULL;
}

static err *find_native(engine *e, const caller *c, const char *name,
                        char ret_id[SANDBOX_ID_LEN + 1], sandbox_spec *ret_spec)
{
    CLEANUP(template_view_done) template_view t = {0};

    TRY(engine_template_find(e, c, name, &t));
    memcpy(ret_id, t.id, sizeof t.id);
    if (ret_spec)
        *ret_spec = (sandbox_spec){.template = xstrdup(name)};
    return NULL;
}

err *engine_build_spec(engine *e, const caller *c, const char *text,
                       char ret_id[SANDBOX_ID_LEN + 1], sandbox_spec *ret_spec)
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(freep) char *tag = NULL;
    build_row *rows = NULL;
    size_t n = 0;

    build_tags_split(text, &name, &tag);
    if (str_eq(tag, BUILD_DEFAULT))
        return find_native(e, c, name, ret_id, ret_spec);
    TRY(rows_of(e, c, name, &rows, &n));
    const build_row *r = build_tags_tagged(rows, n, tag);
    err *failure = NULL;
    if (!r) {
        failure = no_template(text);
    } else {
        memcpy(ret_id, r->template, sizeof r->template);
        failure = ret_spec ? spec_of(r, ret_spec) : NULL;
    }
    build_rows_free(rows, n);
    return failure;
}

err *engine_build_list(engine *e, const caller *c, const char *of, build_row **ret_rows,
                       size_t *ret_n)
{
    build_row *rows = NULL;
    size_t n = 0, kept = 0;

    TRY(rows_of(e, c, of, &rows, &n));
    for (size_t i = 0; i < n; i++)
        if (!build_row_is(&rows[i], "ready") || is_bare(&rows[i]))
            build_row_done(&rows[i]);
        else if (kept++ != i)
            rows[kept - 1] = rows[i];
    *ret_rows = rows;
    *ret_n = kept;
    return NULL;
}

static err *check_tags(char *const *tags)
{
    if (!tags || !*tags || strv_len(tags) > BUILD_TAGS_MAX)
        return err_new(ERR_INVALID_REQUEST, "tags: 1 to %u are to be given", BUILD_TAGS_MAX);
    for (size_t i = 0; tags[i]; i++)
        if (!build_tag_valid(tags[i]))
            return err_new(ERR_INVALID_REQUEST,
                           "a tag is 1 to %u letters, digits, _ . -; '%.64s' is not", BUILD_TAG_LEN,
                           tags[i]);
    return NULL;
}

err *engine_build_tag(engine *e, const caller *c, const char *text, char *const *tags,
                      char ret_build[BUILD_ID_LEN + 1])
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(freep) char *tag = NULL;
    CLEANUP(json_decrefp) json_t *list = strv_json((char **)tags);
    build_row *rows = NULL;
    size_t n = 0;

    TRY(caller_require(c, CALLER_USER));
    TRY(check_tags(tags));
    build_tags_split(text, &name, &tag);
    LOCK_SCOPE(&e->builds->tags);
    TRY(rows_of(e, c, name, &rows, &n));
    build_row *to = build_tags_tagged(rows, n, tag);
    err *failure = NULL;
    if (!to)
        failure = no_template(text);
    else if (!(failure = build_tags_assign(e, c->role, rows, n, to, list)))
        memcpy(ret_build, to->id, sizeof to->id);
    build_rows_free(rows, n);
    return failure;
}

/* Removes a template; a missing one is success. */
static err *remove_template(engine *e, const char *owner, const char *id)
{
    CLEANUP(template_row_done) template_row t = {0};
    err *failure = store_template_find(e->o.store, owner, false, id, &t);

    if (!failure)
        failure = store_template_remove(e->o.store, t.id);
    if (failure && failure->code == ERR_NOT_FOUND) {
        err_free(failure);
        failure = NULL;
    }
    return failure;
}

/* Takes one tag from a build. The template of "default" is removed before the files that it is made
 * from. */
static err *untag_one(engine *e, build_row *r, const char *tag)
{
    change_tag(r, tag, false);
    return str_eq(tag, BUILD_DEFAULT) ? remove_template(e, r->owner, r->template) : NULL;
}

/* Checks that all tags exist, before the first one is taken: all are removed, or none. */
static err *check_tagged(build_row *rows, size_t n, const char *name, char *const *tags)
{
    for (size_t i = 0; tags[i]; i++)
        if (!build_tags_tagged(rows, n, tags[i]))
            return no_template(name);
    return NULL;
}

err *engine_build_untag(engine *e, const caller *c, const char *name, char *const *tags)
{
    build_row *rows = NULL;
    size_t n = 0;
    err *failure = NULL;

    TRY(caller_require(c, CALLER_USER));
    TRY(check_tags(tags));
    LOCK_SCOPE(&e->builds->tags);
    TRY(rows_of(e, c, name, &rows, &n));
    failure = check_tagged(rows, n, name, tags);
    for (size_t i = 0; tags[i] && !failure; i++) {
        build_row *r = build_tags_tagged(rows, n, tags[i]); /* NULL: the tag is named twice */
        failure = r ? untag_one(e, r, tags[i]) : NULL;
    }
    if (!failure)
        failure = update_ready(e, rows, n);
    build_rows_free(rows, n);
    return failure;
}

/* ---- removal ---- */

static void build_tags_cancel(engine *e, const char *id)
{
    build_desk *d = e->builds;
    LOCK_SCOPE(&d->lock);
    build *b = map_get_str(&d->known, id);

    if (b && !b->over)
        b->cancelled = true;
}

void builds_forget(engine *e, const char *owner, const char *template)
{
    build_row *rows = NULL;
    size_t n = 0;
    LOCK_SCOPE(&e->builds->tags);
    err *failure = store_build_list(e->o.store, owner, template, &rows, &n);

    err_drop(failure, "build");
    err_drop(remove_template(e, owner, template), "build"); /* it may have been published since */
    for (size_t i = 0; i < n; i++) {
        build_tags_cancel(e, rows[i].id);
        err_drop(store_build_remove(e->o.store, rows[i].id), "build");
        drop_files(e, &rows[i]);
    }
    build_rows_free(rows, n);
}

err *engine_build_remove(engine *e, const caller *c, const char *text)
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(freep) char *tag = NULL;
    CLEANUP(freep) char *id = NULL;
    build_row *rows = NULL;
    size_t n = 0;

    TRY(caller_require(c, CALLER_USER));
    build_tags_split(text, &name, &tag);
    if (!str_eq(tag, BUILD_DEFAULT))
        return engine_build_untag(e, c, name, (char *[]){tag, NULL});
    err *failure = engine_template_remove(e, c, name);
    if (!failure || failure->code != ERR_NOT_FOUND)
        return failure;
    err *unread = rows_of(e, c, name, &rows, &n);
    if (unread) {
        err_free(failure);
        return unread;
    }
    id = n ? xstrdup(rows[0].template) : NULL;
    build_rows_free(rows, n);
    if (!id)
        return failure;
    err_free(failure);
    builds_forget(e, c->owner, id);
    return NULL;
}

err *engine_build_owner(engine *e, const char *template, char **ret_owner)
{
    build_row *rows = NULL;
    size_t n = 0;

    TRY(store_build_list(e->o.store, NULL, template, &rows, &n));
    for (size_t i = 0; i < n && !*ret_owner; i++)
        if (str_eq(rows[i].template, template))
            *ret_owner = xstrdup(rows[i].owner);
    build_rows_free(rows, n);
    return *ret_owner ? NULL : no_template(template);
}
