/* Declarations shared by the files of this folder. Not included elsewhere. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/metric.h"
#include "session/session.h"

#define KEY_LIFE_NS  (UINT64_C(24) * 3600 * UINT64_C(1000000000))
#define COMMANDS_MAX 1000000u /* in a session's life */

struct session_table {
    exec_table *execs;
    pthread_mutex_t lock;
    session **all; /* ascending ids; one reference each */
    size_t n, cap;
};

struct command_ref { /* by seq - 1 */
    uint32_t begin;
    uint32_t end; /* record index + 1; 0: it still runs */
};

/* The range of a stream that belongs to the running command, or to the next one. It holds output,
 * bytes of the driver in between (cut), and the trailer that ends the command (frame.h). */
struct stretch {
    uint64_t start;
    uint64_t pos; /* offset up to which the stream was searched for trailers */
    struct journal_cut cut[JOURNAL_CUTS];
    unsigned ncut;
    bool resumed; /* a trailer R was found in it */
    bool found;   /* the end of the command was found: */
    uint64_t stop;
    uint32_t tail;
};

/* The running command; seq 0: none runs. */
struct running {
    uint64_t seq;
    char token[FRAME_TOKEN + 1];
    uint64_t boot_ns;
    uint64_t deadline_ns; /* on the execs' clock, like the times below; 0: none */
    uint64_t begun_ns;    /* as far as this process knows */
    uint32_t flags;       /* COMMAND_F_* */
    uint32_t record_flags;
    bool refused;      /* its frame could not be stored: an end record saying so is due */
    bool found;        /* its own trailer was found on stdout: */
    uint64_t wait_ns;  /* when to stop waiting for its signals after its end; 0: not waiting */
    bool adopted;      /* begun under an earlier bothyd process */
    bool exit_counted; /* in the session's depth */
    bool over;         /* its shell has ended, which ends the command */
    bool oom_asked;    /* the node was asked for its OOM kills */
    unsigned carried;  /* detached: execs that carried it again */
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

    pthread_mutex_t lock; /* guards everything below */
    struct journal_session info;
    exec *shell; /* referenced; NULL after close. Detached: the exec that carries the newest command
                  */
    exec *helper; /* detached: runs a step of the ladder, or removes an old shell */
    exec_watch helper_watch;
    uint64_t helper_ns; /* when it was started, on the execs' clock */
    buf frame;          /* detached: of the running command, as long as its shell may lack it */
    exec_watch watch;
    exec_hold *hold[2];
    bool watching, closed; /* closed: the table is gone, no more work is done */
    char token[FRAME_TOKEN + 1];
    enum session_life life;
    enum dialect dialect;
    bool greeted;    /* this shell has sent its first trailer */
    bool after_exit; /* ash: its EXIT trap works once */
    bool killed;     /* a shell was killed: it may still consume a byte of the next frame */
    uint16_t depth;  /* shells that wait below the running one */
    uint32_t pid;    /* the running shell's; 0: not known */
    uint64_t created_ns;
    char *cwd;
    char **env; /* from the spec, for a restart; lost when bothyd restarts */
    char *start_cwd;
    bool setuid;
    uint32_t nofile, nofile_hard;
    struct command_ref *commands;
    size_t ncommands, commands_cap;
    map keys; /* 16 byte key → seq */
    struct stretch s[2];
    struct running run;
    journal_rec last, last_end; /* of the newest command */
    _Atomic uint64_t oom_told;  /* answer for command seq: seq << 32 | OOM kills */
    uint64_t retry_ns;          /* a write failed: when to try again */
    unsigned failures;          /* consecutive failed starts of a shell */

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
/* Lock held. */
err *session_start_shell(session *s, const exec_key *key, bool *ret_replay,
                         exec **ret_exec) ERR_MUST;
void session_take_shell(session *s, exec *x); /* takes the reference */
void session_drop_shell(session *s);
void session_notify(session *s);
/* Lock held. Called when the sandbox was reset; the session ends with its shell. */
void session_reset(session *s);

/* detached.c. Lock held. */
static inline bool session_is_detached(const session *s)
{
    return s->info.flags & JOURNAL_S_DETACHED;
}
/* Appends the lines that give the driver its directory. */
void detached_place(const session *s, buf *out);
/* Returns the argv that runs a verb of detached.sh with these words, or none if NULL. Takes
 * ownership of words. */
char **detached_argv(const session *s, const char *verb, char **words);
/* Records r and starts the exec that carries the command, which becomes the session's exec. bytes:
 * the frame's length; 0: it was delivered before, and the exec asks only for the result. */
err *detached_carry(session *s, journal_rec *r, size_t bytes, uint32_t *ret_index) ERR_MUST;
/* Writes the frame to the exec that carries the command. */
err *detached_feed(session *s) ERR_MUST;
/* Lets the exec remove its files: what it carried is in the journal. */
void detached_release(session *s);
/* Ends an exec that gets no frame, or not a whole one. */
void detached_release_unfed(session *s);
err *detached_help(session *s, const char *verb) ERR_MUST;
void detached_drop_helper(session *s);
bool detached_is_helped(const session *s); /* a helper runs */
void detached_drop_frame(session *s);
err *detached_close(session *s) ERR_MUST;
bool detached_is_over(const session *s); /* ended with its sandbox: no exec will report it */
enum detached_news {
    DETACHED_WELL, /* it has reported everything */
    DETACHED_CUT,  /* it was cut off: ask again */
    DETACHED_DEAD, /* the shell died */
    DETACHED_DEAD_BEFORE,
    DETACHED_NEVER, /* the frame did not arrive */
};
enum detached_news detached_news(const exec_end *end);

/* load.c */
err *session_load(session_table *t) ERR_MUST;

/* job.c */
void session_job_init(session *s);
/* Lock held. Processes everything that there is now. */
void session_catch_up(session *s);
void session_job_done(session *s);
/* Lock held. Called when the shell has ended and all its output was scanned. Returns false if it
 * must be called again later. */
bool session_end_command(session *s, const exec_end *end);
/* Lock held. Sets the timer for the job's next run. */
void session_arm(session *s);

/* command.c. Lock held. */
void command_note(session *s, const journal_rec *r, uint32_t index);
void command_note_end(session *s, const journal_rec *r, uint32_t index);
/* Records the end of the running command. Returns false if that was not possible yet. */
bool command_finish(session *s, enum command_kind kind, int status);
/* The same for a command whose frame could not be stored: it never ran. */
bool command_undo(session *s);
void command_start_stretch(session *s, const uint64_t at[2]);
