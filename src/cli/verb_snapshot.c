/* bothy snapshot: keeps the files of a sandbox, to begin others with them. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct snapshot_args {
    common_args common;
    bool quiet;
} snapshot_args;

static const opt PLAIN_OPTS[] = {COMMON_OPTS(snapshot_args)};

/* ---- create ---- */

static err *snapshot_create(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(freep) char *id = client_escape(words->v[0]);
    CLEANUP(json_decrefp) json_t *made = NULL;

    (void)args, (void)status;
    TRY(cli_call(c, "POST", NULL, &made, "/v1/sandboxes/%s/snapshots", id));
    if (c->common.json)
        out_json(stdout, made);
    else
        out_line(stdout, json_str(made, "id"));
    return NULL;
}

static const verb CREATE = {
    .name = "create",
    .usage = "SANDBOX",
    .summary = "Keep the files of a sandbox and print the snapshot's id",
    .text =
        "Files only: no processes, memory, variables, secrets, tmpfs mounts. The sandbox stands\n"
        "still meanwhile and goes on as before. 'bothy run --snapshot ID' begins with them.",
    .opts = PLAIN_OPTS,
    .args_size = sizeof(snapshot_args),
    .words_min = 1,
    .words_max = 1,
    .run = snapshot_create,
};

/* ---- ls ---- */

static const opt LS_OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, snapshot_args, quiet, "ids only"),
    COMMON_OPTS(snapshot_args),
};

static void print_list(const json_t *all)
{
    static const char *const FIELDS[] = {"id", "sandbox", "image", "owner", "created"};
    CLEANUP(out_table_done) out_table table = {0};
    size_t i;
    json_t *s;

    out_table_init(&table, "ID SANDBOX IMAGE OWNER CREATED SIZE");
    json_array_foreach(all, i, s)
    {
        CLEANUP(buf_done) buf size = {0};
        for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++)
            out_table_cell(&table, json_str(s, FIELDS[f]));
        out_size(&size, (uint64_t)json_int(s, "bytes", 0));
        out_table_cell(&table, buf_cstr(&size));
    }
    out_table_print(&table, stdout, out_colours(stdout));
}

static err *snapshot_ls(cli *c, void *args, const opt_words *words, int *status)
{
    const snapshot_args *a = args;
    CLEANUP(json_decrefp) json_t *all = NULL;
    size_t i;
    json_t *s;

    (void)words, (void)status;
    TRY(cli_list(c, "/v1/snapshots", "snapshots", &all));
    if (a->quiet)
        json_array_foreach(all, i, s) out_line(stdout, json_str(s, "id"));
    else if (c->common.json)
        out_json(stdout, all);
    else
        print_list(all);
    return NULL;
}

static const verb LS = {
    .name = "ls",
    .usage = "[OPTIONS]",
    .summary = "List snapshots",
    .opts = LS_OPTS,
    .args_size = sizeof(snapshot_args),
    .run = snapshot_ls,
};

/* ---- rm ---- */

static err *snapshot_rm(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    return cli_remove(c, words->v, "/v1/snapshots");
}

static const verb RM = {
    .name = "rm",
    .usage = "ID...",
    .summary = "Remove snapshots; sandboxes made of them stay",
    .opts = PLAIN_OPTS,
    .args_size = sizeof(snapshot_args),
    .words_min = 1,
    .words_max = -1,
    .run = snapshot_rm,
};

static const verb *const VERBS[] = {&CREATE, &LS, &RM, NULL};
const verb VERB_SNAPSHOT = {
    .name = "snapshot",
    .usage = "COMMAND ...",
    .summary = "Keep the files of sandboxes, list and remove them",
    .of = VERBS,
};
