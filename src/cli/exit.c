#include "cli/exit.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"

/* Returns the error that the daemon would have sent, had the failure been known before its
 * answer. */
static err_code code_of_not_started(const json_t *end)
{
    const char *stage = str_or(json_str(end, "stage"), "");
    bool unmapped = json_int(end, "errno", 0) == EINVAL;

    if (!strcmp(stage, "cwd"))
        return ERR_CWD_NOT_FOUND;
    if (!strcmp(stage, "user"))
        return unmapped ? ERR_USER_NOT_MAPPED : ERR_USER_NOT_FOUND;
    if (unmapped && (!strcmp(stage, "uid") || !strcmp(stage, "gid") || !strcmp(stage, "groups")))
        return ERR_USER_NOT_MAPPED;
    return ERR_EXEC_FAILED;
}

static int exit_of_not_started(const json_t *end)
{
    bool exec = str_eq(json_str(end, "stage"), "exec");

    if (exec && json_int(end, "errno", 0) == ENOENT)
        return CLI_NOT_FOUND;
    return err_info_of(code_of_not_started(end))->cli;
}

static int exit_of_signal(const json_t *end)
{
    int64_t signo = json_int(end, "signal", 0);

    return signo > 0 && signo < 127 ? CLI_SIGNAL + (int)signo : CLI_FAILED;
}

int exit_of_end(const json_t *end)
{
    const char *how = json_str(end, "how");

    if (str_eq(how, "exited"))
        return (int)json_int(end, "exit_code", CLI_FAILED) & 0xff;
    if (str_eq(how, "signalled") || str_eq(how, "killed"))
        return exit_of_signal(end);
    if (str_eq(how, "timed_out"))
        return CLI_TIMED_OUT;
    return str_eq(how, "not_started") ? exit_of_not_started(end) : CLI_FAILED;
}

int exit_of_error(const err *e)
{
    bool missing = e->errnum == ENOENT || (e->cause && strstr(e->cause, "ENOENT"));

    if (e->code == ERR_EXEC_FAILED && missing)
        return CLI_NOT_FOUND;
    return err_info_of(e->code)->cli;
}

static err *unknown_end(const json_t *end)
{
    const json_t *cause = json_object_get(end, "cause");
    const char *kind = json_str(cause, "kind"), *detail = json_str(cause, "detail");
    err *e = err_new(ERR_UNAVAILABLE, "how the command ended is not known");

    if (kind)
        e = err_because(e, "its sandbox is gone: %s%s%s", kind, detail ? ", " : "",
                        detail ? detail : "");
    return err_remedy(e, "Do not take it for a success: look at what it left, or run it again.");
}

err *exit_error_of_end(const json_t *end)
{
    const char *how = json_str(end, "how");

    if (json_flag(end, "oom"))
        return err_remedy(err_new(ERR_QUOTA_EXCEEDED, "the memory limit killed the command"),
                          "Give the sandbox more with --memory, or use less.");
    if (str_eq(how, "timed_out"))
        return err_remedy(err_new(ERR_TIMEOUT, "the command's time was over"),
                          "Allow more with --timeout, or make the work smaller.");
    if (str_eq(how, "not_started"))
        return err_sys(code_of_not_started(end), (int)json_int(end, "errno", EINVAL),
                       "the command could not be started (%s)",
                       str_or(json_str(end, "stage"), "?"));
    return str_eq(how, "unknown") || !how ? unknown_end(end) : NULL;
}
