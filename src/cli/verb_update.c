/* bothy update: changes live sandboxes. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct update_args {
    common_args common;
    uint64_t ttl_ms, memory, cpu_milli, pids, disk;
    const char *idle;
    char **label;
} update_args;

static const opt OPTS[] = {
    OPT(0, "ttl", "TIME", OPT_DURATION, update_args, ttl_ms, "ends it so long from now"),
    OPT(0, "idle", "TIME|off", OPT_TEXT, update_args, idle,
        "ends it when nothing happens in it for so long"),
    OPT(0, "label", "KEY=VALUE|KEY-", OPT_LIST, update_args, label, "set a label, or remove it"),
    OPT('m', "memory", "SIZE", OPT_BYTES, update_args, memory, "memory with swap, such as 512m"),
    OPT(0, "cpus", "N", OPT_CORES, update_args, cpu_milli, "cores, such as 0.5"),
    OPT(0, "pids-limit", "N", OPT_COUNT, update_args, pids, "processes and threads"),
    OPT(0, "pids", "N", OPT_COUNT, update_args, pids, NULL),
    OPT(0, "disk", "SIZE", OPT_BYTES, update_args, disk,
        "bytes it may write, where the node can change that"),
    COMMON_OPTS(update_args),
};

static err *add_label(json_t *labels, const char *word)
{
    const char *eq = strchr(word, '=');
    size_t n = eq ? (size_t)(eq - word) : strlen(word);

    if (!eq && (!n || word[n - 1] != '-'))
        return err_remedy(usage_error("--label: '%s' is neither KEY=VALUE nor KEY-", word),
                          "Set a label by KEY=VALUE, remove one by KEY-.");
    CLEANUP(freep) char *key = xstrndup(word, eq ? n : n - 1);
    json_object_set_new(labels, key, eq ? json_string(eq + 1) : json_null());
    return NULL;
}

static err *add_idle(json_t *body, const char *text)
{
    uint64_t ms = 0;

    if (!text)
        return NULL;
    if (!str_eq(text, "off") && !str_to_duration_ms(text, &ms))
        return usage_error("--idle: '%s' is neither a time such as 10m nor off", text);
    json_object_set_new(body, "idle", json_integer((json_int_t)((ms + 999) / 1000)));
    return NULL;
}

static void add_number(json_t *o, const char *name, uint64_t n)
{
    if (n)
        json_object_set_new(o, name, json_integer((json_int_t)n));
}

static err *body_of(const update_args *a, json_t **ret_body)
{
    CLEANUP(json_decrefp) json_t *body = json_object();
    CLEANUP(json_decrefp) json_t *labels = json_object();
    CLEANUP(json_decrefp) json_t *limits = json_object();

    add_number(body, "ttl", (a->ttl_ms + 999) / 1000);
    TRY(add_idle(body, a->idle));
    for (char **l = a->label; l && *l; l++)
        TRY(add_label(labels, *l));
    add_number(limits, "memory", a->memory);
    add_number(limits, "pids", a->pids);
    add_number(limits, "disk", a->disk);
    if (a->cpu_milli)
        json_object_set_new(limits, "cpu", json_real((double)a->cpu_milli / 1000));
    if (json_object_size(labels))
        json_object_set(body, "labels", labels);
    if (json_object_size(limits))
        json_object_set(body, "limits", limits);
    if (!json_object_size(body))
        return err_remedy(
            usage_error("there is nothing to change"),
            "Name it: --ttl, --idle, --label, --memory, --cpus, --pids-limit, --disk.");
    *ret_body = TAKE_PTR(body);
    return NULL;
}

static err *update_run(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(json_decrefp) json_t *body = NULL;

    (void)status;
    TRY(body_of(args, &body));
    for (char **w = words->v; *w; w++) {
        CLEANUP(json_decrefp) json_t *sandbox = NULL, *now = NULL;
        TRY(cli_sandbox(c, *w, false, &sandbox));
        TRY(cli_call(c, "PATCH", json_incref(body), &now, "/v1/sandboxes/%s",
                     str_or(json_str(sandbox, "id"), "")));
        if (c->common.json)
            out_json(stdout, now);
        else
            out_line(stdout, *w);
    }
    return NULL;
}

const verb VERB_UPDATE = {
    .name = "update",
    .usage = "OPTIONS SANDBOX...",
    .summary = "Change the time, labels and limits of live sandboxes",
    .text =
        "What is not named stays. The change is in force and on disk when the command returns.\n"
        "Memory below what is in use is refused; nothing is killed for it.",
    .opts = OPTS,
    .args_size = sizeof(update_args),
    .words_min = 1,
    .words_max = -1,
    .run = update_run,
};
