/* bothy e2b-env: prints the settings for E2B's SDKs. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct e2b_args {
    common_args common;
    const char *owner;
    uint64_t expires_ms;
} e2b_args;

/* The verb is run in every new shell, so its keys must expire by themselves. */
#define EXPIRES_S (30 * 86400)

static const opt OPTS[] = {
    OPT(0, "owner", "NAME", OPT_TEXT, e2b_args, owner,
        "whose sandboxes they are, for a new key (default e2b)"),
    OPT(0, "expires", "TIME", OPT_DURATION, e2b_args, expires_ms,
        "for how long a new key is taken (default 30d)"),
    COMMON_OPTS(e2b_args),
};

/* Checks that a value is safe for eval, whatever server sent it. */
static err *check_word(const char *what, const char *s)
{
    static const char FINE[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/[]-";

    if (s && *s && s[strspn(s, FINE)] == 0)
        return NULL;
    return err_remedy(err_new(ERR_INTERNAL, "the daemon's %s is none", what),
                      "Look at 'bothy info', and set the variables by hand.");
}

/* Turns a listening address into one that clients can reach. */
static char *e2b_env_reachable(const char *tcp)
{
    if (str_starts(tcp, "0.0.0.0:"))
        return str_printf("http://127.0.0.1:%s", tcp + strlen("0.0.0.0:"));
    if (str_starts(tcp, "[::]:"))
        return str_printf("http://[::1]:%s", tcp + strlen("[::]:"));
    return str_printf("http://%s", tcp);
}

static err *find_url(cli *c, char **ret_url)
{
    CLEANUP(json_decrefp) json_t *info = NULL;

    TRY(cli_call(c, "GET", NULL, &info, "/v1/info"));
    const json_t *listen = json_object_get(info, "listen");
    if (!json_flag(listen, "e2b"))
        return err_remedy(err_new(ERR_UNSUPPORTED, "this node does not serve E2B's SDKs"),
                          "Set e2b.enabled: true in bothy.yaml and start bothyd again.");
    if (!str_starts(c->url, "unix:")) {
        *ret_url = xstrdup(c->url);
        return NULL;
    }
    const char *tcp = json_str(listen, "tcp");
    if (!tcp)
        return err_remedy(err_new(ERR_UNSUPPORTED, "this node does not listen on TCP"),
                          "Set listen.tcp: 127.0.0.1:7070 in bothy.yaml and start bothyd again.");
    *ret_url = e2b_env_reachable(tcp);
    return NULL;
}

static err *find_key(cli *c, const e2b_args *a, char **ret_key)
{
    CLEANUP(json_decrefp) json_t *key = NULL;
    const char *own = cli_setting("BOTHY_KEY");

    if (own && !a->owner && !a->expires_ms) {
        *ret_key = xstrdup(own);
        return NULL;
    }
    json_int_t expires = a->expires_ms ? (json_int_t)(a->expires_ms / 1000) : EXPIRES_S;
    TRY(err_remedy(cli_call(c, "POST",
                            json_pack("{s:s,s:s,s:s,s:I}", "owner", str_or(a->owner, "e2b"), "role",
                                      "user", "note", "bothy e2b-env", "expires_in", expires),
                            &key, "/v1/keys"),
                   "Only an administrator makes keys: have one made, and put it into BOTHY_KEY."));
    *ret_key = xstrdup(str_or(json_str(key, "key"), ""));
    return NULL;
}

static err *e2b_env(cli *c, void *args, const opt_words *words, int *status)
{
    CLEANUP(freep) char *url = NULL;
    CLEANUP(secret_freep) char *key = NULL;

    (void)words, (void)status;
    TRY(find_url(c, &url));
    TRY(check_word("address", url));
    TRY(find_key(c, args, &key));
    TRY(check_word("key", key));
    if (c->common.json) {
        CLEANUP(json_decrefp)
        json_t *o = json_pack("{s:s,s:s,s:s}", "E2B_API_URL", url, "E2B_SANDBOX_URL", url,
                              "E2B_API_KEY", key);
        out_json(stdout, o);
        return NULL;
    }
    printf("export E2B_API_URL='%s'\nexport E2B_SANDBOX_URL='%s'\nexport E2B_API_KEY='%s'\n", url,
           url, key);
    return NULL;
}

const verb VERB_E2B_ENV = {
    .name = "e2b-env",
    .usage = "[--owner NAME] [--expires TIME]",
    .summary = "Print what E2B's SDKs have to be told: eval \"$(bothy e2b-env)\"",
    .text =
        "The address is the one that --url or BOTHY_URL names, else the node's listen.tcp. The "
        "key is BOTHY_KEY, or a new one of the role user for 30 days, which only an "
        "administrator can make. SDKs before 2.7 know no E2B_SANDBOX_URL: the guide for E2B says what they need.",
    .opts = OPTS,
    .args_size = sizeof(e2b_args),
    .run = e2b_env,
};
