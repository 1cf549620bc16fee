#include "cli/command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/exit.h"
#include "cli/follow.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/out.h"

#define JSON_STREAM_MAX (1U << 20) /* as in the API's own run-to-end answer */

err *command_body(char *const *argv, json_t **ret_body)
{
    CLEANUP(json_decrefp) json_t *list = json_array();

    for (; *argv; argv++)
        if (json_array_append_new(list, json_string(*argv)))
            return err_remedy(usage_error("an argument of the command is not UTF-8"), "Encode it.");
    *ret_body = json_pack("{s:O}", "argv", list);
    return NULL;
}

err *command_check_tty(bool tty, bool input, const char *text, keys *ret_keys)
{
    TRY(keys_parse(str_or(text, KEYS_DEFAULT), ret_keys));
    if (!tty)
        return NULL;
    return attach_check_tty(input, "Leave -t out: -i alone passes stdin on, and both output "
                                   "streams stay apart.");
}

err *command_start(cli *c, const command *cmd, char **ret_exec)
{
    CLEANUP(json_decrefp) json_t *process = NULL;

    TRY(cli_post(c, json_incref(cmd->body), &process, "/v1/sandboxes/%s/processes", cmd->sandbox));
    const char *exec = json_str(process, "exec");
    if (!exec)
        return err_new(ERR_INTERNAL, "the daemon's answer names no command");
    *ret_exec = xstrdup(exec);
    return NULL;
}

/* Ends the command as a broken pipe would, after our stdout was closed. */
static err *reader_gone(cli *c, const command *cmd, const char *exec, int *status)
{
    err_drop(cli_call(c, "DELETE", NULL, NULL, "/v1/sandboxes/%s/processes/%s", cmd->sandbox, exec),
             "end the command");
    *status = CLI_SIGNAL + SIGPIPE;
    return NULL;
}

err *command_attach(cli *c, const command *cmd, const keys *detach, enum attach_how *ret_how,
                    int *status)
{
    CLEANUP(freep) char *exec = NULL;
    attach_args a = {.sandbox = cmd->sandbox,
                     .offset = "0.0",
                     .input = cmd->stdin_open,
                     .bound = cmd->bound,
                     .detach = *detach};

    TRY(command_start(c, cmd, &exec));
    a.exec = exec;
    TRY(attach_run(c, &a, ret_how, status));
    if (*ret_how == ATTACH_SIGNAL && *status == CLI_SIGNAL + SIGPIPE)
        return reader_gone(c, cmd, exec, status);
    return NULL;
}

static json_t *stream_to_json(const follow_sink *s)
{
    json_t *j = json_bytes(s->kept.p ? s->kept.p : "", s->kept.len);
    bool truncated = s->kept.len + s->dropped < s->offset;

    json_object_set_new(j, "offset", json_integer(0));
    json_object_set_new(j, "length", json_integer((json_int_t)s->offset));
    json_object_set_new(j, "dropped", json_integer((json_int_t)s->dropped));
    json_object_set_new(j, "truncated", json_boolean(truncated));
    if (truncated)
        json_object_set_new(j, "next", json_integer((json_int_t)s->kept.len));
    return j;
}

static void print_json(const command *cmd, const follow *f)
{
    CLEANUP(json_decrefp)
    json_t *j =
        json_pack("{s:s,s:s,s:O,s:o,s:o}", "sandbox", cmd->sandbox, "exec", f->exec, "end", f->end,
                  "out", stream_to_json(&f->sink[0]), "err", stream_to_json(&f->sink[1]));

    out_json(stdout, j);
}

/* Explains an end that is not a plain exit; the exit status alone does not say it to people. */
static void print_end(const follow *f)
{
    CLEANUP(err_freep) err *e = exit_error_of_end(f->end);

    if (e)
        out_error(stderr, e, false, out_colours(stderr));
}

err *command_follow(cli *c, const command *cmd, const char *exec, int *status)
{
    bool json = c->common.json;
    CLEANUP(follow_done)
    follow f = {.client = c->client,
                .sandbox = cmd->sandbox,
                .exec = exec,
                .until = "end",
                .exact = true,
                .sink = {{.fd = json ? -1 : STDOUT_FILENO, .keep_max = JSON_STREAM_MAX},
                         {.fd = json ? -1 : STDERR_FILENO, .keep_max = JSON_STREAM_MAX}}};

    if (cmd->stdin_open)
        TRY(input_start(c, cmd->sandbox, exec, STDIN_FILENO, false));
    CLEANUP(err_freep) err *e = follow_run(&f);
    if (e && e->errnum == EPIPE)
        return reader_gone(c, cmd, exec, status);
    if (e)
        return TAKE_PTR(e);
    *status = exit_of_end(f.end);
    if (json)
        print_json(cmd, &f);
    else
        print_end(&f);
    return NULL;
}
