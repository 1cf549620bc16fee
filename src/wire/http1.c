#include "wire/http1.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"

/* ---- the guard ---- */

static enum http1_result http1_refuse(http1_guard *g, const char *why)
{
    g->why = why;
    return HTTP1_BAD;
}

static err *bad_answer(const char *why)
{
    err *e = err_new(ERR_PORT_CLOSED, "the server's answer is not valid HTTP/1.1");

    return err_remedy(err_because(e, "%s", why), "Look at what the server on that port speaks; "
                                                 "'bothy forward' carries any protocol.");
}

err *http1_guard_err(const http1_guard *g)
{
    if (g->answer)
        return bad_answer(g->too_large ? "its head is too large"
                                       : str_or(g->why, "it is incomplete"));
    if (g->too_large)
        return err_new(ERR_TOO_LARGE, "the request's head is larger than %d bytes", HTTP1_HEAD_MAX);
    return err_because(err_new(ERR_INVALID_REQUEST, "the request's head is not valid HTTP/1.1"),
                       "%s", str_or(g->why, "it is incomplete"));
}

static const char *bad_byte(unsigned char c, char last)
{
    if (last == '\r' && c != '\n')
        return "a CR without LF";
    if (c == '\n' && last != '\r')
        return "a LF without CR";
    if (c == 0x7f || (c < 0x20 && c != '\r' && c != '\n' && c != '\t'))
        return "a control byte";
    return NULL;
}

/* Returns true for HTTP/1.0 and 1.1. HTTP/0.9 and HTTP/2 never send the end of head that the guard
 * waits for, so they are recognised in the first line. */
static bool version_ok(const http1_guard *g)
{
    return !memcmp(g->tail, "HTTP/1.", 7) && (g->tail[7] == '0' || g->tail[7] == '1');
}

/* Checks the line "HTTP/1.1 200", with or without a reason. llhttp checks the digits. */
static enum http1_result answer_line(http1_guard *g)
{
    if (!g->spaces || memcmp(g->tail, "HTTP/1.", 7) != 0)
        return http1_refuse(g, "the first line is not 'HTTP/1.1 status reason'");
    g->in_headers = true;
    return HTTP1_MORE;
}

/* Handles the end of a line, its CR LF included. */
static enum http1_result guard_line(http1_guard *g)
{
    bool empty = g->line == 2;

    g->line = 0;
    if (!g->in_headers && g->answer)
        return answer_line(g);
    if (!g->in_headers) {
        if (empty)
            return g->blank++ ? http1_refuse(g, "empty lines before the request line") : HTTP1_MORE;
        if (g->spaces != 2 || !version_ok(g))
            return http1_refuse(g, "the first line is not 'METHOD target HTTP/1.1'");
        g->in_headers = true;
        return HTTP1_MORE;
    }
    return empty ? HTTP1_DONE : HTTP1_MORE;
}

static enum http1_result guard_byte(http1_guard *g, char c)
{
    const char *why = bad_byte((unsigned char)c, g->last);

    g->last = c;
    if (why)
        return http1_refuse(g, why);
    if (++g->line == 1 && (c == ' ' || c == '\t'))
        return http1_refuse(g, "a line that begins with white space");
    if (c == '\n')
        return guard_line(g);
    if (!g->in_headers && c != '\r') {
        if (c == '\t')
            return http1_refuse(g, "a tab in the first line");
        g->spaces += c == ' ';
        if (g->answer && g->line > sizeof g->tail)
            return HTTP1_MORE;
        memmove(g->tail, g->tail + 1, sizeof g->tail - 1);
        g->tail[sizeof g->tail - 1] = c;
    }
    return HTTP1_MORE;
}

enum http1_result http1_guard_feed(http1_guard *g, const char *p, size_t n, size_t *ret_used)
{
    for (size_t i = 0; i < n; i++) {
        *ret_used = i + 1;
        if (++g->seen > HTTP1_HEAD_MAX) {
            g->too_large = true;
            return HTTP1_BAD;
        }
        enum http1_result r = guard_byte(g, p[i]);
        if (r != HTTP1_MORE)
            return r;
    }
    *ret_used = n;
    return HTTP1_MORE;
}

/* ---- llhttp's callbacks ---- */

static int http1_stop(http1_message *rq, const char *why)
{
    rq->why = why;
    return HPE_USER;
}

static int on_url(llhttp_t *p, const char *at, size_t n)
{
    http1_request *rq = p->data;

    if (rq->target)
        return http1_stop(rq, "a target in pieces");
    rq->target = (char *)at;
    return at[n] == ' ' ? 0 : http1_stop(rq, "a target that does not end");
}

static int on_field(llhttp_t *p, const char *at, size_t n)
{
    http1_message *rq = p->data;

    if (rq->nheader == HTTP1_HEADERS_MAX)
        return http1_stop(rq, "more than 100 header lines");
    if (!n || at[n] != ':')
        return http1_stop(rq, "a header name that does not end in a colon");
    rq->header[rq->nheader++] = (http1_header){(char *)at, NULL};
    return 0;
}

static int on_headers(llhttp_t *p)
{
    http1_message *rq = p->data;

    rq->keep_alive = llhttp_should_keep_alive(p);
    rq->upgrade = p->upgrade;
    return 0;
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
    http1_framing *f = p->data;

    memmove(f->out + f->nout, at, n);
    f->nout += n;
    return 0;
}

/* Pauses after every size line, so that its length can be counted exactly. */
static int on_chunk(llhttp_t *p)
{
    http1_framing *f = p->data;

    f->left = p->content_length;
    f->ending = !f->left;
    return HPE_PAUSED;
}

static const llhttp_settings_t SETTINGS = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_headers_complete = on_headers,
    .on_body = on_body,
    .on_chunk_header = on_chunk,
};

/* ---- the head ---- */

static err *http1_invalid(const char *why)
{
    return err_because(err_new(ERR_INVALID_REQUEST, "the request's head is not valid HTTP/1.1"),
                       "%s", why);
}

/* Terminates names and values. A name ends at the colon; a value lies between colon and CR (the
 * only CR of the line) without surrounding white space. llhttp's pointer to an empty value cannot
 * be used. */
static void http1_terminate(http1_message *rq)
{
    for (size_t i = 0; i < rq->nheader; i++) {
        http1_header *h = &rq->header[i];
        char *colon = strchr(h->name, ':');
        char *start = colon + 1;
        char *end = strchr(start, '\r');
        while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        *end = 0;
        *colon = 0;
        h->value = start + strspn(start, " \t");
    }
}

const char *http1_header_get(const http1_message *m, const char *name)
{
    for (size_t i = 0; i < m->nheader; i++)
        if (!strcasecmp(m->header[i].name, name))
            return m->header[i].value;
    return NULL;
}

static size_t http1_count(const http1_message *rq, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < rq->nheader; i++)
        n += !strcasecmp(rq->header[i].name, name);
    return n;
}

static err *check_host(http1_request *rq)
{
    static const char ALLOWED[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-._~%!$&'()*+,;=:[]";
    size_t n = http1_count(rq, "host");

    if (n > 1 || (!n && rq->http11))
        return http1_invalid(n ? "more than one Host header" : "no Host header");
    rq->host = http1_header_get(rq, "host");
    if (rq->host && rq->host[strspn(rq->host, ALLOWED)])
        return http1_invalid("a Host header that is not a host");
    return NULL;
}

/* Returns why a body's framing is ambiguous, or NULL. llhttp has checked all this already; the
 * second check is here because a mistake would allow request smuggling. */
static const char *bad_framing(http1_message *m)
{
    const char *length = http1_header_get(m, "content-length");
    const char *coding = http1_header_get(m, "transfer-encoding");

    if (http1_count(m, "content-length") > 1 || (length && coding))
        return "more than one statement of the body's length";
    if (length && !str_to_u64(length, INT64_MAX, &m->body.left))
        return "a Content-Length that is not a number";
    if (!coding)
        return NULL;
    if (http1_count(m, "transfer-encoding") > 1 || strcasecmp(coding, "chunked") != 0)
        return "a Transfer-Encoding other than 'chunked'";
    if (!m->http11)
        return "a Transfer-Encoding in HTTP/1.0";
    m->body.chunked = true;
    return NULL;
}

static err *check_expect(http1_request *rq)
{
    const char *expect = http1_header_get(rq, "expect");

    if (expect && strcasecmp(expect, "100-continue") != 0)
        return http1_invalid("an Expect header other than '100-continue'");
    rq->expect_continue = expect && rq->http11 && (rq->body.chunked || rq->body.left);
    return NULL;
}

/* Accepts "http://host/path" if its authority equals the Host header, and shortens it to "/path".
 * Anything else would leave the request's host ambiguous. */
static err *absolute_form(http1_request *rq)
{
    char *authority = rq->target + strlen("http://");
    size_t n = strcspn(authority, "/?");

    if (!rq->host || !n || strlen(rq->host) != n || strncasecmp(rq->host, authority, n) != 0)
        return http1_invalid("a target whose authority is not the Host header's");
    rq->target = authority + n;
    if (*rq->target == '/')
        return NULL;
    /* Overwrites the last byte of the authority, which is no longer needed. */
    *--rq->target = '/';
    return NULL;
}

static err *check_target(http1_request *rq)
{
    if (strchr(rq->target, '#'))
        return http1_invalid("a fragment in the target");
    if (!strncasecmp(rq->target, "http://", 7))
        return absolute_form(rq);
    if (rq->target[0] == '/' ||
        (!strcmp(rq->target, "*") && rq->body.parser.method == HTTP_OPTIONS))
        return NULL;
    return http1_invalid("a target that is not a path");
}

/* Runs llhttp. Returns why the head is invalid, or NULL. */
static const char *run_parser(http1_message *m, llhttp_type_t type, char *head, size_t n)
{
    llhttp_init(&m->body.parser, type, &SETTINGS);
    m->body.parser.data = m;
    llhttp_errno_t e = llhttp_execute(&m->body.parser, head, n);
    if (e == HPE_USER)
        return m->why;
    if (e != HPE_OK && e != HPE_PAUSED_UPGRADE)
        return str_or(llhttp_get_error_reason(&m->body.parser), "it cannot be parsed");
    if (m->body.parser.http_major != 1 || m->body.parser.http_minor > 1)
        return "a version other than HTTP/1.1";
    m->http11 = m->body.parser.http_minor == 1;
    m->keep_alive &= m->http11;
    return NULL;
}

err *http1_parse(char *head, size_t n, http1_request *ret_rq)
{
    http1_request *rq = ret_rq;

    memset(rq, 0, sizeof *rq);
    if (n >= 2 && head[0] == '\r') { /* the empty line that the guard accepts */
        head += 2;
        n -= 2;
    }
    const char *why = run_parser(rq, HTTP_REQUEST, head, n);
    if (why)
        return http1_invalid(why);
    if (!rq->target)
        return http1_invalid("the first line is not 'METHOD target HTTP/1.1'");
    rq->method = llhttp_method_name(rq->body.parser.method);
    *strchr(rq->target, ' ') = 0;
    http1_terminate(rq);
    TRY(check_host(rq));
    why = bad_framing(rq);
    if (why)
        return http1_invalid(why);
    TRY(check_expect(rq));
    return check_target(rq);
}

static bool answer_has_body(int status, bool to_head)
{
    return !to_head && status >= 200 && status != 204 && status != 304;
}

err *http1_parse_answer(char *head, size_t n, bool to_head, http1_answer *ret_answer)
{
    http1_answer *a = ret_answer;

    memset(a, 0, sizeof *a);
    const char *why = run_parser(a, HTTP_RESPONSE, head, n);
    if (why)
        return bad_answer(why);
    a->status = a->body.parser.status_code;
    if (a->status < 100 || a->status > 599)
        return bad_answer("a status that there is not");
    http1_terminate(a);
    why = bad_framing(a);
    if (why)
        return bad_answer(why);
    a->body.answer = true;
    if (!answer_has_body(a->status, to_head)) {
        a->body.left = 0;
        a->body.chunked = false;
    } else if (!a->body.chunked && !http1_header_get(a, "content-length")) {
        a->body.to_end = true;
    }
    return NULL;
}

/* ---- the body ---- */

static err *bad_chunk(const http1_framing *f, const char *why)
{
    if (f->answer)
        return bad_answer(why);
    return err_because(err_new(ERR_INVALID_REQUEST, "the request's chunked body is not valid"),
                       "%s", why);
}

bool http1_body_ended(const http1_framing *f)
{
    if (f->to_end)
        return false;
    return f->chunked ? f->ending == 3 : !f->left;
}

void http1_framing_move(const http1_framing *from, http1_framing *to)
{
    *to = *from;
    to->parser.data = to;
}

/* Reads the end of a chunked body: an empty line and nothing else. llhttp would accept trailers. */
static err *body_end(http1_framing *f, const char *in, size_t nin, size_t *used)
{
    if (f->answer && f->ending)
        f->ending = 3;
    for (; *used < nin && f->ending && f->ending < 3; f->ending++) {
        /* Checked before counting: a body with a wrong end must not count as ended. */
        if (in[*used] != "\r\n"[f->ending - 1])
            return bad_chunk(f, "trailers are not accepted");
        ++*used;
    }
    return NULL;
}

/* Reads the bytes between two chunks' data: the end of a chunk and the size line of the next. */
static err *chunk_line(http1_framing *f, const char *in, size_t nin, size_t *used)
{
    llhttp_errno_t e = llhttp_execute(&f->parser, in + *used, nin - *used);
    size_t n = nin - *used;

    if (e == HPE_PAUSED) {
        n = (size_t)(llhttp_get_error_pos(&f->parser) - (in + *used));
        llhttp_resume(&f->parser);
    } else if (e != HPE_OK) {
        return bad_chunk(f, str_or(llhttp_get_error_reason(&f->parser), "it cannot be parsed"));
    }
    *used += n;
    f->line += n;
    if (f->line > HTTP1_CHUNK_LINE_MAX)
        return bad_chunk(f, "a chunk's size line is too long");
    if (e == HPE_PAUSED)
        f->line = 0;
    return NULL;
}

static err *chunk_data(http1_framing *f, const char *in, size_t nin, size_t *used)
{
    size_t n = nin - *used < f->left ? nin - *used : (size_t)f->left;

    if (llhttp_execute(&f->parser, in + *used, n) != HPE_OK)
        return bad_chunk(f, str_or(llhttp_get_error_reason(&f->parser), "it cannot be parsed"));
    *used += n;
    f->left -= n;
    return NULL;
}

static err *body_chunks(http1_framing *f, const char *in, size_t nin, size_t *used)
{
    while (*used < nin && !f->ending)
        TRY(f->left ? chunk_data(f, in, nin, used) : chunk_line(f, in, nin, used));
    return NULL;
}

err *http1_body(http1_framing *f, const char *in, size_t nin, char *out, size_t *ret_used,
                size_t *ret_nout)
{
    size_t used = 0;

    f->out = out;
    f->nout = 0;
    if (f->chunked) {
        TRY(body_chunks(f, in, nin, &used));
        TRY(body_end(f, in, nin, &used));
    } else {
        used = f->to_end || nin < f->left ? nin : (size_t)f->left;
        memmove(out, in, used);
        f->left -= f->to_end ? 0 : used;
        f->nout = used;
    }
    *ret_used = used;
    *ret_nout = f->nout;
    return NULL;
}

/* ---- answers ---- */

static const struct {
    int status;
    const char *reason;
} REASONS[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {507, "Insufficient Storage"},
};

const char *http1_reason(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(REASONS); i++)
        if (REASONS[i].status == status)
            return REASONS[i].reason;
    return "Status";
}

void http1_write_status(buf *out, int status)
{
    char line[64];
    int n = snprintf(line, sizeof line, "HTTP/1.1 %03d %s\r\n", status, http1_reason(status));

    buf_append(out, line, (size_t)n);
}

void http1_write_header(buf *out, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);

    buf_reserve(out, n + v + 4);
    buf_append(out, name, n);
    buf_append(out, ": ", 2);
    size_t at = out->len;
    buf_append(out, value, v);
    for (char *c = out->p + at; c < out->p + out->len; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    buf_append(out, "\r\n", 2);
}

void http1_write_chunk(buf *out, const void *p, size_t n)
{
    char size[20];
    int k = snprintf(size, sizeof size, "%zx\r\n", n);

    buf_reserve(out, (size_t)k + n + 2);
    buf_append(out, size, (size_t)k);
    buf_append(out, p, n);
    buf_append(out, "\r\n", 2);
}
