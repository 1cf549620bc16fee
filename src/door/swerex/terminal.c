/* Terminals of sessions: which there are, and what comes from them. */
#include "door/swerex/terminal.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "door/swerex/text.h"

#define CHUNK 16384u
#define PIECE 32768u /* that is searched at a stretch */

struct rex_terminals {
    pthread_mutex_t lock; /* before a terminal's */
    map all;              /* by "sandbox/session": references */
};

rex_terminals *rex_terminals_new(void)
{
    rex_terminals *t = xcalloc(1, sizeof *t);

    pthread_mutex_init(&t->lock, NULL);
    return t;
}

static void end_shell(rex_terminal *t)
{
    LOCK_SCOPE(&t->lock);

    if (t->x)
        exec_discard(t->x, DISCARD_KILL);
    exec_unref(TAKE_PTR(t->x));
    t->program = false;
}

void rex_terminal_unref(rex_terminal *t)
{
    if (!t)
        return;
    {
        LOCK_SCOPE(&t->lock);
        if (--t->refs)
            return;
    }
    end_shell(t);
    buf_done(&t->pending);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static rex_terminal *ref(rex_terminal *t)
{
    LOCK_SCOPE(&t->lock);

    t->refs++;
    return t;
}

void rex_terminals_free(rex_terminals *t)
{
    map_iter it = {0};

    while (map_next(&t->all, &it))
        rex_terminal_unref(it.entry->value);
    map_done(&t->all);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- which ---- */

static void key_of(const sandbox *sb, const session *s, char ret[SANDBOX_ID_LEN + 24])
{
    snprintf(ret, SANDBOX_ID_LEN + 24, "%s/%lu", sandbox_id(sb), session_id(s));
}

static bool is_left(rex_terminal *t)
{
    LOCK_SCOPE(&t->lock);
    exec_state st;

    if (t->x)
        exec_get(t->x, &st);
    return t->refs == 1 && (!t->x || st.end.how != EXEC_RUNNING);
}

/* Sandboxes end without a word to us. */
static void sweep(rex_terminals *t)
{
    map_iter it = {0};

    while (map_next(&t->all, &it)) {
        rex_terminal *one = it.entry->value;
        if (is_left(one)) {
            map_take_str(&t->all, one->key);
            rex_terminal_unref(one);
        }
    }
}

rex_terminal *rex_terminal_get(rex_terminals *t, const sandbox *sb, const session *s, bool make)
{
    char key[SANDBOX_ID_LEN + 24];

    key_of(sb, s, key);
    LOCK_SCOPE(&t->lock);
    rex_terminal *found = map_get_str(&t->all, key);
    if (found || !make)
        return found ? ref(found) : NULL;
    sweep(t);
    found = xcalloc(1, sizeof *found);
    found->refs = 2;
    found->table = t;
    pthread_mutex_init(&found->lock, NULL);
    str_copy(found->key, sizeof found->key, key);
    map_put_str(&t->all, key, found);
    return found;
}

void rex_terminal_end(rex_terminal *t)
{
    rex_terminal *ours = NULL;

    {
        LOCK_SCOPE(&t->table->lock);
        if (map_get_str(&t->table->all, t->key) == t)
            ours = map_take_str(&t->table->all, t->key);
    }
    end_shell(t);
    rex_terminal_unref(ours);
}

bool rex_terminal_busy(rex_terminal *t)
{
    LOCK_SCOPE(&t->lock);

    return t->x && t->program;
}

bool rex_terminal_left(rex_terminal *t)
{
    LOCK_SCOPE(&t->lock);

    return t->x && !t->program && !t->taken;
}

void rex_terminal_close(rex_terminals *all, sandbox *sb, session *s)
{
    rex_terminal *t = rex_terminal_get(all, sb, s, false);

    if (t)
        rex_terminal_end(t);
    rex_terminal_unref(t);
}

/* ---- what comes ---- */

static void forget(rex_terminal *t, size_t n)
{
    buf_consume(&t->pending, n);
    t->gone += n;
}

/* Characters are not cut in two, unless nothing follows the first half. */
static void take(rex_terminal *t, const char *p, size_t n)
{
    size_t whole = rex_whole(p, n);

    if (!whole)
        whole = n;
    rex_decode(&t->pending, p, whole);
    t->at += whole;
    if (t->pending.len > REX_PENDING_MAX)
        forget(t, t->pending.len - REX_PENDING_MAX);
}

static void pull(rex_terminal *t)
{
    char chunk[CHUNK];
    uint64_t gap = 0;
    size_t n = 1;

    while (t->x && n) {
        err *e = exec_read(t->x, 1, t->at, chunk, sizeof chunk, &n, &gap);
        if (e) {
            err_drop(e, "swerex");
            return;
        }
        if (gap > t->at) {
            t->at = gap;
            n = 1;
        } else if (n) {
            take(t, chunk, n);
        }
    }
}

typedef struct piece { /* of what is pending, with what a match may have before it */
    buf text;
    uint64_t at; /* its first byte, of all */
    size_t from; /* where in it the search begins: a byte before that is there for its kind */
    bool last;   /* nothing is behind it */
} piece;

static void piece_done(piece *p)
{
    buf_done(&p->text);
}

static void take_piece(rex_terminal *t, uint64_t searched, piece *ret)
{
    LOCK_SCOPE(&t->lock);

    pull(t);
    uint64_t end = t->gone + t->pending.len;
    uint64_t to = searched > t->gone ? searched + PIECE : t->gone + PIECE;
    ret->at = searched > t->gone + REX_WINDOW ? searched - REX_WINDOW - 1 : t->gone;
    ret->from = ret->at > t->gone;
    ret->last = to >= end;
    to = ret->last ? end : to;
    if (to > ret->at)
        buf_append(&ret->text, t->pending.p + (ret->at - t->gone), to - ret->at);
}

/* False: another has taken it meanwhile. */
static bool take_match(rex_terminal *t, const piece *p, const rex_match *m, buf *ret_before)
{
    LOCK_SCOPE(&t->lock);

    if (p->at + m->from < t->gone)
        return false;
    buf_append(ret_before, t->pending.p, p->at + m->from - t->gone);
    forget(t, p->at + m->to - t->gone);
    t->program = !m->last;
    return true;
}

enum rex_found rex_terminal_find(rex_terminal *t, const rex_expect *e, uint64_t *searched,
                                 buf *ret_before, rex_match *ret_match)
{
    CLEANUP(piece_done) piece p = {0};

    take_piece(t, *searched, &p);
    if (p.text.len > p.from && rex_expect_find(e, buf_cstr(&p.text), p.text.len, p.from, ret_match))
        return take_match(t, &p, ret_match, ret_before) ? REX_FOUND : REX_MORE;
    *searched = p.at + p.text.len;
    return p.last ? REX_NOTHING : REX_MORE;
}

bool rex_terminal_over(rex_terminal *t)
{
    LOCK_SCOPE(&t->lock);
    exec_state st;

    if (!t->x)
        return true;
    exec_get(t->x, &st);
    return st.end.how != EXEC_RUNNING;
}

err *rex_terminal_type(rex_terminal *t, const char *p, size_t n)
{
    LOCK_SCOPE(&t->lock);

    if (!t->x)
        return err_new(ERR_CONFLICT, "the terminal has ended");
    t->program = true;
    return exec_stdin(t->x, p, n, UINT64_MAX, false);
}
