/* A shell on a terminal beside a session, for programs that talk: what is shared by those who wait
 * for it. */
#pragma once

#include "door/swerex/expect.h"
#include "door/swerex/internal.h"

#define REX_PENDING_MAX (256u << 10) /* of output that nobody has waited for; the newest */

/* Refcounted: the table's until it is closed, and of every job that uses it. */
typedef struct rex_terminal {
    pthread_mutex_t lock; /* from here to the next blank line */
    unsigned refs;
    exec *x;          /* NULL: it is being started */
    uint64_t at;      /* read so far */
    buf pending;      /* decoded, not matched yet */
    uint64_t gone;    /* decoded bytes before it: matched, or too many */
    uint64_t matched; /* the end of the last match: searches begin behind it */
    bool program;     /* the prompt is not what came last: something is in front of the shell */
    bool taken;       /* an action waits */

    rex_terminals *table;
    char key[SANDBOX_ID_LEN + 24];
} rex_terminal;

/* The one of a session, made if there is none and `make`. A reference, or NULL. */
rex_terminal *rex_terminal_get(rex_terminals *t, const sandbox *sb, const session *s, bool make);
void rex_terminal_unref(rex_terminal *t);
bool rex_terminal_busy(rex_terminal *t); /* a program is in front of its shell */
bool rex_terminal_left(rex_terminal *t); /* its shell is at the prompt, and nobody waits */
/* Its shell ends; the next one to ask gets another terminal. */
void rex_terminal_end(rex_terminal *t);
/* Takes what has come and searches a piece of it, without the lock. FOUND: it is taken with what was
 * before it. MORE: there are pieces left; others have their turn before the next. */
enum rex_found rex_terminal_find(rex_terminal *t, rex_expect *e, buf *ret_before,
                                 rex_match *ret_match);
/* The shell has ended. */
bool rex_terminal_over(rex_terminal *t);
err *rex_terminal_type(rex_terminal *t, const char *p, size_t n) ERR_MUST;
