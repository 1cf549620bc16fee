/* bothy run: makes a sandbox for one command. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/out.h"
#include "cli/pull.h"
#include "cli/spec.h"
#include "cli/verbs.h"

#define USAGE "[OPTIONS] IMAGE [--] [COMMAND [ARG...]]"

typedef struct run_args {
    common_args common;
    spec_args spec;
    const char *entrypoint, *detach_keys;
    uint64_t timeout_ms;
    bool detach, interactive, tty, keep, rm;
} run_args;

static const opt OPTS[] = {
    OPT('d', "detach", NULL, OPT_FLAG, run_args, detach,
        "print the sandbox's id and leave the command running in it"),
    OPT('i', "interactive", NULL, OPT_FLAG, run_args, interactive, "pass our stdin to the command"),
    OPT('t', "tty", NULL, OPT_FLAG, run_args, tty, "give it a terminal: ours, with -i"),
    OPT(0, "entrypoint", "PROGRAM", OPT_TEXT, run_args, entrypoint,
        "instead of the image's entrypoint; empty for none"),
    OPT(0, "keep", NULL, OPT_FLAG, run_args, keep, "do not remove the sandbox at the end"),
    OPT(0, "rm", NULL, OPT_FLAG, run_args, rm, "remove the sandbox at the end (the default)"),
    OPT(0, "timeout", "TIME", OPT_DURATION, run_args, timeout_ms,
        "end the command after this time, with status 124"),
    DETACH_OPT(run_args, detach_keys),
    TEMPLATE_OPT(run_args, spec),
    SPEC_OPTS(run_args, spec),
    COMMON_OPTS(run_args),
};

static void push_all(char ***argv, const json_t *list)
{
    size_t i;
    json_t *word;

    json_array_foreach(list, i, word) strv_push(argv, xstrdup(str_or(json_string_value(word), "")));
}

/* Builds the argv as docker does: the entrypoint, then the given words or else the image's
 * command. */
static err *command_of(const run_args *a, const json_t *image, char *const *words, char ***ret_argv)
{
    CLEANUP(strv_freep) char **argv = NULL;

    if (!a->entrypoint)
        push_all(&argv, json_object_get(image, "entrypoint"));
    else if (*a->entrypoint)
        strv_push(&argv, xstrdup(a->entrypoint));
    for (char *const *w = words; *w; w++)
        strv_push(&argv, xstrdup(*w));
    if (!*words && !a->entrypoint)
        push_all(&argv, json_object_get(image, "cmd"));
    if (!argv)
        return err_remedy(usage_error("the image names no command to run"),
                          "Give one: bothy run IMAGE -- COMMAND");
    *ret_argv = TAKE_PTR(argv);
    return NULL;
}

static void remove_sandbox(cli *c, const char *id)
{
    CLEANUP(err_freep) err *e = cli_call(c, "DELETE", NULL, NULL, "/v1/sandboxes/%s", id);

    if (e)
        out_error(stderr, err_wrap(e, "the sandbox %s was not removed", id), false, false);
}

static void print_detached(const cli *c, const char *sandbox, const char *exec)
{
    CLEANUP(json_decrefp) json_t *j = json_pack("{s:s,s:s}", "sandbox", sandbox, "exec", exec);

    if (c->common.json)
        out_json(stdout, j);
    else
        out_line(stdout, sandbox);
}

/* Runs the command. *ret_left: it continues after a detach, so its sandbox must stay. */
static err *run_in(cli *c, const run_args *a, const json_t *sandbox, char *const *words,
                   const keys *detach, bool *ret_left, int *status)
{
    CLEANUP(strv_freep) char **argv = NULL;
    CLEANUP(freep) char *exec = NULL;
    const char *id = json_str(sandbox, "id");

    TRY(command_of(a, json_object_get(sandbox, "image"), words, &argv));
    CLEANUP(json_decrefp) json_t *body = NULL;
    TRY(command_body(argv, &body));
    if (a->interactive)
        json_object_set_new(body, "stdin_open", json_true());
    if (a->timeout_ms)
        json_object_set_new(body, "timeout_ms", json_integer((json_int_t)a->timeout_ms));
    if (a->tty)
        attach_set_tty(body, a->interactive);
    command cmd = {.sandbox = id, .body = body, .stdin_open = a->interactive, .bound = !a->keep};
    if (a->tty && !a->detach) {
        enum attach_how how;
        TRY(command_attach(c, &cmd, detach, &how, status));
        *ret_left = how == ATTACH_DETACHED;
        return NULL;
    }
    TRY(command_start(c, &cmd, &exec));
    if (a->detach) {
        print_detached(c, id, exec);
        return NULL;
    }
    interrupt_exec(exec);
    return command_follow(c, &cmd, exec, status);
}

static err *run_check(const run_args *a, keys *ret_detach)
{
    TRY(command_check_tty(a->tty, a->interactive, a->detach_keys, ret_detach));
    if (a->detach && a->interactive)
        return err_remedy(usage_error("-d and -i contradict each other"), "Leave one of them out.");
    if (a->keep && a->rm)
        return err_remedy(usage_error("--keep and --rm contradict each other"),
                          "Leave one of them out.");
    return NULL;
}

static err *run_run(cli *c, void *args, const opt_words *words, int *status)
{
    const run_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(json_decrefp) json_t *body = NULL;
    bool keep = a->keep || a->detach, left = false;
    keys detach;
    int n;

    TRY(run_check(a, &detach));
    TRY(spec_image_words(&a->spec, words, "bothy run " USAGE, &n));
    TRY(spec_to_json(&a->spec, n ? words->v[0] : NULL, &body));
    TRY(cli_connect(c));
    TRY(cli_pull_before(c, body)); /* before signals are caught: Ctrl-C just ends us */
    TRY(interrupt_start(c, !keep));
    TRY(cli_post(c, json_incref(body), &sandbox, "/v1/sandboxes"));
    const char *id = json_str(sandbox, "id");
    if (!id)
        return err_new(ERR_INTERNAL, "the daemon's answer names no sandbox");
    interrupt_sandbox(id);
    int signo = interrupt_pending();
    err *e = signo ? NULL : run_in(c, a, sandbox, words->v + n, &detach, &left, status);
    if (signo)
        *status = CLI_SIGNAL + signo;
    interrupt_stop();
    if ((!keep && !left) || signo || (e && a->detach))
        remove_sandbox(c, id);
    return e;
}

const verb VERB_RUN = {
    .name = "run",
    .usage = USAGE,
    .summary = "Run a command in a new sandbox and remove it afterwards",
    .text =
        "Without COMMAND the image's own runs. stdout and stderr of the command come apart, its\n"
        "exit status is ours. Ctrl-C goes to the command; a second one removes the sandbox.\n"
        "With -it it has your terminal; Ctrl-P Ctrl-Q leaves it running, and keeps the sandbox.\n"
        "A secret given as NAME=VALUE is seen by those who see our arguments: prefer NAME,\n"
        "which takes it from our environment, or NAME=@FILE.",
    .opts = OPTS,
    .args_size = sizeof(run_args),
    .stop_early = true,
    .words_max = -1,
    .run = run_run,
};
