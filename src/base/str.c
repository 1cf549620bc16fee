#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

static void *or_abort(void *p)
{
    if (!p)
        abort();
    return p;
}

void *xmalloc(size_t n)
{
    return or_abort(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
    return or_abort(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
    return or_abort(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s)
{
    return or_abort(strdup(s));
}

char *xstrndup(const char *s, size_t n)
{
    return or_abort(strndup(s, n));
}

char *str_vprintf(const char *fmt, va_list ap)
{
    char *s = NULL;

    if (vasprintf(&s, fmt, ap) < 0)
        abort();
    return s;
}

char *str_printf(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    char *s = str_vprintf(fmt, ap);
    va_end(ap);
    return s;
}

bool str_eq(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

bool str_copy(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size);

    if (n == size)
        n--;
    memcpy(to, from, n);
    to[n] = 0;
    return !from[n];
}

bool str_starts(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    return n >= k && !strcmp(s + n - k, suffix);
}

bool str_to_u64(const char *s, uint64_t max, uint64_t *ret_value)
{
    uint64_t v = 0;

    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return false;
        uint64_t d = (uint64_t)(*s - '0');
        if (v > (UINT64_MAX - d) / 10)
            return false;
        v = v * 10 + d;
    }
    if (v > max)
        return false;
    *ret_value = v;
    return true;
}

/* Parses a decimal number with at most three digits after the point into thousandths. */
static bool to_milli(const char *s, size_t n, uint64_t *ret)
{
    uint64_t v = 0, scale = 1000;
    bool point = false, digit = false;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (s[i] < '0' || s[i] > '9' || v > UINT64_MAX / 10000 || (point && scale == 1))
            return false;
        digit = true;
        v = v * 10 + (uint64_t)(s[i] - '0');
        if (point)
            scale /= 10;
    }
    if (!digit || v > UINT64_MAX / 1000)
        return false;
    *ret = v * scale;
    return true;
}

bool str_to_bytes(const char *s, uint64_t *ret_value)
{
    static const char UNITS[] = "kmgt";
    size_t n = strspn(s, "0123456789.");
    const char *unit = s + n;
    uint64_t milli, factor = 1;

    if (!to_milli(s, n, &milli))
        return false;
    if (*unit) {
        const char *u = strchr(UNITS, tolower((unsigned char)*unit));
        if (u) {
            for (const char *k = UNITS; k <= u; k++)
                factor *= 1024;
            unit++;
            if (*unit == 'i')
                unit++;
        }
        if (*unit && strcasecmp(unit, "b") != 0)
            return false;
    }
    if (milli > UINT64_MAX / factor)
        return false;
    *ret_value = milli * factor / 1000;
    return true;
}

bool str_to_duration_ms(const char *s, uint64_t *ret_value)
{
    size_t n = strspn(s, "0123456789.");
    const char *unit = s + n;
    uint64_t milli, factor;

    if (!to_milli(s, n, &milli))
        return false;
    if (!*unit || !strcmp(unit, "s"))
        factor = 1;
    else if (!strcmp(unit, "ms"))
        return *ret_value = milli / 1000, true;
    else if (!strcmp(unit, "m"))
        factor = 60;
    else if (!strcmp(unit, "h"))
        factor = 3600;
    else if (!strcmp(unit, "d"))
        factor = 86400;
    else
        return false;
    if (milli > UINT64_MAX / factor)
        return false;
    *ret_value = milli * factor;
    return true;
}

size_t strv_len(char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    return n;
}

char **strv_copy(char *const *v)
{
    size_t n = strv_len(v);
    char **c = xcalloc(n + 1, sizeof *c);

    for (size_t i = 0; i < n; i++)
        c[i] = xstrdup(v[i]);
    return c;
}

void strv_push(char ***v, char *owned)
{
    size_t n = strv_len(*v);

    *v = xrealloc(*v, (n + 2) * sizeof **v);
    (*v)[n] = owned;
    (*v)[n + 1] = NULL;
}

void strv_free(char **v)
{
    for (size_t i = 0; v && v[i]; i++)
        free(v[i]);
    free(v);
}

void strv_freep(char ***v)
{
    strv_free(*v);
}

static char **env_find(char *const *env, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; env && env[i]; i++)
        if (!strncmp(env[i], name, n) && env[i][n] == '=')
            return (char **)&env[i];
    return NULL;
}

const char *strv_env_get(char *const *env, const char *name)
{
    char **at = env_find(env, name);

    return at ? *at + strlen(name) + 1 : NULL;
}

void strv_env_set(char ***env, const char *name, const char *value)
{
    char **at = env_find(*env, name);
    char *pair = str_printf("%s=%s", name, value);

    if (at) {
        secret_wipe(*at, strlen(*at));
        free(*at);
        *at = pair;
    } else {
        strv_push(env, pair);
    }
}

bool utf8_valid(const void *p, size_t n)
{
    const unsigned char *s = p;

    for (size_t i = 0; i < n;) {
        unsigned char c = s[i++];
        uint32_t v;
        int more;
        if (c < 0x80)
            continue;
        if (c >= 0xc2 && c <= 0xdf)
            more = 1, v = c & 0x1f;
        else if (c >= 0xe0 && c <= 0xef)
            more = 2, v = c & 0x0f;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3, v = c & 0x07;
        else
            return false;
        for (int k = 0; k < more; k++) {
            if (i >= n || (s[i] & 0xc0) != 0x80)
                return false;
            v = v << 6 | (s[i++] & 0x3f);
        }
        if ((more == 2 && (v < 0x800 || (v >= 0xd800 && v <= 0xdfff))) ||
            (more == 3 && (v < 0x10000 || v > 0x10ffff)))
            return false;
    }
    return true;
}

bool utf8_has_control(const char *s)
{
    for (const unsigned char *c = (const unsigned char *)s; *c; c++)
        if (*c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0))
            return true;
    return false;
}

bool ascii_visible(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (*s < 0x21 || *s > 0x7e)
            return false;
    return true;
}

static const char B64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *p, size_t n)
{
    const unsigned char *s = p;
    char *out = xmalloc((n + 2) / 3 * 4 + 1), *w = out;

    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)s[i] << 16;
        if (left > 1)
            v |= (uint32_t)s[i + 1] << 8;
        if (left > 2)
            v |= s[i + 2];
        *w++ = B64[v >> 18];
        *w++ = B64[v >> 12 & 63];
        *w++ = left > 1 ? B64[v >> 6 & 63] : '=';
        *w++ = left > 2 ? B64[v & 63] : '=';
    }
    *w = 0;
    return out;
}

static int b64_value(char c)
{
    const char *at = c ? strchr(B64, c) : NULL;

    return at ? (int)(at - B64) : -1;
}

bool base64_decode(const char *s, size_t n, void **ret_bytes, size_t *ret_n)
{
    if (n % 4)
        return false;
    CLEANUP(freep) unsigned char *out = xmalloc(n / 4 * 3 + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i += 4) {
        int pad = 0, v[4];
        for (int j = 0; j < 4; j++) {
            bool last = i + 4 == n;
            if (s[i + j] == '=' && last && j >= 2) {
                pad++;
                v[j] = 0;
            } else if (pad || (v[j] = b64_value(s[i + j])) < 0) {
                return false;
            }
        }
        uint32_t w =
            (uint32_t)v[0] << 18 | (uint32_t)v[1] << 12 | (uint32_t)v[2] << 6 | (uint32_t)v[3];
        if ((pad == 1 && (w & 0xff)) || (pad == 2 && (w & 0xffff)))
            return false; /* leftover bits are not zero: not canonical */
        out[k++] = (unsigned char)(w >> 16);
        if (pad < 2)
            out[k++] = (unsigned char)(w >> 8);
        if (pad < 1)
            out[k++] = (unsigned char)w;
    }
    out[k] = 0;
    *ret_bytes = TAKE_PTR(out);
    *ret_n = k;
    return true;
}

void hex_encode(const void *p, size_t n, char *ret_text)
{
    static const char DIGITS[] = "0123456789abcdef";
    const unsigned char *s = p;

    for (size_t i = 0; i < n; i++) {
        ret_text[2 * i] = DIGITS[s[i] >> 4];
        ret_text[2 * i + 1] = DIGITS[s[i] & 15];
    }
    ret_text[2 * n] = 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hex_decode(const char *s, void *ret_bytes, size_t n)
{
    unsigned char *out = ret_bytes;

    if (strlen(s) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int hi = hex_value(s[2 * i]), lo = hex_value(s[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (unsigned char)(hi << 4 | lo);
    }
    return true;
}

bool percent_decode(char *s, size_t *ret_len)
{
    char *start = s, *w = s;

    for (; *s; s++) {
        if (*s != '%') {
            *w++ = *s;
            continue;
        }
        int hi = hex_value(s[1]), lo = hi < 0 ? -1 : hex_value(s[2]);
        if (hi < 0 || lo < 0 || (hi == 0 && lo == 0))
            return false;
        *w++ = (char)(hi << 4 | lo);
        s += 2;
    }
    *w = 0;
    *ret_len = (size_t)(w - start);
    return true;
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t row[65];

    if (n > 64 || m > 64)
        return 65;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[m];
}

const char *str_nearest(const char *s, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t limit = strlen(s) / 3 + 1;

    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(s, candidates[i]);
        if (d <= limit) {
            limit = d ? d - 1 : 0;
            best = candidates[i];
            if (!d)
                break;
        }
    }
    return best;
}

void secret_wipe(void *p, size_t n)
{
    if (p)
        explicit_bzero(p, n);
}

void secret_freep(char **s)
{
    if (*s)
        secret_wipe(*s, strlen(*s));
    free(*s);
}
