/* Templates: named specs for creates. The store keeps them as JSON of the engine's; the create that
 * uses a template checks it again. */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/internal.h"

void template_view_done(template_view *t)
{
    free(t->owner);
    free(t->name);
    sandbox_spec_done(&t->spec);
    *t = (template_view){0};
}

/* ---- the store's form ---- */

static json_t *tmpfs_list(const sandbox_spec *s)
{
    json_t *all = json_array();

    for (size_t i = 0; i < s->ntmpfs; i++)
        json_array_append_new(all, json_pack("{s:s,s:I,s:i,s:b}", "path", s->tmpfs[i].path, "size",
                                             (json_int_t)s->tmpfs[i].size, "mode",
                                             (int)s->tmpfs[i].mode, "exec", s->tmpfs[i].exec));
    return all;
}

static void tmpfs_read(const json_t *list, sandbox_spec *s)
{
    const json_t *one;
    size_t i;

    s->tmpfs = xcalloc(json_array_size(list), sizeof *s->tmpfs);
    json_array_foreach(list, i, one)
    {
        s->tmpfs[s->ntmpfs++] = (tmpfs_spec){.path = xstrdup(str_or(json_str(one, "path"), "")),
                                             .size = (uint64_t)json_int(one, "size", 0),
                                             .mode = (uint32_t)json_int(one, "mode", 0),
                                             .exec = json_flag(one, "exec")};
    }
}

char *template_spec_text(const sandbox_spec *s)
{
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(json_decrefp)
    json_t *o =
        json_pack("{s:s?,s:s?,s:o,s:o,s:s?,s:s?,s:o,s:o,s:I,s:I,s:b,s:b,s:o*}", "image", s->image,
                  "snapshot", s->snapshot, "env", strv_json(s->env), "labels", strv_json(s->labels),
                  "user", s->user, "cwd", s->cwd, "limits", limits_json(&s->limits), "tmpfs",
                  tmpfs_list(s), "ttl_ms", (json_int_t)s->ttl_ms, "idle_ms", (json_int_t)s->idle_ms,
                  "read_only", s->read_only, "setuid", s->setuid, "start", start_json(&s->start));

    if (s->has_network)
        json_object_set_new(o, "network", json_string(network_grant_name(s->network)));
    if (s->has_umask)
        json_object_set_new(o, "umask", json_integer(s->umask));
    json_write(&b, o);
    return buf_take(&b);
}

static char *copy_of(const json_t *o, const char *member)
{
    const char *s = json_str(o, member);

    return s ? xstrdup(s) : NULL;
}

err *template_spec_read(const char *name, const char *text, sandbox_spec *ret_spec)
{
    CLEANUP(json_decrefp) json_t *o = NULL;

    TRY(err_wrap(json_parse(text, strlen(text), &o), "template '%s' in the store", name));
    const json_t *start = json_object_get(o, "start"), *umask = json_object_get(o, "umask");
    sandbox_spec s = {.image = copy_of(o, "image"),
                      .snapshot = copy_of(o, "snapshot"),
                      .env = strv_of_json(json_object_get(o, "env")),
                      .labels = strv_of_json(json_object_get(o, "labels")),
                      .user = copy_of(o, "user"),
                      .cwd = copy_of(o, "cwd"),
                      .ttl_ms = (uint64_t)json_int(o, "ttl_ms", 0),
                      .idle_ms = (uint64_t)json_int(o, "idle_ms", 0),
                      .read_only = json_flag(o, "read_only"),
                      .setuid = json_flag(o, "setuid"),
                      .has_network = json_str(o, "network") != NULL,
                      .network = network_grant_by_name(json_str(o, "network")),
                      .has_umask = json_is_integer(umask),
                      .umask = (uint32_t)json_int(o, "umask", 0),
                      .start = {.argv = strv_of_json(json_object_get(start, "argv")),
                                .user = copy_of(start, "user"),
                                .cwd = copy_of(start, "cwd")}};
    limits_read(json_object_get(o, "limits"), &s.limits);
    tmpfs_read(json_object_get(o, "tmpfs"), &s);
    *ret_spec = s;
    return NULL;
}

/* Makes a view of a row. Takes the row's strings. */
static err *view_of(template_row *r, template_view *ret_view)
{
    template_view v = {
        .public = r->public, .created_ns = r->created_ns, .changed_ns = r->changed_ns};

    TRY(template_spec_read(r->name, r->spec, &v.spec));
    memcpy(v.id, r->id, sizeof v.id);
    v.owner = TAKE_PTR(r->owner);
    v.name = TAKE_PTR(r->name);
    *ret_view = v;
    return NULL;
}

/* ---- verbs ---- */

/* Refuses an invalid image name now instead of at the first create from the template. */
static err *check_image(const char *named)
{
    CLEANUP(freep) char *name = NULL;

    return named ? err_wrap(image_normalise(named, &name), "image") : NULL;
}

static err *check_source(const sandbox_spec *s)
{
    int given = !!s->image + !!s->template + !!s->snapshot;

    if (given == 1)
        return NULL;
    return err_remedy(err_new(ERR_INVALID_REQUEST, "%s of image, template and snapshot %s given",
                              given ? "more than one" : "none", given ? "are" : "is"),
                      "Name one of them: what the sandbox is made of.");
}

/* Refuses everything that a create would refuse, except what only this node lacks now. */
static err *engine_template_check(engine *e, const caller *c, const template_view *t,
                                  const char *text)
{
    CLEANUP(sandbox_spec_done) sandbox_spec tried = {0};

    TRY(caller_require(c, CALLER_USER));
    if (!t->name || !spec_name_valid(t->name))
        return err_new(ERR_INVALID_REQUEST,
                       "name must be 1 to 64 letters, digits, _ . - beginning with a letter or "
                       "digit, and not look like an id; '%.64s' is not",
                       str_or(t->name, ""));
    if (t->spec.secrets)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "a template has no secrets"),
                          "Send them with each create.");
    if (t->public && c->role < CALLER_ADMIN)
        return err_remedy(
            err_new(ERR_FORBIDDEN, "public: only an administrator makes a template for everybody"),
            "Leave public out.");
    if (strlen(text) > TEMPLATE_SPEC_MAX)
        return err_new(ERR_TOO_LARGE, "the template has %zu bytes, at most %u are kept",
                       strlen(text), TEMPLATE_SPEC_MAX);
    if (t->spec.image && image_is_local_source(t->spec.image) && c->role != CALLER_ADMIN)
        return err_remedy(err_new(ERR_FORBIDDEN, "only an admin may name a path of the node"),
                          "Let an admin pull it under a name, then use that name.");
    TRY(check_image(t->spec.image));
    TRY(template_spec_read(t->name, text, &tried));
    TRY(check_source(&tried));
    TRY(snapshot_apply(e, str_or(t->owner, c->owner), &tried)); /* as a create from it will */
    TRY(quota_ceilings(e, c, &tried.limits));
    return sandbox_spec_check(&tried);
}

static err *template_make(engine *e, const caller *c, template_view *t, template_view *ret_made)
{
    CLEANUP(template_row_done)
    template_row row = {.owner = xstrdup(c->owner),
                        .name = xstrdup(str_or(t->name, "")),
                        .public = t->public,
                        .spec = template_spec_text(&t->spec)};

    TRY(engine_template_check(e, c, t, row.spec));
    memcpy(row.id, t->id, sizeof row.id);
    row.created_ns = row.changed_ns = clock_real(e->o.clock);
    TRY(store_template_insert(e->o.store, &row, TEMPLATES_MAX));
    return view_of(&row, ret_made);
}

err *engine_template_create(engine *e, const caller *c, template_view *t, template_view *ret_made)
{
    id_sandbox(e->o.cell, t->id);
    return template_make(e, c, t, ret_made);
}

/* Finds the template that a verb is to show, change or remove; for an administrator also by a name
 * that only another owner has. */
static err *find_to_manage(engine *e, const caller *c, const char *id_or_name,
                           template_row *ret_row)
{
    bool admin = c->role == CALLER_ADMIN;
    err *failure = store_template_find(e->o.store, c->owner, admin, id_or_name, ret_row);

    if (!failure || failure->code != ERR_NOT_FOUND || !admin)
        return failure;
    err_free(failure);
    return store_template_by_name(e->o.store, id_or_name, ret_row);
}

err *engine_template_manage(engine *e, const caller *c, const char *id_or_name,
                            template_view *ret_template)
{
    CLEANUP(template_row_done) template_row row = {0};

    TRY(find_to_manage(e, c, id_or_name, &row));
    return view_of(&row, ret_template);
}

err *engine_template_find(engine *e, const caller *c, const char *id_or_name,
                          template_view *ret_template)
{
    CLEANUP(template_row_done) template_row row = {0};

    TRY(store_template_find(e->o.store, c->owner, c->role == CALLER_ADMIN, id_or_name, &row));
    return view_of(&row, ret_template);
}

/* Checks that the caller may change a template: all callers see a public one, but only its owner
 * and administrators change it. */
static err *may_change(const caller *c, const char *owner, const char *name)
{
    TRY(caller_require(c, CALLER_USER));
    if (c->role == CALLER_ADMIN || str_eq(c->owner, owner))
        return NULL;
    return err_remedy(err_new(ERR_FORBIDDEN, "the template '%s' is not yours", name),
                      "Make one of your own; it may have the same name.");
}

err *engine_template_update(engine *e, const caller *c, template_view *t, template_view *ret_made)
{
    CLEANUP(template_row_done)
    template_row row = {.owner = xstrdup(t->owner),
                        .name = xstrdup(str_or(t->name, "")),
                        .public = t->public,
                        .spec = template_spec_text(&t->spec),
                        .created_ns = t->created_ns,
                        .changed_ns = t->changed_ns};
    uint64_t now = clock_real(e->o.clock);

    TRY(may_change(c, t->owner, t->name));
    TRY(engine_template_check(e, c, t, row.spec));
    memcpy(row.id, t->id, sizeof row.id);
    now = now > t->changed_ns ? now : t->changed_ns + 1;
    TRY(store_template_update(e->o.store, &row, now));
    row.changed_ns = now;
    return view_of(&row, ret_made);
}

err *template_put(engine *e, const caller *c, const char *id, const char *name, sandbox_spec *spec)
{
    CLEANUP(template_view_done) template_view t = {0};
    CLEANUP(template_view_done) template_view made = {0};
    err *failure = engine_template_find(e, c, id, &t);

    if (failure && failure->code != ERR_NOT_FOUND)
        return failure;
    bool known = !failure;
    err_free(failure);
    sandbox_spec_done(&t.spec);
    t.spec = *spec;
    *spec = (sandbox_spec){0};
    if (known)
        return engine_template_update(e, c, &t, &made);
    str_copy(t.id, sizeof t.id, id);
    t.name = xstrdup(name);
    return template_make(e, c, &t, &made);
}

/* Removes a template. Reads only its row, so that a template with an unreadable spec can be
 * removed, too. */
err *engine_template_remove(engine *e, const caller *c, const char *id_or_name)
{
    CLEANUP(template_row_done) template_row row = {0};

    TRY(find_to_manage(e, c, id_or_name, &row));
    TRY(may_change(c, row.owner, row.name));
    TRY(store_template_remove(e->o.store, row.id));
    builds_forget(e, row.owner, row.id);
    return NULL;
}

err *engine_template_list(engine *e, const caller *c, template_view **ret_templates, size_t *ret_n)
{
    CLEANUP(freep) template_row *rows = NULL;
    size_t n = 0, good = 0;

    TRY(store_template_list(e->o.store, c->owner, c->role == CALLER_ADMIN, &rows, &n));
    template_view *all = xcalloc(n, sizeof *all);
    for (size_t i = 0; i < n; i++) {
        err *failure = view_of(&rows[i], &all[good]);
        if (failure)
            log_error("template", "template %s of %s cannot be read and is left out: %s",
                      rows[i].id, rows[i].owner, failure->message);
        good += !failure;
        err_free(failure);
        template_row_done(&rows[i]);
    }
    *ret_templates = all;
    *ret_n = good;
    return NULL;
}

/* ---- a create ---- */

err *template_apply(engine *e, const caller *c, sandbox_spec *spec, bool *ret_public)
{
    CLEANUP(template_view_done) template_view t = {0};

    TRY(check_source(spec));
    if (!spec->template)
        return snapshot_apply(e, c->role == CALLER_ADMIN ? NULL : c->owner, spec);
    TRY(engine_template_find(e, c, spec->template, &t));
    sandbox_spec_fill(spec, &t.spec);
    *ret_public = t.public;
    return snapshot_apply(e, t.owner, spec); /* callers of the template may use its snapshot */
}
