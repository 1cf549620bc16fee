/* bothy session: shells that keep their state, for scripts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/follow.h"
#include "cli/out.h"
#include "cli/spec.h"
#include "cli/verbs.h"

#define TEXT_MAX (2u << 20)

typedef struct session_args {
    common_args common;
    const char *name, *shell;
    surroundings in;
    uint64_t timeout_ms;
    bool merge, quiet, queue, all;
} session_args;

/* Returns the sandbox's id, and the session's name escaped for a path. */
static err *cli_session_find(cli *c, const opt_words *words, char **ret_sandbox, char **ret_session)
{
    CLEANUP(json_decrefp) json_t *sandbox = NULL;

    TRY(cli_sandbox(c, words->v[0], true, &sandbox));
    *ret_sandbox = xstrdup(json_str(sandbox, "id"));
    if (ret_session)
        *ret_session = client_escape(words->v[1]);
    return NULL;
}

/* ---- new ---- */

static const opt NEW_OPTS[] = {
    OPT(0, "name", "NAME", OPT_TEXT, session_args, name, "a name for it"),
    OPT(0, "shell", "SHELL", OPT_TEXT, session_args, shell,
        "auto (bash, else sh), bash, sh, or a path with its arguments"),
    SURROUNDINGS_OPTS(session_args, in),
    OPT(0, "merge", NULL, OPT_FLAG, session_args, merge, "stderr of every command goes to stdout"),
    COMMON_OPTS(session_args),
};

static void set_text(json_t *body, const char *name, const char *text)
{
    if (text)
        json_object_set_new(body, name, json_string(text));
}

static err *open_new(cli *c, void *args, const opt_words *words, int *status)
{
    const session_args *a = args;
    CLEANUP(json_decrefp) json_t *body = json_object();
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(freep) char *sandbox = NULL;

    (void)status;
    TRY(cli_session_find(c, words, &sandbox, NULL));
    TRY(surroundings_set(&a->in, body));
    set_text(body, "name", a->name);
    set_text(body, "shell", a->shell);
    if (a->merge)
        json_object_set_new(body, "merge", json_true());
    TRY(cli_post(c, json_incref(body), &answer, "/v1/sandboxes/%s/sessions", sandbox));
    if (c->common.json)
        out_json(stdout, answer);
    else
        out_line(stdout, json_str(answer, "id"));
    return NULL;
}

static const verb NEW = {
    .name = "new",
    .usage = "[OPTIONS] SANDBOX",
    .summary = "Open a session and print its id",
    .opts = NEW_OPTS,
    .args_size = sizeof(session_args),
    .words_min = 1,
    .words_max = 1,
    .run = open_new,
};

/* ---- run ---- */

static const opt RUN_OPTS[] = {
    OPT(0, "timeout", "TIME", OPT_DURATION, session_args, timeout_ms,
        "interrupt the command after this time, with status 124"),
    OPT(0, "merge", NULL, OPT_FLAG, session_args, merge, "its stderr goes to stdout"),
    OPT(0, "queue", NULL, OPT_FLAG, session_args, queue,
        "wait for the command that runs instead of failing"),
    COMMON_OPTS(session_args),
};

/* Reads the command: the words after SESSION joined by spaces, or our stdin. */
static err *text_of(char *const *words, buf *text)
{
    char chunk[16384];
    ssize_t n;

    for (char *const *w = words; *w && !str_eq(words[0], "-"); w++) {
        if (w != words)
            buf_char(text, ' ');
        buf_str(text, *w);
    }
    if (*words && !str_eq(words[0], "-"))
        return NULL;
    while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0) {
        buf_append(text, chunk, (size_t)n);
        if (text->len > TEXT_MAX)
            return usage_error("a command has at most 2 MiB");
    }
    return n < 0 ? err_sys(ERR_INTERNAL, errno, "cannot read the command from stdin") : NULL;
}

static int status_of(const json_t *command)
{
    const json_t *code = json_object_get(command, "exit_code");

    if (json_is_true(json_object_get(command, "timed_out")))
        return CLI_TIMED_OUT;
    return json_is_integer(code) ? (int)json_integer_value(code) : CLI_FAILED;
}

static err *no_status(const json_t *command)
{
    if (json_is_integer(json_object_get(command, "exit_code")))
        return NULL;
    return err_remedy(err_new(ERR_UNAVAILABLE, "how the command ended is not known (%s)",
                              str_or(json_str(command, "kind"), "?")),
                      "Do not take it for a success.");
}

static err *session_show(cli *c, const char *sandbox, const char *session, const json_t *begun,
                         int *status)
{
    CLEANUP(freep)
    char *seq = str_printf("%lld", (long long)json_int(begun, "seq", 0));
    CLEANUP(freep)
    char *at = str_printf("/v1/sandboxes/%s/sessions/%s/commands/%s", sandbox, session, seq);
    CLEANUP(follow_done)
    follow f = {.client = c->client, .at = at, .until = "end", .exact = true};

    f.sink[0].fd = STDOUT_FILENO;
    f.sink[1].fd = STDERR_FILENO;
    TRY(follow_run(&f));
    *status = status_of(f.end);
    return no_status(f.end);
}

static err *cli_session_run(cli *c, void *args, const opt_words *words, int *status)
{
    const session_args *a = args;
    CLEANUP(freep) char *sandbox = NULL;
    CLEANUP(freep) char *session = NULL;
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(buf_done) buf text = {0};

    TRY(cli_session_find(c, words, &sandbox, &session));
    TRY(text_of(words->v + 2 + str_eq(words->v[2], "--"), &text));
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:o,s:I,s:b,s:b}", "command",
                             json_bytes(text.p ? text.p : "", text.len), "timeout_ms",
                             (json_int_t)a->timeout_ms, "queue", a->queue, "wait", c->common.json);
    if (a->merge)
        json_object_set_new(body, "merge", json_true());
    TRY(cli_post(c, json_incref(body), &answer, "/v1/sandboxes/%s/sessions/%s/commands", sandbox,
                 session));
    if (!c->common.json)
        return session_show(c, sandbox, session, answer, status);
    out_json(stdout, answer);
    *status = status_of(answer);
    return NULL;
}

static const verb RUN = {
    .name = "run",
    .usage = "[OPTIONS] SANDBOX SESSION [COMMAND...]",
    .summary = "Run a command in a session",
    .text = "The words are joined by spaces and given to the shell; without any, or with -, the\n"
            "command is read from stdin. Its stdout and stderr go to ours, its status becomes\n"
            "ours: 124 when it timed out, 125 when its end is not known. The command goes on when\n"
            "this program is ended; 'bothy session interrupt' ends it.",
    .opts = RUN_OPTS,
    .args_size = sizeof(session_args),
    .stop_early = true,
    .words_min = 2,
    .words_max = -1,
    .run = cli_session_run,
};

/* ---- ls ---- */

static const opt LS_OPTS[] = {
    OPT('a', "all", NULL, OPT_FLAG, session_args, all, "ended ones, too"),
    OPT('q', "quiet", NULL, OPT_FLAG, session_args, quiet, "ids only"),
    COMMON_OPTS(session_args),
};

static void add_row(out_table *t, const json_t *s)
{
    CLEANUP(freep) char *commands = str_printf("%lld", (long long)json_int(s, "commands", 0));

    out_table_cell(t, json_str(s, "id"));
    out_table_cell(t, str_or(json_str(s, "name"), "-"));
    out_table_cell(t, json_str(s, "state"));
    out_table_cell(t, str_or(json_str(s, "dialect"), "-"));
    out_table_cell(t, commands);
    out_table_cell(t, str_or(json_str(s, "cwd"), "-"));
}

static err *session_ls(cli *c, void *args, const opt_words *words, int *status)
{
    const session_args *a = args;
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(json_decrefp) json_t *shown = json_array();
    CLEANUP(freep) char *sandbox = NULL;
    CLEANUP(out_table_done) out_table t = {0};
    size_t i;
    json_t *s;

    (void)status;
    TRY(cli_session_find(c, words, &sandbox, NULL));
    TRY(cli_call(c, "GET", NULL, &answer, "/v1/sandboxes/%s/sessions", sandbox));
    json_array_foreach(json_object_get(answer, "sessions"), i,
                       s) if (a->all || !str_eq(json_str(s, "state"), "ended"))
        json_array_append(shown, s);
    if (c->common.json) {
        out_json(stdout, shown);
        return NULL;
    }
    out_table_init(&t, "ID NAME STATE SHELL COMMANDS DIRECTORY");
    json_array_foreach(shown, i, s)
    {
        if (a->quiet)
            out_line(stdout, json_str(s, "id"));
        else
            add_row(&t, s);
    }
    if (!a->quiet)
        out_table_print(&t, stdout, out_colours(stdout));
    return NULL;
}

static const verb LS = {
    .name = "ls",
    .usage = "[OPTIONS] SANDBOX",
    .summary = "List the sessions of a sandbox",
    .opts = LS_OPTS,
    .args_size = sizeof(session_args),
    .words_min = 1,
    .words_max = 1,
    .run = session_ls,
};

/* ---- interrupt, rm ---- */

static const opt PLAIN_OPTS[] = {COMMON_OPTS(session_args)};

static err *session_act(cli *c, const opt_words *words, const char *method, const char *tail)
{
    CLEANUP(freep) char *sandbox = NULL;

    TRY(cli_session_find(c, words, &sandbox, NULL));
    for (char **w = words->v + 1; *w; w++) {
        CLEANUP(freep) char *session = client_escape(*w);
        CLEANUP(json_decrefp) json_t *answer = NULL;
        TRY(cli_call(c, method, NULL, &answer, "/v1/sandboxes/%s/sessions/%s%s", sandbox, session,
                     tail));
        if (c->common.json)
            out_json(stdout, answer);
        else
            out_line(stdout, json_str(answer, "id"));
    }
    return NULL;
}

static err *cli_session_interrupt(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    return session_act(c, words, "POST", "/interrupt");
}

static err *session_rm(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    return session_act(c, words, "DELETE", "");
}

static const verb INTERRUPT = {
    .name = "interrupt",
    .usage = "SANDBOX SESSION",
    .summary = "Interrupt the command that runs in a session",
    .text =
        "SIGINT first; what does not end by it is killed, the session itself last. Its state is\n"
        "kept as far as a shell could.",
    .opts = PLAIN_OPTS,
    .args_size = sizeof(session_args),
    .words_min = 2,
    .words_max = 2,
    .run = cli_session_interrupt,
};

static const verb RM = {
    .name = "rm",
    .usage = "SANDBOX SESSION...",
    .summary = "End sessions and what runs in them",
    .opts = PLAIN_OPTS,
    .args_size = sizeof(session_args),
    .words_min = 2,
    .words_max = -1,
    .run = session_rm,
};

static const verb *const VERBS[] = {&NEW, &RUN, &LS, &INTERRUPT, &RM, NULL};
const verb VERB_SESSION = {
    .name = "session",
    .usage = "COMMAND ...",
    .summary = "Shells that keep their state from command to command",
    .of = VERBS,
};
