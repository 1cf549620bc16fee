/* How skopeo is called, and how its messages become errors. */
#include "image/skopeo.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

char **skopeo_env(const skopeo_where *w)
{
    char **env = NULL;

    strv_push(&env, xstrdup("PATH=/usr/local/bin:/usr/bin:/bin"));
    strv_push(&env, xstrdup("LANG=C.UTF-8"));
    /* skopeo searches for certificates of hosts below HOME; no other directory must be used. */
    strv_push(&env,
              w->conf ? str_printf("HOME=%s/home", w->conf) : str_printf("HOME=%s", w->scratch));
    strv_push(&env, str_printf("TMPDIR=%s", w->scratch));
    strv_push(&env, str_printf("XDG_RUNTIME_DIR=%s", w->scratch));
    strv_push(&env, str_printf("XDG_DATA_HOME=%s", w->scratch)); /* an empty cache */
    return env;
}

char **skopeo_argv(const skopeo_where *w)
{
    char **argv = NULL;

    strv_push(&argv, xstrdup(w->program));
    strv_push(&argv, xstrdup("--insecure-policy")); /* signatures are not required */
    if (w->conf) {
        strv_push(&argv, xstrdup("--registries-conf"));
        strv_push(&argv, str_printf("%s/registries.conf", w->conf));
    }
    return argv;
}

err *skopeo_start(const skopeo_where *w, const spawn_spec *spec, pid_t *ret_pid)
{
    return w->start ? w->start(spec, w->scratch, w->local, ret_pid) : spawn_start(spec, ret_pid);
}

/* ---- reasons ---- */

/* Reasons, by a part of the text; the first match counts. again: the transport failed, not the
 * image. */
static const struct reason {
    const char *part;
    err_code code;
    bool again;
    const char *message; /* %s is the image or host */
    const char *remedy;  /* NULL: the code's */
} REASONS[] = {
    {"corrupted blob", ERR_IMAGE_PULL_FAILED, false,
     "a layer of '%.200s' does not have the digest that the image says",
     "The registry's copy is damaged: push the image again, or use another registry."},
    {"bytes in blob, got", ERR_IMAGE_PULL_FAILED, false,
     "a layer of '%.200s' is shorter or longer than the image says",
     "The registry's copy is damaged: push the image again, or use another registry."},
    {"write |1: broken pipe", ERR_IMAGE_PULL_FAILED, false, /* we close it after the last byte */
     "a layer of '%.200s' is longer than the image says",
     "The registry's copy is damaged: push the image again, or use another registry."},
    {"does not match provided manifest digest", ERR_IMAGE_PULL_FAILED, false,
     "the manifest of '%.200s' does not have the digest that was asked for",
     "The registry's copy is damaged: push the image again, or use another registry."},
    {"manifest unknown", ERR_NOT_FOUND, false, "the registry has no image '%.200s'",
     "Check the name and the tag or digest."},
    {"name unknown", ERR_NOT_FOUND, false, "the registry has no image '%.200s'",
     "Check the name and the tag or digest."},
    {"blob unknown", ERR_IMAGE_PULL_FAILED, false, "the registry lacks a layer of '%.200s'",
     "The registry's copy is damaged: push the image again, or use another registry."},
    {"fetching blob: invalid status code from registry 404", ERR_IMAGE_PULL_FAILED, false,
     "the registry lacks a layer of '%.200s'",
     "The registry's copy is damaged: push the image again, or use another registry."},
    {"invalid status code from registry 40", ERR_UNAUTHENTICATED, false,
     "the registry does not give '%.200s' to this login",
     "Log in with 'bothy login HOST', with an account that may read it."},
    {"invalid status code from registry 5", ERR_IMAGE_PULL_FAILED, true,
     "the registry of '%.200s' has a fault", NULL},
    {"StatusCode: 404", ERR_NOT_FOUND, false, "the registry has no image '%.200s'",
     "Check the name and the tag or digest."},
    {"unauthorized", ERR_UNAUTHENTICATED, false, "the registry wants a login for '%.200s'",
     "Log in with 'bothy login HOST', with an account that may read it."},
    {"authentication required", ERR_UNAUTHENTICATED, false,
     "the registry wants a login for '%.200s'",
     "Log in with 'bothy login HOST', with an account that may read it."},
    {"invalid username/password", ERR_UNAUTHENTICATED, false,
     "the registry does not take the login for '%.200s'",
     "Log in again with 'bothy login HOST'; check the name and the password."},
    {"access to the resource is denied", ERR_UNAUTHENTICATED, false,
     "the registry does not give '%.200s' to this login",
     "Check the name; log in with 'bothy login HOST', with an account that may read it."},
    {"permission denied", ERR_IMAGE_PULL_FAILED, false, "image '%.200s' cannot be read",
     "Let bothyd's user read it, in a directory that 'images.local' in bothy.yaml names."},
    {"denied", ERR_UNAUTHENTICATED, false, "the registry does not give '%.200s' to this login",
     "Log in with 'bothy login HOST', with an account that may read it."},
    {"toomanyrequests", ERR_IMAGE_PULL_FAILED, false,
     "the registry gives '%.200s' to nobody right now: too many requests",
     "Wait, or log in with 'bothy login HOST'; a mirror in 'registries' helps, too."},
    {"x509: ", ERR_IMAGE_PULL_FAILED, false,
     "the registry of '%.200s' cannot prove that it is the one",
     "An administrator names its authority as 'ca' below 'registries' in bothy.yaml."},
    {"server gave HTTP response to HTTPS client", ERR_IMAGE_PULL_FAILED, false,
     "the registry of '%.200s' does not speak TLS",
     "If that is meant, an administrator sets 'insecure: true' for it below 'registries' in "
     "bothy.yaml."},
    {"no such host", ERR_IMAGE_PULL_FAILED, false, "the registry of '%.200s' was not found",
     "Check the host in the image's name, and the node's name service."},
    {"no image found in", ERR_IMAGE_UNSUPPORTED, false, "image '%.200s' is not for this machine",
     NULL},
    {"unsupported", ERR_IMAGE_UNSUPPORTED, false, "image '%.200s' cannot be used", NULL},
    {"no space left on device", ERR_DISK_FULL, false, "no room to fetch '%.200s'", NULL},
    {"connection refused", ERR_IMAGE_PULL_FAILED, true,
     "the registry of '%.200s' cannot be reached", "Check that the registry runs."},
    {"connection reset", ERR_IMAGE_PULL_FAILED, true,
     "the connection to the registry of '%.200s' broke", "Pull again; what has come stays."},
    {"unexpected EOF", ERR_IMAGE_PULL_FAILED, true,
     "the connection to the registry of '%.200s' broke", "Pull again; what has come stays."},
    {"EOF", ERR_IMAGE_PULL_FAILED, true, "the connection to the registry of '%.200s' broke",
     "Pull again; what has come stays."},
    {"timeout", ERR_IMAGE_PULL_FAILED, true, "the registry of '%.200s' does not answer",
     "Check that the registry can be reached from the node."},
    {"StatusCode: 5", ERR_IMAGE_PULL_FAILED, true, "the registry of '%.200s' has a fault", NULL},
    {"", ERR_IMAGE_PULL_FAILED, false, "image '%.200s' cannot be fetched", NULL},
};

/* Adds the remedy, with the image's host for HOST. */
static err *with_remedy(err *e, const char *remedy, const char *what)
{
    const char *at = strstr(remedy, "HOST");

    if (!at)
        return err_remedy(e, "%s", remedy);
    return err_remedy(e, "%.*s%.*s%s", (int)(at - remedy), remedy, (int)strcspn(what, "/"), what,
                      at + strlen("HOST"));
}

err *skopeo_reason(const char *what, const char *text)
{
    const struct reason *r = REASONS;

    while (!strcasestr(text, r->part))
        r++;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    err *e = err_new(r->code, r->message, what);
#pragma GCC diagnostic pop
    e->errnum = r->again ? FETCH_AGAIN : 0;
    if (r->code == ERR_NOT_FOUND)
        e = err_kind(e, "image");
    if (r->remedy)
        e = with_remedy(e, r->remedy, what);
    return *text ? err_because(e, "%.400s", text) : e;
}

/* Returns the message of skopeo's fatal log line, 'time="..." level=fatal msg="..."'; if there is
 * none, the last line of the log. */
char *skopeo_log_text(buf *log)
{
    const char *text = buf_cstr(log), *last = strstr(text, "level=fatal");
    const char *msg = last ? strstr(last, "msg=\"") : NULL;
    buf out = {0};

    if (!msg) {
        while (log->len && log->p[log->len - 1] == '\n')
            log->len--;
        text = buf_cstr(log);
        const char *line = strrchr(text, '\n');
        return xstrdup(line ? line + 1 : text);
    }
    for (msg += strlen("msg=\""); *msg && *msg != '"' && *msg != '\n'; msg++) {
        if (*msg == '\\' && msg[1] && msg[1] != '\n')
            msg++;
        buf_char(&out, *msg);
    }
    return buf_take(&out);
}
