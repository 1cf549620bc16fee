/* bothy login, logout, registry: the logins for image registries. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/password.h"
#include "cli/verbs.h"

#define PASSWORD_MAX 16384

typedef struct login_args {
    common_args common;
    const char *username;
    bool password_stdin, shared;
} login_args;

/* ---- login ---- */

static const opt LOGIN_OPTS[] = {
    OPT('u', "username", "NAME", OPT_TEXT, login_args, username, "asked for if it is not given"),
    OPT(0, "password-stdin", NULL, OPT_FLAG, login_args, password_stdin,
        "read the password from stdin instead of asking for it"),
    OPT(0, "shared", NULL, OPT_FLAG, login_args, shared,
        "for everybody who has no login of their own there (administrators)"),
    COMMON_OPTS(login_args),
};

static err *login_ask(const login_args *a, char **ret_username, char **ret_password)
{
    if (a->password_stdin && !a->username)
        return err_remedy(usage_error("--password-stdin needs --username"), "Add --username NAME.");
    if (a->username)
        *ret_username = xstrdup(a->username);
    else
        TRY(prompt_line("Username: ", true, ret_username));
    return a->password_stdin ? password_from_stdin(PASSWORD_MAX, ret_password)
                             : prompt_line("Password: ", false, ret_password);
}

static err *log_in(cli *c, void *args, const opt_words *words, int *status)
{
    const login_args *a = args;
    CLEANUP(freep) char *username = NULL;
    CLEANUP(secret_freep) char *password = NULL;
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(freep) char *host = client_escape(words->v[0]);

    (void)status;
    TRY(login_ask(a, &username, &password));
    json_t *body =
        json_pack("{s:s,s:s,s:b}", "username", username, "password", password, "shared", a->shared);
    if (!body)
        return err_remedy(usage_error("the name or the password is not UTF-8"), "Encode it.");
    TRY(cli_call(c, "PUT", body, &answer, "/v1/registries/%s/login", host));
    if (c->common.json) {
        out_json(stdout, answer);
        return NULL;
    }
    CLEANUP(freep)
    char *text = str_printf("logged in to %s as %s%s", words->v[0], username,
                            a->shared ? ", for everybody" : "");
    out_line(stdout, text);
    return NULL;
}

const verb VERB_LOGIN = {
    .name = "login",
    .usage = "[OPTIONS] HOST",
    .summary = "Log in to a registry",
    .text =
        "HOST is as in image names: ghcr.io, registry.example:5000, docker.io. The registry is\n"
        "asked whether it takes name and password; then the daemon keeps them for your pulls.\n"
        "A password is never taken from the arguments, where others would see it.",
    .opts = LOGIN_OPTS,
    .args_size = sizeof(login_args),
    .words_min = 1,
    .words_max = 1,
    .run = log_in,
};

/* ---- logout ---- */

static const opt LOGOUT_OPTS[] = {
    OPT(0, "shared", NULL, OPT_FLAG, login_args, shared, "the one for everybody (administrators)"),
    COMMON_OPTS(login_args),
};

static err *log_out(cli *c, void *args, const opt_words *words, int *status)
{
    const login_args *a = args;
    CLEANUP(freep) char *host = client_escape(words->v[0]);

    (void)status;
    TRY(cli_call(c, "DELETE", NULL, NULL, "/v1/registries/%s/login%s", host,
                 a->shared ? "?shared=true" : ""));
    CLEANUP(freep) char *text = str_printf("logged out of %s", words->v[0]);
    if (!c->common.json)
        out_line(stdout, text);
    return NULL;
}

const verb VERB_LOGOUT = {
    .name = "logout",
    .usage = "[OPTIONS] HOST",
    .summary = "Forget the login for a registry",
    .opts = LOGOUT_OPTS,
    .args_size = sizeof(login_args),
    .words_min = 1,
    .words_max = 1,
    .run = log_out,
};

/* ---- registry ---- */

static const opt REGISTRY_OPTS[] = {COMMON_OPTS(login_args)};

static void add_login(buf *out, const json_t *logins, const char *host)
{
    size_t i;
    json_t *l;

    json_array_foreach(logins, i, l)
    {
        if (!str_eq(json_str(l, "host"), host))
            continue;
        buf_printf(out, "%s%s%s", out->len ? ", " : "", str_or(json_str(l, "username"), "-"),
                   json_flag(l, "shared") ? " (everybody)" : "");
    }
}

static void add_row(out_table *t, const json_t *registry, const char *host, const json_t *logins)
{
    CLEANUP(buf_done) buf mirrors = {0}, how = {0}, login = {0};
    size_t i;
    json_t *m;

    json_array_foreach(json_object_get(registry, "mirrors"), i, m)
        buf_printf(&mirrors, "%s%s", i ? ", " : "", str_or(json_string_value(m), ""));
    buf_str(&how, json_flag(registry, "insecure") ? "insecure"
                  : json_flag(registry, "ca")     ? "own authority"
                                                  : "");
    add_login(&login, logins, host);
    out_table_cell(t, host);
    out_table_cell(t, login.len ? buf_cstr(&login) : NULL);
    out_table_cell(t, how.len ? buf_cstr(&how) : NULL);
    out_table_cell(t, mirrors.len ? buf_cstr(&mirrors) : NULL);
}

static bool is_listed(const json_t *list, const char *host, size_t before)
{
    size_t i;
    json_t *r;

    json_array_foreach(list, i, r) if (i < before && str_eq(json_str(r, "host"), host)) return true;
    return false;
}

static err *login_registry(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(out_table_done) out_table t = {0};
    size_t i;
    json_t *r;

    (void)args, (void)words, (void)status;
    TRY(cli_call(c, "GET", NULL, &answer, "/v1/registries"));
    if (c->common.json) {
        out_json(stdout, answer);
        return NULL;
    }
    const json_t *all = json_object_get(answer, "registries"),
                 *logins = json_object_get(answer, "logins");
    out_table_init(&t, "HOST LOGIN TLS MIRRORS");
    json_array_foreach(all, i, r) add_row(&t, r, str_or(json_str(r, "host"), "-"), logins);
    json_array_foreach(logins, i, r)
    {
        const char *host = str_or(json_str(r, "host"), "-");
        if (!is_listed(all, host, SIZE_MAX) && !is_listed(logins, host, i))
            add_row(&t, NULL, host, logins);
    }
    out_table_print(&t, stdout, out_colours(stdout));
    if (str_eq(json_str(answer, "from"), "listed"))
        puts("No other registry may be used.");
    return NULL;
}

const verb VERB_REGISTRY = {
    .name = "registry",
    .usage = "[OPTIONS]",
    .summary = "List the registries that are configured, and your logins",
    .opts = REGISTRY_OPTS,
    .args_size = sizeof(login_args),
    .run = login_registry,
};
