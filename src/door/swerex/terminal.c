/* Terminals of sessions: their table, and the reading and searching of their output. */
#include "door/swerex/terminal.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "door/swerex/text.h"

#define CHUNK 16384u
#define PIECE 32768u /* bytes read in one call */

struct rex_terminals {
    pthread_mutex_t lock; /* taken before a terminal's */
    map all;              /* by "sandbox/session"; the table holds references */
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

static rex_terminal *terminal_ref(rex_terminal *t)
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

/* ---- the table ---- */

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

/* Removes terminals that no job uses and whose shell has ended: this door is not notified of the
 * end of sandboxes. */
static void terminal_sweep(rex_terminals *t)
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
        return found ? terminal_ref(found) : NULL;
    terminal_sweep(t);
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

/* ---- output ---- */

static void terminal_forget(rex_terminal *t, size_t n)
{
    buf_consume(&t->pending, n);
    t->gone += n;
}

/* Decodes bytes into `pending`. An incomplete character at the end waits for its rest, unless it is
 * all that came. */
static void terminal_take(rex_terminal *t, const char *p, size_t n)
{
    size_t whole = rex_whole(p, n);

    if (!whole)
        whole = n;
    rex_decode(&t->pending, p, whole);
    t->at += whole;
    if (t->pending.len > REX_PENDING_MAX)
        terminal_forget(t, t->pending.len - REX_PENDING_MAX);
}

/* Reads new output, about a piece at most. The rest stays in its spool, and what was read is
 * searched before any of it is dropped. Returns false if there may be more. Lock held. */
static bool terminal_pull(rex_terminal *t)
{
    char chunk[CHUNK];
    uint64_t gap = 0, end = t->at + PIECE;
    size_t n = 1;

    while (t->x && n && t->at < end) {
        err *e = exec_read(t->x, 1, t->at, chunk, sizeof chunk, &n, &gap);
        if (e) {
            err_drop(e, "swerex");
            return true;
        }
        if (gap > t->at) {
            t->at = gap;
            n = 1;
        } else if (n) {
            terminal_take(t, chunk, n);
        }
    }
    return !t->x || !n;
}

typedef struct piece { /* a part of the pending output */
    buf text;
    uint64_t matched; /* the terminal's value when it was copied */
    bool last;        /* no output follows for now */
} piece;

static void piece_done(piece *p)
{
    buf_done(&p->text);
}

/* Restarts a search at the oldest pending output if another action has taken a match since the
 * search began, or if pending output was dropped before the search read it. Lock held. */
static void terminal_aim(const rex_terminal *t, rex_expect *e)
{
    if (rex_expect_begun(e) < t->matched || rex_expect_at(e) < t->gone)
        rex_expect_begin(e, t->gone);
}

/* Copies the next piece to search. It ends between two characters. */
static void terminal_take_piece(rex_terminal *t, rex_expect *e, piece *ret)
{
    LOCK_SCOPE(&t->lock);

    terminal_aim(t, e);
    bool drained = rex_expect_at(e) == t->gone + t->pending.len && terminal_pull(t);
    terminal_aim(t, e);
    size_t from = rex_expect_at(e) - t->gone, n = t->pending.len - from;
    ret->last = drained && n <= 2 * PIECE;
    if (n > 2 * PIECE)
        n = rex_whole(t->pending.p + from, 2 * PIECE);
    ret->matched = t->matched;
    if (n)
        buf_append(&ret->text, t->pending.p + from, n);
}

/* Consumes a match. Returns false if another action has taken a match meanwhile. If the beginning
 * of the match was dropped, only its rest is consumed. */
static bool terminal_take_match(rex_terminal *t, const piece *p, const rex_match *m,
                                buf *ret_before)
{
    LOCK_SCOPE(&t->lock);

    if (p->matched != t->matched || m->to < t->gone)
        return false;
    if (m->from > t->gone)
        buf_append(ret_before, t->pending.p, m->from - t->gone);
    terminal_forget(t, m->to - t->gone);
    t->matched = m->to;
    t->program = !m->last;
    return true;
}

enum rex_found rex_terminal_find(rex_terminal *t, rex_expect *e, buf *ret_before,
                                 rex_match *ret_match)
{
    CLEANUP(piece_done) piece p = {0};

    terminal_take_piece(t, e, &p);
    enum rex_found found = rex_expect_read(e, p.text.p, p.text.len, p.last, ret_match);
    if (found == REX_FOUND && !terminal_take_match(t, &p, ret_match, ret_before)) {
        rex_expect_begin(e, 0);
        return REX_MORE;
    }
    return p.last || found == REX_FOUND ? found : REX_MORE;
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
