/* Writers for answers: heads, chunks, JSON, errors. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "net/internal.h"
#include "wire/http1.h"

/* Appends "Date: Tue, 15 Nov 1994 08:12:31 GMT"; each thread formats it once a second. */
static void write_date(buf *out)
{
    static const char DAYS[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char MONTHS[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    static __thread char line[64];
    static __thread int length;
    static __thread time_t when;
    time_t now = (time_t)(now_real_ns() / NS_PER_S);
    struct tm t;

    if (now != when && gmtime_r(&now, &t)) {
        when = now;
        length = snprintf(line, sizeof line, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n",
                          DAYS[t.tm_wday], t.tm_mday, MONTHS[t.tm_mon], t.tm_year + 1900, t.tm_hour,
                          t.tm_min, t.tm_sec);
    }
    buf_append(out, line, (size_t)length);
}

static bool has_body(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

static void write_length(buf *out, int64_t length)
{
    char line[48];
    int n = snprintf(line, sizeof line, "Content-Length: %lld\r\n", (long long)length);

    buf_append(out, line, (size_t)n);
}

void http_head_write(buf *out, const http_head *h)
{
    bool body = has_body(h->status), counted = h->chunked || h->length >= 0;

    buf_reserve(out, 256);
    http1_write_status(out, h->status);
    write_date(out);
    if (h->type && body)
        http1_write_header(out, "Content-Type", h->type);
    if (body && h->chunked)
        buf_str(out, "Transfer-Encoding: chunked\r\n");
    else if (body && counted)
        write_length(out, h->length);
    if (h->status >= 200 && (!h->keep_alive || (body && !counted)))
        buf_str(out, "Connection: close\r\n");
    if (h->request_id)
        http1_write_header(out, "X-Request-Id", h->request_id);
    if (h->extra)
        buf_str(out, h->extra);
    buf_append(out, "\r\n", 2);
}

void http_chunk(buf *out, const void *p, size_t n)
{
    http1_write_chunk(out, p, n);
}

void http_json_answer(buf *out, int status, const json_t *body, bool keep_alive,
                      const char *request_id, const char *extra)
{
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, body);
    buf_char(&text, '\n');
    http_head_write(out, &(http_head){.status = status,
                                      .type = "application/json",
                                      .length = (int64_t)text.len,
                                      .keep_alive = keep_alive,
                                      .request_id = request_id,
                                      .extra = extra});
    buf_append(out, text.p, text.len);
}

/* Appends the header lines that belong to an error. */
void http_error_lines(buf *out, const err *e)
{
    if (e->retry_after) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", e->retry_after);
        http1_write_header(out, "Retry-After", seconds);
    }
    if (e->code == ERR_UNAUTHENTICATED)
        http1_write_header(out, "WWW-Authenticate", "Bearer");
}

const char *http_error_body(buf *body, const error_form *form, const err *e, const char *request_id,
                            int *ret_status)
{
    *ret_status = err_info_of(e->code)->http;
    if (form)
        return form->write(body, e, request_id, ret_status);
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:o}", "error", json_of_err(e, request_id));
    json_write(body, o);
    buf_char(body, '\n');
    return "application/json";
}

void http_error_answer_as(buf *out, const error_form *form, const err *e, bool keep_alive,
                          const char *request_id)
{
    CLEANUP(buf_done) buf lines = {0}, body = {0};
    int status;

    access_note_error(e);
    http_error_lines(&lines, e);
    const char *type = http_error_body(&body, form, e, request_id, &status);
    http_head_write(out, &(http_head){.status = status,
                                      .type = type,
                                      .length = (int64_t)body.len,
                                      .keep_alive = keep_alive,
                                      .request_id = request_id,
                                      .extra = buf_cstr(&lines)});
    buf_append(out, body.p, body.len);
}

void http_error_answer(buf *out, const err *e, bool keep_alive, const char *request_id)
{
    http_error_answer_as(out, NULL, e, keep_alive, request_id);
}
