#include "door/swerex/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"

/* ---- UTF-8 ---- */

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* Returns how many bytes must follow this one, and the range of the first of them. */
static size_t tail_of(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    *hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    return c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : 0;
}

enum utf8_fault {
    UTF8_FINE,
    UTF8_START,
    UTF8_TAIL,
    UTF8_END
};

/* Returns the length of the first character, or of the invalid bytes there. */
static size_t text_step(const char *text, size_t n, enum utf8_fault *ret_fault)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char lo, hi;
    size_t tail = tail_of(p[0], &lo, &hi), i = 1;

    *ret_fault = p[0] < 0x80 || tail ? UTF8_FINE : UTF8_START;
    for (; i <= tail && *ret_fault == UTF8_FINE; i++)
        if (i >= n || !is_tail(p[i]) || (i == 1 && (p[i] < lo || p[i] > hi))) {
            *ret_fault = i >= n ? UTF8_END : UTF8_TAIL;
            break;
        }
    return i;
}

size_t rex_char(const char *p, size_t n, uint32_t *ret_char)
{
    static const unsigned char HEAD[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    enum utf8_fault fault;
    size_t len = text_step(p, n, &fault);

    if (fault != UTF8_FINE) {
        *ret_char = 0xdc00 | (unsigned char)*p;
        return 1;
    }
    *ret_char = (unsigned char)*p & HEAD[len];
    for (size_t i = 1; i < len; i++)
        *ret_char = *ret_char << 6 | ((unsigned char)p[i] & 0x3f);
    return len;
}

static void swerex_text_escape(buf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "\\x%02x", (unsigned char)p[i]);
}

void rex_decode(buf *out, const char *p, size_t n)
{
    enum utf8_fault fault;

    buf_reserve(out, n + 1);
    for (size_t i = 0, k; i < n; i += k) {
        size_t plain = i;
        while (plain < n && (unsigned char)p[plain] < 0x80)
            plain++;
        buf_append(out, p + i, plain - i);
        k = plain - i;
        if (plain == n)
            break;
        size_t one = text_step(p + plain, n - plain, &fault);
        if (fault == UTF8_FINE)
            buf_append(out, p + plain, one);
        else
            swerex_text_escape(out, p + plain, one);
        k += one;
    }
}

size_t rex_whole(const char *p, size_t n)
{
    enum utf8_fault fault;

    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (!is_tail((unsigned char)p[n - back])) {
            text_step(p + n - back, back, &fault);
            return fault == UTF8_END ? n - back : n;
        }
    return n;
}

/* ---- terminals ---- */

/* Returns the length of the escape sequence \x1B[@-_][0-?]*[ -/]*[@-~]; 0 if none begins here. */
static size_t text_sequence(const char *p, size_t n)
{
    size_t i = 2;

    if (n < 3 || p[0] != 0x1b || p[1] < '@' || p[1] > '_')
        return 0;
    while (i < n && p[i] >= '0' && p[i] <= '?')
        i++;
    while (i < n && p[i] >= ' ' && p[i] <= '/')
        i++;
    return i < n && p[i] >= '@' && p[i] <= '~' ? i + 1 : 0;
}

/* Two passes, as in SWE-ReX: in one pass a \r\n with a sequence in the middle would not be
 * recognised. */
void rex_strip(buf *text)
{
    size_t to = 0;

    for (size_t i = 0; i < text->len;) {
        size_t n = text_sequence(text->p + i, text->len - i);
        if (!n)
            text->p[to++] = text->p[i];
        i += n ? n : 1;
    }
    text->len = to;
    to = 0;
    for (size_t i = 0; i < text->len; i++)
        if (text->p[i] != '\r' || i + 1 == text->len || text->p[i + 1] != '\n')
            text->p[to++] = text->p[i];
    text->len = to;
}

void rex_trim(buf *text)
{
    size_t from = 0;

    while (text->len && isspace((unsigned char)text->p[text->len - 1]))
        text->len--;
    while (from < text->len && isspace((unsigned char)text->p[from]))
        from++;
    buf_consume(text, from);
}

/* ---- states ---- */

/* Returns true for a read-only variable, and for names of the shell itself or of the session
 * driver. */
static bool is_left_out(const char *line, size_t n)
{
    static const char *const OWN[] = {"__by_", "BASH", "FUNCNAME", "GROUPS", "DIRSTACK", "_="};
    size_t i = strlen("declare -");

    while (i < n && line[i] != ' ')
        if (line[i++] == 'r')
            return true;
    for (size_t k = 0; k < ARRAY_LEN(OWN); k++)
        if (i + 1 + strlen(OWN[k]) <= n && memcmp(line + i + 1, OWN[k], strlen(OWN[k])) == 0)
            return true;
    return false;
}

static bool text_begins(const char *line, size_t n, const char *text)
{
    return n >= strlen(text) && memcmp(line, text, strlen(text)) == 0;
}

void rex_settle(buf *state, const char *mark)
{
    size_t to = 0, at = 0;
    bool drop = false;

    if (!state->len)
        return;
    while (at < state->len) {
        const char *line = state->p + at, *end = memchr(line, '\n', state->len - at);
        size_t n = end ? (size_t)(end - line) + 1 : state->len - at;
        at += n;
        if (text_begins(line, n, mark))
            break;
        if (text_begins(line, n, "declare -"))
            drop = is_left_out(line, n);
        if (!drop) {
            memmove(state->p + to, line, n);
            to += n;
        }
    }
    memmove(state->p + to, state->p + at, state->len - at);
    state->len -= at - to;
}

/* ---- repr ---- */

static void repr_char(buf *out, unsigned char c, char quote)
{
    if (c == '\n')
        buf_str(out, "\\n");
    else if (c == '\r')
        buf_str(out, "\\r");
    else if (c == '\t')
        buf_str(out, "\\t");
    else if (c == '\\' || c == (unsigned char)quote)
        buf_printf(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7f)
        buf_printf(out, "\\x%02x", c);
    else
        buf_char(out, (char)c);
}

void rex_repr(buf *out, const char *p, size_t n)
{
    bool single = memchr(p, '\'', n) != NULL, twofold = memchr(p, '"', n) != NULL;
    char quote = single && !twofold ? '"' : '\'';

    buf_char(out, quote);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i], next = i + 1 < n ? (unsigned char)p[i + 1] : 0;
        if (c == 0xc2 && (next <= 0xa0 || next == 0xad)) { /* C1, no-break space, soft hyphen */
            buf_printf(out, "\\x%02x", next);
            i++;
        } else {
            repr_char(out, c, quote);
        }
    }
    buf_char(out, quote);
}

void rex_repr_float(buf *out, double v)
{
    char text[40];

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    if (strchr(text, 'e') && v < 1e16 && v > -1e16 && (v >= 1e-4 || v <= -1e-4))
        snprintf(text, sizeof text, "%.1f", v); /* 1e+02 */
    buf_str(out, text);
    if (!strpbrk(text, ".en"))
        buf_str(out, ".0");
}

/* ---- files ---- */

enum codec {
    CODEC_UTF8,
    CODEC_ASCII,
    CODEC_LATIN1,
    CODEC_UNKNOWN
};

static enum codec codec_of(const char *name)
{
    static const struct {
        const char *name;
        enum codec is;
    } NAMES[] = {
        {"utf8", CODEC_UTF8},     {"utf_8", CODEC_UTF8},       {"u8", CODEC_UTF8},
        {"ascii", CODEC_ASCII},   {"us_ascii", CODEC_ASCII},   {"646", CODEC_ASCII},
        {"latin1", CODEC_LATIN1}, {"latin_1", CODEC_LATIN1},   {"l1", CODEC_LATIN1},
        {"8859", CODEC_LATIN1},   {"iso8859_1", CODEC_LATIN1}, {"iso_8859_1", CODEC_LATIN1}};
    char plain[24] = "";

    if (!name)
        return CODEC_UTF8;
    for (size_t i = 0; name[i] && i + 1 < sizeof plain; i++)
        plain[i] = name[i] == '-' || name[i] == ' ' ? '_' : (char)tolower((unsigned char)name[i]);
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (str_eq(plain, NAMES[i].name))
            return NAMES[i].is;
    return CODEC_UNKNOWN;
}

static const char *fault_text(enum codec c, enum utf8_fault f)
{
    return c == CODEC_ASCII  ? "ordinal not in range(128)"
           : f == UTF8_START ? "invalid start byte"
           : f == UTF8_TAIL  ? "invalid continuation byte"
                             : "unexpected end of data";
}

static bool refuse_byte(buf *why, const char **ret_class, enum codec c, const char *p, size_t at,
                        size_t n, enum utf8_fault f)
{
    const char *codec = c == CODEC_ASCII ? "ascii" : "utf-8";

    *ret_class = "UnicodeDecodeError";
    if (n == 1)
        buf_printf(why, "'%s' codec can't decode byte 0x%02x in position %zu: %s", codec,
                   (unsigned char)p[at], at, fault_text(c, f));
    else
        buf_printf(why, "'%s' codec can't decode bytes in position %zu-%zu: %s", codec, at,
                   at + n - 1, fault_text(c, f));
    return false;
}

static bool handle_fault(const char *errors, buf *out, const char *p, size_t n)
{
    if (str_eq(errors, "backslashreplace"))
        swerex_text_escape(out, p, n);
    else if (str_eq(errors, "replace"))
        buf_str(out, "\xef\xbf\xbd");
    else if (!str_eq(errors, "ignore"))
        return false;
    return true;
}

/* Translates universal newlines: \r\n and \r become \n. */
static void text_newlines(buf *text)
{
    size_t to = 0;

    for (size_t i = 0; i < text->len; i++) {
        bool cr = text->p[i] == '\r';
        text->p[to++] = cr ? '\n' : text->p[i];
        i += cr && i + 1 < text->len && text->p[i + 1] == '\n';
    }
    text->len = to;
}

static bool known_errors(const char *errors)
{
    return !errors || str_eq(errors, "strict") || str_eq(errors, "backslashreplace") ||
           str_eq(errors, "replace") || str_eq(errors, "ignore");
}

static size_t one_of(enum codec c, const char *p, size_t n, enum utf8_fault *ret_fault)
{
    if (c == CODEC_UTF8)
        return text_step(p, n, ret_fault);
    *ret_fault = (unsigned char)*p < 0x80 || c == CODEC_LATIN1 ? UTF8_FINE : UTF8_START;
    return 1;
}

bool rex_read_text(const char *p, size_t n, const char *encoding, const char *errors, buf *out,
                   const char **ret_class, buf *why)
{
    enum codec c = codec_of(encoding);
    enum utf8_fault fault;

    *ret_class = "LookupError";
    if (c == CODEC_UNKNOWN)
        buf_printf(why, "unknown encoding: %.64s", encoding);
    else if (!known_errors(errors))
        buf_printf(why, "unknown error handler name '%.64s'", errors);
    if (why->len)
        return false;
    for (size_t i = 0, k; i < n; i += k) {
        k = one_of(c, p + i, n - i, &fault);
        if (fault != UTF8_FINE) {
            if (!handle_fault(errors, out, p + i, k))
                return refuse_byte(why, ret_class, c, p, i, k, fault);
        } else if (c == CODEC_LATIN1 && (unsigned char)p[i] >= 0x80) {
            buf_char(out, (char)(0xc0 | (unsigned char)p[i] >> 6));
            buf_char(out, (char)(0x80 | ((unsigned char)p[i] & 0x3f)));
        } else {
            buf_append(out, p + i, k);
        }
    }
    text_newlines(out);
    return true;
}
