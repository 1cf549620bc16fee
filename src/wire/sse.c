#include "wire/sse.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* ---- encoder ---- */

static void sse_field(buf *out, const char *name, const char *value)
{
    if (!value)
        return;
    buf_str(out, name);
    buf_append(out, ": ", 2);
    buf_append(out, value, strcspn(value, "\r\n"));
    buf_char(out, '\n');
}

static size_t line_length(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && p[i] != '\r' && p[i] != '\n')
        i++;
    return i;
}

void sse_write(buf *out, const char *event, const char *id, const void *data, size_t n)
{
    const char *p = data;

    buf_reserve(out, n + 64);
    sse_field(out, "event", event);
    sse_field(out, "id", id);
    for (;;) {
        size_t len = line_length(p, n);
        buf_append(out, "data: ", 6);
        buf_append(out, p, len);
        buf_char(out, '\n');
        if (len == n)
            break;
        size_t end = len + 1 + (p[len] == '\r' && len + 1 < n && p[len + 1] == '\n');
        p += end;
        n -= end;
    }
    buf_char(out, '\n');
}

void sse_write_comment(buf *out, const char *text)
{
    buf_char(out, ':');
    buf_append(out, text, strcspn(text, "\r\n"));
    buf_append(out, "\n\n", 2);
}

/* ---- decoder ---- */

static void sse_set(buf *b, const char *p, size_t n)
{
    buf_clear(b);
    buf_append(b, p, n);
}

static err *take_field(sse_decoder *d, const char *name, size_t nname, const char *value,
                       size_t nvalue)
{
    if (nname == 5 && !memcmp(name, "event", 5)) {
        sse_set(&d->event, value, nvalue);
    } else if (nname == 2 && !memcmp(name, "id", 2)) {
        if (!memchr(value, 0, nvalue))
            sse_set(&d->id, value, nvalue);
    } else if (nname == 4 && !memcmp(name, "data", 4)) {
        if (d->data.len + nvalue + 1 > SSE_EVENT_MAX)
            return err_new(ERR_TOO_LARGE, "an event is larger than %d bytes", SSE_EVENT_MAX);
        if (d->have_data)
            buf_char(&d->data, '\n');
        buf_append(&d->data, value, nvalue);
        d->have_data = true;
    }
    return NULL; /* other fields, such as "retry", are not used */
}

static void sse_dispatch(sse_decoder *d, bool (*on_event)(void *, const sse_event *), void *arg)
{
    if (d->have_data) {
        sse_event e = {
            .event = d->event.len ? buf_cstr(&d->event) : "message",
            .id = buf_cstr(&d->id),
            .data = buf_cstr(&d->data),
            .len = d->data.len,
        };
        d->stopped = !on_event(arg, &e);
    }
    buf_clear(&d->event);
    buf_clear(&d->data);
    d->have_data = false;
}

static err *end_line(sse_decoder *d, bool (*on_event)(void *, const sse_event *), void *arg)
{
    const char *p = buf_cstr(&d->line);
    size_t n = d->line.len;

    if (!d->begun) {
        d->begun = true;
        if (n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) {
            p += 3;
            n -= 3;
        }
    }
    d->line.len = 0;
    if (!n) {
        sse_dispatch(d, on_event, arg);
        return NULL;
    }
    const char *colon = memchr(p, ':', n);
    size_t nname = colon ? (size_t)(colon - p) : n;
    const char *value = colon ? colon + 1 : p + n;
    if (value < p + n && *value == ' ')
        value++;
    return take_field(d, p, nname, value, (size_t)(p + n - value));
}

err *sse_feed(sse_decoder *d, const void *p, size_t n, bool (*on_event)(void *, const sse_event *),
              void *arg)
{
    const char *at = p;

    while (n && !d->stopped) {
        if (d->after_cr) {
            d->after_cr = false;
            if (*at == '\n') {
                at++;
                n--;
                continue;
            }
        }
        size_t len = line_length(at, n);
        if (d->line.len + len > SSE_EVENT_MAX)
            return err_new(ERR_TOO_LARGE, "a line is larger than %d bytes", SSE_EVENT_MAX);
        buf_append(&d->line, at, len);
        if (len == n)
            break;
        d->after_cr = at[len] == '\r';
        TRY(end_line(d, on_event, arg));
        at += len + 1;
        n -= len + 1;
    }
    return NULL;
}

void sse_decoder_done(sse_decoder *d)
{
    buf_done(&d->line);
    buf_done(&d->data);
    buf_done(&d->event);
    buf_done(&d->id);
}
