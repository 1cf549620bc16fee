/* bothy logs: prints a command's output from its first byte. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/follow.h"
#include "cli/out.h"
#include "cli/verbs.h"

#define JSON_STREAM_MAX (64U << 20)

typedef struct logs_args {
    common_args common;
    bool follow;
} logs_args;

static const opt OPTS[] = {
    OPT('f', "follow", NULL, OPT_FLAG, logs_args, follow, "until the command ends"),
    COMMON_OPTS(logs_args),
};

/* Returns the command that was named, or the last one that the sandbox ran. */
static err *exec_of(cli *c, const char *sandbox, const char *word, char **ret_exec)
{
    CLEANUP(json_decrefp) json_t *answer = NULL;

    if (word) {
        *ret_exec = client_escape(word);
        return NULL;
    }
    TRY(cli_call(c, "GET", NULL, &answer, "/v1/sandboxes/%s/processes", sandbox));
    const json_t *list = json_object_get(answer, "processes");
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    if (!json_str(last, "exec"))
        return err_remedy(
            err_kind(err_new(ERR_NOT_FOUND, "the sandbox has run no command"), "exec"),
            "Run one: bothy exec %s -- COMMAND", sandbox);
    *ret_exec = xstrdup(json_str(last, "exec"));
    return NULL;
}

static void print_json(const follow *f)
{
    json_t *out = json_bytes(f->sink[0].kept.p ? f->sink[0].kept.p : "", f->sink[0].kept.len);
    json_t *errs = json_bytes(f->sink[1].kept.p ? f->sink[1].kept.p : "", f->sink[1].kept.len);
    CLEANUP(json_decrefp)
    json_t *j = json_pack("{s:s,s:s,s:o,s:o,s:O?}", "sandbox", f->sandbox, "exec", f->exec, "out",
                          out, "err", errs, "end", f->end);

    if (!f->end)
        json_object_set_new(j, "end", json_null());
    out_json(stdout, j);
}

static err *logs_run(cli *c, void *args, const opt_words *words, int *status)
{
    const logs_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(freep) char *exec = NULL;
    bool json = c->common.json;

    TRY(cli_sandbox(c, words->v[0], true, &sandbox));
    const char *id = str_or(json_str(sandbox, "id"), "");
    TRY(exec_of(c, id, words->v[1], &exec));
    CLEANUP(follow_done)
    follow f = {.client = c->client,
                .sandbox = id,
                .exec = exec,
                .until = a->follow ? "end" : "no",
                .sink = {{.fd = json ? -1 : STDOUT_FILENO, .keep_max = JSON_STREAM_MAX},
                         {.fd = json ? -1 : STDERR_FILENO, .keep_max = JSON_STREAM_MAX}}};
    CLEANUP(err_freep) err *e = follow_run(&f);
    if (e && e->errnum == EPIPE) {
        *status = CLI_SIGNAL + SIGPIPE;
        return NULL;
    }
    if (!e && json)
        print_json(&f);
    return TAKE_PTR(e);
}

const verb VERB_LOGS = {
    .name = "logs",
    .usage = "[-f] SANDBOX [EXEC]",
    .summary = "Show what a command has written",
    .text =
        "Without EXEC the sandbox's last command; 'bothy show' lists them. Both streams come as\n"
        "they were, out to stdout and err to stderr. It works after the sandbox has ended, too,\n"
        "as long as the output is kept.",
    .opts = OPTS,
    .args_size = sizeof(logs_args),
    .words_min = 1,
    .words_max = 2,
    .run = logs_run,
};
