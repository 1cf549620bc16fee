#include "base/buf.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

void buf_reserve(buf *b, size_t more)
{
    if (more > SIZE_MAX / 4 - b->len)
        abort();
    size_t need = b->len + more + 1; /* always room for a NUL at the end */
    if (need <= b->cap)
        return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap *= 2;
    b->p = xrealloc(b->p, cap);
    b->cap = cap;
}

void buf_append(buf *b, const void *p, size_t n)
{
    if (!n)
        return;
    buf_reserve(b, n);
    memcpy(b->p + b->len, p, n);
    b->len += n;
}

void buf_str(buf *b, const char *s)
{
    buf_append(b, s, strlen(s));
}

void buf_char(buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_printf(buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *s = str_vprintf(fmt, ap);
    va_end(ap);
    buf_str(b, s);
}

/* Returns the length of the valid UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_step(const char *s, size_t left)
{
    for (size_t n = 1; n <= 4 && n <= left; n++)
        if (utf8_valid(s, n))
            return n;
    return 0;
}

void buf_json_string(buf *b, const char *s, size_t n)
{
    buf_char(b, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') {
            buf_char(b, '\\');
            buf_char(b, (char)c);
            i++;
        } else if (c < 0x20 || c == 0x7f) {
            buf_printf(b, "\\u%04x", c);
            i++;
        } else if (c == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] - 0x80u < 0x20) {
            buf_printf(b, "\\u%04x", (unsigned char)s[i + 1]); /* a C1 control, such as CSI */
            i += 2;
        } else {
            size_t k = utf8_step(s + i, n - i);
            if (k)
                buf_append(b, s + i, k);
            else
                buf_str(b, "\xef\xbf\xbd");
            i += k ? k : 1;
        }
    }
    buf_char(b, '"');
}

void buf_consume(buf *b, size_t n)
{
    if (!n)
        return;
    memmove(b->p, b->p + n, b->len - n);
    b->len -= n;
}

void buf_clear(buf *b)
{
    b->len = 0;
}

void buf_done(buf *b)
{
    free(b->p);
    *b = (buf){0};
}

const char *buf_cstr(buf *b)
{
    buf_reserve(b, 0);
    b->p[b->len] = 0;
    return b->p;
}

char *buf_take(buf *b)
{
    buf_cstr(b);
    char *p = b->p;
    *b = (buf){0};
    return p;
}
