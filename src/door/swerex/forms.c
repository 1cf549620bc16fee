/* Writes answers. Errors are exceptions of Python, named by the path of their class. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "door/swerex/internal.h"
#include "door/swerex/text.h"

#define RAISED 511 /* the status by which SWE-ReX's client recognises an exception */

err *rex_raise(const char *class, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *text = str_vprintf(fmt, ap);
    va_end(ap);
    return err_kind(err_new(ERR_CONFLICT, "%s", text), class);
}

static const char *os_class(int errnum)
{
    switch (errnum) {
    case ENOENT:
        return "builtins.FileNotFoundError";
    case EEXIST:
        return "builtins.FileExistsError";
    case EISDIR:
        return "builtins.IsADirectoryError";
    case ENOTDIR:
        return "builtins.NotADirectoryError";
    case EACCES:
    case EPERM:
        return "builtins.PermissionError";
    default:
        return "builtins.OSError";
    }
}

err *rex_os_error(int errnum, const char *path)
{
    CLEANUP(buf_done) buf shown = {0};
    char text[128];

    rex_repr(&shown, path, strlen(path));
    return rex_raise(os_class(errnum), "[Errno %d] %s: %s", errnum,
                     strerror_r(errnum, text, sizeof text), buf_cstr(&shown));
}

static void put_exception(buf *body, const char *class, const char *message, size_t n,
                          const char *extra)
{
    buf_str(body, "{\"swerexception\":{\"message\":");
    buf_json_string(body, message, n);
    buf_str(body, ",\"class_path\":");
    buf_json_string(body, class, strlen(class));
    buf_printf(body, ",\"traceback\":\"\",\"extra_info\":{%s}}}", str_or(extra, ""));
}

/* Writes an error of bothy's own, readable by programs (extra_info) and people (message). */
static void put_error(buf *body, const err *e)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf extra = {0};
    const char *remedy = err_remedy_of(e);

    buf_printf(&text, "%s%s%s. %s", e->message, e->cause ? ": " : "", str_or(e->cause, ""), remedy);
    buf_printf(&extra, "\"code\":\"%s\",\"retryable\":%s,\"remedy\":", err_info_of(e->code)->name,
               e->retryable ? "true" : "false");
    buf_json_string(&extra, remedy, strlen(remedy));
    put_exception(body, REX_E("SwerexException"), text.p, text.len, buf_cstr(&extra));
}

static void put_detail(buf *body, const err *e)
{
    CLEANUP(buf_done) buf text = {0};

    buf_printf(&text, "%s%s%s", e->message, e->cause ? ": " : "", str_or(e->cause, ""));
    buf_str(body, "{\"detail\":");
    buf_json_string(body, text.p, text.len);
    buf_char(body, '}');
}

static const char *write_error(buf *body, const err *e, const char *request_id, int *status)
{
    bool route = str_eq(e->kind, "route");

    (void)request_id;
    if (e->code == ERR_UNAUTHENTICATED || e->code == ERR_METHOD_NOT_ALLOWED || route) {
        put_detail(body, e);
    } else if (e->code == ERR_INVALID_REQUEST && !e->errnum) {
        *status = 422;
        put_detail(body, e);
    } else {
        *status = RAISED;
        if (e->kind && strchr(e->kind, '.'))
            put_exception(body, e->kind, e->message, strlen(e->message), NULL);
        else
            put_error(body, e);
    }
    return "application/json";
}

const error_form REX_FORM = {write_error};

int rex_exception_body(buf *body, const char *class, const char *message, size_t n,
                       const char *extra)
{
    put_exception(body, class, message, n, extra);
    return RAISED;
}

enum relay_next rex_answer(relay_io *io, int status, const buf *body, const char *request_id)
{
    http_head_write(io->out, &(http_head){.status = status,
                                          .type = "application/json",
                                          .length = (int64_t)body->len,
                                          .keep_alive = io->keep_alive,
                                          .request_id = request_id});
    buf_append(io->out, body->p, body->len);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

enum relay_next rex_exception(relay_io *io, const char *class, const char *message, size_t n,
                              const char *request_id)
{
    CLEANUP(buf_done) buf body = {0};

    put_exception(&body, class, message, n, NULL);
    return rex_answer(io, RAISED, &body, request_id);
}
