/* bothy kill: ends a command, or sends it a signal. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct kill_args {
    common_args common;
    const char *signal, *scope;
} kill_args;

static const opt OPTS[] = {
    OPT('s', "signal", "SIGNAL", OPT_TEXT, kill_args, signal,
        "send this instead of ending it: a name such as TERM, or a number"),
    OPT(0, "scope", "process|group|session|tree", OPT_CHOICE, kill_args, scope,
        "who gets the signal (default tree: everything the command started)"),
    COMMON_OPTS(kill_args),
};

/* Sends a number as a number: the API takes names and numbers. */
static json_t *kill_signal(const char *word)
{
    uint64_t n = 0;

    return str_to_u64(word, 64, &n) ? json_integer((json_int_t)n) : json_string(word);
}

static err *kill_one(cli *c, const kill_args *a, const char *sandbox, const char *exec)
{
    CLEANUP(freep) char *word = client_escape(exec);

    if (!a->signal)
        return cli_call(c, "DELETE", NULL, NULL, "/v1/sandboxes/%s/processes/%s", sandbox, word);
    return cli_call(
        c, "POST",
        json_pack("{s:o,s:s}", "signal", kill_signal(a->signal), "scope", str_or(a->scope, "tree")),
        NULL, "/v1/sandboxes/%s/processes/%s/signal", sandbox, word);
}

static err *kill_run(cli *c, void *args, const opt_words *words, int *status)
{
    const kill_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;

    (void)status;
    if (a->scope && !a->signal)
        return err_remedy(usage_error("--scope needs --signal"),
                          "Without a signal the command is ended with everything it started.");
    TRY(cli_sandbox(c, words->v[0], true, &sandbox));
    const char *id = str_or(json_str(sandbox, "id"), words->v[0]);
    for (int i = 1; i < words->n; i++) {
        TRY(kill_one(c, a, id, words->v[i]));
        if (!c->common.json)
            printf("%s\n", words->v[i]);
    }
    return NULL;
}

const verb VERB_KILL = {
    .name = "kill",
    .usage = "[OPTIONS] SANDBOX EXEC...",
    .summary = "End commands of a sandbox, or send them a signal",
    .text =
        "Ends each command and everything it started at once, by SIGKILL; its end reads\n"
        "'killed'. --signal TERM asks it to end by itself: with --signal the command only gets\n"
        "the signal. The sandbox itself lives on: 'bothy rm' ends that. 'bothy show SANDBOX'\n"
        "lists the numbers of its commands.",
    .opts = OPTS,
    .args_size = sizeof(kill_args),
    .words_min = 2,
    .words_max = -1,
    .run = kill_run,
};
