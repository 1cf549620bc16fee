/* Rows of templates. */
#include <string.h>

#include "base/str.h"
#include "store/internal.h"

void template_row_done(template_row *r)
{
    free(r->owner);
    free(r->name);
    free(r->spec);
    memset(r, 0, sizeof *r);
}

static void read_template(sqlite3_stmt *st, template_row *r)
{
    CLEANUP(freep) char *id = column_text(st, 0);

    memset(r, 0, sizeof *r);
    str_copy(r->id, sizeof r->id, str_or(id, ""));
    r->owner = column_text(st, 1);
    r->name = column_text(st, 2);
    r->public = sqlite3_column_int(st, 3) != 0;
    r->spec = column_text(st, 4);
    r->created_ns = (uint64_t)sqlite3_column_int64(st, 5);
    r->changed_ns = (uint64_t)sqlite3_column_int64(st, 6);
}

static err *no_template(const char *name)
{
    return err_kind(err_new(ERR_NOT_FOUND, "there is no template '%.64s'", name), "template");
}

static err *name_taken(const char *name)
{
    return err_remedy(
        err_kind(err_new(ERR_CONFLICT, "there is a template named '%s'", name), "template"),
        "Choose another name, or change or remove that one.");
}

/* Returns the error of a statement that broke a rule of the table. */
static err *templates_explain(store_conn *c, const char *name, const char *doing)
{
    int code = sqlite3_extended_errcode(c->db);

    return code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY
               ? name_taken(name)
               : store_error(c, doing);
}

typedef struct template_insert {
    const template_row *row;
    size_t max;
} template_insert;

static err *run_template_insert(store_conn *c, void *arg)
{
    const template_insert *in = arg;
    const template_row *r = in->row;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_TEMPLATE_INSERT, &st));
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->owner);
    bind_text(st, 3, r->name);
    bind_time(st, 4, r->public);
    bind_text(st, 5, r->spec);
    bind_time(st, 6, r->created_ns);
    bind_time(st, 7, r->changed_ns);
    bind_time(st, 8, in->max);
    if (sqlite3_step(st) != SQLITE_DONE)
        return templates_explain(c, r->name, "record a template");
    if (sqlite3_changes(c->db))
        return NULL;
    return err_remedy(err_new(ERR_QUOTA_EXCEEDED, "'%s' has %zu templates, as many as one may have",
                              r->owner, in->max),
                      "Remove some that are not used any more.");
}

err *store_template_insert(store *s, const template_row *r, size_t max)
{
    return store_write(s, run_template_insert, &(template_insert){r, max});
}

err *store_template_find(store *s, const char *owner, bool everybody, const char *id_or_name,
                         template_row *ret_row)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_TEMPLATE_FIND, &st));
    bind_text(st, 1, id_or_name);
    bind_text(st, 2, owner);
    bind_time(st, 3, everybody);
    int step = sqlite3_step(st);
    if (step == SQLITE_DONE)
        return no_template(id_or_name);
    if (step != SQLITE_ROW)
        return store_error(r.c, "read a template");
    read_template(st, ret_row);
    return NULL;
}

err *store_template_by_name(store *s, const char *name, template_row *ret_row)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    CLEANUP(template_row_done) template_row row = {0};

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_TEMPLATE_BY_NAME, &st));
    bind_text(st, 1, name);
    int step = sqlite3_step(st);
    if (step == SQLITE_DONE)
        return no_template(name);
    if (step == SQLITE_ROW) {
        read_template(st, &row);
        step = sqlite3_step(st);
    }
    if (step == SQLITE_ROW)
        return err_remedy(
            err_kind(err_new(ERR_CONFLICT, "several owners have a template '%.64s'", name),
                     "template"),
            "Name it by its id: 'bothy template ls' shows it.");
    if (step != SQLITE_DONE)
        return store_error(r.c, "read a template");
    *ret_row = row;
    row = (template_row){0};
    return NULL;
}

typedef struct template_update {
    const template_row *row;
    uint64_t now_ns;
} template_update;

static err *run_template_update(store_conn *c, void *arg)
{
    const template_update *u = arg;
    const template_row *r = u->row;
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_TEMPLATE_UPDATE, &st));
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->name);
    bind_time(st, 3, r->public);
    bind_text(st, 4, r->spec);
    bind_time(st, 5, u->now_ns);
    bind_time(st, 6, r->changed_ns);
    if (sqlite3_step(st) != SQLITE_DONE)
        return templates_explain(c, r->name, "change a template");
    if (sqlite3_changes(c->db))
        return NULL;
    return err_remedy(
        err_kind(err_new(ERR_CONFLICT, "the template '%s' was changed meanwhile", r->name),
                 "template"),
        "Read it again, and try once more.");
}

err *store_template_update(store *s, const template_row *r, uint64_t now_ns)
{
    return store_write(s, run_template_update, &(template_update){r, now_ns});
}

static err *run_template_remove(store_conn *c, void *arg)
{
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;

    TRY(store_stmt(c, SQL_TEMPLATE_REMOVE, &st));
    bind_text(st, 1, arg);
    TRY(store_step_done(c, st, "remove a template"));
    return sqlite3_changes(c->db) ? NULL : no_template(arg);
}

err *store_template_remove(store *s, const char *id)
{
    return store_write(s, run_template_remove, (void *)id);
}

err *store_template_list(store *s, const char *owner, bool everybody, template_row **ret_rows,
                         size_t *ret_n)
{
    CLEANUP(store_read_end) store_read r = {0};
    CLEANUP(stmt_resetp) sqlite3_stmt *st = NULL;
    template_row *rows = NULL;
    size_t n = 0;
    int step;

    TRY(store_read_begin(s, &r));
    TRY(store_stmt(r.c, SQL_TEMPLATE_LIST, &st));
    bind_text(st, 1, owner);
    bind_time(st, 2, everybody);
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        if (!(n & (n + 1))) /* 0, 1, 3, 7, …: the array doubles */
            rows = xrealloc(rows, (2 * n + 1) * sizeof *rows);
        read_template(st, &rows[n++]);
    }
    if (step != SQLITE_DONE) {
        while (n)
            template_row_done(&rows[--n]);
        free(rows);
        return store_error(r.c, "list templates");
    }
    *ret_rows = rows;
    *ret_n = n;
    return NULL;
}
