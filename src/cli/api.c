/* Finds the daemon's address and calls its API. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/sock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/follow.h"
#include "cli/out.h"
#include "cli/user.h"

#define PAUSE_MAX_MS 2000

const char *cli_env(const char *name)
{
    return getenv(name); /* NOLINT(concurrency-mt-unsafe): this program never changes it */
}

const char *cli_setting(const char *name)
{
    const char *v = cli_env(name);

    return v && *v ? v : NULL;
}

err *cli_address(const common_args *common, char **ret_url)
{
    const char *url = common->url, *socket = common->socket;

    if (url && socket)
        return err_remedy(usage_error("--socket and --url contradict each other"),
                          "Give one of them.");
    if (!url && !socket) {
        url = cli_setting("BOTHY_URL");
        socket = url ? NULL : cli_setting("BOTHY_SOCKET");
    }
    if (url && !str_starts(url, "http://") && !str_starts(url, "https://"))
        return err_remedy(usage_error("'%s' is not an address of a daemon", url),
                          "Give http://HOST:PORT, or --socket PATH for a socket.");
    if (url || socket)
        *ret_url = url ? xstrdup(url) : str_printf("unix:%s", socket);
    return NULL;
}

bool cli_names_daemon(const common_args *common)
{
    return common->socket || common->url || cli_setting("BOTHY_URL") || cli_setting("BOTHY_SOCKET");
}

err *cli_client(const cli *c, client **ret_client)
{
    bool tcp = !str_starts(c->url, "unix:");

    return client_new(c->url, tcp ? cli_setting("BOTHY_KEY") : NULL, ret_client);
}

/* Finds a daemon if none is named, and starts the user's own if this machine is not a node. */
static err *find_daemon(cli *c)
{
    c->url = user_address();
    CLEANUP(closep) int fd = -1;
    CLEANUP(err_freep)
    err *absent = sock_connect_path(c->url + strlen("unix:"), SOCK_STREAM | SOCK_NONBLOCK, &fd);
    if (!absent || absent->errnum == EAGAIN || c->no_start || !user_has_no_node())
        return NULL;
    free(TAKE_PTR(c->url));
    return user_start(!c->common.json && isatty(STDERR_FILENO), &c->url);
}

err *cli_connect(cli *c)
{
    if (c->client)
        return NULL;
    free(TAKE_PTR(c->url));
    TRY(cli_address(&c->common, &c->url));
    if (!c->url)
        TRY(find_daemon(c));
    return cli_client(c, &c->client);
}

err *cli_explain(const cli *c, err *e)
{
    if (!e || e->code != ERR_UNAVAILABLE || e->remedy)
        return e;
    if (e->errnum == EACCES)
        return err_remedy(e, "The socket is there, but your user may not use it: join its group "
                             "(usermod -aG bothy-users USER, then log in again), or use a key over "
                             "TCP with --url.");
    if (geteuid() == 0 && !cli_names_daemon(&c->common) && !user_machine_is_node())
        return err_remedy(e, "Start the daemon, name its socket with --socket or $BOTHY_SOCKET, or "
                             "see what 'bothy doctor' says. As root 'bothy' starts none on Docker "
                             "or Podman by itself: run it as a user who may use the engine.");
    return err_remedy(e, "Start the daemon, name its socket with --socket or $BOTHY_SOCKET, or see "
                         "what 'bothy doctor' says.");
}

static err *do_json(cli *c, const char *method, const char *path, const json_t *body,
                    const char *key, json_t **ret_answer)
{
    client_call call = {.method = method, .path = path, .json = body, .idempotency_key = key};

    if (ret_answer)
        return client_json(c->client, &call, ret_answer);
    CLEANUP(client_answer_done) client_answer answer = {0};
    return client_do(c->client, &call, &answer);
}

err *cli_call(cli *c, const char *method, json_t *body, json_t **ret_answer, const char *path_fmt,
              ...)
{
    CLEANUP(json_decrefp) json_t *owned = body;
    va_list ap;

    TRY(cli_connect(c));
    va_start(ap, path_fmt);
    CLEANUP(freep) char *path = str_vprintf(path_fmt, ap);
    va_end(ap);
    return cli_explain(c, do_json(c, method, path, owned, NULL, ret_answer));
}

/* Returns true if the answer was lost, so that the request may be repeated with the same key. A
 * daemon that does not exist is reported at once, unless an earlier try was lost: it may have done
 * its work. */
static bool was_lost(const err *e, bool before)
{
    bool absent = e->errnum == ENOENT || e->errnum == ECONNREFUSED || e->errnum == EACCES;

    return e->code == ERR_UNAVAILABLE && (before || !absent) && !e->remedy;
}

err *cli_post(cli *c, json_t *body, json_t **ret_answer, const char *path_fmt, ...)
{
    CLEANUP(json_decrefp) json_t *owned = body;
    char key[33];
    va_list ap;

    TRY(cli_connect(c));
    va_start(ap, path_fmt);
    CLEANUP(freep) char *path = str_vprintf(path_fmt, ap);
    va_end(ap);
    id_random(key, sizeof key - 1);
    bool told = c->common.json;
    uint64_t until = 0; /* set when the first try was lost */
    for (unsigned attempt = 1;; attempt++) {
        err *e = do_json(c, "POST", path, owned, key, ret_answer);
        if (!e || !was_lost(e, until))
            return cli_explain(c, e);
        if (!until)
            until = now_mono_ns() + follow_patience_ns();
        if (now_mono_ns() >= until)
            return cli_explain(c, e);
        err_free(e);
        follow_tell_waiting(until - follow_patience_ns(), until, &told);
        follow_pause_ms(attempt < 5 ? 100U << attempt : PAUSE_MAX_MS);
    }
}

err *cli_list(cli *c, const char *path, const char *member, json_t **ret_items)
{
    CLEANUP(json_decrefp) json_t *all = json_array();
    CLEANUP(freep) char *cursor = NULL;

    for (;;) {
        CLEANUP(json_decrefp) json_t *page = NULL;
        const char *sep = strchr(path, '?') ? "&" : "?";
        TRY(cli_call(c, "GET", NULL, &page, "%s%s%s%s", path, cursor ? sep : "",
                     cursor ? "cursor=" : "", cursor ? cursor : ""));
        json_array_extend(all, json_object_get(page, member));
        const char *next = json_str(page, "next");
        if (!next)
            break;
        free(cursor);
        cursor = client_escape(next);
    }
    *ret_items = TAKE_PTR(all);
    return NULL;
}

static bool maybe_prefix(const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789");

    return n >= 4 && n < SANDBOX_ID_LEN && !word[n];
}

/* Finds the one sandbox whose id has this prefix. */
static err *by_prefix(cli *c, const char *word, bool gone_too, json_t **ret_sandbox)
{
    CLEANUP(json_decrefp) json_t *items = NULL;
    json_t *found = NULL, *item;
    size_t i, hits = 0;

    TRY(cli_list(c, gone_too ? CLI_LIST_ALL : "/v1/sandboxes?limit=1000", "sandboxes", &items));
    json_array_foreach(items, i, item)
    {
        if (!str_starts(str_or(json_str(item, "id"), ""), word))
            continue;
        found = item;
        hits++;
    }
    if (hits > 1)
        return err_remedy(
            err_new(ERR_CONFLICT, "%zu sandboxes have ids beginning with '%s'", hits, word),
            "Give more of the id; 'bothy ls' shows it.");
    if (hits)
        *ret_sandbox = json_incref(found);
    return NULL;
}

err *cli_sandbox(cli *c, const char *word, bool gone_too, json_t **ret_sandbox)
{
    CLEANUP(freep) char *escaped = client_escape(word);
    json_t *found = NULL;
    CLEANUP(err_freep) err *e = cli_call(c, "GET", NULL, &found, "/v1/sandboxes/%s", escaped);

    if (e && e->code == ERR_NOT_FOUND) {
        if (maybe_prefix(word))
            TRY(by_prefix(c, word, gone_too, &found));
        e = err_remedy(e, "'bothy ls -a' lists the sandboxes that are yours.");
    }
    if (e && !found)
        return TAKE_PTR(e);
    *ret_sandbox = found;
    return NULL;
}

/* ---- verbs of many words ---- */

err *cli_each(cli *c, char *const *words, cli_one *one, void *arg)
{
    err *last = NULL;

    for (; *words; words++) {
        err *e = one(c, *words, arg);
        if (!e)
            continue;
        if (last)
            out_error(stderr, last, c->common.json, out_colours(stderr));
        err_free(last);
        last = e;
    }
    return last;
}

static err *remove_one(cli *c, const char *word, void *where)
{
    CLEANUP(freep) char *name = client_escape(word);

    TRY(cli_call(c, "DELETE", NULL, NULL, "%s/%s", (const char *)where, name));
    if (!c->common.json)
        out_line(stdout, word);
    return NULL;
}

err *cli_remove(cli *c, char *const *words, const char *where)
{
    return cli_each(c, words, remove_one, (void *)where);
}
