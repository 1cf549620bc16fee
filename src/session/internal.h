/* What the files of this folder share. Nobody outside includes it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/metric.h"
#include "session/session.h"

#define KEY_LIFE_NS  (UINT64_C(24) * 3600 * UINT64_C(1000000000))
#define COMMANDS_MAX 1000000u /* of a session's life */

struct session_table {
    exec_table *execs;
    pthread_mutex_t lock;
    session **all; /* ascending ids; a reference each */
    size_t n, cap;
};

struct command_ref { /* by seq - 1 */
    uint32_t begin;
    uint32_t end; /* record + 1; 0: it runs */
};

/* The stretch of a stream that belongs to the command that runs, or to the next one. */
struct stretch {
    uint64_t start;
    uint64_t pos; /* seen so far: everything before it is output, a cut, or the trailer */
    struct journal_cut cut[JOURNAL_CUTS];
    unsigned ncut;
    bool resumed; /* a trailer R was in it */
    bool found;   /* the end of the command: */
    uint64_t stop;
    uint32_t tail;
};

/* The command that runs; seq 0: none does. */
struct running {
    uint64_t seq;
    char token[FRAME_TOKEN + 1];
    uint64_t boot_ns;
    uint64_t deadline_ns; /* by the clock of the execs, as the times below; 0: none */
    uint64_t begun_ns;    /* as this process knows it */
    uint32_t flags;       /* COMMAND_F_* */
    uint32_t record_flags;
    bool refused;      /* its frame could not be kept: an end that says so is owed */
    bool found;        /* its own trailer, on stdout: */
    uint64_t wait_ns;  /* its end is known, but not what its signals do; 0: it is not */
    bool adopted;      /* an earlier life of ours began it */
    bool exit_counted; /* in the session's depth */
    bool over;         /* its shell has ended: what it wrote tells no more */
    bool oom_asked;    /* the node, how many it has killed for memory */
    unsigned carried;  /* detached: execs that were asked for it again */
    char kind;
    int status;
    int resumed_status;
    ladder ladder;
};

struct session {
    _Atomic unsigned refs;
    exec_table *execs; /* referenced */
    uint64_t id;
    pump_job job;
    pump_timer timer;

    pthread_mutex_t lock; /* everything below */
    struct journal_session info;
    exec *shell; /* referenced; NULL after close. Detached: the exec that carries the newest command
                  */
    exec *helper; /* detached: a step of the ladder, or what removes an old shell */
    exec_watch helper_watch;
    uint64_t helper_ns; /* by the clock of the execs: since when */
    buf frame;          /* detached: of the command that runs, if its shell may not have it yet */
    exec_watch watch;
    exec_hold *hold[2];
    bool watching, closed; /* closed: the table is gone, nothing is done any more */
    char token[FRAME_TOKEN + 1];
    enum session_life life;
    enum dialect dialect;
    bool greeted;    /* this shell has said hello */
    bool after_exit; /* ash: its EXIT trap works once */
    bool killed;     /* a shell of the last command: it may take a byte with it */
    uint16_t depth;  /* shells that wait below the one that runs */
    uint32_t pid;    /* of the shell that runs; 0: not known */
    uint64_t created_ns;
    char *cwd;
    char **env; /* of the spec, for a restart; not kept over one of ours */
    char *start_cwd;
    bool setuid;
    uint32_t nofile, nofile_hard;
    struct command_ref *commands;
    size_t ncommands, commands_cap;
    map keys; /* 16 byte key → seq */
    struct stretch s[2];
    struct running run;
    journal_rec last, last_end; /* of the newest command */
    _Atomic uint64_t oom_told;  /* of command seq: seq << 32 | kills that were counted */
    uint64_t retry_ns;          /* something could not be written: when to try again */
    unsigned failures;          /* starts of a shell that failed in a row */

    pthread_mutex_t watch_lock;
    exec_watch *watches;
};

enum {
    M_COMMANDS,
    M_COMMAND_SECONDS,
    M_SESSION_COUNT
};
extern metric SESSION_METRICS[M_SESSION_COUNT];

/* session.c */
session *session_alloc(exec_table *t, uint64_t id);
/* lock held */
err *session_start_shell(session *s, const exec_key *key, bool *ret_replay,
                         exec **ret_exec) ERR_MUST;
void session_take_shell(session *s, exec *x); /* takes the reference */
void session_drop_shell(session *s);
void session_notify(session *s);
/* lock held: its sandbox was reset; it ends with its shell. */
void session_reset(session *s);

/* detached.c; lock held */
static inline bool session_is_detached(const session *s)
{
    return s->info.flags & JOURNAL_S_DETACHED;
}
/* Appends the lines that tell the driver where its directory is. */
void detached_place(const session *s, buf *out);
/* What runs a verb of detached.sh with these words, or NULL; takes them. */
char **detached_argv(const session *s, const char *verb, char **words);
/* Starts the exec that carries a command, after r in the journal, and makes it the session's. bytes
 * of frame: 0: whoever it was given to is asked what became of it. */
err *detached_carry(session *s, journal_rec *r, size_t bytes, uint32_t *ret_index) ERR_MUST;
/* Gives it the frame. */
err *detached_feed(session *s) ERR_MUST;
/* What it carried is in the journal: its files can go. */
void detached_release(session *s);
/* It gets no frame, or no whole one: it ends. */
void detached_release_unfed(session *s);
err *detached_help(session *s, const char *verb) ERR_MUST;
void detached_drop_helper(session *s);
bool detached_is_helped(const session *s); /* a helper runs */
void detached_drop_frame(session *s);
err *detached_close(session *s) ERR_MUST;
bool detached_is_over(const session *s); /* with its sandbox: there is no exec that would tell */
enum detached_news {
    DETACHED_WELL, /* it has told all there was */
    DETACHED_CUT,  /* it has not: ask again */
    DETACHED_DEAD, /* the shell died */
    DETACHED_DEAD_BEFORE,
    DETACHED_NEVER, /* the frame did not come */
};
enum detached_news detached_news(const exec_end *end);

/* load.c */
err *session_load(session_table *t) ERR_MUST;

/* job.c */
void session_job_init(session *s);
/* lock held: looks at everything there is now. */
void session_catch_up(session *s);
void session_job_done(session *s);
/* lock held: the shell has ended and all it wrote has been looked at. False: come again later. */
bool session_end_command(session *s, const exec_end *end);
/* lock held: when the job must run next by the clock. */
void session_arm(session *s);

/* command.c; lock held */
void command_note(session *s, const journal_rec *r, uint32_t index);
void command_note_end(session *s, const journal_rec *r, uint32_t index);
/* Appends the end of the command that runs; false: the journal could not be written. */
bool command_finish(session *s, enum command_kind kind, int status);
/* The same of one whose frame could not be kept: it was never run. */
bool command_undo(session *s);
void command_start_stretch(session *s, const uint64_t at[2]);
