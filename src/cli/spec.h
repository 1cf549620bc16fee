/* Turns options into the API's JSON: the spec of a sandbox (run, create), and the environment of a
 * command (exec, shell, session). */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "cli/opt.h"

typedef struct spec_args {
    const char *name, *workdir, *user, *network, *pull, *template, *snapshot;
    char **env, **env_file, **secret, **tmpfs, **label;
    uint64_t memory, cpu_milli, pids, ttl_ms, idle_ms, disk, shm;
    char **ulimit;
    bool read_only, setuid;
} spec_args;

/* For a struct `type` whose member m is a spec_args. */
#define SPEC_OPTS(type, m)                                                                         \
    OPT(0, "name", "NAME", OPT_TEXT, type, m.name, "a name to call it by instead of its id"),      \
        OPT('e', "env", "NAME[=VALUE]", OPT_LIST, type, m.env,                                     \
            "set a variable; without a value take it from our environment"),                       \
        OPT(0, "env-file", "FILE", OPT_LIST, type, m.env_file, "read variables, one a line"),      \
        OPT(0, "secret", "NAME[=VALUE|=@FILE]", OPT_LIST, type, m.secret,                          \
            "like --env, but never stored, logged or shown; @FILE reads a file"),                  \
        OPT('w', "workdir", "DIR", OPT_TEXT, type, m.workdir, "where commands start"),             \
        OPT('u', "user", "USER[:GROUP]", OPT_TEXT, type, m.user, "who commands run as"),           \
        OPT('m', "memory", "SIZE", OPT_BYTES, type, m.memory,                                      \
            "memory with swap, such as 512m (default 1g)"),                                        \
        OPT(0, "cpus", "N", OPT_CORES, type, m.cpu_milli, "cores, such as 0.5 (default 1)"),       \
        OPT(0, "pids-limit", "N", OPT_COUNT, type, m.pids, "processes and threads (default 512)"), \
        OPT(0, "pids", "N", OPT_COUNT, type, m.pids, NULL),                                        \
        OPT(0, "ulimit", "nofile=N[:MOST]", OPT_LIST, type, m.ulimit,                              \
            "open files of a process, and what it may raise them to (default 1024:65536)"),        \
        OPT(0, "shm-size", "SIZE", OPT_BYTES, type, m.shm, "bytes of /dev/shm (default 64m)"),     \
        OPT(0, "disk", "SIZE", OPT_BYTES, type, m.disk,                                            \
            "bytes it may write, where the node can limit them"),                                  \
        OPT(0, "network", "none|open", OPT_CHOICE, type, m.network, "its network (default none)"), \
        OPT(0, "read-only", NULL, OPT_FLAG, type, m.read_only,                                     \
            "nothing of the image can be written"),                                                \
        OPT(0, "tmpfs", "PATH[:OPTIONS]", OPT_LIST, type, m.tmpfs,                                 \
            "a file system in memory: PATH:size=64m,exec,mode=1777"),                              \
        OPT(0, "setuid", NULL, OPT_FLAG, type, m.setuid,                                           \
            "let set-uid programs such as sudo work"),                                             \
        OPT(0, "label", "KEY[=VALUE]", OPT_LIST, type, m.label, "a label, found by 'ls --label'"), \
        OPT(0, "ttl", "TIME", OPT_DURATION, type, m.ttl_ms,                                        \
            "ends it after this time (default 1h)"),                                               \
        OPT(0, "idle", "TIME", OPT_DURATION, type, m.idle_ms,                                      \
            "ends it when nothing happens in it for so long (default never)"),                     \
        OPT(0, "pull", "missing|always|never", OPT_CHOICE, type, m.pull,                           \
            "whether the image is fetched first (default missing)")

/* Only where a sandbox is made: a template cannot be based on another. */
#define TEMPLATE_OPT(type, m)                                                 \
    OPT(0, "template", "NAME", OPT_TEXT, type, m.template,                    \
        "a template instead of IMAGE; other options go before what it says"), \
        SNAPSHOT_OPT(type, m)
#define SNAPSHOT_OPT(type, m) \
    OPT(0, "snapshot", "ID", OPT_TEXT, type, m.snapshot, "the files of a snapshot instead of IMAGE")

/* Makes the body of POST /v1/sandboxes. image NULL: the template's. */
err *spec_to_json(const spec_args *a, const char *image, json_t **ret_body) ERR_MUST;
/* *ret_n: how many words name the image: 0 with a template or snapshot, else 1. */
err *spec_image_words(const spec_args *a, const opt_words *words, const char *usage,
                      int *ret_n) ERR_MUST;

/* Adds "NAME=VALUE" to an object; for "NAME" the value is taken from our environment. */
err *spec_add_env(json_t *env, const char *word) ERR_MUST;
/* Adds the lines of a file: NAME=VALUE or NAME. Skips empty lines and lines that begin with #. */
err *spec_add_env_file(json_t *env, const char *path) ERR_MUST;
/* Like spec_add_env(), and also takes NAME=@FILE. */
err *spec_add_secret(json_t *secrets, const char *word) ERR_MUST;
/* Parses "PATH:size=64m,exec,mode=1777". */
err *spec_parse_tmpfs(const char *word, json_t **ret_mount) ERR_MUST;
/* Makes the environment: --env-file first, then --env, which overrides it. NULL if there is
 * none. */
err *spec_env_to_json(char *const *files, char *const *words, json_t **ret_env) ERR_MUST;

typedef struct surroundings {
    const char *workdir, *user;
    char **env, **env_file;
} surroundings;
/* For a struct `type` whose member m is a surroundings. */
#define SURROUNDINGS_OPTS(type, m)                                                            \
    OPT('e', "env", "NAME[=VALUE]", OPT_LIST, type, m.env,                                    \
        "set a variable; without a value take it from our environment"),                      \
        OPT(0, "env-file", "FILE", OPT_LIST, type, m.env_file, "read variables, one a line"), \
        OPT('u', "user", "USER[:GROUP]", OPT_TEXT, type, m.user, "who it runs as"),           \
        OPT('w', "workdir", "DIR", OPT_TEXT, type, m.workdir, "where it starts")
/* Sets env, user and cwd of a body. */
err *surroundings_set(const surroundings *s, json_t *body) ERR_MUST;
