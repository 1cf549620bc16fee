/* Responses that handlers fill, and their bytes. */
#include <stdarg.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/internal.h"

void response_status(response *rs, int status)
{
    rs->status = status;
}

void response_header(response *rs, const char *name, const char *fmt, ...)
{
    bool keep = !strcasecmp(name, "Allow") || !strcasecmp(name, "WWW-Authenticate") ||
                !strcasecmp(name, "Sec-WebSocket-Version");
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *value = str_vprintf(fmt, ap);
    va_end(ap);
    http1_write_header(keep ? &rs->kept : &rs->headers, name, value);
}

static void set_type(response *rs, const char *type)
{
    free(rs->type);
    rs->type = type ? xstrdup(type) : NULL;
}

void response_bytes(response *rs, const char *type, const void *p, size_t n)
{
    if (!rs->status)
        rs->status = 200;
    set_type(rs, type);
    buf_clear(&rs->body);
    buf_append(&rs->body, p, n);
}

void response_json(response *rs, int status, json_t *owned)
{
    rs->status = status;
    set_type(rs, "application/json");
    buf_clear(&rs->body);
    json_write(&rs->body, owned);
    buf_char(&rs->body, '\n');
    json_decref(owned);
}

static void drop_relay(response *rs)
{
    if (rs->ops && rs->ops->free)
        rs->ops->free(rs->ctx);
    rs->ops = NULL;
    rs->ctx = NULL;
}

void response_error(response *rs, const err *e)
{
    drop_relay(rs);
    access_note_error(e);
    buf_clear(&rs->headers);
    http_error_lines(&rs->headers, e);
    buf_clear(&rs->body);
    set_type(rs, http_error_body(&rs->body, rs->form, e, rs->id, &rs->status));
}

void response_set_form(response *rs, const error_form *form)
{
    rs->form = form;
}

const error_form *response_form(const response *rs)
{
    return rs->form;
}

void response_relay(response *rs, const relay_ops *ops, void *ctx)
{
    drop_relay(rs);
    rs->ops = ops;
    rs->ctx = ctx;
}

void response_done(response *rs)
{
    drop_relay(rs);
    buf_done(&rs->headers);
    buf_done(&rs->kept);
    buf_done(&rs->body);
    free(rs->type);
}

void response_render(const response *rs, const request *rq, bool keep_alive, buf *out)
{
    CLEANUP(buf_done) buf lines = {0};

    buf_append(&lines, rs->headers.p, rs->headers.len);
    buf_append(&lines, rs->kept.p, rs->kept.len);
    buf_reserve(out, 512 + lines.len + rs->body.len);
    http_head_write(out, &(http_head){
                             .status = rs->status ? rs->status : 204,
                             .type = rs->type,
                             .length = (int64_t)rs->body.len,
                             .keep_alive = keep_alive,
                             .request_id = rq->id,
                             .extra = lines.len ? buf_cstr(&lines) : NULL,
                         });
    if (!request_is_head(rq) && rs->status != 204 && rs->status != 304)
        buf_append(out, rs->body.p, rs->body.len);
}
