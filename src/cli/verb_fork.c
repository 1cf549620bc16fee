/* bothy fork: makes sandboxes that begin with the files of another. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/spec.h"
#include "cli/verbs.h"

typedef struct fork_args {
    common_args common;
    spec_args spec;
    uint64_t count;
    bool despite_secrets;
} fork_args;

static const opt OPTS[] = {
    OPT('n', "count", "N", OPT_COUNT, fork_args, count, "how many (default 1)"),
    OPT('e', "env", "NAME[=VALUE]", OPT_LIST, fork_args, spec.env,
        "set a variable; without a value take it from our environment"),
    OPT(0, "env-file", "FILE", OPT_LIST, fork_args, spec.env_file, "read variables, one a line"),
    OPT(0, "secret", "NAME[=VALUE|=@FILE]", OPT_LIST, fork_args, spec.secret,
        "like --env, but never stored, logged or shown; @FILE reads a file"),
    OPT(0, "label", "KEY[=VALUE]", OPT_LIST, fork_args, spec.label, "a label beside its own"),
    OPT('m', "memory", "SIZE", OPT_BYTES, fork_args, spec.memory, "instead of as much as it has"),
    OPT(0, "cpus", "N", OPT_CORES, fork_args, spec.cpu_milli, "likewise"),
    OPT(0, "ttl", "TIME", OPT_DURATION, fork_args, spec.ttl_ms,
        "ends each after this time (default 1h)"),
    OPT(0, "despite-secrets", NULL, OPT_FLAG, fork_args, despite_secrets,
        "also if it was given secrets, which its files may hold"),
    COMMON_OPTS(fork_args),
};

static err *fork_run(cli *c, void *args, const opt_words *words, int *status)
{
    const fork_args *a = args;
    CLEANUP(freep) char *id = client_escape(words->v[0]);
    CLEANUP(json_decrefp) json_t *made = NULL;
    json_t *body = NULL;
    const json_t *list, *one;
    size_t i;

    (void)status;
    TRY(spec_to_json(&a->spec, NULL, &body));
    if (a->count)
        json_object_set_new(body, "count", json_integer((json_int_t)a->count));
    if (a->despite_secrets)
        json_object_set_new(body, "despite_secrets", json_true());
    TRY(cli_call(c, "POST", body, &made, "/v1/sandboxes/%s/fork", id));
    list = json_object_get(made, "sandboxes");
    if (c->common.json)
        out_json(stdout, list);
    else
        json_array_foreach(list, i, one) out_line(stdout, json_str(one, "id"));
    return NULL;
}

const verb VERB_FORK = {
    .name = "fork",
    .usage = "[OPTIONS] SANDBOX",
    .summary = "Make sandboxes that begin with the files of one, and print their ids",
    .text = "Files only: no processes, memory, variables, secrets, tmpfs mounts. All of them, or\n"
            "none. They are as the first one otherwise, and apart from it.",
    .opts = OPTS,
    .args_size = sizeof(fork_args),
    .words_min = 1,
    .words_max = 1,
    .run = fork_run,
};
