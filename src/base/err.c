#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

static const err_info TABLE[ERR_CODES] = {
#define ERR_ROW(id, name, http, connect, cli, retryable, remedy) \
    [ERR_##id] = {name, http, connect, cli, retryable, remedy},
#include "base/err_table.h"
#undef ERR_ROW
};

const err_info *err_info_of(err_code code)
{
    return &TABLE[code < ERR_CODES ? code : ERR_INTERNAL];
}

err_code err_code_by_name(const char *name)
{
    for (err_code c = 0; c < ERR_CODES; c++)
        if (!strcmp(TABLE[c].name, name))
            return c;
    return ERR_CODES;
}

static err *err_make(err_code code, const char *fmt, va_list ap)
{
    err *e = xcalloc(1, sizeof *e);

    e->code = code;
    e->retryable = err_info_of(code)->retryable;
    e->message = str_vprintf(fmt, ap);
    return e;
}

err *err_new(err_code code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    err *e = err_make(code, fmt, ap);
    va_end(ap);
    return e;
}

/* Returns true for a lack of file descriptors: retryable, because descriptors are freed as soon as
 * other requests end. */
static bool is_out_of_files(err_code code, int errnum)
{
    return code == ERR_INTERNAL && (errnum == EMFILE || errnum == ENFILE);
}

err *err_sys(err_code code, int errnum, const char *fmt, ...)
{
    bool out_of_files = is_out_of_files(code, errnum);
    va_list ap;

    if (out_of_files)
        code = ERR_UNAVAILABLE;
    va_start(ap, fmt);
    err *e = err_make(code, fmt, ap);
    va_end(ap);
    e->errnum = errnum;
    const char *text = strerrordesc_np(errnum);
    const char *name = strerrorname_np(errnum);
    e->cause = str_printf("%s (%s)", text ? text : "unknown error", name ? name : "?");
    if (!out_of_files)
        return e;
    return err_retry_after(err_remedy(e, "Try again; if it stays, raise the limit of open files "
                                         "(LimitNOFILE of the systemd unit)."),
                           1);
}

err *err_wrap(err *e, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return NULL;
    va_start(ap, fmt);
    CLEANUP(freep) char *head = str_vprintf(fmt, ap);
    va_end(ap);
    char *whole = str_printf("%s: %s", head, e->message);
    free(e->message);
    e->message = whole;
    return e;
}

static err *err_set(err *e, char **field, const char *fmt, va_list ap)
{
    char *text = str_vprintf(fmt, ap);

    free(*field);
    *field = text;
    return e;
}

err *err_because(err *e, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return NULL;
    va_start(ap, fmt);
    err_set(e, &e->cause, fmt, ap);
    va_end(ap);
    return e;
}

err *err_remedy(err *e, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return NULL;
    va_start(ap, fmt);
    err_set(e, &e->remedy, fmt, ap);
    va_end(ap);
    return e;
}

err *err_kind(err *e, const char *kind)
{
    if (!e)
        return NULL;
    free(e->kind);
    e->kind = xstrdup(kind);
    return e;
}

err *err_retry_after(err *e, int seconds)
{
    if (e)
        e->retry_after = seconds;
    return e;
}

err *err_copy(const err *e)
{
    if (!e)
        return NULL;
    err *c = xcalloc(1, sizeof *c);
    *c = *e;
    c->message = xstrdup(e->message);
    c->cause = e->cause ? xstrdup(e->cause) : NULL;
    c->remedy = e->remedy ? xstrdup(e->remedy) : NULL;
    c->kind = e->kind ? xstrdup(e->kind) : NULL;
    return c;
}

const char *err_remedy_of(const err *e)
{
    return e->remedy ? e->remedy : err_info_of(e->code)->remedy;
}

void err_free(err *e)
{
    if (!e)
        return;
    free(e->message);
    free(e->cause);
    free(e->remedy);
    free(e->kind);
    free(e);
}

void err_drop(err *e, const char *what)
{
    if (!e)
        return;
    log_warn(what, "%s: %s%s%s", err_info_of(e->code)->name, e->message, e->cause ? ": " : "",
             e->cause ? e->cause : "");
    err_free(e);
}
