/* Errors in the forms of E2B's clients, and the count of unsupported requests. */
#include <errno.h>
#include <stdarg.h>

#include "base/metric.h"
#include "door/e2b/internal.h"
#include "wire/connect.h"

static const char *const MISSING[] = {
    [MISSING_TEMPLATES] = "templates", [MISSING_VOLUMES] = "volumes",
    [MISSING_SECRETS] = "secrets",     [MISSING_NETWORK] = "network",
    [MISSING_PROCESS] = "process",     [MISSING_FILESYSTEM] = "filesystem",
    [MISSING_FILES] = "files",         [MISSING_FIELD] = "field",
    [MISSING_ROUTE] = "route",         [MISSING_COUNT] = NULL};

static metric METRICS[] = {
    METRIC_COUNTER_BY("bothy_e2b_unsupported_total",
                      "Requests of E2B's clients for what is not there.", "operation", MISSING),
};

void forms_init(void)
{
    metric_register(METRICS, ARRAY_LEN(METRICS));
}

err *e2b_missing(enum e2b_missing what, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *text = str_vprintf(fmt, ap);
    va_end(ap);
    metric_add(&METRICS[0], what, 1);
    return err_remedy(err_new(ERR_UNSUPPORTED, "%s", text),
                      "docs/compatibility/e2b.md lists what this server has; leave it out.");
}

void e2b_message(buf *out, const err *e)
{
    buf_printf(out, "%s%s%s. %s", e->message, e->cause ? ": " : "", str_or(e->cause, ""),
               err_remedy_of(e));
}

static const char *write_http(buf *body, const err *e, const char *request_id, int *status)
{
    CLEANUP(buf_done) buf text = {0};

    (void)request_id;
    /* SDKs know an ended sandbox only as "not found". */
    if (e->code == ERR_SANDBOX_GONE)
        *status = 404;
    e2b_message(&text, e);
    buf_printf(body, "{\"code\":%d,\"message\":", *status);
    buf_json_string(body, text.p, text.len);
    buf_char(body, '}');
    return "application/json";
}

/* Writes an error of a port. SDKs recognise a closed port, as opposed to a missing sandbox, by
 * these words. */
static const char *write_port(buf *body, const err *e, const char *request_id, int *status)
{
    CLEANUP(buf_done) buf text = {0};

    if (e->code != ERR_PORT_CLOSED)
        return write_http(body, e, request_id, status);
    buf_str(&text, "The sandbox is running but port is not open: ");
    e2b_message(&text, e);
    buf_printf(body, "{\"code\":%d,\"message\":", *status);
    buf_json_string(body, text.p, text.len);
    buf_char(body, '}');
    return "application/json";
}

const char *e2b_connect_code(const err *e)
{
    /* An existing path is distinguished from a state that changed meanwhile. */
    return e->code == ERR_CONFLICT && e->errnum == EEXIST ? "already_exists"
                                                          : err_info_of(e->code)->connect;
}

static const char *write_unary(buf *body, const err *e, const char *request_id, int *status)
{
    CLEANUP(buf_done) buf text = {0};

    (void)request_id;
    *status = connect_status(e2b_connect_code(e));
    e2b_message(&text, e);
    connect_error(body, e2b_connect_code(e), buf_cstr(&text));
    return "application/json";
}

/* Writes a stream's error as its last envelope. The status is 200: with another one clients would
 * not read the envelope. */
static const char *write_stream(buf *body, const err *e, const char *request_id, int *status)
{
    CLEANUP(buf_done) buf text = {0};

    (void)request_id;
    *status = 200;
    e2b_message(&text, e);
    connect_end(body, e2b_connect_code(e), buf_cstr(&text));
    return "application/connect+json";
}

const error_form E2B_FORM_HTTP = {write_http};
const error_form E2B_FORM_PORT = {write_port};
const error_form E2B_FORM_UNARY = {write_unary};
const error_form E2B_FORM_STREAM = {write_stream};
