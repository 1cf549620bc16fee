/* bothy pause, bothy resume: freeze sandboxes and let them continue. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/pause.h"
#include "cli/verbs.h"

typedef struct pause_args {
    common_args common;
    bool quiet;
} pause_args;

static const opt OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, pause_args, quiet,
        "print only the names, as they were given"),
    COMMON_OPTS(pause_args),
};

/* Prints "kept: memory, processes, …". */
void pause_print_facts(const char *name, const json_t *facts)
{
    CLEANUP(buf_done) buf b = {0};
    size_t i;
    json_t *f;

    json_array_foreach(facts, i, f)
    {
        buf_str(&b, i ? ", " : "");
        out_safe(&b, str_or(json_str(f, "what"), "?"));
    }
    printf("%s: %s\n", name, buf_cstr(&b));
}

static void print_paused(const json_t *sandbox)
{
    const json_t *pause = json_object_get(sandbox, "pause");
    const json_t *left = json_object_get(sandbox, "ttl_left");
    const json_t *resume = json_object_get(pause, "resume");
    CLEANUP(buf_done) buf b = {0};

    buf_str(&b, "paused, kept until ");
    out_safe(&b, str_or(json_str(pause, "until"), "?"));
    if (json_is_number(left)) {
        buf_str(&b, "; of its ttl are left ");
        out_age(&b, (uint64_t)json_number_value(left));
    }
    if (json_is_object(resume))
        buf_printf(&b, "; a resume takes about %.3g ms",
                   json_number_value(json_object_get(resume, "expect_ms")));
    printf("%s\n", buf_cstr(&b));
    pause_print_facts("  kept", json_object_get(pause, "kept"));
    pause_print_facts("  lost", json_object_get(pause, "lost"));
}

static void print_resumed(const json_t *sandbox)
{
    const json_t *r = json_object_get(sandbox, "resumed");
    CLEANUP(buf_done) buf age = {0};

    if (!json_is_object(r)) {
        printf("running; it was not paused\n");
        return;
    }
    out_age(&age, (uint64_t)(json_number_value(json_object_get(r, "paused_ms")) / 1000));
    printf("running again after %s; the resume took %.3g ms\n", buf_cstr(&age),
           json_number_value(json_object_get(r, "took_ms")));
}

typedef struct moving {
    const char *what;
    bool quiet;
    json_t *moved;
} moving;

static err *move_one(cli *c, const char *word, void *arg)
{
    const moving *m = arg;
    CLEANUP(json_decrefp) json_t *sandbox = NULL, *now = NULL;

    TRY(cli_sandbox(c, word, false, &sandbox));
    TRY(cli_call(c, "POST", NULL, &now, "/v1/sandboxes/%s/%s", str_or(json_str(sandbox, "id"), ""),
                 m->what));
    json_array_append(m->moved, now);
    if (c->common.json)
        return NULL;
    CLEANUP(buf_done) buf safe = {0};
    out_safe(&safe, word);
    printf(m->quiet ? "%s\n" : "%s: ", buf_cstr(&safe));
    if (!m->quiet)
        str_eq(m->what, "pause") ? print_paused(now) : print_resumed(now);
    return NULL;
}

static err *move_all(cli *c, char *const *words, const char *what, bool quiet)
{
    CLEANUP(json_decrefp) json_t *moved = json_array();
    err *failure = cli_each(c, words, move_one, &(moving){what, quiet, moved});

    if (c->common.json)
        out_json(stdout, moved);
    return failure;
}

static err *run_pause(cli *c, void *args, const opt_words *words, int *status)
{
    (void)status;
    return move_all(c, words->v, "pause", ((const pause_args *)args)->quiet);
}

static err *run_resume(cli *c, void *args, const opt_words *words, int *status)
{
    (void)status;
    return move_all(c, words->v, "resume", ((const pause_args *)args)->quiet);
}

const verb VERB_PAUSE = {
    .name = "pause",
    .usage = "[OPTIONS] SANDBOX...",
    .summary = "Let sandboxes stand still",
    .text =
        "Everything inside stops between two instructions and stays in memory; time to live and\n"
        "time limits stand still. What is kept and lost is printed; 'bothy show' has the details.\n"
        "One that is not resumed for a day ends.",
    .opts = OPTS,
    .args_size = sizeof(pause_args),
    .words_min = 1,
    .words_max = -1,
    .run = run_pause,
};

const verb VERB_RESUME = {
    .name = "resume",
    .usage = "[OPTIONS] SANDBOX...",
    .summary = "Let paused sandboxes go on",
    .text = "Everything goes on where it stood.",
    .opts = OPTS,
    .args_size = sizeof(pause_args),
    .words_min = 1,
    .words_max = -1,
    .run = run_resume,
};
