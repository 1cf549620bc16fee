/* Snapshots, which E2B's clients see as templates. A snapshot with a name is a native template,
 * too. */
#include <string.h>

#include "door/e2b/templates.h"
#include "door/shared/wait.h"

#define PAGE 100u

static json_t *snapshot_json(const char *id, json_t *owned_names)
{
    return json_pack("{s:s,s:o}", "snapshotID", id, "names", owned_names);
}

/* Refuses a name that a built template has: removing the snapshot would remove that template and
 * all its builds. */
static err *check_unbuilt(engine *e, const caller *c, const template_view *t)
{
    build_row *rows = NULL;
    size_t n = 0;

    TRY(engine_build_list(e, c, t->id, &rows, &n));
    build_rows_free(rows, n);
    return n ? err_remedy(err_new(ERR_CONFLICT, "the template '%s' is built, not taken", t->name),
                          "Give the snapshot another name.")
             : NULL;
}

/* Makes a template of this name from the snapshot, or changes the caller's existing one to it. */
static err *name_it(engine *e, const caller *c, const char *name, const char *id)
{
    CLEANUP(template_view_done) template_view t = {0};
    CLEANUP(template_view_done) template_view made = {0};
    err *unknown = engine_template_find(e, c, name, &t);
    bool known = !unknown && str_eq(t.owner, c->owner);

    if (unknown && unknown->code != ERR_NOT_FOUND)
        return unknown;
    err_free(unknown);
    if (known) {
        TRY(check_unbuilt(e, c, &t));
        sandbox_spec_done(&t.spec);
        t.spec = (sandbox_spec){.snapshot = xstrdup(id), .setuid = true};
        return engine_template_update(e, c, &t, &made);
    }
    template_view_done(&t);
    t = (template_view){.name = xstrdup(name), .spec = {.snapshot = xstrdup(id), .setuid = true}};
    return engine_template_create(e, c, &t, &made);
}

typedef struct taking {
    engine *e;
    caller who; /* a copy */
    wait_ticket *ticket;
    char *name; /* or NULL */
} taking;

static void on_taken(void *arg, err *failure, const snapshot_row *row, uint64_t still_ns)
{
    taking *t = arg;
    json_t *names = json_array();

    (void)still_ns;
    if (!failure && t->name) {
        failure = name_it(t->e, &t->who, t->name, row->id);
        if (failure)
            err_drop(engine_snapshot_remove(t->e, &t->who, row->id), "e2b");
        json_array_append_new(names, json_string(t->name));
    }
    if (failure) {
        json_decref(names);
        wait_finish(t->ticket, failure, 0, NULL, false);
    } else {
        wait_finish(t->ticket, NULL, 201, snapshot_json(row->id, names), false);
    }
    free(t->who.owner);
    free(t->name);
    free(t);
}

/* Takes a snapshot. Its duration depends on the disk, so no request thread waits for it. */
err *snapshots_take(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(control_body(rq, NULL, &body));
    TRY(control_find(rq, &sb));
    const char *name = json_str(body, "name");
    taking *t = xcalloc(1, sizeof *t);
    *t = (taking){
        .e = e2b_engine(rq), .who = *e2b_caller(rq), .name = name && *name ? xstrdup(name) : NULL};
    t->who.owner = xstrdup(t->who.owner);
    t->ticket = wait_start(rq, rs, false);
    err *refused = engine_snapshot_start(t->e, e2b_caller(rq), sb, on_taken, t);
    if (refused)
        on_taken(t, refused, NULL, 0);
    return NULL;
}

/* ---- the list ---- */

typedef struct known {
    snapshot_row *rows;
    size_t n;
    template_view *templates;
    size_t ntemplates;
    build_row *builds;
    size_t nbuilds;
} known;

static void known_done(known *k)
{
    while (k->n)
        snapshot_row_done(&k->rows[--k->n]);
    while (k->ntemplates)
        template_view_done(&k->templates[--k->ntemplates]);
    free(k->rows);
    free(k->templates);
    build_rows_free(k->builds, k->nbuilds);
}

static err *snapshots_look(request *rq, const sandbox *sb, known *k)
{
    engine *e = e2b_engine(rq);
    const caller *c = e2b_caller(rq);

    TRY(engine_snapshot_list(e, c, sb, &k->rows, &k->n));
    TRY(engine_template_list(e, c, &k->templates, &k->ntemplates));
    return engine_build_list(e, c, NULL, &k->builds, &k->nbuilds);
}

/* Returns true if the snapshot holds the files of a build: it is listed with templates instead. */
static bool is_of_build(const known *k, const char *id)
{
    for (size_t i = 0; i < k->nbuilds; i++)
        if (str_eq(k->builds[i].snapshot, id))
            return true;
    return false;
}

static json_t *names_of(const known *k, const char *id)
{
    json_t *names = json_array();

    for (size_t i = 0; i < k->ntemplates; i++)
        if (str_eq(k->templates[i].spec.snapshot, id))
            json_array_append_new(names, json_string(k->templates[i].name));
    return names;
}

static bool has_name(const json_t *names, const char *name)
{
    const json_t *one;
    size_t i;

    if (!name || !*name)
        return true;
    json_array_foreach(names, i, one) if (str_eq(json_string_value(one), name)) return true;
    return false;
}

static err *snapshots_page(const request *rq, size_t *ret_from, size_t *ret_limit)
{
    const char *token = request_query(rq, "nextToken"), *limit = request_query(rq, "limit");
    uint64_t from = 0, n = PAGE;

    if ((token && *token && !str_to_u64(token, UINT32_MAX, &from)) ||
        (limit && *limit && (!str_to_u64(limit, UINT32_MAX, &n) || !n)))
        return err_new(ERR_INVALID_REQUEST, "limit and nextToken: must be numbers");
    *ret_from = from;
    *ret_limit = n > PAGE ? PAGE : n;
    return NULL;
}

static err *of_sandbox(request *rq, sandbox **ret_sandbox)
{
    const char *given = request_query(rq, "sandboxID");
    char id[SANDBOX_ID_LEN + 1];

    if (!given || !*given)
        return NULL;
    e2b_id(given, id);
    return engine_find(e2b_engine(rq), e2b_caller(rq), id[0] ? id : given, ret_sandbox);
}

/* Lists snapshots. The page token is an index: the list is oldest first, so new snapshots do not
 * shift it. */
err *snapshots_list(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(known_done) known k = {0};
    size_t from = 0, limit = 0;

    TRY(snapshots_page(rq, &from, &limit));
    TRY(of_sandbox(rq, &sb));
    TRY(snapshots_look(rq, sb, &k));
    json_t *list = json_array();
    for (size_t i = from; i < k.n; i++) {
        if (is_of_build(&k, k.rows[i].id))
            continue;
        json_t *names = names_of(&k, k.rows[i].id);
        if (!has_name(names, request_query(rq, "name"))) {
            json_decref(names);
            continue;
        }
        if (json_array_size(list) == limit) {
            json_decref(names);
            response_header(rs, "X-Next-Token", "%zu", i);
            break;
        }
        json_array_append_new(list, snapshot_json(k.rows[i].id, names));
    }
    response_json(rs, 200, list);
    return NULL;
}

err *snapshots_remove(request *rq, const char *text)
{
    CLEANUP(known_done) known k = {0};
    CLEANUP(freep) char *id = xstrndup(text, strcspn(text, ":"));
    engine *e = e2b_engine(rq);
    const caller *c = e2b_caller(rq);
    CLEANUP(snapshot_row_done) snapshot_row row = {0};

    TRY(engine_snapshot_find(e, c, id, &row));
    TRY(snapshots_look(rq, NULL, &k));
    if (is_of_build(&k, id))
        return err_new(ERR_CONFLICT, "snapshot %s is the files of a template", id);
    for (size_t i = 0; i < k.ntemplates; i++)
        if (str_eq(k.templates[i].spec.snapshot, id))
            TRY(engine_template_remove(e, c, k.templates[i].id));
    return engine_snapshot_remove(e, c, id);
}
