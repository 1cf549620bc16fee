/* bothy ls: lists sandboxes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct ls_args {
    common_args common;
    char **label;
    bool all, quiet, names;
} ls_args;

static const opt OPTS[] = {
    OPT('a', "all", NULL, OPT_FLAG, ls_args, all, "also those that are gone, with their cause"),
    OPT('q', "quiet", NULL, OPT_FLAG, ls_args, quiet, "ids only"),
    OPT(0, "names", NULL, OPT_FLAG, ls_args, names, NULL), /* for completion: one request */
    OPT(0, "label", "KEY[=VALUE]", OPT_LIST, ls_args, label, "only those with this label"),
    COMMON_OPTS(ls_args),
};

static char *path_of(const ls_args *a)
{
    CLEANUP(buf_done) buf path = {0};

    buf_str(&path, a->all ? CLI_LIST_ALL : "/v1/sandboxes?limit=1000");
    for (char **l = a->label; l && *l; l++) {
        CLEANUP(freep) char *escaped = client_escape(*l);
        buf_printf(&path, "&label=%s", escaped);
    }
    return buf_take(&path);
}

/* Appends "running", "gone (ttl)" or "gone (killed by uid:0)". */
static void state_of(const json_t *sandbox, buf *out)
{
    const json_t *cause = json_object_get(sandbox, "cause");
    const char *kind = json_str(cause, "kind"), *by = json_str(cause, "by");

    buf_str(out, str_or(json_str(sandbox, "state"), "?"));
    if (kind)
        buf_printf(out, " (%s%s%s)", kind, by ? " by " : "", by ? by : "");
}

/* Appends "1 of 3": running commands and all. The list lacks these counts, so each sandbox is
 * asked. A sandbox that ends meanwhile shows "-". */
static void commands_of(cli *c, const json_t *sandbox, buf *out)
{
    CLEANUP(json_decrefp) json_t *answer = NULL;
    size_t i, running = 0;
    json_t *p;

    if (str_eq(json_str(sandbox, "state"), "gone"))
        return;
    CLEANUP(err_freep)
    err *e = cli_call(c, "GET", NULL, &answer, "/v1/sandboxes/%s/processes",
                      str_or(json_str(sandbox, "id"), ""));
    if (e)
        return;
    const json_t *list = json_object_get(answer, "processes");
    json_array_foreach(list, i, p) running += json_flag(p, "running");
    buf_printf(out, "%zu of %zu", running, json_array_size(list));
}

static void age_of(const json_t *sandbox, buf *out)
{
    uint64_t created = out_parse_time(json_str(sandbox, "created")), now = now_real_ns();

    if (created)
        out_age(out, now > created ? (now - created) / NS_PER_S : 0);
}

/* Appends what is left of its time to live; nothing if it has none. */
static void ends_of(const json_t *sandbox, buf *out)
{
    const json_t *left = json_object_get(sandbox, "ttl_left");

    if (json_is_number(left))
        out_age(out, (uint64_t)json_number_value(left));
}

static void add_row(cli *c, out_table *t, const json_t *sandbox)
{
    CLEANUP(buf_done) buf state = {0}, age = {0}, ends = {0}, commands = {0};

    state_of(sandbox, &state);
    age_of(sandbox, &age);
    ends_of(sandbox, &ends);
    commands_of(c, sandbox, &commands);
    out_table_cell(t, json_str(sandbox, "id"));
    out_table_cell(t, json_str(sandbox, "name"));
    out_table_cell(t, json_str(json_object_get(sandbox, "image"), "name"));
    out_table_cell(t, buf_cstr(&state));
    out_table_cell(t, buf_cstr(&age));
    out_table_cell(t, buf_cstr(&ends));
    out_table_cell(t, buf_cstr(&commands));
}

static void print_table(cli *c, const json_t *items)
{
    CLEANUP(out_table_done) out_table t = {0};
    size_t i;
    json_t *sandbox;

    out_table_init(&t, "ID NAME IMAGE STATE AGE ENDS COMMANDS");
    json_array_foreach(items, i, sandbox) add_row(c, &t, sandbox);
    out_table_print(&t, stdout, out_colours(stdout));
}

static void print_ids(const json_t *items, bool names)
{
    size_t i;
    json_t *sandbox;

    json_array_foreach(items, i, sandbox)
    {
        out_line(stdout, json_str(sandbox, "id"));
        if (names && json_str(sandbox, "name"))
            out_line(stdout, json_str(sandbox, "name"));
    }
}

static err *ls_run(cli *c, void *args, const opt_words *words, int *status)
{
    const ls_args *a = args;
    CLEANUP(freep) char *path = path_of(a);
    CLEANUP(json_decrefp) json_t *items = NULL;

    (void)words, (void)status;
    TRY(cli_list(c, path, "sandboxes", &items));
    if (a->quiet || a->names)
        print_ids(items, a->names);
    else if (c->common.json)
        out_json(stdout, items);
    else
        print_table(c, items);
    return NULL;
}

const verb VERB_LS = {
    .name = "ls",
    .alias = "ps",
    .usage = "[OPTIONS]",
    .summary = "List sandboxes",
    .text = "ENDS is when its time to live is over. COMMANDS is how many run, and how many there\n"
            "have been.",
    .opts = OPTS,
    .args_size = sizeof(ls_args),
    .run = ls_run,
};
