/* bothy template: named sets of defaults for sandboxes. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/spec.h"
#include "cli/verbs.h"

typedef struct template_args {
    common_args common;
    spec_args spec;
    bool public, quiet;
} template_args;

/* ---- create ---- */

static const opt CREATE_OPTS[] = {
    OPT(0, "public", NULL, OPT_FLAG, template_args, public,
        "everybody on the node may use it (administrators)"),
    SPEC_OPTS(template_args, spec),
    COMMON_OPTS(template_args),
};

/* Refuses options that belong to one sandbox, or must not be stored. */
static err *template_check(const template_args *a)
{
    const char *wrong = a->spec.name     ? "--name"
                        : a->spec.secret ? "--secret"
                        : a->spec.pull   ? "--pull"
                                         : NULL;

    if (!wrong)
        return NULL;
    return err_remedy(usage_error("a template takes no %s", wrong),
                      "Give it to 'bothy run' and 'bothy create'.");
}

/* Finds options after NAME: options end at the first word, and later ones would belong to the
 * command. */
static err *check_words(const opt_words *words)
{
    if (words->v[1][0] != '-')
        return NULL;
    return err_remedy(usage_error("'%s' stands where the IMAGE is expected", words->v[1]),
                      "Options come first: bothy template create [OPTIONS] NAME IMAGE.");
}

static void set_start(json_t *body, char *const *words)
{
    json_t *argv = json_array();

    for (; *words; words++)
        json_array_append_new(argv, json_string(*words));
    json_object_set_new(body, "start", json_pack("{s:o}", "argv", argv));
}

static err *template_create(cli *c, void *args, const opt_words *words, int *status)
{
    const template_args *a = args;
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(json_decrefp) json_t *made = NULL;
    char *const *start = words->v + 2;

    (void)status;
    TRY(template_check(a));
    TRY(check_words(words));
    TRY(spec_to_json(&a->spec, words->v[1], &body));
    json_object_set_new(body, "name", json_string(words->v[0]));
    if (a->public)
        json_object_set_new(body, "public", json_true());
    if (*start && str_eq(*start, "--"))
        start++;
    if (*start)
        set_start(body, start);
    TRY(cli_call(c, "POST", json_incref(body), &made, "/v1/templates"));
    if (c->common.json)
        out_json(stdout, made);
    else
        out_line(stdout, json_str(made, "name"));
    return NULL;
}

static const verb CREATE = {
    .name = "create",
    .usage = "[OPTIONS] NAME IMAGE [--] [COMMAND [ARG...]]",
    .summary = "Keep a recipe under a name",
    .text =
        "COMMAND, such as a server, runs in every sandbox made of it from its beginning on; it\n"
        "does not keep the sandbox from being idle. Variables are kept and shown: no place for\n"
        "secrets.",
    .opts = CREATE_OPTS,
    .args_size = sizeof(template_args),
    .stop_early = true,
    .words_min = 2,
    .words_max = -1,
    .run = template_create,
};

/* ---- ls ---- */

static const opt LS_OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, template_args, quiet, "names only"),
    COMMON_OPTS(template_args),
};

static void start_text(const json_t *t, buf *out)
{
    const json_t *argv = json_object_get(json_object_get(t, "start"), "argv"), *word;
    size_t i;

    json_array_foreach(argv, i, word)
    {
        if (i)
            buf_char(out, ' ');
        buf_str(out, str_or(json_string_value(word), "?"));
    }
}

static void print_list(const json_t *all)
{
    CLEANUP(out_table_done) out_table table = {0};
    size_t i;
    json_t *t;

    out_table_init(&table, "NAME IMAGE OWNER PUBLIC START");
    json_array_foreach(all, i, t)
    {
        CLEANUP(buf_done) buf start = {0};
        start_text(t, &start);
        out_table_cell(&table, json_str(t, "name"));
        out_table_cell(&table, json_str(t, "image"));
        out_table_cell(&table, json_str(t, "owner"));
        out_table_cell(&table, json_flag(t, "public") ? "yes" : "no");
        out_table_cell(&table, start.len ? buf_cstr(&start) : NULL);
    }
    out_table_print(&table, stdout, out_colours(stdout));
}

static err *template_ls(cli *c, void *args, const opt_words *words, int *status)
{
    const template_args *a = args;
    CLEANUP(json_decrefp) json_t *all = NULL;
    size_t i;
    json_t *t;

    (void)words, (void)status;
    TRY(cli_list(c, "/v1/templates", "templates", &all));
    if (a->quiet)
        json_array_foreach(all, i, t) out_line(stdout, json_str(t, "name"));
    else if (c->common.json)
        out_json(stdout, all);
    else
        print_list(all);
    return NULL;
}

static const verb LS = {
    .name = "ls",
    .usage = "[OPTIONS]",
    .summary = "List templates",
    .opts = LS_OPTS,
    .args_size = sizeof(template_args),
    .run = template_ls,
};

/* ---- show, rm ---- */

static const opt PLAIN_OPTS[] = {COMMON_OPTS(template_args)};

static err *template_show(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(freep) char *name = client_escape(words->v[0]);
    CLEANUP(json_decrefp) json_t *t = NULL;
    const char *member;
    json_t *v;

    (void)args, (void)status;
    TRY(cli_call(c, "GET", NULL, &t, "/v1/templates/%s", name));
    if (c->common.json) {
        out_json(stdout, t);
        return NULL;
    }
    json_object_foreach(t, member, v)
    {
        if (!out_is_empty(v))
            out_field(member, v);
    }
    return NULL;
}

static const verb SHOW = {
    .name = "show",
    .usage = "NAME",
    .summary = "Print a template",
    .opts = PLAIN_OPTS,
    .args_size = sizeof(template_args),
    .words_min = 1,
    .words_max = 1,
    .run = template_show,
};

static err *template_rm(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    return cli_remove(c, words->v, "/v1/templates");
}

static const verb RM = {
    .name = "rm",
    .usage = "NAME...",
    .summary = "Remove templates; sandboxes made of them stay",
    .opts = PLAIN_OPTS,
    .args_size = sizeof(template_args),
    .words_min = 1,
    .words_max = -1,
    .run = template_rm,
};

static const verb *const VERBS[] = {&CREATE, &LS, &SHOW, &RM, NULL};
const verb VERB_TEMPLATE = {
    .name = "template",
    .usage = "COMMAND ...",
    .summary = "Make, list and remove templates",
    .of = VERBS,
};
