#include "door/swerex/expect.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "door/swerex/pattern.h"
#include "door/swerex/text.h"

#define NOWHERE UINT32_MAX /* no place in the program */
#define NO_CHAR UINT32_MAX /* beginning or end of the text */

typedef struct place { /* place in the program, of a match that began at `from` */
    uint32_t pc;
    uint64_t from;
} place;

typedef struct places { /* in order of priority */
    place *at;
    size_t n;
} places;

struct rex_expect {
    char **pattern;
    size_t n; /* number of patterns; `last` has this number */
    rex_program program;
    uint64_t begin, at; /* offsets in the text: where the search began, the next byte */
    uint32_t before;    /* the character before `at` */
    places now, next;
    uint32_t *seen; /* for each instruction, the last round that reached it */
    uint32_t *todo; /* stack of instructions still to follow */
    uint32_t round;
    size_t work;
    bool found;
    rex_match match;
};

/* ---- an expect ---- */

static err *expect_compile(rex_expect *e, char *const *patterns, const char *last)
{
    rex_program *p = &e->program;

    for (size_t i = 0; i < e->n; i++) {
        size_t split = p->n;
        rex_program_put(p, REX_SPLIT_NEXT, 0);
        TRY(rex_program_add(p, patterns[i], (int32_t)i));
        p->step[split].x = (int32_t)(p->n - split);
        if (p->n > REX_PROGRAMS_MAX)
            return err_remedy(err_new(ERR_INVALID_REQUEST, "expect: the patterns are too large"),
                              "Use fewer or shorter ones, or smaller repetitions.");
    }
    rex_program_add_text(p, last, (int32_t)e->n);
    return NULL;
}

err *rex_expect_new(char *const *patterns, const char *last, rex_expect **ret_expect)
{
    size_t n = strv_len(patterns);

    if (n > REX_EXPECT_MAX)
        return err_new(ERR_INVALID_REQUEST, "expect: more than %u patterns", REX_EXPECT_MAX);
    rex_expect *e = xcalloc(1, sizeof *e);
    e->pattern = strv_copy(patterns);
    e->n = n;
    err *failure = expect_compile(e, patterns, last);
    if (failure) {
        rex_expect_free(e);
        return failure;
    }
    e->now.at = xcalloc(e->program.n, sizeof *e->now.at);
    e->next.at = xcalloc(e->program.n, sizeof *e->next.at);
    e->seen = xcalloc(e->program.n, sizeof *e->seen);
    e->todo = xcalloc(e->program.n + 1, sizeof *e->todo);
    rex_expect_begin(e, 0);
    *ret_expect = e;
    return NULL;
}

void rex_expect_free(rex_expect *e)
{
    if (!e)
        return;
    strv_free(e->pattern);
    rex_program_done(&e->program);
    free(e->now.at);
    free(e->next.at);
    free(e->seen);
    free(e->todo);
    free(e);
}

size_t rex_expect_size(const rex_expect *e)
{
    const rex_program *p = &e->program;

    return p->cap * sizeof *p->step + p->classes_cap * sizeof *p->class +
           p->ranges_cap * sizeof *p->range +
           p->n * (2 * sizeof(place) + sizeof *e->seen + sizeof *e->todo);
}

void rex_expect_begin(rex_expect *e, uint64_t at)
{
    e->begin = e->at = at;
    e->before = NO_CHAR;
    e->now.n = 0;
    e->found = false;
}

uint64_t rex_expect_begun(const rex_expect *e)
{
    return e->begin;
}

uint64_t rex_expect_at(const rex_expect *e)
{
    return e->at;
}

/* ---- the machine ---- */

static void expect_new_round(rex_expect *e)
{
    if (++e->round)
        return;
    memset(e->seen, 0, e->program.n * sizeof *e->seen);
    e->round = 1;
}

static bool is_word(uint32_t c)
{
    return c != NO_CHAR && rex_is_word(c);
}

static bool expect_consumes(rex_expect *e, const rex_step *s, uint32_t c)
{
    if (c == NO_CHAR || s->op != REX_CLASS)
        return c != NO_CHAR && (s->op == REX_ANY || (uint32_t)s->x == c);
    const rex_class *class = &e->program.class[s->x];
    e->work += c < 128 ? 0 : class->n;
    return rex_class_has(&e->program, class, c);
}

static bool expect_holds(const rex_expect *e, enum rex_op op, uint32_t c)
{
    if (op == REX_START)
        return e->at == e->begin;
    if (op == REX_END)
        return c == NO_CHAR;
    return (is_word(e->before) != is_word(c)) == (op == REX_EDGE);
}

static void expect_match(rex_expect *e, size_t number, uint64_t from)
{
    bool last = number == e->n;

    e->found = true;
    e->match = (rex_match){from, e->at, last ? NULL : e->pattern[number], last};
}

/* Follows one instruction in front of the character c. Returns the next instruction, or NOWHERE.
 * Pushes a second choice, of lower priority, to `todo`. */
static uint32_t expect_step(rex_expect *e, uint32_t pc, uint64_t from, uint32_t c, size_t *ntodo)
{
    const rex_step *s = &e->program.step[pc];
    uint32_t jump = (uint32_t)((int32_t)pc + s->x);

    switch (s->op) {
    case REX_JUMP:
        return jump;
    case REX_SPLIT_NEXT:
        e->todo[(*ntodo)++] = jump;
        return pc + 1;
    case REX_SPLIT_JUMP:
        e->todo[(*ntodo)++] = pc + 1;
        return jump;
    case REX_START:
    case REX_END:
    case REX_EDGE:
    case REX_NO_EDGE:
        return expect_holds(e, s->op, c) ? pc + 1 : NOWHERE;
    default:
        if (expect_consumes(e, s, c))
            e->next.at[e->next.n++] = (place){pc + 1, from};
        return NOWHERE;
    }
}

/* Follows everything that a place leads to in front of c. Each instruction is followed once a
 * round, by the place of highest priority. Returns true if it led to a match, so that places of
 * lower priority are dropped. */
static bool expect_follow(rex_expect *e, place at, uint32_t c)
{
    size_t n = 0;

    e->todo[n++] = at.pc;
    while (n) {
        uint32_t pc = e->todo[--n];
        while (pc != NOWHERE && e->seen[pc] != e->round) {
            e->seen[pc] = e->round;
            e->work++;
            if (e->program.step[pc].op == REX_MATCH) {
                expect_match(e, (size_t)e->program.step[pc].x, at.from);
                return true;
            }
            pc = expect_step(e, pc, at.from, c, &n);
        }
    }
    return false;
}

/* Follows all places in front of c, and a new match that may begin here. Fills `next` with the
 * places after c. */
static void expect_round(rex_expect *e, uint32_t c)
{
    bool over = false;

    expect_new_round(e);
    e->next.n = 0;
    for (size_t i = 0; i < e->now.n && !over; i++)
        over = expect_follow(e, e->now.at[i], c);
    if (!over && !e->found)
        expect_follow(e, (place){0, e->at}, c);
}

static void expect_advance(rex_expect *e, uint32_t c, size_t bytes)
{
    places was = e->now;

    expect_round(e, c);
    e->now = e->next;
    e->next = was;
    e->before = c;
    e->at += bytes;
}

static enum rex_found expect_told(rex_expect *e, rex_match *ret_match)
{
    *ret_match = e->match;
    rex_expect_begin(e, e->match.to);
    return REX_FOUND;
}

enum rex_found rex_expect_read(rex_expect *e, const char *p, size_t n, bool all,
                               rex_match *ret_match)
{
    uint32_t c;

    e->work = 0;
    for (size_t k; n; p += k, n -= k) {
        if (e->work >= REX_WORK_MAX)
            return REX_MORE;
        k = rex_char(p, n, &c);
        expect_advance(e, c, k);
        if (e->found && (!e->now.n || e->at - e->match.to > REX_WINDOW))
            return expect_told(e, ret_match);
    }
    if (!all)
        return REX_NOTHING;
    if (e->at > e->begin)
        expect_round(e, NO_CHAR);
    return e->found ? expect_told(e, ret_match) : REX_NOTHING;
}
