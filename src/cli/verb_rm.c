/* bothy rm: ends sandboxes. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/exit.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct rm_args {
    common_args common;
    bool force, all;
    const char *cause, *detail;
} rm_args;

static const opt OPTS[] = {
    OPT('f', "force", NULL, OPT_FLAG, rm_args, force, "one that is not there is no error"),
    OPT(0, "all", NULL, OPT_FLAG, rm_args, all, "all live sandboxes that are yours"),
    OPT(0, "cause", "budget|policy", OPT_CHOICE, rm_args, cause,
        "what its record says, of administrators"),
    OPT(0, "detail", "TEXT", OPT_TEXT, rm_args, detail, "kept with the cause"),
    COMMON_OPTS(rm_args),
};

/* Returns "?cause=policy&detail=…", or "". */
static char *query_of(const rm_args *a)
{
    CLEANUP(freep) char *detail = a->detail ? client_escape(a->detail) : NULL;

    if (!a->cause)
        return xstrdup("");
    return str_printf("?cause=%s%s%s", a->cause, detail ? "&detail=" : "", detail ? detail : "");
}

typedef struct removing {
    const rm_args *args;
    bool force;
    json_t *removed;
} removing;

static err *remove_one(cli *c, const char *word, void *arg)
{
    const removing *r = arg;
    CLEANUP(json_decrefp) json_t *sandbox = NULL, *gone = NULL;
    CLEANUP(freep) char *query = query_of(r->args);
    CLEANUP(err_freep) err *e = cli_sandbox(c, word, false, &sandbox);

    if (!e)
        e = cli_call(c, "DELETE", NULL, &gone, "/v1/sandboxes/%s%s",
                     str_or(json_str(sandbox, "id"), ""), query);
    if (e)
        return r->force && (e->code == ERR_NOT_FOUND || e->code == ERR_SANDBOX_GONE) ? NULL
                                                                                     : TAKE_PTR(e);
    json_array_append(r->removed, gone);
    if (!c->common.json)
        out_line(stdout, word);
    return NULL;
}

static err *remove_all(cli *c, removing *r)
{
    CLEANUP(json_decrefp) json_t *items = NULL;
    CLEANUP(strv_freep) char **ids = NULL;
    size_t i;
    json_t *sandbox;

    TRY(cli_list(c, "/v1/sandboxes?limit=1000", "sandboxes", &items));
    json_array_foreach(items, i, sandbox)
        strv_push(&ids, xstrdup(str_or(json_str(sandbox, "id"), "-")));
    r->force = true; /* it may have ended meanwhile */
    return ids ? cli_each(c, ids, remove_one, r) : NULL;
}

static err *rm_run(cli *c, void *args, const opt_words *words, int *status)
{
    const rm_args *a = args;
    CLEANUP(json_decrefp) json_t *removed = json_array();

    (void)status;
    if (a->all == (words->n > 0))
        return err_remedy(usage_error(a->all ? "--all and names contradict each other"
                                             : "'bothy rm' needs a sandbox"),
                          "Give the sandboxes to remove, or --all.");
    removing r = {a, a->force, removed};
    err *e = a->all ? remove_all(c, &r) : cli_each(c, words->v, remove_one, &r);
    if (c->common.json)
        out_json(stdout, removed);
    return e;
}

const verb VERB_RM = {
    .name = "rm",
    .usage = "[OPTIONS] SANDBOX... | --all",
    .summary = "End sandboxes and everything that runs in them",
    .text =
        "Their files are lost. Their records stay for a day ('bothy ls -a'), their output for an\n"
        "hour ('bothy logs').",
    .opts = OPTS,
    .args_size = sizeof(rm_args),
    .words_max = -1,
    .run = rm_run,
};
