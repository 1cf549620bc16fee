/* bothy info, version, help: print facts about the node, versions, and usage. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct info_args {
    common_args common;
} info_args;

static const opt OPTS[] = {COMMON_OPTS(info_args)};

/* Prints the backend's capabilities by level: "caps        native: exec, files". */
static void print_caps(const json_t *caps)
{
    static const char *const LEVELS[] = {"native", "emulated", "absent"};
    const char *cap;
    json_t *level;

    for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++) {
        CLEANUP(buf_done) buf names = {0};
        json_object_foreach((json_t *)caps, cap, level)
        {
            if (!str_eq(json_string_value(level), LEVELS[i]))
                continue;
            buf_str(&names, names.len ? ", " : "");
            out_safe(&names, cap);
        }
        if (names.len)
            printf("%-10s  %s: %s\n", i ? "" : "caps", LEVELS[i], buf_cstr(&names));
    }
}

static void print_info(const json_t *info)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)info, name, v)
    {
        if (str_eq(name, "caps"))
            print_caps(v);
        else if (!out_is_empty(v))
            out_field(name, v);
    }
}

static err *info_info(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(json_decrefp) json_t *answer = NULL;

    (void)args, (void)words, (void)status;
    TRY(cli_call(c, "GET", NULL, &answer, "/v1/info"));
    if (c->common.json)
        out_json(stdout, answer);
    else
        print_info(answer);
    return NULL;
}

const verb VERB_INFO = {
    .name = "info",
    .usage = "",
    .summary = "Show what the node is and can do",
    .text = "Members that are empty are left out; --json has all of them.",
    .opts = OPTS,
    .args_size = sizeof(info_args),
    .run = info_info,
};

/* Works without a daemon: then it prints only our own version. */
static err *info_version(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(err_freep) err *e = cli_call(c, "GET", NULL, &answer, "/v1/info");
    const char *daemon = e ? NULL : json_str(answer, "version");

    (void)args, (void)words, (void)status;
    if (c->common.json) {
        CLEANUP(json_decrefp)
        json_t *j = json_pack("{s:s,s:s?}", "client", BOTHY_VERSION, "daemon", daemon);
        out_json(stdout, j);
        return NULL;
    }
    printf("bothy   %s\nbothyd  ", BOTHY_VERSION);
    out_line(stdout, daemon ? daemon : "does not answer");
    return NULL;
}

const verb VERB_VERSION = {
    .name = "version",
    .usage = "",
    .summary = "Show the versions of this program and of the daemon",
    .opts = OPTS,
    .args_size = sizeof(info_args),
    .run = info_version,
};

static err *info_help(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(freep) char *path = xstrdup("bothy");
    const verb *const *table = CLI_VERBS;
    const verb *v = NULL;

    (void)c, (void)args, (void)status;
    for (char **w = words->v; *w; w++) {
        v = table ? verb_find(table, *w) : NULL;
        if (!v)
            return err_remedy(usage_error("'%s' has no command '%s'", path, *w),
                              "'%s --help' lists them.", path);
        char *longer = str_printf("%s %s", path, v->name);
        free(path);
        path = longer;
        table = v->of;
    }
    if (v)
        verb_help(v, path, &out);
    else
        verb_help_all(&out);
    fputs(buf_cstr(&out), stdout);
    return NULL;
}

const verb VERB_HELP = {
    .name = "help",
    .usage = "[COMMAND...]",
    .summary = "Show how a command is used",
    .opts = OPTS,
    .args_size = sizeof(info_args),
    .words_max = -1,
    .run = info_help,
};
