#include "cli/spec.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/cli.h"

#define ENV_FILE_MAX (4U << 20)
#define SECRET_MAX   (128U << 10)
#define TMPFS_SIZE   (UINT64_C(64) << 20) /* docker's is half the memory; here it is explicit */

static err *set_text(json_t *o, const char *name, const char *value, const char *what)
{
    json_t *v = json_string(value);

    if (!v)
        return err_remedy(usage_error("the value of %s %s is not UTF-8", what, name),
                          "Encode it, or write it into a file of the sandbox.");
    json_object_set_new(o, name, v);
    return NULL;
}

err *spec_add_env(json_t *env, const char *word)
{
    const char *equals = strchr(word, '=');
    CLEANUP(freep) char *name = equals ? xstrndup(word, (size_t)(equals - word)) : xstrdup(word);

    if (!*name)
        return err_remedy(usage_error("'%s' names no variable", word), "Give NAME=VALUE.");
    const char *value = equals ? equals + 1 : cli_env(name);
    /* As in docker, a name that is not in our environment is not set. */
    return value ? set_text(env, name, value, "the variable") : NULL;
}

err *spec_add_env_file(json_t *env, const char *path)
{
    CLEANUP(buf_done) buf text = {0};
    unsigned number = 0;
    char *rest = NULL, *line;

    TRY(err_wrap(fs_read(AT_FDCWD, path, ENV_FILE_MAX, &text), "--env-file %s", path));
    if (text.len && memchr(text.p, 0, text.len))
        return err_remedy(usage_error("--env-file %s has a NUL byte", path), "Give a text file.");
    rest = text.len ? (char *)buf_cstr(&text) : NULL;
    while ((line = strsep(&rest, "\n"))) {
        size_t n = strlen(line);
        number++;
        if (n && line[n - 1] == '\r')
            line[n - 1] = 0;
        line += strspn(line, " \t");
        if (!*line || *line == '#')
            continue;
        TRY(err_wrap(spec_add_env(env, line), "%s, line %u", path, number));
    }
    return NULL;
}

static err *secret_from_file(json_t *secrets, const char *name, const char *path)
{
    CLEANUP(buf_done) buf text = {0};

    TRY(err_wrap(fs_read(AT_FDCWD, path, SECRET_MAX, &text), "--secret %s", name));
    err *e = text.len && memchr(text.p, 0, text.len)
                 ? err_remedy(usage_error("the secret %s has a NUL byte", name), "Encode it.")
                 : set_text(secrets, name, buf_cstr(&text), "the secret");
    secret_wipe(text.p, text.len);
    return e;
}

err *spec_add_secret(json_t *secrets, const char *word)
{
    const char *equals = strchr(word, '=');
    CLEANUP(freep) char *name = equals ? xstrndup(word, (size_t)(equals - word)) : xstrdup(word);

    if (!*name)
        return err_remedy(usage_error("--secret names no variable"),
                          "Give NAME, NAME=VALUE or NAME=@FILE.");
    if (equals && equals[1] == '@')
        return secret_from_file(secrets, name, equals + 2);
    const char *value = equals ? equals + 1 : cli_env(name);
    if (!value)
        return err_remedy(usage_error("there is no variable %s for --secret", name),
                          "Export it, or give %s=@FILE.", name);
    return set_text(secrets, name, value, "the secret");
}

static err *tmpfs_option(json_t *mount, const char *option)
{
    uint64_t size;

    if (str_starts(option, "size=") && str_to_bytes(option + 5, &size))
        json_object_set_new(mount, "size", json_integer((json_int_t)size));
    else if (str_starts(option, "mode=") && option[5] &&
             strspn(option + 5, "01234567") == strlen(option + 5))
        json_object_set_new(mount, "mode", json_string(option + 5));
    else if (str_eq(option, "exec") || str_eq(option, "noexec"))
        json_object_set_new(mount, "exec", json_boolean(str_eq(option, "exec")));
    else if (!str_eq(option, "rw") && !str_eq(option, "nosuid") && !str_eq(option, "nodev"))
        return err_remedy(usage_error("--tmpfs does not know '%s'", option),
                          "Give PATH:size=64m,exec,mode=1777, each of them optional.");
    return NULL;
}

err *spec_parse_tmpfs(const char *word, json_t **ret_mount)
{
    const char *colon = strchr(word, ':');
    CLEANUP(freep) char *path = colon ? xstrndup(word, (size_t)(colon - word)) : xstrdup(word);
    CLEANUP(freep) char *options = xstrdup(colon ? colon + 1 : "");
    char *rest = options, *option;

    if (*path != '/')
        return err_remedy(usage_error("--tmpfs needs an absolute path, not '%s'", path),
                          "Give PATH:size=64m,exec,mode=1777.");
    CLEANUP(json_decrefp)
    json_t *mount = json_pack("{s:s,s:I}", "path", path, "size", (json_int_t)TMPFS_SIZE);
    while ((option = strsep(&rest, ",")))
        if (*option)
            TRY(tmpfs_option(mount, option));
    *ret_mount = TAKE_PTR(mount);
    return NULL;
}

err *spec_env_to_json(char *const *files, char *const *words, json_t **ret_env)
{
    CLEANUP(json_decrefp) json_t *env = json_object();

    for (; files && *files; files++)
        TRY(spec_add_env_file(env, *files));
    for (; words && *words; words++)
        TRY(spec_add_env(env, *words));
    *ret_env = json_object_size(env) ? TAKE_PTR(env) : NULL;
    return NULL;
}

static void set_optional(json_t *o, const char *name, const char *value)
{
    if (value)
        json_object_set_new(o, name, json_string(value));
}

/* Parses "nofile=1024:4096", or "nofile=1024" for both limits. */
static err *add_ulimit(json_t *limits, const char *word)
{
    CLEANUP(freep) char *soft = NULL;
    uint64_t n, most;

    if (!str_starts(word, "nofile="))
        return err_remedy(usage_error("--ulimit %s: only nofile can be set", word),
                          "--pids-limit limits processes, --memory and --shm-size memory.");
    word += strlen("nofile=");
    size_t len = strcspn(word, ":");
    soft = xstrndup(word, len);
    const char *hard = word[len] ? word + len + 1 : soft;
    if (!str_to_u64(soft, UINT32_MAX, &n) || !str_to_u64(hard, UINT32_MAX, &most))
        return err_remedy(usage_error("--ulimit: nofile=%s is no number", word),
                          "Write --ulimit nofile=1024 or nofile=1024:65536.");
    json_object_set_new(limits, "nofile", json_integer((json_int_t)n));
    json_object_set_new(limits, "nofile_hard", json_integer((json_int_t)most));
    return NULL;
}

static err *limits_to_json(const spec_args *a, json_t **ret_limits)
{
    CLEANUP(json_decrefp) json_t *limits = json_object();

    if (a->memory)
        json_object_set_new(limits, "memory", json_integer((json_int_t)a->memory));
    if (a->cpu_milli)
        json_object_set_new(limits, "cpu", json_real((double)a->cpu_milli / 1000));
    if (a->pids)
        json_object_set_new(limits, "pids", json_integer((json_int_t)a->pids));
    if (a->disk)
        json_object_set_new(limits, "disk", json_integer((json_int_t)a->disk));
    if (a->shm)
        json_object_set_new(limits, "shm", json_integer((json_int_t)a->shm));
    for (char *const *word = a->ulimit; word && *word; word++)
        TRY(add_ulimit(limits, *word));
    *ret_limits = TAKE_PTR(limits);
    return NULL;
}

/* Sets a member unless it is empty. Takes ownership of it. */
static void set_filled(json_t *o, const char *name, json_t *owned)
{
    bool filled = json_is_array(owned) ? json_array_size(owned) : json_object_size(owned);

    if (filled)
        json_object_set_new(o, name, owned);
    else
        json_decref(owned);
}

static json_t *labels_to_json(char *const *words)
{
    json_t *labels = json_object();

    for (; words && *words; words++) {
        size_t n = strcspn(*words, "=");
        CLEANUP(freep) char *key = xstrndup(*words, n);
        json_object_set_new(labels, key, json_string((*words)[n] ? *words + n + 1 : ""));
    }
    return labels;
}

static err *add_lists(const spec_args *a, json_t *body)
{
    CLEANUP(json_decrefp) json_t *env = NULL;
    CLEANUP(json_decrefp) json_t *secrets = json_object();
    CLEANUP(json_decrefp) json_t *mounts = json_array();

    TRY(spec_env_to_json(a->env_file, a->env, &env));
    for (char **s = a->secret; s && *s; s++)
        TRY(spec_add_secret(secrets, *s));
    for (char **t = a->tmpfs; t && *t; t++) {
        json_t *mount = NULL;
        TRY(spec_parse_tmpfs(*t, &mount));
        json_array_append_new(mounts, mount);
    }
    set_filled(body, "env", TAKE_PTR(env));
    set_filled(body, "secrets", TAKE_PTR(secrets));
    set_filled(body, "tmpfs", TAKE_PTR(mounts));
    return NULL;
}

err *spec_to_json(const spec_args *a, const char *image, json_t **ret_body)
{
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:s*}", "image", image);
    json_t *limits = NULL;

    if (!body)
        return err_remedy(usage_error("the image's name is not UTF-8"), "Check it.");
    set_optional(body, "template", a->template);
    set_optional(body, "snapshot", a->snapshot);
    set_optional(body, "name", a->name);
    set_optional(body, "cwd", a->workdir);
    set_optional(body, "user", a->user);
    set_optional(body, "network", a->network);
    set_optional(body, "pull", a->pull);
    TRY(limits_to_json(a, &limits));
    set_filled(body, "limits", limits);
    set_filled(body, "labels", labels_to_json(a->label));
    TRY(add_lists(a, body));
    if (a->idle_ms)
        json_object_set_new(body, "idle", json_integer((json_int_t)((a->idle_ms + 999) / 1000)));
    if (a->ttl_ms)
        json_object_set_new(body, "ttl", json_integer((json_int_t)((a->ttl_ms + 999) / 1000)));
    if (a->read_only)
        json_object_set_new(body, "read_only", json_true());
    if (a->setuid)
        json_object_set_new(body, "grants", json_pack("[s]", "setuid"));
    *ret_body = TAKE_PTR(body);
    return NULL;
}

err *spec_image_words(const spec_args *a, const opt_words *words, const char *usage, int *ret_n)
{
    bool other = a->template || a->snapshot;

    if (!other && !words->n)
        return err_remedy(usage_error("there is neither an IMAGE nor a --template"), "usage: %s",
                          usage);
    *ret_n = !other;
    return NULL;
}

err *surroundings_set(const surroundings *s, json_t *body)
{
    json_t *env = NULL;

    TRY(spec_env_to_json(s->env_file, s->env, &env));
    if (env)
        json_object_set_new(body, "env", env);
    set_optional(body, "cwd", s->workdir);
    set_optional(body, "user", s->user);
    return NULL;
}
