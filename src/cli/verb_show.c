/* bothy show: prints everything about a sandbox, and the commands it has run. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct show_args {
    common_args common;
} show_args;

static const opt OPTS[] = {COMMON_OPTS(show_args)};

/* Prints "cpu 1, memory 1.0 GiB, pids 512, nofile 1024 to 65536, …". */
static void print_limits(const json_t *l)
{
    static const char *const SIZES[] = {"memory", "disk", "shm"};
    CLEANUP(buf_done) buf b = {0};

    buf_printf(&b, "cpu %g", json_number_value(json_object_get(l, "cpu")));
    for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
        int64_t n = json_int(l, SIZES[i], 0);
        if (!n)
            continue;
        buf_printf(&b, ", %s ", SIZES[i]);
        out_size(&b, (uint64_t)n);
    }
    buf_printf(&b, ", pids %d, nofile %d to %d, execs %d", (int)json_int(l, "pids", 0),
               (int)json_int(l, "nofile", 0), (int)json_int(l, "nofile_hard", 0),
               (int)json_int(l, "execs", 0));
    printf("%-10s  %s\n", "limits", buf_cstr(&b));
}

/* Prints the isolation checks: how many held, how many were tried again after the claim, and which
 * limits are not enforced and why. */
static void print_walls(const json_t *walls)
{
    CLEANUP(buf_done) buf b = {0};
    size_t i, held = 0, again = 0;
    json_t *w;

    json_array_foreach(json_object_get(walls, "held"), i, w)
    {
        held += json_flag(w, "refill");
        again += json_flag(w, "claim");
    }
    if (held)
        buf_printf(&b, "%zu held, %zu tried again after the claim", held, again);
    else
        buf_str(&b, json_is_object(walls) ? "the engine's own, none tried" : "-");
    json_array_foreach(json_object_get(walls, "not_enforced"), i, w)
    {
        buf_str(&b, i ? "; " : "; not enforced: ");
        out_safe(&b, str_or(json_str(w, "name"), "?"));
        buf_str(&b, " (");
        out_safe(&b, str_or(json_str(w, "why"), "?"));
        buf_char(&b, ')');
    }
    printf("%-10s  %s\n", "walls", buf_cstr(&b));
}

static void print_pause(const json_t *pause)
{
    const json_t *resume = json_object_get(pause, "resume"), *facts;
    static const char *const NAMES[] = {"kept", "lost"};
    size_t i;
    json_t *f;

    if (!json_is_object(pause))
        return;
    for (size_t k = 0; k < ARRAY_LEN(NAMES); k++) {
        facts = json_object_get(pause, NAMES[k]);
        json_array_foreach(facts, i, f) out_field(NAMES[k], json_object_get(f, "detail"));
    }
    if (json_is_object(resume))
        printf("%-10s  takes about %.3g ms, at worst %.3g\n", "resume",
               json_number_value(json_object_get(resume, "expect_ms")),
               json_number_value(json_object_get(resume, "worst_ms")));
}

static void print_image(const json_t *image)
{
    CLEANUP(buf_done) buf line = {0};

    out_safe(&line, str_or(json_str(image, "name"), "-"));
    buf_str(&line, " (");
    out_safe(&line, str_or(json_str(image, "digest"), "no digest"));
    buf_char(&line, ')');
    printf("%-10s  %s\n", "image", buf_cstr(&line));
}

static void print_left(const json_t *v)
{
    CLEANUP(buf_done) buf line = {0};

    out_age(&line, (uint64_t)json_number_value(v));
    printf("%-10s  %s\n", "ttl_left", buf_cstr(&line));
}

static void print_member(const char *name, json_t *v)
{
    if (str_eq(name, "walls"))
        print_walls(v);
    else if (str_eq(name, "pause"))
        print_pause(v);
    else if (str_eq(name, "limits"))
        print_limits(v);
    else if (out_is_empty(v))
        return;
    else if (str_eq(name, "image"))
        print_image(v);
    else if (str_eq(name, "ttl_left"))
        print_left(v);
    else
        out_field(name, v);
}

static void end_of(const json_t *process, buf *out)
{
    const json_t *end = json_object_get(process, "end");
    const char *how = json_str(end, "how");

    if (!how)
        buf_str(out, "running");
    else if (str_eq(how, "exited"))
        buf_printf(out, "exited %d", (int)json_int(end, "exit_code", -1));
    else if (json_int(end, "signal", 0))
        buf_printf(out, "%s %d%s", how, (int)json_int(end, "signal", 0),
                   json_flag(end, "oom") ? " (memory limit)" : "");
    else
        buf_str(out, how);
}

static void print_processes(const json_t *list)
{
    CLEANUP(out_table_done) out_table t = {0};
    size_t i;
    json_t *p;

    if (!json_array_size(list))
        return;
    out_table_init(&t, "EXEC END OUT ERR COMMAND");
    json_array_foreach(list, i, p)
    {
        CLEANUP(buf_done) buf end = {0}, out = {0}, errs = {0};
        end_of(p, &end);
        out_size(&out, (uint64_t)json_int(p, "out_bytes", 0));
        out_size(&errs, (uint64_t)json_int(p, "err_bytes", 0));
        out_table_cell(&t, json_str(p, "exec"));
        out_table_cell(&t, buf_cstr(&end));
        out_table_cell(&t, buf_cstr(&out));
        out_table_cell(&t, buf_cstr(&errs));
        out_table_cell(&t, json_str(p, "command"));
    }
    putchar('\n');
    out_table_print(&t, stdout, out_colours(stdout));
}

static err *show_run(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(json_decrefp) json_t *processes = NULL;
    const char *name;
    json_t *v;

    (void)args, (void)status;
    TRY(cli_sandbox(c, words->v[0], true, &sandbox));
    TRY(cli_call(c, "GET", NULL, &processes, "/v1/sandboxes/%s/processes",
                 str_or(json_str(sandbox, "id"), "")));
    json_t *list = json_object_get(processes, "processes");
    if (c->common.json) {
        json_object_set(sandbox, "processes", list);
        out_json(stdout, sandbox);
        return NULL;
    }
    json_object_foreach(sandbox, name, v) print_member(name, v);
    print_processes(list);
    return NULL;
}

const verb VERB_SHOW = {
    .name = "show",
    .alias = "inspect",
    .usage = "SANDBOX",
    .summary = "Show a sandbox, why it ended, and its commands",
    .text = "Members that are empty are left out; --json has all of them.",
    .opts = OPTS,
    .args_size = sizeof(show_args),
    .words_min = 1,
    .words_max = 1,
    .run = show_run,
};
