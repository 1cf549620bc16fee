#include "door/swerex/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "door/swerex/text.h"

static err *pattern_refuse(const char *at, const char *what)
{
    return err_remedy(err_new(ERR_INVALID_REQUEST, "expect: '%.80s': %s", at, what),
                      "Use literal text, classes, groups, alternatives and * + ?.");
}

/* ---- the program ---- */

void rex_program_done(rex_program *p)
{
    free(p->step);
    free(p->class);
    free(p->range);
}

static void *program_grow(void *items, size_t need, size_t *cap, size_t size)
{
    if (need <= *cap)
        return items;
    *cap = need < 32 ? 32 : need * 2;
    return xrealloc(items, *cap * size);
}

/* Makes room for n instructions at `at`; later instructions move. */
static void program_open(rex_program *p, size_t at, size_t n)
{
    p->step = program_grow(p->step, p->n + n, &p->cap, sizeof *p->step);
    memmove(p->step + at + n, p->step + at, (p->n - at) * sizeof *p->step);
    p->n += n;
}

static void program_insert(rex_program *p, size_t at, enum rex_op op, size_t x)
{
    program_open(p, at, 1);
    p->step[at] = (rex_step){op, (int32_t)x};
}

void rex_program_put(rex_program *p, enum rex_op op, int32_t x)
{
    program_open(p, p->n, 1);
    p->step[p->n - 1] = (rex_step){op, x};
}

void rex_program_add_text(rex_program *p, const char *text, int32_t number)
{
    size_t n = strlen(text);
    uint32_t c;

    for (size_t k; n; text += k, n -= k) {
        k = rex_char(text, n, &c);
        rex_program_put(p, REX_CHAR, (int32_t)c);
    }
    rex_program_put(p, REX_MATCH, number);
}

/* ---- classes ---- */

bool rex_is_word(uint32_t c)
{
    return c == '_' || iswalnum((wint_t)c);
}

static bool kind_has(unsigned kind, uint32_t c)
{
    if (kind == REX_DIGIT)
        return c >= '0' && c <= '9';
    return kind == REX_WORD ? rex_is_word(c) : iswspace((wint_t)c) != 0;
}

static bool class_finds(const rex_program *p, const rex_class *c, uint32_t character)
{
    for (unsigned i = 0, kind = 1; i < REX_KINDS; i++, kind <<= 1) {
        if ((c->kinds & kind) && kind_has(kind, character))
            return true;
        if ((c->other_kinds & kind) && !kind_has(kind, character))
            return true;
    }
    for (size_t i = c->first; i < c->first + c->n; i++)
        if (character >= p->range[i].from && character <= p->range[i].to)
            return true;
    return false;
}

bool rex_class_has(const rex_program *p, const rex_class *c, uint32_t character)
{
    if (character < 128)
        return c->ascii[character / 64] >> character % 64 & 1;
    return class_finds(p, c, character) != c->negated;
}

/* Appends a complete class, and the instruction that consumes one of its characters. */
static void class_put(rex_program *p, rex_class *c)
{
    for (uint32_t i = 0; i < 128; i++)
        if (class_finds(p, c, i) != c->negated)
            c->ascii[i / 64] |= UINT64_C(1) << i % 64;
    p->class = program_grow(p->class, p->nclasses + 1, &p->classes_cap, sizeof *p->class);
    p->class[p->nclasses] = *c;
    rex_program_put(p, REX_CLASS, (int32_t)p->nclasses++);
}

static void class_add_range(rex_program *p, rex_class *c, uint32_t from, uint32_t to)
{
    p->range = program_grow(p->range, p->nranges + 1, &p->ranges_cap, sizeof *p->range);
    p->range[p->nranges++] = (rex_range){from, to};
    c->n++;
}

/* ---- reader ---- */

typedef struct group {
    size_t from;        /* its first instruction */
    size_t alternative; /* first instruction of the alternative being read */
    size_t last_jump;   /* last alternative's jump; 0: none. Chained: x is the distance back */
} group;

typedef struct reader {
    const char *p;
    rex_program *out;
    size_t base;  /* where the pattern's program begins */
    size_t atom;  /* first instruction of the part that a repetition would repeat; SIZE_MAX: none */
    bool counted; /* that part is itself a repetition */
    group group[REX_NESTING_MAX + 1];
    size_t depth;
} reader;

static err *reader_admit(const reader *r, uint64_t more)
{
    if (r->out->n - r->base + more <= REX_PROGRAM_MAX)
        return NULL;
    return pattern_refuse(r->p, "the pattern is too large with its repetitions written out");
}

static int hex_of(const char *p)
{
    char digits[3] = {p[0], p[0] ? p[1] : 0, 0};

    return isxdigit((unsigned char)digits[0]) && isxdigit((unsigned char)digits[1])
               ? (int)strtol(digits, NULL, 16)
               : -1;
}

/* Returns the character that a backslash and this letter stand for; 0 if there is none. */
static char control_of(char c)
{
    static const char FROM[] = "ntrfvae", TO[] = "\n\t\r\f\v\a\033";
    const char *at = c ? strchr(FROM, c) : NULL;

    return at ? TO[at - FROM] : 0;
}

static unsigned kind_of(char c)
{
    c = (char)tolower((unsigned char)c);
    return c == 'd' ? REX_DIGIT : c == 'w' ? REX_WORD : c == 's' ? REX_SPACE : 0;
}

/* Adds the kind of characters that a letter after a backslash names. Returns false if it names
 * none. */
static bool class_add_kind(rex_class *c, char letter)
{
    unsigned kind = kind_of(letter);

    *(isupper((unsigned char)letter) ? &c->other_kinds : &c->kinds) |= kind;
    return kind != 0;
}

static uint32_t read_plain(reader *r)
{
    uint32_t c;

    r->p += rex_char(r->p, strnlen(r->p, 4), &c);
    return c;
}

/* Reads an escape that stands for one character, after its backslash. */
static err *read_escaped(reader *r, uint32_t *ret)
{
    char c = *r->p;

    if (!c)
        return pattern_refuse("\\", "it ends with a backslash");
    if (control_of(c)) {
        *ret = (uint32_t)control_of(c);
        r->p++;
    } else if (c == 'x' && hex_of(r->p + 1) >= 0) {
        *ret = (uint32_t)hex_of(r->p + 1);
        r->p += 3;
    } else if (isalnum((unsigned char)c)) {
        return pattern_refuse(r->p - 1, "there is no such escape here");
    } else {
        *ret = read_plain(r);
    }
    return NULL;
}

static err *read_escape(reader *r)
{
    static const struct {
        char letter;
        enum rex_op op;
    } ASSERTIONS[] = {{'A', REX_START}, {'Z', REX_END}, {'b', REX_EDGE}, {'B', REX_NO_EDGE}};
    rex_class c = {.first = r->out->nranges};
    uint32_t literal;

    for (size_t i = 0; i < ARRAY_LEN(ASSERTIONS); i++)
        if (*r->p == ASSERTIONS[i].letter) {
            r->p++;
            r->atom = SIZE_MAX;
            rex_program_put(r->out, ASSERTIONS[i].op, 0);
            return NULL;
        }
    if (class_add_kind(&c, *r->p)) {
        r->p++;
        class_put(r->out, &c);
        return NULL;
    }
    TRY(read_escaped(r, &literal));
    rex_program_put(r->out, REX_CHAR, (int32_t)literal);
    return NULL;
}

/* Reads a member of a class: a character, or a kind of characters (*ret_kind). */
static err *read_member(reader *r, rex_class *c, uint32_t *ret, bool *ret_kind)
{
    *ret_kind = *r->p == '\\' && class_add_kind(c, r->p[1]);
    if (*ret_kind)
        r->p += 2;
    else if (*r->p == '\\') {
        r->p++;
        return read_escaped(r, ret);
    } else if (*r->p == '[' && r->p[1] && strchr(":.=", r->p[1]))
        return pattern_refuse(r->p, "classes have no names here");
    else
        *ret = read_plain(r);
    return NULL;
}

static err *read_members(reader *r, rex_class *c)
{
    const char *began = r->p;
    uint32_t from = 0, to = 0;
    bool kind = false;

    TRY(read_member(r, c, &from, &kind));
    bool ranges = *r->p == '-' && r->p[1] && r->p[1] != ']';
    if (kind && !ranges)
        return NULL;
    to = from;
    if (ranges) {
        bool to_kind = false;
        r->p++;
        TRY(read_member(r, c, &to, &to_kind));
        if (kind || to_kind || to < from)
            return pattern_refuse(began, "a range of characters has no such ends");
    }
    class_add_range(r->out, c, from, to);
    return NULL;
}

static err *read_class(reader *r)
{
    rex_class c = {.negated = *r->p == '^', .first = r->out->nranges};

    r->p += c.negated;
    for (bool first = true; *r->p && (first || *r->p != ']'); first = false)
        TRY(read_members(r, &c));
    if (*r->p++ != ']')
        return pattern_refuse("[", "a class does not end");
    class_put(r->out, &c);
    return NULL;
}

static void group_enter(reader *r)
{
    r->group[r->depth] = (group){.from = r->out->n, .alternative = r->out->n};
    r->atom = SIZE_MAX;
}

static err *read_group(reader *r)
{
    if (*r->p == '?') {
        const char *end = str_starts(r->p, "?:")    ? r->p + 1
                          : str_starts(r->p, "?P<") ? strchr(r->p, '>')
                                                    : NULL;
        if (!end)
            return pattern_refuse(r->p - 1, "only plain groups can be had");
        r->p = end + 1;
    }
    if (r->depth == REX_NESTING_MAX)
        return pattern_refuse(r->p, "groups are nested too deep");
    r->depth++;
    group_enter(r);
    return NULL;
}

/* Ends a group: makes its earlier alternatives jump to the instruction after it. */
static void group_leave(reader *r)
{
    const group *g = &r->group[r->depth];

    for (size_t at = g->last_jump, before; at; at = before) {
        rex_step *jump = &r->out->step[at];
        before = jump->x ? at - (size_t)jump->x : 0;
        jump->x = (int32_t)(r->out->n - at);
    }
    r->atom = g->from;
}

static err *read_group_end(reader *r)
{
    if (!r->depth)
        return pattern_refuse(r->p - 1, "a parenthesis closes no group");
    group_leave(r);
    r->depth--;
    return NULL;
}

static void read_alternative(reader *r)
{
    group *g = &r->group[r->depth];

    program_insert(r->out, g->alternative, REX_SPLIT_NEXT, r->out->n - g->alternative + 2);
    rex_program_put(r->out, REX_JUMP, g->last_jump ? (int32_t)(r->out->n - g->last_jump) : 0);
    g->last_jump = r->out->n - 1;
    g->alternative = r->out->n;
    r->atom = SIZE_MAX;
}

/* ---- repetitions ---- */

typedef struct count {
    unsigned least, most; /* UINT_MAX: no limit */
    bool lazy;
} count;

static err *read_number(reader *r, unsigned otherwise, unsigned *ret)
{
    unsigned v = 0;

    *ret = otherwise;
    for (; isdigit((unsigned char)*r->p); r->p++) {
        v = v * 10 + (unsigned)(*r->p - '0');
        if (v > REX_COUNT_MAX)
            return pattern_refuse(r->p, "too many repetitions");
        *ret = v;
    }
    return NULL;
}

/* Returns true for {m}, {m,}, {,n}, {m,n} (after the brace). Other braces are literal, as in
 * Python. */
static bool is_count(const char *p)
{
    size_t first = strspn(p, "0123456789"), comma = p[first] == ',';
    size_t second = comma ? strspn(p + first + 1, "0123456789") : 0;

    return first + second && p[first + comma + second] == '}';
}

static err *read_count(reader *r, count *ret)
{
    const char *began = r->p;

    TRY(read_number(r, 0, &ret->least));
    ret->most = ret->least;
    if (*r->p == ',') {
        r->p++;
        TRY(read_number(r, UINT32_MAX, &ret->most));
    }
    if (ret->least > ret->most)
        return pattern_refuse(began, "a repetition ends before it begins");
    r->p++; /* the brace */
    return NULL;
}

/* Appends a copy of n instructions. */
static void program_copy(rex_program *p, size_t from, size_t n)
{
    size_t at = p->n;

    program_open(p, at, n);
    memcpy(p->step + at, p->step + from, n * sizeof *p->step);
}

/* Writes the repetitions after the required copies: a loop, or optional copies up to the
 * maximum. */
static void repeat_rest(reader *r, size_t from, size_t n, const count *c)
{
    enum rex_op enter = c->lazy ? REX_SPLIT_JUMP : REX_SPLIT_NEXT;
    enum rex_op again = c->lazy ? REX_SPLIT_NEXT : REX_SPLIT_JUMP;

    if (c->most == UINT32_MAX) {
        rex_program_put(r->out, again, -(int32_t)n);
        return;
    }
    size_t left = c->most - c->least, end = r->out->n + left * (n + 1);
    for (; left; left--) {
        rex_program_put(r->out, enter, (int32_t)(end - r->out->n));
        program_copy(r->out, from, n);
    }
}

/* Makes an atom optional that may be absent: its first copy can be skipped. */
static void repeat_from_none(reader *r, size_t n, count *c)
{
    size_t from = r->atom;

    c->least = 1;
    repeat_rest(r, from, n, c);
    program_insert(r->out, from, c->lazy ? REX_SPLIT_JUMP : REX_SPLIT_NEXT, r->out->n - from + 1);
}

static err *repeat_atom(reader *r, count *c)
{
    size_t from = r->atom, n = r->out->n - from;
    uint64_t copies = c->most == UINT32_MAX ? c->least + 1 : c->most;

    if (!n)
        return NULL;
    TRY(reader_admit(r, copies * (n + 1) + 2));
    if (!c->most) {
        r->out->n = from;
    } else if (!c->least) {
        repeat_from_none(r, n, c);
    } else {
        for (unsigned i = 1; i < c->least; i++)
            program_copy(r->out, from, n);
        repeat_rest(r, c->least > 1 ? r->out->n - n : from, n, c);
    }
    return NULL;
}

static err *read_repetition(reader *r, char kind)
{
    count c = {.least = kind == '+', .most = kind == '?' ? 1 : UINT32_MAX};

    if (kind == '{')
        TRY(read_count(r, &c));
    c.lazy = *r->p == '?';
    r->p += c.lazy;
    if (r->atom == SIZE_MAX)
        return pattern_refuse(r->p - 1, "there is nothing to repeat");
    if (r->counted)
        return pattern_refuse(r->p - 1, "a repetition is repeated");
    return repeat_atom(r, &c);
}

/* ---- a pattern ---- */

static err *read_assertion(reader *r, enum rex_op op)
{
    rex_program_put(r->out, op, 0);
    r->atom = SIZE_MAX;
    return NULL;
}

static err *read_literal(reader *r)
{
    rex_program_put(r->out, REX_CHAR, (int32_t)read_plain(r));
    return NULL;
}

/* Reads an atom. By default r->atom is set to what it appends. */
static err *read_atom(reader *r)
{
    r->atom = r->out->n;
    switch (*r->p++) {
    case '\\':
        return read_escape(r);
    case '[':
        return read_class(r);
    case '(':
        return read_group(r);
    case ')':
        return read_group_end(r);
    case '.':
        rex_program_put(r->out, REX_ANY, 0);
        return NULL;
    case '^':
        return read_assertion(r, REX_START);
    case '$':
        return read_assertion(r, REX_END);
    case '|':
        read_alternative(r);
        return NULL;
    default:
        r->p--;
        return read_literal(r);
    }
}

static bool is_repetition(const char *p)
{
    return *p == '*' || *p == '+' || *p == '?' || (*p == '{' && is_count(p + 1));
}

static err *read_one(reader *r)
{
    bool repeats = is_repetition(r->p);

    TRY(reader_admit(r, 4));
    if (repeats)
        TRY(read_repetition(r, *r->p++));
    else
        TRY(read_atom(r));
    r->counted = repeats;
    return NULL;
}

err *rex_program_add(rex_program *p, const char *pattern, int32_t number)
{
    reader r = {.p = pattern, .out = p, .base = p->n, .atom = SIZE_MAX};

    if (!*pattern)
        return pattern_refuse("", "it is empty");
    if (strlen(pattern) > REX_PATTERN_MAX)
        return pattern_refuse(pattern, "it is too long");
    group_enter(&r);
    while (*r.p)
        TRY(read_one(&r));
    if (r.depth)
        return pattern_refuse(pattern, "a group does not end");
    group_leave(&r);
    rex_program_put(p, REX_MATCH, number);
    return NULL;
}
