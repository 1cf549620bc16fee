/* bothy key: manages the keys for callers over TCP. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct key_args {
    common_args common;
    const char *owner, *role, *note;
    uint64_t expires_ms;
    const char *max_sandboxes, *creates, *max_concurrent, *max_ttl;
    bool quiet;
} key_args;

#define QUOTA_OPTS                                                                         \
    OPT(0, "max-sandboxes", "N", OPT_TEXT, key_args, max_sandboxes,                        \
        "live sandboxes of the owner, beyond which a create is refused (0: as the node)"), \
        OPT(0, "creates-per-second", "N", OPT_TEXT, key_args, creates,                     \
            "creates with this key, such as 0.5 (0: as the node)"),                        \
        OPT(0, "max-concurrent", "N", OPT_TEXT, key_args, max_concurrent,                  \
            "creates under way at once (0: as the node)"),                                 \
        OPT(0, "max-ttl", "TIME", OPT_TEXT, key_args, max_ttl,                             \
            "the longest life, such as 2h (0: as the node)")

static err *put_count(json_t *body, const char *member, const char *option, const char *text)
{
    uint64_t n;

    if (!text)
        return NULL;
    if (!str_to_u64(text, UINT32_MAX, &n))
        return usage_error("%s: '%s' is not a number", option, text);
    json_object_set_new(body, member, json_integer((json_int_t)n));
    return NULL;
}

static err *put_rate(json_t *body, const char *text)
{
    char *end = NULL;
    double n = text ? strtod(text, &end) : 0;

    if (!text)
        return NULL;
    if (end == text || *end || !(n >= 0))
        return usage_error("--creates-per-second: '%s' is not a number", text);
    json_object_set_new(body, "creates_per_second", json_real(n));
    return NULL;
}

static err *put_time(json_t *body, const char *text)
{
    uint64_t ms = 0;

    if (!text)
        return NULL;
    if (!str_eq(text, "0") && !str_to_duration_ms(text, &ms))
        return usage_error("--max-ttl: '%s' is not a time such as 2h", text);
    json_object_set_new(body, "max_ttl", json_integer((json_int_t)((ms + 999) / 1000)));
    return NULL;
}

static err *put_quota(json_t *body, const key_args *a)
{
    TRY(put_count(body, "max_sandboxes", "--max-sandboxes", a->max_sandboxes));
    TRY(put_rate(body, a->creates));
    TRY(put_count(body, "max_concurrent", "--max-concurrent", a->max_concurrent));
    return put_time(body, a->max_ttl);
}

/* ---- create ---- */

static const opt CREATE_OPTS[] = {
    OPT(0, "owner", "NAME", OPT_TEXT, key_args, owner, "whose sandboxes it makes and sees"),
    OPT(0, "role", "admin|user|read", OPT_CHOICE, key_args, role,
        "read sees, user makes and ends its own (default), admin does everything"),
    OPT(0, "note", "TEXT", OPT_TEXT, key_args, note, "what it is for"),
    OPT(0, "expires", "TIME", OPT_DURATION, key_args, expires_ms,
        "for how long it is taken, such as 30d (default for ever)"),
    QUOTA_OPTS,
    COMMON_OPTS(key_args),
};

static err *key_create(cli *c, void *args, const opt_words *words, int *status)
{
    const key_args *a = args;
    CLEANUP(json_decrefp) json_t *key = NULL;

    (void)words, (void)status;
    if (!a->owner)
        return err_remedy(usage_error("'bothy key create' needs --owner"),
                          "Say whose key it is: --owner NAME.");
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:s,s:s}", "owner", a->owner, "role", str_or(a->role, "user"));
    TRY(put_quota(body, a));
    if (a->note)
        json_object_set_new(body, "note", json_string(a->note));
    if (a->expires_ms)
        json_object_set_new(body, "expires_in", json_integer((json_int_t)(a->expires_ms / 1000)));
    TRY(cli_call(c, "POST", json_incref(body), &key, "/v1/keys"));
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
    .run = key_create,
};

/* ---- update ---- */

static const opt UPDATE_OPTS[] = {QUOTA_OPTS, COMMON_OPTS(key_args)};

static err *key_update(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(json_decrefp) json_t *body = json_object();

    (void)status;
    TRY(put_quota(body, args));
    if (!json_object_size(body))
        return err_remedy(usage_error("there is nothing to change"),
                          "Name it: --max-sandboxes, --creates-per-second, --max-concurrent, "
                          "--max-ttl.");
    for (char **w = words->v; *w; w++) {
        CLEANUP(freep) char *id = client_escape(*w);
        CLEANUP(json_decrefp) json_t *key = NULL;
        TRY(cli_call(c, "PATCH", json_incref(body), &key, "/v1/keys/%s", id));
        if (c->common.json)
            out_json(stdout, key);
        else
            out_line(stdout, *w);
    }
    return NULL;
}

static const verb UPDATE = {
    .name = "update",
    .usage = "OPTIONS ID...",
    .summary = "Change what keys allow",
    .opts = UPDATE_OPTS,
    .args_size = sizeof(key_args),
    .words_min = 1,
    .words_max = -1,
    .run = key_update,
};

/* ---- ls ---- */

static const opt LS_OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, key_args, quiet, "ids only"),
    COMMON_OPTS(key_args),
};

static void number_cell(out_table *t, const json_t *v, const char *unit)
{
    CLEANUP(freep)
    char *text = json_is_number(v) ? str_printf("%g%s", json_number_value(v), unit) : NULL;

    out_table_cell(t, text);
}

static void quota_cells(out_table *t, const json_t *key)
{
    const json_t *ttl = json_object_get(key, "max_ttl");
    CLEANUP(buf_done) buf age = {0};

    number_cell(t, json_object_get(key, "max_sandboxes"), "");
    number_cell(t, json_object_get(key, "creates_per_second"), "/s");
    number_cell(t, json_object_get(key, "max_concurrent"), "");
    if (json_is_integer(ttl))
        out_age(&age, (uint64_t)json_integer_value(ttl));
    out_table_cell(t, age.len ? buf_cstr(&age) : NULL);
}

static void print_keys(const json_t *keys)
{
    CLEANUP(out_table_done) out_table t = {0};
    static const char *const FIELDS[] = {"id", "owner", "role", "created", "expires"};
    size_t i;
    json_t *key;

    out_table_init(&t, "ID OWNER ROLE CREATED EXPIRES SANDBOXES RATE AT-ONCE TTL NOTE");
    json_array_foreach(keys, i, key)
    {
        for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++)
            out_table_cell(&t, json_str(key, FIELDS[f]));
        quota_cells(&t, key);
        out_table_cell(&t, json_str(key, "note"));
    }
    out_table_print(&t, stdout, out_colours(stdout));
}

static err *key_ls(cli *c, void *args, const opt_words *words, int *status)
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
    .run = key_ls,
};

/* ---- rm ---- */

static const opt RM_OPTS[] = {COMMON_OPTS(key_args)};

static err *key_rm(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    return cli_remove(c, words->v, "/v1/keys");
}

static const verb RM = {
    .name = "rm",
    .usage = "ID...",
    .summary = "Revoke keys",
    .opts = RM_OPTS,
    .args_size = sizeof(key_args),
    .words_min = 1,
    .words_max = -1,
    .run = key_rm,
};

static const verb *const VERBS[] = {&CREATE, &UPDATE, &LS, &RM, NULL};
const verb VERB_KEY = {
    .name = "key",
    .usage = "COMMAND ...",
    .summary = "Make, list and revoke keys for TCP",
    .of = VERBS,
};
