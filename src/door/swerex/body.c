#include "door/swerex/body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/str.h"
#include "door/swerex/text.h"

/* ---- members ---- */

static err *body_wrong(const char *name, const char *wanted)
{
    return err_new(ERR_INVALID_REQUEST, "body.%s: %s", name, wanted);
}

static err *body_parse(const void *p, size_t n, json_t **ret)
{
    CLEANUP(json_decrefp) json_t *body = NULL;

    TRY(json_parse_nul(p, n, &body));
    if (!json_is_object(body))
        return err_new(ERR_INVALID_REQUEST, "body: must be an object");
    *ret = TAKE_PTR(body);
    return NULL;
}

/* Reads a string without NUL. If it is absent it is `otherwise`, or an error if that is NULL. */
static err *body_text(const json_t *body, const char *name, const char *otherwise, char **ret)
{
    const json_t *v = json_object_get(body, name);

    if (!v && otherwise) {
        *ret = xstrdup(otherwise);
        return NULL;
    }
    if (!json_is_string(v))
        return body_wrong(name, v ? "must be a string" : "is missing");
    if (strlen(json_string_value(v)) != json_string_length(v))
        return body_wrong(name, "must not have a NUL");
    *ret = xstrdup(json_string_value(v));
    return NULL;
}

static err *text_or_null(const json_t *body, const char *name, char **ret)
{
    const json_t *v = json_object_get(body, name);

    return !v || json_is_null(v) ? NULL : body_text(body, name, NULL, ret);
}

static err *body_flag(const json_t *body, const char *name, bool *ret)
{
    const json_t *v = json_object_get(body, name);

    if (v && !json_is_boolean(v))
        return body_wrong(name, "must be true or false");
    *ret = json_is_true(v);
    return NULL;
}

/* Reads a number of seconds, limited to REX_SECONDS_MAX. null gives -1: no time limit. */
static err *body_seconds(const json_t *body, const char *name, double otherwise, double *ret)
{
    const json_t *v = json_object_get(body, name);

    *ret = v ? -1 : otherwise;
    if (!v || json_is_null(v))
        return NULL;
    double s = json_number_value(v);
    if (!json_is_number(v) || !isfinite(s))
        return body_wrong(name, "must be a number of seconds");
    *ret = s < 0 ? 0 : s > REX_SECONDS_MAX ? REX_SECONDS_MAX : s;
    return NULL;
}

static err *body_texts(const json_t *body, const char *name, char ***ret)
{
    const json_t *v = json_object_get(body, name);
    size_t i;
    json_t *one;

    if (v && !json_is_array(v))
        return body_wrong(name, "must be a list of strings");
    json_array_foreach((json_t *)v, i, one)
    {
        if (!json_is_string(one) || strlen(json_string_value(one)) != json_string_length(one))
            return body_wrong(name, "must be a list of strings without NUL");
        strv_push(ret, xstrdup(json_string_value(one)));
    }
    return NULL;
}

/* ---- run_in_session ---- */

void rex_action_done(rex_action *a)
{
    if (a->command)
        secret_wipe(a->command, a->n);
    free(a->command);
    free(a->session);
    free(a->error_msg);
    strv_free(a->expect);
    *a = (rex_action){0};
}

static err *take_check(const json_t *body, enum rex_check *ret)
{
    static const char *const NAMES[] = {
        [REX_CHECK_RAISE] = "raise", [REX_CHECK_SILENT] = "silent", [REX_CHECK_IGNORE] = "ignore"};
    const char *named = json_str(body, "check");

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (str_eq(str_or(named, "raise"), NAMES[i])) {
            *ret = (enum rex_check)i;
            return NULL;
        }
    return body_wrong("check", "must be silent, raise or ignore");
}

static err *take_interrupt(const json_t *body, rex_action *a)
{
    int64_t retries = json_int(body, "n_retry", 3);

    a->interrupt = true;
    a->retries = retries < 1 ? 1 : retries > REX_RETRIES_MAX ? REX_RETRIES_MAX : (int)retries;
    return body_seconds(body, "timeout", 0.2, &a->timeout);
}

static err *take_bash(const json_t *body, rex_action *a)
{
    TRY(body_text(body, "command", NULL, &a->command));
    a->n = strlen(a->command);
    TRY(body_seconds(body, "timeout", -1, &a->timeout));
    TRY(body_flag(body, "is_interactive_command", &a->interactive));
    TRY(body_flag(body, "is_interactive_quit", &a->quit));
    TRY(take_check(body, &a->check));
    return body_text(body, "error_msg", "", &a->error_msg);
}

err *rex_action_decode(const void *p, size_t n, rex_action *ret_action)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(rex_action_done) rex_action a = {0};

    TRY(body_parse(p, n, &body));
    const char *type = json_str(body, "action_type");
    TRY(body_text(body, "session", "default", &a.session));
    TRY(body_texts(body, "expect", &a.expect));
    if (str_eq(type, "bash_interrupt"))
        TRY(take_interrupt(body, &a));
    else if (str_eq(type, "bash"))
        TRY(take_bash(body, &a));
    else
        return body_wrong("action_type", "must be bash or bash_interrupt");
    *ret_action = a;
    a = (rex_action){0};
    return NULL;
}

/* ---- sessions ---- */

void rex_opening_done(rex_opening *o)
{
    free(o->session);
    strv_free(o->sources);
    *o = (rex_opening){0};
}

static err *take_session(const json_t *body, char **ret)
{
    const json_t *type = json_object_get(body, "session_type");

    if (type && !str_eq(json_string_value(type), "bash"))
        return body_wrong("session_type", "must be bash");
    return body_text(body, "session", "default", ret);
}

static err *take_opening(const json_t *body, rex_opening *o)
{
    TRY(take_session(body, &o->session));
    TRY(body_texts(body, "startup_source", &o->sources));
    return body_seconds(body, "startup_timeout", 1.0, &o->timeout);
}

err *rex_opening_decode(const void *p, size_t n, rex_opening *ret_opening)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    rex_opening o = {0};

    TRY(body_parse(p, n, &body));
    err *e = take_opening(body, &o);
    if (e)
        rex_opening_done(&o);
    else
        *ret_opening = o;
    return e;
}

err *rex_session_decode(const void *p, size_t n, char **ret_session)
{
    CLEANUP(json_decrefp) json_t *body = NULL;

    TRY(body_parse(p, n, &body));
    return take_session(body, ret_session);
}

/* ---- execute ---- */

void rex_command_done(rex_command *c)
{
    strv_free(c->argv);
    strv_free(c->env);
    free(c->shown);
    free(c->error_msg);
    free(c->cwd);
    *c = (rex_command){0};
}

static void body_show(const json_t *command, char *const *words, buf *out)
{
    if (json_is_string(command)) {
        rex_repr(out, words[0], strlen(words[0]));
        return;
    }
    buf_char(out, '[');
    for (size_t i = 0; words && words[i]; i++) {
        buf_str(out, i ? ", " : "");
        rex_repr(out, words[i], strlen(words[i]));
    }
    buf_char(out, ']');
}

/* Builds the argv as subprocess.run() does: with shell and a list, the first word is the script and
 * the rest its arguments. */
static err *take_command(const json_t *body, rex_command *c)
{
    const json_t *command = json_object_get(body, "command");
    CLEANUP(strv_freep) char **words = NULL;
    CLEANUP(buf_done) buf shown = {0};
    bool shell = false;

    if (json_is_string(command)) {
        char *one = NULL;
        TRY(body_text(body, "command", NULL, &one));
        strv_push(&words, one);
    } else if (json_is_array(command)) {
        TRY(body_texts(body, "command", &words));
    } else {
        return body_wrong("command",
                          command ? "must be a string or a list of strings" : "is missing");
    }
    TRY(body_flag(body, "shell", &shell));
    body_show(command, words, &shown);
    c->shown = buf_take(&shown);
    if (shell) {
        strv_push(&c->argv, xstrdup("/bin/sh"));
        strv_push(&c->argv, xstrdup("-c"));
    }
    for (size_t i = 0; words && words[i]; i++)
        strv_push(&c->argv, xstrdup(words[i]));
    return c->argv ? NULL : body_wrong("command", "is empty");
}

static err *take_env(const json_t *env, char ***ret)
{
    const char *name;
    json_t *value;

    if (env && !json_is_null(env) && !json_is_object(env))
        return body_wrong("env", "must be an object of strings");
    json_object_foreach((json_t *)env, name, value)
    {
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return body_wrong("env", "must be an object of strings without NUL");
        strv_push(ret, str_printf("%s=%s", name, json_string_value(value)));
    }
    return NULL;
}

err *rex_command_decode(const void *p, size_t n, rex_command *ret_command)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(rex_command_done) rex_command c = {0};

    TRY(body_parse(p, n, &body));
    TRY(take_command(body, &c));
    TRY(take_env(json_object_get(body, "env"), &c.env));
    TRY(body_seconds(body, "timeout", -1, &c.timeout));
    TRY(body_flag(body, "check", &c.check));
    TRY(body_flag(body, "merge_output_streams", &c.merge));
    TRY(body_text(body, "error_msg", "", &c.error_msg));
    TRY(text_or_null(body, "cwd", &c.cwd));
    *ret_command = c;
    c = (rex_command){0};
    return NULL;
}

/* ---- files ---- */

void rex_file_done(rex_file *f)
{
    free(f->path);
    free(f->encoding);
    free(f->errors);
    free(f->content);
    *f = (rex_file){0};
}

static err *take_file(const json_t *body, bool is_write, rex_file *f)
{
    const json_t *content = json_object_get(body, "content");

    TRY(body_text(body, "path", NULL, &f->path));
    TRY(text_or_null(body, "encoding", &f->encoding));
    TRY(text_or_null(body, "errors", &f->errors));
    if (!is_write)
        return NULL;
    if (!json_is_string(content))
        return body_wrong("content", content ? "must be a string" : "is missing");
    f->n = json_string_length(content);
    f->content = xmalloc(f->n + 1);
    memcpy(f->content, json_string_value(content), f->n + 1);
    return NULL;
}

err *rex_file_decode(const void *p, size_t n, bool is_write, rex_file *ret_file)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    rex_file f = {0};

    TRY(body_parse(p, n, &body));
    err *e = take_file(body, is_write, &f);
    if (e)
        rex_file_done(&f);
    else
        *ret_file = f;
    return e;
}
