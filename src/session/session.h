/* Sessions: shells whose commands share state.
 *
 * A session is one exec of a shell, with our driver as its argument. This folder builds on exec
 * alone and does not know which backend runs the shell. Commands run one at a time. Each is in the
 * journal before its frame is in the shell's stdin, and its end is in the journal before any caller
 * is notified. After a kill at any instruction a command is therefore found again by its number,
 * and never runs twice.
 *
 * Any thread may call. No function waits for a shell: callers watch. A session's own work is a job
 * of exec's pump. Locks: session_table → session → exec's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exec/exec.h"
#include "session/frame.h"
#include "session/ladder.h"

#define SESSIONS_MAX 32 /* live ones of one sandbox */

typedef struct session_table session_table; /* of one sandbox */
typedef struct session session;

/* Registers the metrics of sessions. The engine calls this at its start: the first table would
 * register them too, but perhaps with a lock held that a scrape needs. */
void session_count(void);

/* Loads the sessions from the journal; commands that ran continue. One table per exec_table. */
err *session_table_open(exec_table *t, session_table **ret_table) ERR_MUST;
/* Called when a paused sandbox resumes: does the work that has waited. */
void session_table_wake(session_table *t);
/* Called when the sandbox gets another box: ends sessions that began before this id, and their
 * running commands. Call it before the ends of their shells are known, or these would be restarted.
 */
void session_table_reset(session_table *t, uint64_t before_id);
/* Stops all work on its sessions. Processes in the sandbox continue. */
void session_table_close(session_table *t);

enum session_mode {
    SESSION_AUTO,
    SESSION_ATTACHED,
    SESSION_DETACHED
};
typedef struct session_spec {
    const char *name;  /* or NULL */
    const char *shell; /* "auto", "bash", "sh", or a path and its arguments */
    const char *user, *cwd;
    char **env;
    bool merge;
    enum session_mode mode;
    bool setuid; /* as in exec_spec */
    uint32_t nofile, nofile_hard;
} session_spec;
err *session_new(session_table *t, const session_spec *spec, const exec_key *key,
                 session **ret_session, bool *ret_replay) ERR_MUST;
/* Finds by id or name. A name means the live session that has it, or else the last one that had it.
 */
err *session_find(session_table *t, const char *id_or_name, session **ret_session) ERR_MUST;
/* Lists all, oldest first; a malloc'ed array of references. */
size_t session_count_live(session_table *t);
void session_list(session_table *t, session ***ret_sessions, size_t *ret_n);
/* Returns how many run a command. exec_count_busy() tells when one last ended. */
size_t session_count_busy(session_table *t);
uint64_t session_id(const session *s);
bool session_merges(session *s);
session *session_ref(session *s);
void session_unref(session *s);
static inline void session_unrefp(session **s)
{
    session_unref(*s);
}

enum session_life {
    SESSION_STARTING,
    SESSION_IDLE,
    SESSION_RUNNING,
    SESSION_ENDED
};
typedef struct session_state {
    uint64_t id, shell_exec;
    enum session_life life;
    enum dialect dialect;
    char name[JOURNAL_NAME_MAX], user[JOURNAL_USER_MAX], program[JOURNAL_SHELL_MAX];
    bool merge, detached;
    uint64_t created_ns;
    uint64_t commands, running; /* seq; 0: none */
    uint32_t restarts;
    char *cwd; /* malloc'ed; NULL: not known yet. Any bytes but NUL */
    exec_state shell;
} session_state;
void session_get(session *s, session_state *ret_state);
void session_state_done(session_state *st);
/* Kills the shell and its descendants. */
err *session_close(session *s) ERR_MUST;
/* Starts the ladder for the running command. */
err *session_interrupt(session *s) ERR_MUST;

typedef struct command_spec {
    const char *text;
    size_t n;
    uint64_t timeout_ms; /* 0: none */
    bool merge;
} command_spec;
/* Returns when the frame is on disk. ERR_CONFLICT, kind "command": another command runs.
 * ERR_UNAVAILABLE, kind "session": the shell is being started. Watchers are notified when to try
 * again. */
err *session_run(session *s, const command_spec *c, const exec_key *key, uint64_t *ret_seq,
                 bool *ret_replay) ERR_MUST;
/* Returns the command of this key, or 0; works for an ended session too. ERR_IDEMPOTENCY_MISMATCH.
 */
err *session_replay(session *s, const exec_key *key, uint64_t *ret_seq) ERR_MUST;
bool session_is_busy(const err *e); /* the error is one of these two */

enum command_kind {
    COMMAND_RUNNING,
    COMMAND_ENDED,
    COMMAND_EXITED,
    COMMAND_RESUMED,
    COMMAND_UNKNOWN,
    COMMAND_NOT_RUN,
    COMMAND_KINDS
};
const char *command_kind_name(enum command_kind k);
#define COMMAND_F_TIMED_OUT   (1u << 0)
#define COMMAND_F_INTERRUPTED (1u << 1)
#define COMMAND_F_RESTARTED   (1u << 2)
#define COMMAND_F_OOM         (1u << 3) /* one of its processes was killed at the memory limit */
typedef struct command_state {
    uint64_t session, seq;
    enum command_kind kind;
    int status; /* the shell's: 0 to 255 */
    uint32_t flags;
    enum rung rung;
    char text[JOURNAL_TEXT_MAX];
    uint64_t started_ns, ended_ns; /* real time */
    uint64_t length[2];            /* of its output: so far, or in total */
    uint64_t dropped[2];
    char *cwd; /* malloc'ed, or NULL */
} command_state;
err *session_command(session *s, uint64_t seq, command_state *ret_state) ERR_MUST;
void command_state_done(command_state *st);
/* Reads a command's stream (1 out, 2 err) by offsets from its first byte; as exec_read. */
err *session_read(session *s, uint64_t seq, int stream, uint64_t offset, void *p, size_t max,
                  size_t *ret_n, uint64_t *ret_gap_to) ERR_MUST;
/* Holds back output for a follower, as exec_hold. NULL if nothing is held back. */
exec_hold *session_hold(session *s, uint64_t seq, int stream, uint64_t offset);
void session_hold_move(session *s, uint64_t seq, exec_hold *h, int stream, uint64_t offset);

/* Called after bytes, an end or a change of state; the rules of exec_watch apply. */
void session_watch_add(session *s, exec_watch *w);
void session_unwatch(session *s, exec_watch *w);
