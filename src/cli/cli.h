/* The `bothy` program: its verbs, their context, and calls to the daemon.
 *
 * There is one file per verb. A verb is a row of data (name, usage, options, text) and a function;
 * main.c parses by the row, generate.c writes the manual page and the completion from it. The
 * program uses the native API and nothing else of the daemon. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/opt.h"
#include "net/client.h"

#define CLI_SOCKET "/run/bothy/bothyd.sock"
/* Exit statuses other than the command's own, as docker uses them. */
#define CLI_TIMED_OUT      124
#define CLI_FAILED         125
#define CLI_NOT_EXECUTABLE 126
#define CLI_NOT_FOUND      127
#define CLI_SIGNAL         128

/* The first member of every verb's arguments. */
typedef struct common_args {
    const char *socket;
    const char *url;
    bool json;
    bool help;
} common_args;

#define COMMON_OPTS(type)                                                                      \
    OPT(0, "socket", "PATH", OPT_TEXT, type, common.socket,                                    \
        "the daemon's socket (default $BOTHY_SOCKET, else " CLI_SOCKET ", else your own)"),    \
        OPT(0, "url", "URL", OPT_TEXT, type, common.url,                                       \
            "the daemon over TCP, http://HOST:PORT, with the key in $BOTHY_KEY ($BOTHY_URL)"), \
        OPT(0, "json", NULL, OPT_FLAG, type, common.json,                                      \
            "JSON instead of text, errors on stderr too"),                                     \
        OPT('h', "help", NULL, OPT_FLAG, type, common.help, "show this help"), OPT_END

typedef struct cli {
    common_args common; /* of this invocation */
    char *url;          /* the daemon's address, for messages */
    client *client;     /* made by cli_connect() */
    bool no_start;      /* do not start a daemon if none answers */
} cli;

typedef struct verb verb;
struct verb {
    const char *name;
    const char *alias;   /* or NULL */
    const char *usage;   /* follows "bothy NAME" */
    const char *summary; /* one line */
    const char *text;    /* for --help and the manual page; or NULL */
    const opt *opts;     /* NULL for a group */
    size_t args_size;
    bool stop_early;       /* options end at the first word */
    int words_min;         /* words besides options */
    int words_max;         /* -1: any number */
    const verb *const *of; /* a group's verbs, NULL-terminated */
    /* *status is 0 and may be set to the exit status of a command. */
    err *(*run)(cli *c, void *args, const opt_words *words, int *status);
};

extern const verb *const CLI_VERBS[]; /* NULL-terminated, in the order of help */

/* Finds the verb of argv, parses its options, runs it and prints errors. Returns the exit
 * status. */
int cli_main(int argc, char **argv);
/* Prints --help of one verb. path: how it is called, "bothy image pull". */
void verb_help(const verb *v, const char *path, buf *out);
void verb_help_all(buf *out);
const verb *verb_find(const verb *const *table, const char *name);

/* ---- the daemon ---- */
/* Connects to the daemon that the options or the environment name. The first call does it by
 * itself. */
err *cli_connect(cli *c) ERR_MUST;
/* Makes another client of the same daemon, for another thread. */
err *cli_client(const cli *c, client **ret_client) ERR_MUST;
/* Returns the address that the options or the environment name: "unix:/path" or "http://..."; NULL
 * if they name none. */
err *cli_address(const common_args *common, char **ret_url) ERR_MUST;
/* Returns true if they name one at all. */
bool cli_names_daemon(const common_args *common);
/* Adds a remedy if nothing answered: how to start a daemon, or how to get access to its socket. */
err *cli_explain(const cli *c, err *e) ERR_MUST;
/* Makes one JSON call. Takes ownership of body. body and ret_answer may be NULL. */
err *cli_call(cli *c, const char *method, json_t *body, json_t **ret_answer, const char *path_fmt,
              ...) __attribute__((format(printf, 5, 6))) ERR_MUST;
/* Sends a POST with an Idempotency-Key of its own, and retries it if the connection was lost. */
err *cli_post(cli *c, json_t *body, json_t **ret_answer, const char *path_fmt, ...)
    __attribute__((format(printf, 4, 5))) ERR_MUST;
/* Gets a whole paged list: the items of all pages in one array. */
err *cli_list(cli *c, const char *path, const char *member, json_t **ret_items) ERR_MUST;
/* Gets the full record of a sandbox given by id, name or unique prefix of its id. */
err *cli_sandbox(cli *c, const char *word, bool gone_too, json_t **ret_sandbox) ERR_MUST;
/* Calls `one` for each word. After a failure continues with the next word; prints all errors but
 * the last, which is returned. */
typedef err *cli_one(cli *c, const char *word, void *arg);
err *cli_each(cli *c, char *const *words, cli_one *one, void *arg) ERR_MUST;
/* Sends DELETE for each word below `where` ("/v1/keys"), and prints the word when it is done. */
err *cli_remove(cli *c, char *const *words, const char *where) ERR_MUST;

#define CLI_LIST_ALL                                                                      \
    "/v1/sandboxes?limit=1000&state=creating&state=running&state=paused&state=hibernated" \
    "&state=gone"

/* Return a variable of the environment, NULL if it is not set; cli_setting() also if it is
 * empty. */
const char *cli_env(const char *name);
const char *cli_setting(const char *name);

/* ---- errors of usage ---- */
err *usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2))) ERR_MUST;
