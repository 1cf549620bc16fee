/* Frames, trailers, and the risks of a command's text. No I/O. */
#include "session/frame.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define RS '\036'

/* ---- frames ---- */

err *frame_check(const char *text, size_t n)
{
    if (n > FRAME_TEXT)
        return err_remedy(
            err_new(ERR_TOO_LARGE, "a command of %zu bytes, the limit is %u", n, FRAME_TEXT),
            "Put it into a file of the sandbox and run that.");
    if (n && memchr(text, 0, n))
        return err_new(ERR_INVALID_REQUEST, "command: a NUL byte cannot be in it");
    return NULL;
}

/* Quotes a text. Inside single quotes only a quote and a newline need care. */
static void put_quoted(buf *out, const char *p, size_t n)
{
    buf_char(out, '\'');
    for (size_t i = 0; i < n;) {
        size_t k = i;
        while (k < n && p[k] != '\'' && p[k] != '\n')
            k++;
        buf_append(out, p + i, k - i);
        if (k < n)
            buf_str(out, p[k] == '\n' ? "'\"$__by_n\"'" : "'\\''");
        i = k + 1;
    }
    buf_char(out, '\'');
}

static void put_head(const frame *f, buf *out)
{
    buf_printf(out, "%s%s%s%s__by_t=%.8s __by_u=%s", f->savepoint ? "__by_b=3 " : "",
               f->merge ? "__by_r=7 " : "", f->keep ? "__by_y=1 " : "",
               f->readonly ? "__by_z=1 " : "", f->token, f->token + 8);
}

void frame_write(const frame *f, buf *out)
{
    bool open = !f->n || f->text[f->n - 1] != '\n'; /* the last line has no newline */

    if (f->lead)
        buf_char(out, '\n');
    if (f->fold)
        buf_str(out, "__by_b=7\n");
    if (f->bulk) {
        buf_printf(out, "LC_ALL=C command read -r -N %zu __by_c <&3; ", f->n + open);
        put_head(f, out);
        buf_char(out, '\n');
        buf_append(out, f->text, f->n);
        if (open)
            buf_char(out, '\n');
        return;
    }
    put_head(f, out);
    buf_str(out, " __by_c=");
    put_quoted(out, f->text, f->n);
    if (open)
        buf_str(out, "\"$__by_n\"");
    buf_char(out, '\n');
}

/* ---- trailers ---- */

static bool take_number(const char **p, const char *end, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    const char *at = *p;

    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        v = v * 10 + (uint64_t)(*at - '0');
        if (v > max)
            return false;
    }
    if (at == *p || at == end || *at != ' ')
        return false;
    *p = at + 1;
    *ret = v;
    return true;
}

/* Parses the part between token and RS: " kind status pid cwd". */
static bool parse_body(const char *p, const char *end, trailer *t)
{
    uint64_t status = 0, pid = 0;

    if (end - p < 3 || p[0] != ' ' || p[2] != ' ' || !strchr(t->own ? "EX" : "RPYBDA", p[1]))
        return false;
    t->kind = p[1];
    p += 3;
    if (!take_number(&p, end, 255, &status) || !take_number(&p, end, UINT32_MAX, &pid))
        return false;
    t->status = (int)status;
    t->pid = (uint32_t)pid;
    t->cwd = p;
    t->ncwd = (size_t)(end - p);
    return true;
}

/* Returns the RS that a newline follows, or NULL. */
static const char *find_end(const char *p, size_t n)
{
    const char *at = p, *end = p + n;

    while (at < end && (at = memchr(at, RS, (size_t)(end - at)))) {
        if (at + 1 < end && at[1] == '\n')
            return at;
        at++;
    }
    return NULL;
}

/* Decides about the bytes at p, which begin with RS: a trailer, a part of one, or none. */
static enum trailer_found frame_look(const char *p, size_t n, const char *session,
                                     const char *command, trailer *t)
{
    size_t have = n - 1 < FRAME_TOKEN ? n - 1 : FRAME_TOKEN;
    bool own = command && !memcmp(p + 1, command, have);

    if (!own && memcmp(p + 1, session, have) != 0)
        return TRAILER_NONE;
    if (n < 1 + FRAME_TOKEN)
        return TRAILER_HALF;
    size_t max = n < TRAILER_MAX ? n : TRAILER_MAX;
    const char *body = p + 1 + FRAME_TOKEN, *end = find_end(body, max - 1 - FRAME_TOKEN);
    if (!end)
        return n < TRAILER_MAX ? TRAILER_HALF : TRAILER_NONE;
    *t = (trailer){.own = own, .n = (size_t)(end + 2 - p)};
    return parse_body(body, end, t) ? TRAILER_HERE : TRAILER_NONE;
}

enum trailer_found trailer_find(const char *p, size_t n, const char *session, const char *command,
                                size_t *ret_at, trailer *ret_trailer)
{
    const char *at = p, *end = p + n;

    while (at < end && (at = memchr(at, RS, (size_t)(end - at)))) {
        enum trailer_found f = frame_look(at, (size_t)(end - at), session, command, ret_trailer);
        if (f != TRAILER_NONE) {
            *ret_at = (size_t)(at - p);
            return f;
        }
        at++;
    }
    *ret_at = n;
    return TRAILER_NONE;
}

/* ---- dialects ---- */

const char *dialect_name(enum dialect d)
{
    static const char *const NAMES[] = {
        [DIALECT_BASH] = "bash", [DIALECT_DASH] = "dash", [DIALECT_ASH] = "ash"};

    return (size_t)d < ARRAY_LEN(NAMES) ? NAMES[d] : NULL;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static const struct {
    const char *word;
    unsigned risks, risks_ash;
} WORDS[] = {
    {"exec", RISK_REPLACE, RISK_REPLACE},
    {"trap", RISK_REPLACE, RISK_REPLACE},
    {"kill", RISK_KILL, RISK_KILL},
    {"pkill", RISK_KILL, RISK_KILL},
    {"killall", RISK_KILL, RISK_KILL},
    {"readonly", RISK_READONLY, RISK_READONLY | RISK_REPLACE},
    {"declare", RISK_READONLY, RISK_READONLY},
    {"typeset", RISK_READONLY, RISK_READONLY},
    {"exit", 0, RISK_REPLACE},
    {"set", 0, RISK_REPLACE},
    {"return", 0, RISK_REPLACE},
    {"break", 0, RISK_REPLACE},
    {"continue", 0, RISK_REPLACE},
    {"shift", 0, RISK_REPLACE},
    {"unset", 0, RISK_REPLACE},
    {"source", 0, RISK_REPLACE},
};

static unsigned word_risks(const char *p, size_t n, bool ash)
{
    for (size_t i = 0; i < ARRAY_LEN(WORDS); i++)
        if (strlen(WORDS[i].word) == n && !memcmp(p, WORDS[i].word, n))
            return ash ? WORDS[i].risks_ash : WORDS[i].risks;
    return 0;
}

/* For ash: an error in an expansion, or the dot command. */
static bool is_sharp(const char *p, size_t i, size_t n)
{
    char before = i ? p[i - 1] : '\n';

    if (p[i] == '?' || (p[i] == '$' && n - i > 2 && p[i + 1] == '(' && p[i + 2] == '('))
        return true;
    return p[i] == '.' && strchr(" \t\n;&|", before) && i + 1 < n && strchr(" \t\n", p[i + 1]);
}

unsigned frame_risks(const char *text, size_t n, enum dialect d)
{
    bool ash = d != DIALECT_BASH && d != DIALECT_DASH;
    unsigned risks = 0;

    for (size_t i = 0; i < n;) {
        size_t k = i;
        while (k < n && is_word(text[k]))
            k++;
        if (k > i && !(i && text[i - 1] == '-')) /* find -exec is harmless */
            risks |= word_risks(text + i, k - i, ash);
        if (ash && k < n && is_sharp(text, k, n))
            risks |= RISK_REPLACE;
        i = k > i ? k : i + 1;
    }
    return risks;
}
