#include "door/mcp/fit.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* ---- text ---- */

/* Returns the length of the character at p, 0 if it is invalid. */
static size_t fit_character(const char *p, size_t n)
{
    unsigned char c = (unsigned char)*p;
    size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

    return c && len <= n && utf8_valid(p, len) ? len : 0;
}

bool fit_text(buf *out, const char *p, size_t n)
{
    bool whole = true;

    for (size_t i = 0; i < n;) {
        size_t len = fit_character(p + i, n - i);
        whole = whole && len;
        if (len)
            buf_append(out, p + i, len);
        else
            buf_str(out, REPLACEMENT);
        i += len ? len : 1;
    }
    return whole;
}

json_t *fit_json(const char *p, size_t n)
{
    CLEANUP(buf_done) buf text = {0};

    fit_text(&text, p, n);
    return json_stringn(text.p ? text.p : "", text.len);
}

/* ---- cuts ---- */

static bool is_inside(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t fit_head(const char *p, size_t n, size_t max)
{
    if (n <= max)
        return n;
    const char *line = memrchr(p + max - max / 4, '\n', max / 4);
    if (line)
        return (size_t)(line - p) + 1;
    size_t cut = max;
    while (cut > max - 3 && cut > 0 && is_inside(p[cut]))
        cut--;
    return cut;
}

size_t fit_tail(const char *p, size_t n, size_t max)
{
    if (n <= max)
        return n;
    const char *from = p + n - max, *line = memchr(from, '\n', max / 4);
    if (line && line + 1 < p + n)
        return (size_t)(p + n - line - 1);
    size_t skip = 0;
    while (skip < 3 && skip < max && is_inside(from[skip]))
        skip++;
    return max - skip;
}

/* ---- streams ---- */

/* Reads [from, to) up to the first hole; a hole at `from` is skipped. */
static err *read_span(const fit_source *s, uint64_t from, uint64_t to, buf *b, uint64_t *ret_first)
{
    uint64_t at = from;

    *ret_first = from;
    while (at < to) {
        uint64_t gap = 0;
        size_t n = 0;
        buf_reserve(b, (size_t)(to - at));
        TRY(s->read(s->arg, at, b->p + b->len, (size_t)(to - at), &n, &gap));
        if (gap > at) {
            if (b->len)
                return NULL;
            at = *ret_first = gap;
            continue;
        }
        if (!n)
            return NULL;
        b->len += n;
        at += n;
    }
    return NULL;
}

static err *fit_whole(buf *out, const fit_source *s, bool *ret_cut)
{
    CLEANUP(buf_done) buf all = {0};
    uint64_t first = 0;

    TRY(read_span(s, 0, s->length, &all, &first));
    fit_text(out, all.p, all.len);
    *ret_cut = first || all.len < s->length;
    return NULL;
}

err *fit_stream(buf *out, const fit_source *s, bool *ret_cut)
{
    CLEANUP(buf_done) buf head = {0}, tail = {0};
    uint64_t first = 0, from = 0;

    *ret_cut = false;
    if (s->length <= s->head + s->tail)
        return fit_whole(out, s, ret_cut);
    *ret_cut = true;
    TRY(read_span(s, 0, s->head + 4, &head, &first));
    TRY(read_span(s, s->length - s->tail, s->length, &tail, &from));
    size_t nhead = fit_head(head.p, head.len, s->head);
    size_t ntail = fit_tail(tail.p, tail.len, s->tail - s->tail / 8);
    from += tail.len - ntail;
    fit_text(out, head.p, nhead);
    if (nhead && head.p[nhead - 1] != '\n')
        buf_char(out, '\n');
    buf_printf(out, "[... %lu bytes are left out", from - first - nhead);
    if (s->rest)
        buf_printf(out, "; read them with %soffset=%lu)", s->rest, first + nhead);
    buf_str(out, " ...]\n");
    fit_text(out, tail.p ? tail.p + tail.len - ntail : "", ntail);
    return NULL;
}
