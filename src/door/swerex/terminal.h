/* A shell on a terminal beside a session, for interactive programs: the state shared by the actions
 * that use it. */
#pragma once

#include "door/swerex/expect.h"
#include "door/swerex/internal.h"

#define REX_PENDING_MAX (256u << 10) /* bytes of unread output; only the newest are kept */

/* Refcounted: one reference is the table's until the terminal is closed, one each job's that uses
 * it. */
typedef struct rex_terminal {
    pthread_mutex_t lock; /* guards the members down to the blank line */
    unsigned refs;
    exec *x;          /* NULL: not started yet, or ended */
    uint64_t at;      /* offset of the output read so far */
    buf pending;      /* decoded output that is not matched yet */
    uint64_t gone;    /* decoded bytes before it: matched or dropped */
    uint64_t matched; /* end of the last match: searches begin after it */
    bool program;     /* a program may run in front of the shell: true after input or a match of
                       * another pattern, false after a match of the shell's prompt */
    bool taken;       /* an action uses it */

    rex_terminals *table;
    char key[SANDBOX_ID_LEN + 24];
} rex_terminal;

/* Returns a reference to a session's terminal. If there is none it is made (`make`), or NULL. */
rex_terminal *rex_terminal_get(rex_terminals *t, const sandbox *sb, const session *s, bool make);
void rex_terminal_unref(rex_terminal *t);
bool rex_terminal_busy(rex_terminal *t); /* a program runs in front of its shell */
bool rex_terminal_left(rex_terminal *t); /* its shell is at the prompt and no action uses it */
/* Kills its shell and removes it from the table. The next caller gets another terminal. */
void rex_terminal_end(rex_terminal *t);
/* Reads new output and searches a piece of it, without the lock. REX_FOUND: the match and the text
 * before it are consumed. REX_MORE: pieces are left; let other jobs run before the next. */
enum rex_found rex_terminal_find(rex_terminal *t, rex_expect *e, buf *ret_before,
                                 rex_match *ret_match);
/* Returns true if the shell has ended. */
bool rex_terminal_over(rex_terminal *t);
err *rex_terminal_type(rex_terminal *t, const char *p, size_t n) ERR_MUST;
