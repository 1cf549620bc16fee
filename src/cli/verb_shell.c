/* bothy shell, bothy attach: the user's terminal in a sandbox. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/attach.h"
#include "cli/command.h"
#include "cli/spec.h"
#include "cli/verbs.h"

/* Runs bash if the image has it, else sh. */
#define SHELL_SCRIPT "command -v bash >/dev/null 2>&1 && exec bash $0; exec sh $0"
#define NO_TTY                                                                  \
    "Run it in a terminal. For a script: bothy exec -i SANDBOX -- sh < script." \
    " For one state over many commands: bothy session."

/* ---- shell ---- */

typedef struct shell_args {
    common_args common;
    surroundings in;
    const char *detach_keys;
    bool login;
} shell_args;

static const opt SHELL_OPTS[] = {
    OPT('l', "login", NULL, OPT_FLAG, shell_args, login,
        "a login shell: it reads the image's profile, which may set PATH anew"),
    SURROUNDINGS_OPTS(shell_args, in),
    DETACH_OPT(shell_args, detach_keys),
    COMMON_OPTS(shell_args),
};

static err *shell_body(const shell_args *a, char *const *words, json_t **ret_body)
{
    char *const shell[] = {"sh", "-c", SHELL_SCRIPT, a->login ? "-l" : "-i", NULL};
    CLEANUP(json_decrefp) json_t *body = NULL;

    TRY(command_body(*words ? words : shell, &body));
    TRY(surroundings_set(&a->in, body));
    attach_set_tty(body, true);
    *ret_body = TAKE_PTR(body);
    return NULL;
}

static err *run_shell(cli *c, void *args, const opt_words *words, int *status)
{
    const shell_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(freep) char *exec = NULL;
    attach_args at = {.offset = "0.0", .input = true};
    enum attach_how how;

    TRY(attach_check_tty(true, NO_TTY));
    TRY(keys_parse(str_or(a->detach_keys, KEYS_DEFAULT), &at.detach));
    TRY(shell_body(a, words->v + 1, &body));
    TRY(cli_sandbox(c, words->v[0], false, &sandbox));
    at.sandbox = str_or(json_str(sandbox, "id"), words->v[0]);
    command cmd = {.sandbox = at.sandbox, .body = body, .stdin_open = true};
    TRY(command_start(c, &cmd, &exec));
    at.exec = exec;
    return attach_run(c, &at, &how, status);
}

const verb VERB_SHELL = {
    .name = "shell",
    .usage = "[OPTIONS] SANDBOX [--] [COMMAND [ARG...]]",
    .summary = "Open a shell in a sandbox, with a terminal",
    .text =
        "bash, or sh where there is none; or COMMAND. The exit status is the shell's. Ctrl-P Ctrl-Q\n"
        "leaves it running; 'bothy attach' comes back. A lost connection is made again.\n"
        "What the sandbox writes goes to your terminal as it is, as with ssh: do not attach to a\n"
        "sandbox you do not trust with a terminal you cannot afford to have driven.",
    .opts = SHELL_OPTS,
    .args_size = sizeof(shell_args),
    .stop_early = true,
    .words_min = 1,
    .words_max = -1,
    .run = run_shell,
};

/* ---- attach ---- */

typedef struct reattach_args {
    common_args common;
    const char *detach_keys;
    uint64_t scrollback;
    bool all, no_stdin;
} reattach_args;

static const opt ATTACH_OPTS[] = {
    OPT('a', "all", NULL, OPT_FLAG, reattach_args, all, "from its first byte that is kept"),
    OPT(0, "scrollback", "SIZE", OPT_BYTES, reattach_args, scrollback,
        "begin so much before the present end (default 64k)"),
    OPT(0, "no-stdin", NULL, OPT_FLAG, reattach_args, no_stdin, "only look"),
    DETACH_OPT(reattach_args, detach_keys),
    COMMON_OPTS(reattach_args),
};

/* Finds the newest running command; prefers one with a terminal. */
static err *shell_newest(cli *c, const char *sandbox, char **ret_exec)
{
    CLEANUP(json_decrefp) json_t *answer = NULL;
    const char *found = NULL;
    bool found_pty = false;
    size_t i;
    json_t *p;

    TRY(cli_call(c, "GET", NULL, &answer, "/v1/sandboxes/%s/processes", sandbox));
    json_array_foreach(json_object_get(answer, "processes"), i, p)
    {
        bool pty = str_eq(json_str(p, "stdio"), "pty");
        if (!json_flag(p, "running") || (found_pty && !pty))
            continue;
        found = json_str(p, "exec");
        found_pty = pty;
    }
    if (!found)
        return err_remedy(
            err_kind(err_new(ERR_NOT_FOUND, "no command runs in the sandbox"), "exec"),
            "Open a shell: bothy shell %s", sandbox);
    *ret_exec = xstrdup(found);
    return NULL;
}

static err *run_attach(cli *c, void *args, const opt_words *words, int *status)
{
    const reattach_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(freep) char *exec = words->n > 1 ? client_escape(words->v[1]) : NULL;
    CLEANUP(freep)
    char *back = a->scrollback ? str_printf("%llu", (unsigned long long)a->scrollback) : NULL;
    attach_args at = {
        .offset = a->all ? "0.0" : NULL, .scrollback = back, .input = !a->no_stdin, .again = true};
    enum attach_how how;

    TRY(keys_parse(str_or(a->detach_keys, KEYS_DEFAULT), &at.detach));
    TRY(cli_sandbox(c, words->v[0], true, &sandbox));
    at.sandbox = str_or(json_str(sandbox, "id"), words->v[0]);
    if (!exec)
        TRY(shell_newest(c, at.sandbox, &exec));
    at.exec = exec;
    return attach_run(c, &at, &how, status);
}

const verb VERB_ATTACH = {
    .name = "attach",
    .usage = "[OPTIONS] SANDBOX [EXEC]",
    .summary = "Attach to a command that runs",
    .text =
        "Shows the end of what it has written, then goes on; what you type goes to it. Without EXEC\n"
        "the newest command that runs, one with a terminal first. Ctrl-P Ctrl-Q leaves a terminal.\n"
        "Of a command without one, Ctrl-C goes to the command; a second one leaves.",
    .opts = ATTACH_OPTS,
    .args_size = sizeof(reattach_args),
    .words_min = 1,
    .words_max = 2,
    .run = run_attach,
};
