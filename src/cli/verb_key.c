/* bothy key: who may call over TCP. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct key_args {
    common_args common;
    const char *owner, *role, *note;
    uint64_t expires_ms;
    bool quiet;
} key_args;

/* ---- create ---- */

static const opt CREATE_OPTS[] = {
    OPT(0, "owner", "NAME", OPT_TEXT, key_args, owner, "whose sandboxes it makes and sees"),
    OPT(0, "role", "admin|user|read", OPT_CHOICE, key_args, role,
        "read sees, user makes and ends its own (default), admin does everything"),
    OPT(0, "note", "TEXT", OPT_TEXT, key_args, note, "what it is for"),
    OPT(0, "expires", "TIME", OPT_DURATION, key_args, expires_ms,
        "for how long it is taken, such as 30d (default for ever)"),
    COMMON_OPTS(key_args),
};

static err *create(cli *c, void *args, const opt_words *words, int *status)
{
    const key_args *a = args;
    CLEANUP(json_decrefp) json_t *key = NULL;

    (void)words, (void)status;
    if (!a->owner)
        return err_remedy(usage_error("'bothy key create' needs --owner"),
                          "Say whose key it is: --owner NAME.");
    json_t *body = json_pack("{s:s,s:s}", "owner", a->owner, "role", str_or(a->role, "user"));
    if (a->note)
        json_object_set_new(body, "note", json_string(a->note));
    if (a->expires_ms)
        json_object_set_new(body, "expires_in", json_integer((json_int_t)(a->expires_ms / 1000)));
    TRY(cli_call(c, "POST", body, &key, "/v1/keys"));
    if (c->common.json) {
        out_json(stdout, key);
        return NULL;
    }
    out_line(stdout, json_str(key, "key"));
    fputs("bothy: this is the only time the key is shown; its id is ", stderr);
    out_line(stderr, json_str(key, "id"));
    return NULL;
}

static const verb CREATE = {
    .name = "create",
    .usage = "--owner NAME [OPTIONS]",
    .summary = "Make a key and print it, this once",
    .opts = CREATE_OPTS,
    .args_size = sizeof(key_args),
    .run = create,
};

/* ---- ls ---- */

static const opt LS_OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, key_args, quiet, "ids only"),
    COMMON_OPTS(key_args),
};

static void print_keys(const json_t *keys)
{
    CLEANUP(out_table_done) out_table t = {0};
    static const char *const FIELDS[] = {"id", "owner", "role", "created", "expires", "note"};
    size_t i;
    json_t *key;

    out_table_init(&t, "ID OWNER ROLE CREATED EXPIRES NOTE");
    json_array_foreach(keys, i, key)
    {
        for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++)
            out_table_cell(&t, json_str(key, FIELDS[f]));
    }
    out_table_print(&t, stdout, out_colours(stdout));
}

static err *ls(cli *c, void *args, const opt_words *words, int *status)
{
    const key_args *a = args;
    CLEANUP(json_decrefp) json_t *keys = NULL;
    size_t i;
    json_t *key;

    (void)words, (void)status;
    TRY(cli_list(c, "/v1/keys", "keys", &keys));
    if (a->quiet)
        json_array_foreach(keys, i, key) out_line(stdout, json_str(key, "id"));
    else if (c->common.json)
        out_json(stdout, keys);
    else
        print_keys(keys);
    return NULL;
}

static const verb LS = {
    .name = "ls",
    .usage = "[OPTIONS]",
    .summary = "List keys",
    .opts = LS_OPTS,
    .args_size = sizeof(key_args),
    .run = ls,
};

/* ---- rm ---- */

static const opt RM_OPTS[] = {COMMON_OPTS(key_args)};

static err *rm(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    for (char **w = words->v; *w; w++) {
        CLEANUP(freep) char *id = client_escape(*w);
        TRY(cli_call(c, "DELETE", NULL, NULL, "/v1/keys/%s", id));
        if (!c->common.json)
            out_line(stdout, *w);
    }
    return NULL;
}

static const verb RM = {
    .name = "rm",
    .usage = "ID...",
    .summary = "Revoke keys",
    .opts = RM_OPTS,
    .args_size = sizeof(key_args),
    .words_min = 1,
    .words_max = -1,
    .run = rm,
};

static const verb *const VERBS[] = {&CREATE, &LS, &RM, NULL};
const verb VERB_KEY = {
    .name = "key",
    .usage = "COMMAND ...",
    .summary = "Make, list and revoke keys for TCP",
    .of = VERBS,
};
