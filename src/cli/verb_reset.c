/* bothy reset: restarts a sandbox from its image. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/spec.h"
#include "cli/verbs.h"

typedef struct reset_args {
    common_args common;
    char **env, **env_file, **secret;
} reset_args;

static const opt OPTS[] = {
    OPT('e', "env", "NAME[=VALUE]", OPT_LIST, reset_args, env,
        "set a variable; without a value take it from our environment"),
    OPT(0, "env-file", "FILE", OPT_LIST, reset_args, env_file, "read variables, one a line"),
    OPT(0, "secret", "NAME[=VALUE|=@FILE]", OPT_LIST, reset_args, secret,
        "like --env, but never stored, logged or shown; @FILE reads a file"),
    COMMON_OPTS(reset_args),
};

static err *body_of(const reset_args *a, json_t **ret_body)
{
    CLEANUP(json_decrefp) json_t *env = NULL;
    CLEANUP(json_decrefp) json_t *secrets = json_object();

    TRY(spec_env_to_json(a->env_file, a->env, &env));
    for (char **s = a->secret; s && *s; s++)
        TRY(spec_add_secret(secrets, *s));
    *ret_body = json_pack("{s:O*,s:O}", "env", env, "secrets", secrets);
    return NULL;
}

typedef struct resetting {
    json_t *body, *all;
} resetting;

static err *reset_one(cli *c, const char *word, void *arg)
{
    const resetting *r = arg;
    CLEANUP(json_decrefp) json_t *sandbox = NULL, *now = NULL;

    TRY(cli_sandbox(c, word, false, &sandbox));
    TRY(cli_call(c, "POST", json_deep_copy(r->body), &now, "/v1/sandboxes/%s/reset",
                 str_or(json_str(sandbox, "id"), "")));
    json_array_append(r->all, now);
    if (!c->common.json)
        out_line(stdout, word);
    return NULL;
}

static err *reset_run(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(json_decrefp) json_t *body = NULL, *all = json_array();

    (void)status;
    TRY(body_of(args, &body));
    err *failure = cli_each(c, words->v, reset_one, &(resetting){body, all});
    if (c->common.json)
        out_json(stdout, all);
    return failure;
}

const verb VERB_RESET = {
    .name = "reset",
    .usage = "[OPTIONS] SANDBOX...",
    .summary = "Begin again in a fresh slot",
    .text =
        "The sandbox keeps its id, name, labels, limits and time to live; its files are the\n"
        "image's again, what runs is killed, sessions end and the start command runs again.\n"
        "Variables and secrets are not kept: give them again. One that cannot be reset stays as\n"
        "it was.",
    .opts = OPTS,
    .args_size = sizeof(reset_args),
    .words_min = 1,
    .words_max = -1,
    .run = reset_run,
};
