#include "door/swerex/expect.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

struct rex_expect {
    size_t n;
    char **pattern;
    regex_t *re;
    regex_t *any; /* the same behind anything, from the text's first byte: see has_any() */
    char *last;
};

/* ---- translation ---- */

typedef struct translation {
    const char *p;
    buf *out;
    unsigned repetitions;
    bool after_group, after_repetition; /* what was translated last */
} translation;

static err *unsupported(const char *pattern, const char *what)
{
    return err_remedy(err_new(ERR_INVALID_REQUEST, "expect: '%.80s': %s", pattern, what),
                      "Use literal text, classes, groups, alternatives and * + ?.");
}

static int hex_of(const char *p)
{
    char digits[3] = {p[0], p[0] ? p[1] : 0, 0};

    return isxdigit((unsigned char)digits[0]) && isxdigit((unsigned char)digits[1])
               ? (int)strtol(digits, NULL, 16)
               : -1;
}

/* The character that a backslash and this letter stand for; 0: none. */
static char control_of(char c)
{
    static const char FROM[] = "ntrfvae", TO[] = "\n\t\r\f\v\a\033";
    const char *at = c ? strchr(FROM, c) : NULL;

    return at ? TO[at - FROM] : 0;
}

static void put_literal(buf *out, char c)
{
    if (strchr(".[]{}()*+?^$|\\", c))
        buf_char(out, '\\');
    buf_char(out, c);
}

/* Behind a backslash, outside a class. */
static err *escape(translation *t)
{
    char c = *t->p++, control = control_of(c);

    if (!c)
        return unsupported("\\", "it ends with a backslash");
    if (control)
        buf_char(t->out, control);
    else if (c == 'd')
        buf_str(t->out, "[0-9]");
    else if (c == 'D')
        buf_str(t->out, "[^0-9]");
    else if (c == 'A')
        buf_char(t->out, '^');
    else if (c == 'Z')
        buf_char(t->out, '$');
    else if (strchr("wWsSbB", c))
        buf_printf(t->out, "\\%c", c);
    else if (c == 'x' && hex_of(t->p) > 0) {
        put_literal(t->out, (char)hex_of(t->p));
        t->p += 2;
    } else if (isalnum((unsigned char)c))
        return unsupported(t->p - 2, "there is no such escape here");
    else
        put_literal(t->out, c);
    return NULL;
}

typedef struct class_parts { /* POSIX wants "]" first and "-" last */
    buf inner;
    bool bracket, dash;
} class_parts;

static void class_parts_done(class_parts *c)
{
    buf_done(&c->inner);
}

static err *class_escape(translation *t, class_parts *c)
{
    char k = *t->p++, control = control_of(k);

    if (control)
        buf_char(&c->inner, control);
    else if (k == 'd')
        buf_str(&c->inner, "0-9");
    else if (k == 'w')
        buf_str(&c->inner, "[:alnum:]_");
    else if (k == 's')
        buf_str(&c->inner, "[:space:]");
    else if (k == ']')
        c->bracket = true;
    else if (k == '-')
        c->dash = true;
    else if (!k || isalnum((unsigned char)k))
        return unsupported(k ? t->p - 2 : "[\\", "there is no such escape in a class");
    else
        buf_char(&c->inner, k);
    return NULL;
}

static err *class_of(translation *t)
{
    CLEANUP(class_parts_done) class_parts c = {0};
    bool negated = *t->p == '^', first = true;
    err *e = NULL;

    t->p += negated;
    for (; !e && *t->p && (first || *t->p != ']'); first = false) {
        char k = *t->p++;
        if (k == '\\')
            e = class_escape(t, &c);
        else if (k == ']')
            c.bracket = true;
        else if (k == '-' && (first || *t->p == ']'))
            c.dash = true;
        else if (k == '[' && strchr(":.=", *t->p) && *t->p)
            e = unsupported(t->p - 1, "classes have no names here");
        else
            buf_char(&c.inner, k);
    }
    TRY(e);
    if (*t->p++ != ']')
        return unsupported("[", "a class does not end");
    if (c.bracket && !c.inner.len && !c.dash) {
        buf_str(t->out, negated ? "[^]]" : "[]]");
        return NULL;
    }
    buf_printf(t->out, "[%s%s%.*s%s]", negated ? "^" : "", c.bracket ? "]" : "", (int)c.inner.len,
               c.inner.len ? c.inner.p : "", c.dash ? "-" : "");
    return NULL;
}

static err *group(translation *t)
{
    buf_char(t->out, '(');
    if (*t->p != '?')
        return NULL;
    if (t->p[1] == ':') {
        t->p += 2;
        return NULL;
    }
    const char *end = str_starts(t->p, "?P<") ? strchr(t->p, '>') : NULL;
    if (!end)
        return unsupported(t->p - 1, "only plain groups can be had");
    t->p = end + 1;
    return NULL;
}

/* {m}, {m,}, {,n}, {m,n}; anything else in braces is literal, as in Python. */
static err *repetition(translation *t)
{
    size_t n = strspn(t->p, "0123456789,");
    unsigned most = 0;

    if (!n || t->p[n] != '}' || (n == 1 && *t->p == ',')) {
        buf_str(t->out, "\\{");
        return NULL;
    }
    for (size_t i = 0, v = 0; i < n; i++) {
        v = t->p[i] == ',' ? 0 : v * 10 + (size_t)(t->p[i] - '0');
        if (v > REX_REPETITIONS_MAX)
            return unsupported(t->p - 1, "too many repetitions");
        most = v > most ? (unsigned)v : most;
    }
    t->repetitions *= most ? most : 1;
    if (t->repetitions > REX_REPETITIONS_MAX)
        return unsupported(t->p - 1, "too many repetitions");
    buf_printf(t->out, "{%s%.*s}", *t->p == ',' ? "0" : "", (int)n, t->p);
    t->p += n + 1;
    return NULL;
}

/* glibc writes down what + repeats twice: of groups in groups that is a power of two. */
static err *admit_repetition(translation *t, char c)
{
    if (t->after_repetition)
        return unsupported(t->p - 1, "a repetition is repeated");
    if (c == '+' && t->after_group)
        t->repetitions *= 2;
    return t->repetitions > REX_REPETITIONS_MAX ? unsupported(t->p - 1, "too many repetitions")
                                                : NULL;
}

static bool is_repetition(const translation *t, char c)
{
    return c == '*' || c == '+' || c == '?' ||
           (c == '{' && isdigit((unsigned char)t->p[*t->p == ',']));
}

static err *translate_token(translation *t, char c)
{
    if (c == '\\')
        return escape(t);
    if (c == '[')
        return class_of(t);
    if (c == '(')
        return group(t);
    if (c == '{')
        TRY(repetition(t));
    else if (c == '}')
        buf_str(t->out, "\\}");
    else
        buf_char(t->out, c);
    if (c && strchr("*+?{", c) && *t->p == '?')
        t->p++; /* as little as it can: nothing that POSIX knows */
    return NULL;
}

static err *translate_one(translation *t)
{
    char c = *t->p++;
    bool repeats = is_repetition(t, c);

    if (repeats)
        TRY(admit_repetition(t, c));
    TRY(translate_token(t, c));
    t->after_group = c == ')';
    t->after_repetition = repeats;
    return NULL;
}

err *rex_pattern_translate(const char *pattern, buf *out)
{
    translation t = {.p = pattern, .out = out, .repetitions = 1};

    while (*t.p)
        TRY(translate_one(&t));
    return NULL;
}

/* ---- search ---- */

static err *compile_posix(const char *pattern, const char *posix, int flags, regex_t *ret)
{
    char why[128];
    int bad = regcomp(ret, posix, REG_EXTENDED | flags);

    if (!bad)
        return NULL;
    regerror(bad, ret, why, sizeof why);
    return unsupported(pattern, why);
}

static err *compile(const char *pattern, regex_t *ret, regex_t *ret_any)
{
    CLEANUP(buf_done) buf posix = {0};

    if (!*pattern)
        return unsupported("", "it is empty");
    if (strlen(pattern) > REX_PATTERN_MAX)
        return unsupported(pattern, "it is too long");
    TRY(rex_pattern_translate(pattern, &posix));
    TRY(compile_posix(pattern, buf_cstr(&posix), 0, ret));
    CLEANUP(freep) char *behind = str_printf("^.*(%s)", buf_cstr(&posix));
    err *e = compile_posix(pattern, behind, REG_NOSUB, ret_any);
    if (e)
        regfree(ret);
    return e;
}

err *rex_expect_new(char *const *patterns, const char *last, rex_expect **ret_expect)
{
    size_t n = strv_len(patterns);

    if (n > REX_EXPECT_MAX)
        return err_new(ERR_INVALID_REQUEST, "expect: more than %u patterns", REX_EXPECT_MAX);
    rex_expect *e = xcalloc(1, sizeof *e);
    e->pattern = strv_copy(patterns);
    e->re = xcalloc(n + 1, sizeof *e->re);
    e->any = xcalloc(n + 1, sizeof *e->any);
    e->last = xstrdup(last);
    for (; e->n < n; e->n++) {
        err *failure = compile(patterns[e->n], &e->re[e->n], &e->any[e->n]);
        if (failure) {
            rex_expect_free(e);
            return failure;
        }
    }
    *ret_expect = e;
    return NULL;
}

void rex_expect_free(rex_expect *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->n; i++) {
        regfree(&e->re[i]);
        regfree(&e->any[i]);
    }
    strv_free(e->pattern);
    free(e->re);
    free(e->any);
    free(e->last);
    free(e);
}

/* Whether there may be a match. glibc begins anew at every byte of a text, and may read to its end
 * each time; of what is bound to the first byte it reads each byte once. */
static bool has_any(const regex_t *any, const char *text, size_t n, int flags)
{
    regmatch_t m = {.rm_so = 0, .rm_eo = (regoff_t)n};

    return regexec(any, text, 0, &m, REG_STARTEND | flags) == 0;
}

/* The patterns alone, in [from, to) of n bytes. */
static bool find_within(const rex_expect *e, const char *text, size_t from, size_t to, size_t n,
                        rex_match *ret_match)
{
    int flags = to < n ? REG_NOTEOL : 0;
    bool found = false;

    for (size_t i = e->n; i-- > 0;) {
        regmatch_t m = {.rm_so = (regoff_t)from, .rm_eo = (regoff_t)to};
        if (!has_any(&e->any[i], text + from, to - from, flags) ||
            regexec(&e->re[i], text, 1, &m, REG_STARTEND | flags) != 0)
            continue;
        if (!found || (size_t)m.rm_so <= ret_match->from)
            *ret_match = (rex_match){(size_t)m.rm_so, (size_t)m.rm_eo, e->pattern[i], false};
        found = true;
    }
    return found;
}

bool rex_expect_find(const rex_expect *e, const char *text, size_t n, size_t from,
                     rex_match *ret_match)
{
    size_t nlast = strlen(e->last);
    const char *at = memmem(text + from, n - from, e->last, nlast);
    size_t last = at ? (size_t)(at - text) : n;

    for (size_t to = from; e->n && to < n && from <= last; from += REX_WINDOW) {
        to = n - from > 2 * REX_WINDOW ? from + 2 * REX_WINDOW : n;
        if (find_within(e, text, from, to, n, ret_match) && (!at || ret_match->from <= last))
            return true;
    }
    if (at)
        *ret_match = (rex_match){last, last + nlast, e->last, true};
    return at != NULL;
}
