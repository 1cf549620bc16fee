/* Execs of a sandbox: ids, journal, spools, end records.
 *
 * An exec_table belongs to one sandbox, an exec to its table; both are refcounted because readers
 * (relays) outlive them. All functions may be called from any thread. Nothing here waits for the
 * command: callers watch.
 *
 *     exec_hub     the pump threads, the timer, the spool root; one in a daemon
 *     exec_table   the journal and the execs of one sandbox, in its directory spool/<id>/
 *     exec         one command */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "core/spec.h"
#include "exec/journal.h"
#include "exec/pump.h"

typedef struct exec_hub exec_hub;
typedef struct exec_table exec_table;
typedef struct exec exec;

typedef struct exec_options {
    int spool_dir;        /* descriptor of the spool root; not owned */
    uint64_t stream_max;  /* ceiling a stream, 64 MiB */
    uint64_t hold_ns;     /* how long a follower that stands still is waited for; 0: 60 s */
    uint64_t sandbox_max; /* 1 GiB */
    uint64_t owner_max;   /* 0: its part of the room, a quarter at most */
    uint32_t live_max;    /* 256 live execs a sandbox */
    uint64_t stdin_max;   /* unread stdin, 1 MiB */
} exec_options;
extern const unsigned EXEC_JOURNAL_FORMAT; /* of the records of execs */

err *exec_hub_new(const exec_options *o, exec_hub **ret_hub) ERR_MUST;
/* After the backend was freed (no events come any more) and nobody uses its tables and execs. What
 * still runs goes on without us; the next hub over the same directory adopts it. */
void exec_hub_free(exec_hub *h);
/* Commands wait because the spool's disk is full: for /readyz. */
bool exec_hub_is_full(const exec_hub *h);
/* They soon will. */
bool exec_hub_is_short(exec_hub *h);
/* Drops the oldest ended streams of the sandbox that has most; false: there is nothing to drop. */
bool exec_hub_evict(exec_hub *h);

/* Opens (or makes) the journal of a sandbox and rebuilds its index; a table that is open already is
 * shared. The events to give to the
 * backend are EXEC_BOX_EVENTS with the table as argument. */
err *exec_table_open(exec_hub *h, const char *sandbox, exec_table **ret_table) ERR_MUST;
/* The same of one whose box has another id than it has itself: it was reset. */
err *exec_table_open_box(exec_hub *h, const char *sandbox, const char *box,
                         exec_table **ret_table) ERR_MUST;
/* The same for a sandbox that has none yet, in two steps: the table, which the box can be bound to,
 * and then its journal on the disk, without which nothing can be run. */
err *exec_table_new(exec_hub *h, const char *sandbox, exec_table **ret_table) ERR_MUST;
err *exec_table_make(exec_table *t) ERR_MUST;
extern const box_events EXEC_BOX_EVENTS;
/* The box whose procs these are; takes a reference. Before the first exec, and before attach's
 * events arrive. on_gone is called (once, any thread) when pid 1 is dead. */
void exec_table_bind(exec_table *t, backend *b, box *x, void (*on_gone)(void *arg, const char *why),
                     void *arg);
/* How many may live at a time in this sandbox; 0: the hub's live_max. */
void exec_table_limit(exec_table *t, uint32_t live_max);
/* Whose it is. Before its first exec. */
void exec_table_own(exec_table *t, const char *owner);
/* Live commands of its owner in all sandboxes, and how many one owner should have: so many that the
 * descriptors of this process are enough for others, too. */
unsigned exec_table_owner_live(const exec_table *t);
unsigned exec_hub_owner_max(const exec_hub *h);
/* The sandbox has ended: every exec without an end record gets the end `unknown`, behind the bytes
 * it has written. */
void exec_table_end(exec_table *t);
exec_table *exec_table_ref(exec_table *t);
void exec_table_unref(exec_table *t);
/* Removes the streams (keep_journal) or everything of a sandbox that is gone. */
err *exec_table_remove(exec_hub *h, const char *sandbox, bool keep_journal) ERR_MUST;
/* Removes the directories of sandboxes nobody knows: what a kill left between a record and its
 * spools. Before any table is open. */
err *exec_hub_sweep(exec_hub *h, bool (*known)(void *arg, const char *sandbox), void *arg) ERR_MUST;

typedef struct exec_key { /* hashes of (owner, verb, key) and of the body; zero: no key */
    uint8_t key[16];
    uint8_t body[16];
} exec_key;

/* Takes an id, appends BEGIN, queues SPAWN. With a key seen before: the same exec and
 * *ret_replay = true, or ERR_IDEMPOTENCY_MISMATCH. ERR_SANDBOX_EXHAUSTED over live_max. */
err *exec_start(exec_table *t, const exec_spec *spec, const exec_key *key, exec **ret_exec,
                bool *ret_replay) ERR_MUST;
/* One that was started as transient does a verb's work (a kit). It is neither listed nor found, has
 * a ceiling of its own beside live_max, does not count as running, keeps at most
 * TRANSIENT_STREAM_MAX of a stream (hold it, or bytes are lost), and dies with us. Whoever started
 * it says how it is done with it, once: what still runs is killed, and its streams are removed. */
enum exec_discard {
    DISCARD_KILL, /* at once */
    DISCARD_TERM, /* it may clean up: TERM, 2 s, KILL */
    DISCARD_END,  /* it ends by itself, or when its stdin ends, which is done here; else as above
                     after a second */
};
#define TRANSIENT_MAX        128u
#define TRANSIENT_STREAM_MAX (UINT64_C(8) << 20)
void exec_discard(exec *x, enum exec_discard how);

/* A tunnel: a command that is no exec but a connection. Its stdin and stdout are a stream socket,
 * which done gets (the receiver's to close; it does not block) when `first` bytes can be read from
 * it, or why that is not to be: called once, from any thread, unless this returns an error. No
 * record and no file is made for it, nobody can find or list it, and it dies with us. It has
 * spec->timeout_ms until `first` bytes; then it lives until the socket is closed or it ends.
 *
 * What it writes to stderr goes nowhere, but it is to write something there before it closes
 * stdout: then the socket ends as a stream does. Otherwise it was cut off, and the socket hangs up
 * (POLLHUP) with its end. What is written to the socket before it is closed arrives. */
#define TUNNELS_MAX 256u /* of a sandbox, beside its commands and verbs */
typedef void exec_tunnel_done(void *arg, err *failure, int fd);
err *exec_tunnel(exec_table *t, const exec_spec *spec, size_t first, exec_tunnel_done *done,
                 void *arg) ERR_MUST;

/* The exec of this key, also of a table that has ended; NULL: there is none.
 * ERR_IDEMPOTENCY_MISMATCH. */
err *exec_replay(exec_table *t, const exec_key *key, exec **ret_exec) ERR_MUST;
err *exec_find(exec_table *t, uint64_t id, exec **ret_exec) ERR_MUST;
/* The newest max of all known, oldest first; a malloc'ed array of references. */
void exec_list(exec_table *t, size_t max, exec ***ret_execs, size_t *ret_n);
/* How many have no end yet. */
size_t exec_count_running(exec_table *t);
/* The sandbox's start command (exec_spec.start); 0: none was begun, or a kill of ours kept it from
 * being sent. */
uint64_t exec_table_start_id(exec_table *t);
/* Whether the start command may be begun. made: the box was made in this life of ours. */
enum exec_start {
    EXEC_START_DUE,
    EXEC_START_BEGUN,  /* or it is not known yet what became of the last try */
    EXEC_START_EARLY,  /* what runs in the box is not known yet */
    EXEC_START_UNSURE, /* records are lost: it may have been begun */
};
enum exec_start exec_table_start(exec_table *t, bool made);
/* How many keep the sandbox from being idle: commands without an end and verbs' own, but neither
 * its start command nor shells of sessions, whose commands session_busy() counts. ret_last: when
 * one last began or ended (monotonic, 0: not since we began). */
size_t exec_count_busy(exec_table *t, uint64_t *ret_last_ns);
/* Out-of-memory kills of the box that commands have in their end records. Not those of the last
 * seconds: among them may be its own. */
uint64_t exec_table_ooms(exec_table *t);
exec *exec_ref(exec *x);
void exec_unref(exec *x);
static inline void exec_unrefp(exec **x)
{
    exec_unref(*x);
}

enum exec_how {
    EXEC_RUNNING,
    EXEC_EXITED,
    EXEC_SIGNALLED,
    EXEC_TIMED_OUT,
    EXEC_KILLED,
    EXEC_NOT_STARTED,
    EXEC_UNKNOWN
};
typedef struct exec_end { /* how == EXEC_RUNNING: there is none yet */
    enum exec_how how;
    int exit_code; /* EXITED */
    int signal;    /* SIGNALLED, TIMED_OUT, KILLED */
    int errnum;    /* NOT_STARTED */
    int stage;     /* NOT_STARTED: enum sp_stage */
    bool oom;
    uint32_t uid, gid;
    uint64_t started_ns, ended_ns; /* real time */
    uint64_t utime_us, stime_us, maxrss_kb;
    uint64_t out_bytes, err_bytes; /* lengths after the drain at exit */
    uint64_t out_dropped, err_dropped;
} exec_end;
typedef struct exec_state {
    uint64_t id;
    uint32_t pid; /* in the sandbox, 0 if not known */
    enum stdio_mode stdio;
    bool started; /* init has forked; the exec behind it may fail yet */
    bool runs;    /* and has succeeded, as an exec_probe() has found */
    bool start;   /* it is the sandbox's start command */
    bool stdin_open;
    bool lingering;     /* ended, but something still holds its streams */
    char command[128];  /* for people: the argv, shortened */
    uint64_t length[2]; /* now: out, err */
    exec_end end;
} exec_state;
void exec_get(exec *x, exec_state *ret_state);
const char *exec_how_name(enum exec_how how);
/* A NOT_STARTED end as the caller's error (user_not_found, cwd_not_found, exec_failed ...), or
 * NULL for any other end. */
err *exec_end_error(const exec_end *end) ERR_MUST;

/* Reads at most max bytes of stream (1 out, 2 err) at offset. *ret_n is 0 at the present end.
 * If the offset lies in a hole, *ret_gap_to (> offset) says where bytes go on and *ret_n is 0. */
err *exec_read(exec *x, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
               uint64_t *ret_gap_to) ERR_MUST;

/* A follower of a stream: of what it has not read yet nothing is dropped, and the command waits at
 * the ceiling until it has, for as long as it gets further at least every 60 s. */
typedef struct exec_hold exec_hold;
exec_hold *exec_hold_new(exec *x, int stream, uint64_t at);
void exec_hold_move(exec_hold *h, uint64_t at); /* at: the next byte it will read */
void exec_hold_free(exec_hold *h);

/* Called after bytes or an end have arrived; from any thread, must not block, must not call exec_*
 * functions other than from another thread. exec_unwatch() returns when it is not running. */
typedef struct exec_watch {
    void (*notify)(void *arg);
    void *arg;
    struct exec_watch *next; /* the exec's */
} exec_watch;
void exec_watch_add(exec *x, exec_watch *w);
void exec_unwatch(exec *x, exec_watch *w);

/* ---- for doors whose clients do not send an offset when they reconnect; in memory only ---- */
/* Registers a new stream of this exec and returns its number. ret_at: the bytes of stdout and
 * stderr that the client of the stream before it has received; 0 if there was none since bothyd
 * started. */
uint64_t exec_reader_new(exec *x, uint64_t ret_at[2]);
/* Records that the client has received so many bytes. Does nothing if a newer stream exists. */
void exec_reader_move(exec *x, uint64_t number, const uint64_t at[2]);
/* Keeps a text until the exec ends. Takes ownership. exec_note() returns a copy, or NULL. */
void exec_note_set(exec *x, char *owned);
char *exec_note(exec *x);

/* offset UINT64_MAX: append. Otherwise only at the present length, else ERR_CONFLICT (its kind is
 * "stdin", the message names the length). */
err *exec_stdin(exec *x, const void *p, size_t n, uint64_t offset, bool eof) ERR_MUST;
/* All that it is to get, and its end. What an earlier call, or an earlier life of ours, has
 * appended of it is not repeated. One that has ended before it read anything is no error: its end
 * says why. With any other error it is killed: it would wait for ever. */
err *exec_stdin_all(exec *x, const void *p, size_t n) ERR_MUST;
uint64_t exec_stdin_length(exec *x); /* bytes appended so far */
uint64_t exec_stdin_taken(exec *x);  /* of them, those the command has got */
err *exec_signal(exec *x, int signo, uint32_t scope) ERR_MUST;
/* The box is asked whether its program runs: then exec_state.runs is set, and watchers are told. */
err *exec_probe(exec *x) ERR_MUST;
err *exec_resize(exec *x, uint16_t rows, uint16_t cols) ERR_MUST;

/* ---- pause ---- */
/* The sandbox stands still since that real time: nothing is started or signalled
 * (ERR_SANDBOX_PAUSED), and no time limit runs. Also for a table that was opened while it did. */
void exec_table_pause(exec_table *t, uint64_t since_ns);
/* In the journal, for who finds it there: it was paused until now. Before anything else of a
 * resume; again if that did not come to be. */
err *exec_table_note_pause(exec_table *t, uint64_t now_ns) ERR_MUST;
void exec_table_resume(exec_table *t);
bool exec_table_is_paused(exec_table *t);
/* For a snapshot the sandbox stands still for a part of the time until it is let go: no time limit
 * runs out meanwhile, and commands are started, and wait inside. Then limits go on, later by as
 * long as it stood still; UINT64_MAX: all the time. Nothing of one that is paused. */
void exec_table_hold(exec_table *t);
void exec_table_let_go(exec_table *t, uint64_t still_ns);
uint64_t exec_held_ns(exec *x); /* its table, so far: for who waits for it to say something */
size_t exec_table_pauses(exec_table *t); /* so far */
/* Monotonic, but for the times at which the sandbox was paused: time limits are counted by it. */
uint64_t exec_table_clock(exec_table *t);
/* By that clock; nothing while it stands still: to be set again after a resume. */
void exec_table_timer(exec_table *t, pump_timer *timer, uint64_t at_ns);
/* What is left of a time limit that began at a real time. */
uint64_t exec_table_left(exec_table *t, uint64_t begin_ns, uint64_t timeout_ms);

/* ---- reset: the sandbox goes on in another box; ids go on, too ---- */
/* In the journal, before anybody else knows. Nothing can be begun (ERR_UNAVAILABLE) until one of
 * the two below says how it went. ret_first: the first id of the new box. key may be NULL. */
err *exec_table_reset_begin(exec_table *t, const char *box, const exec_key *key,
                            uint64_t *ret_first) ERR_MUST;
void exec_table_reset_undo(exec_table *t);
/* What has not ended was killed; the start command is due again. Takes a reference to the box. */
void exec_table_reset_end(exec_table *t, box *x);
/* Of one that sleeps, after a restart: it has no box until a reset brings one. */
void exec_table_sleep(exec_table *t, backend *b);
/* The last reset had this key. ERR_IDEMPOTENCY_MISMATCH: with another body. */
err *exec_table_reset_was(exec_table *t, const exec_key *key, bool *ret_was) ERR_MUST;
uint64_t exec_table_reset_id(exec_table *t); /* the first id of this box; 0: it has the first one */

/* ---- for sessions ---- */
uint64_t exec_id(const exec *x);
void exec_mark_shell(exec *x);
void exec_table_touch(exec_table *t); /* a command of a session has begun or ended */
const char *exec_table_sandbox(const exec_table *t);
bool exec_table_is_over(exec_table *t); /* the sandbox has ended */
pump *exec_table_pump(exec_table *t);
void exec_pump_beside(exec *x, pump_job *j); /* j runs where the exec does */
/* As exec_start; the record, of a session or a command, is appended before BEGIN with the id of the
 * exec, which is also the session's if it has none yet. */
typedef struct exec_log_entry {
    journal_rec *rec;
    uint32_t *ret_index; /* or NULL */
} exec_log_entry;
err *exec_start_session(exec_table *t, const exec_spec *spec, const exec_key *key,
                        const exec_log_entry *log, exec **ret_exec, bool *ret_replay) ERR_MUST;
bool exec_is_known(exec_table *t, const exec_key *key); /* it would be a replay */
/* Appends a record of a session; reads one; all there are, in order. */
err *exec_log(exec_table *t, journal_rec *r, uint32_t *ret_index) ERR_MUST;
/* The same of an end that counts bytes of this exec. */
err *exec_log_end(exec *x, journal_rec *r, uint32_t *ret_index) ERR_MUST;
/* Whether the box has killed for memory since anybody last looked: how many it has counted then,
 * else 0. Told from the backend's thread, or before it returns. */
typedef void oom_done(void *arg, uint32_t ooms);
void exec_table_ask_ooms(exec_table *t, oom_done *done, void *arg);
err *exec_log_read(exec_table *t, uint32_t index, journal_rec *ret_rec) ERR_MUST;
err *exec_log_each(exec_table *t, void (*each)(void *arg, uint32_t index, const journal_rec *r),
                   void *arg) ERR_MUST;
/* Appends a whole frame to stdin, at its present length and over any ceiling: a session has one
 * command at a time. */
err *exec_feed(exec *x, const void *p, size_t n, uint64_t offset) ERR_MUST;
/* The first n bytes fed to an exec that has not ended. */
err *exec_feed_read(exec *x, size_t n, buf *out) ERR_MUST;
/* With SP_TO_PID and SP_TO_BELOW, too (wire/spine.h); not noted as a kill of the exec. */
err *exec_signal_part(exec *x, int signo, uint32_t scope, uint32_t pid, uint64_t since_ns) ERR_MUST;
/* Some of these have not been answered: what they kill may still be dying. */
bool exec_signals_pending(exec *x);
/* From here on a new command writes (out, err): ceilings count from here. */
void exec_set_base(exec *x, const uint64_t base[2]);
uint64_t exec_dropped(exec *x, int stream, uint64_t from, uint64_t to);
uint64_t exec_length(exec *x, int stream);
