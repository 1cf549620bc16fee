/* bothy exec: runs a command in an existing sandbox. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/out.h"
#include "cli/spec.h"
#include "cli/verbs.h"

typedef struct exec_args {
    common_args common;
    surroundings in;
    uint64_t timeout_ms;
    const char *detach_keys;
    bool detach, interactive, tty;
} exec_args;

static const opt OPTS[] = {
    OPT('d', "detach", NULL, OPT_FLAG, exec_args, detach,
        "print the command's id and leave it running"),
    OPT('i', "interactive", NULL, OPT_FLAG, exec_args, interactive,
        "pass our stdin to the command"),
    OPT('t', "tty", NULL, OPT_FLAG, exec_args, tty, "give it a terminal: ours, with -i"),
    SURROUNDINGS_OPTS(exec_args, in),
    OPT(0, "timeout", "TIME", OPT_DURATION, exec_args, timeout_ms,
        "end the command after this time, with status 124"),
    DETACH_OPT(exec_args, detach_keys),
    COMMON_OPTS(exec_args),
};

static err *body_of(const exec_args *a, char *const *argv, json_t **ret_body)
{
    CLEANUP(json_decrefp) json_t *body = NULL;

    TRY(command_body(argv, &body));
    TRY(surroundings_set(&a->in, body));
    if (a->interactive)
        json_object_set_new(body, "stdin_open", json_true());
    if (a->timeout_ms)
        json_object_set_new(body, "timeout_ms", json_integer((json_int_t)a->timeout_ms));
    if (a->tty)
        attach_set_tty(body, a->interactive);
    *ret_body = TAKE_PTR(body);
    return NULL;
}

static void print_detached(const cli *c, const char *sandbox, const char *exec)
{
    CLEANUP(json_decrefp)
    json_t *j = json_pack("{s:s,s:s}", "sandbox", sandbox, "exec", exec);

    if (c->common.json)
        out_json(stdout, j);
    else
        out_line(stdout, exec);
}

static err *exec_run(cli *c, void *args, const opt_words *words, int *status)
{
    const exec_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(freep) char *exec = NULL;
    keys detach;

    TRY(command_check_tty(a->tty, a->interactive, a->detach_keys, &detach));
    if (a->detach && a->interactive)
        return err_remedy(usage_error("-d and -i contradict each other"), "Leave one of them out.");
    TRY(body_of(a, words->v + 1, &body));
    TRY(cli_sandbox(c, words->v[0], false, &sandbox));
    const char *id = str_or(json_str(sandbox, "id"), words->v[0]);
    command cmd = {.sandbox = id, .body = body, .stdin_open = a->interactive};
    if (a->detach) {
        TRY(command_start(c, &cmd, &exec));
        print_detached(c, id, exec);
        return NULL;
    }
    if (a->tty)
        return command_attach(c, &cmd, &detach, &(enum attach_how){0}, status);
    TRY(interrupt_start(c, false));
    TRY(command_start(c, &cmd, &exec));
    interrupt_sandbox(id);
    interrupt_exec(exec);
    err *e = command_follow(c, &cmd, exec, status);
    interrupt_stop();
    return e;
}

const verb VERB_EXEC = {
    .name = "exec",
    .usage = "[OPTIONS] SANDBOX [--] COMMAND [ARG...]",
    .summary = "Run a command in a sandbox",
    .text = "The exit status is the command's. Ctrl-C goes to the command; a second one kills it.\n"
            "With -it it has your terminal, and Ctrl-P Ctrl-Q leaves it running.",
    .opts = OPTS,
    .args_size = sizeof(exec_args),
    .stop_early = true,
    .words_min = 2,
    .words_max = -1,
    .run = exec_run,
};
