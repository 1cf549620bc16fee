/* Execs of a sandbox: ids, journal, spools, end records.
 *
 * An exec_table belongs to one sandbox, an exec to its table; both are refcounted because readers
 * (relays) outlive them. All functions may be called from any thread. No function waits for a
 * command: callers watch it.
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
    uint64_t stream_max;  /* ceiling of a stream, 64 MiB */
    uint64_t hold_ns;     /* how long a follower that reads nothing is waited for; 0: 60 s */
    uint64_t sandbox_max; /* kept output of a sandbox, 1 GiB */
    uint64_t owner_max;   /* kept output of an owner; 0: its share of the room, a quarter at most */
    uint32_t live_max;    /* live execs of a sandbox, 256 */
    uint64_t stdin_max;   /* unread stdin of an exec, 1 MiB */
} exec_options;
extern const unsigned EXEC_JOURNAL_FORMAT; /* format of journal records */

err *exec_hub_new(const exec_options *o, exec_hub **ret_hub) ERR_MUST;
/* Frees the hub. Call it after the backend was freed (no more events come), when no table and no
 * exec is in use. Commands that still run continue; the next hub over the same directory adopts
 * them. */
void exec_hub_free(exec_hub *h);
/* Returns true if commands wait because the spool's disk is full: for /readyz. */
bool exec_hub_is_full(const exec_hub *h);
/* Returns true if the spool's disk is almost full. */
bool exec_hub_is_short(exec_hub *h);
/* Drops the streams of the oldest ended exec in the sandbox with the most output. Returns false if
 * there is nothing to drop. */
bool exec_hub_evict(exec_hub *h);

/* Opens (or makes) the journal of a sandbox and rebuilds its index. A table that is open already is
 * shared. The backend's events for the box must be EXEC_BOX_EVENTS with the table as argument. */
err *exec_table_open(exec_hub *h, const char *sandbox, exec_table **ret_table) ERR_MUST;
/* Opens the table of a sandbox whose box has another id than the sandbox: it was reset. */
err *exec_table_open_box(exec_hub *h, const char *sandbox, const char *box,
                         exec_table **ret_table) ERR_MUST;
/* Makes the table of a new sandbox, in two steps: exec_table_new() makes the table, to which the
 * box can be bound; exec_table_make() makes its journal on the disk, without which no command can
 * run. */
err *exec_table_new(exec_hub *h, const char *sandbox, exec_table **ret_table) ERR_MUST;
err *exec_table_make(exec_table *t) ERR_MUST;
extern const box_events EXEC_BOX_EVENTS;
/* Binds the box that the execs run in; takes a reference. Call it before the first exec, and before
 * events of an attach arrive. on_gone is called (once, any thread) when pid 1 is dead. */
void exec_table_bind(exec_table *t, backend *b, box *x, void (*on_gone)(void *arg, const char *why),
                     void *arg);
/* Sets how many commands may live at a time in this sandbox; 0: the hub's live_max. */
void exec_table_limit(exec_table *t, uint32_t live_max);
/* Sets the owner of the sandbox. Before its first exec. */
void exec_table_own(exec_table *t, const char *owner);
/* exec_table_owner_live() returns the live commands of the sandbox's owner in all sandboxes.
 * exec_hub_owner_max() returns how many one owner should have, so that descriptors of this process
 * are left for other owners. */
unsigned exec_table_owner_live(const exec_table *t);
unsigned exec_hub_owner_max(const exec_hub *h);
/* Ends the execs of a sandbox that has ended: each without an end record gets the end `unknown`,
 * behind the bytes that it has written. */
void exec_table_end(exec_table *t);
exec_table *exec_table_ref(exec_table *t);
void exec_table_unref(exec_table *t);
/* Removes the streams (keep_journal) or everything of a sandbox that is gone. */
err *exec_table_remove(exec_hub *h, const char *sandbox, bool keep_journal) ERR_MUST;
/* Removes the directories of sandboxes for which known() returns false: a kill left them between a
 * record and its spools. known() must return true if a table is open. */
err *exec_hub_sweep(exec_hub *h, bool (*known)(void *arg, const char *sandbox), void *arg) ERR_MUST;

typedef struct exec_key { /* hashes of (owner, verb, key) and of the body; zero: no key */
    uint8_t key[16];
    uint8_t body[16];
} exec_key;

/* Starts a command: takes an id, appends BEGIN, queues SPAWN. With a key seen before, returns the
 * same exec and *ret_replay = true, or ERR_IDEMPOTENCY_MISMATCH. ERR_SANDBOX_EXHAUSTED over
 * live_max. */
err *exec_start(exec_table *t, const exec_spec *spec, const exec_key *key, exec **ret_exec,
                bool *ret_replay) ERR_MUST;
/* How exec_discard() ends a transient exec. Such an exec does a verb's work (a kit). It is neither
 * listed nor found, has a limit of its own beside live_max, does not count as running, keeps at
 * most TRANSIENT_STREAM_MAX of a stream (hold it, or bytes are lost), and ends with this process.
 * Its starter discards it once: it is killed if it still runs, and its streams are removed. */
enum exec_discard {
    DISCARD_KILL, /* at once */
    DISCARD_TERM, /* after a chance to clean up: TERM, 2 s, KILL */
    DISCARD_END,  /* its stdin ends, so it should end by itself; after 1 s as DISCARD_TERM */
};
#define TRANSIENT_MAX        128u
#define TRANSIENT_STREAM_MAX (UINT64_C(8) << 20)
void exec_discard(exec *x, enum exec_discard how);

/* Starts a tunnel: a command that serves as a connection. Its stdin and stdout are a stream socket
 * that does not block. done gets the socket and owns it once `first` bytes can be read from it, or
 * gets the reason why not; it is called once, from any thread, unless this function fails. A tunnel
 * has no record and no file, is neither found nor listed, and ends with this process. The `first`
 * bytes must come within spec->timeout_ms; then it lives until the socket is closed or the command
 * ends.
 *
 * Bytes on stderr are dropped, but the command must write some before it closes stdout: then the
 * socket ends as a stream does. Otherwise it was cut off, and the socket hangs up (POLLHUP) at its
 * end. Bytes that are written to the socket before it is closed are delivered. */
#define TUNNELS_MAX 256u /* per sandbox, beside its commands and verbs */
typedef void exec_tunnel_done(void *arg, err *failure, int fd);
err *exec_tunnel(exec_table *t, const exec_spec *spec, size_t first, exec_tunnel_done *done,
                 void *arg) ERR_MUST;

/* Finds the exec of this key, also in a table that has ended; *ret_exec NULL: there is none.
 * ERR_IDEMPOTENCY_MISMATCH. */
err *exec_replay(exec_table *t, const exec_key *key, exec **ret_exec) ERR_MUST;
err *exec_find(exec_table *t, uint64_t id, exec **ret_exec) ERR_MUST;
/* Lists the newest max execs, oldest first, in a malloc'ed array of references. */
void exec_list(exec_table *t, size_t max, exec ***ret_execs, size_t *ret_n);
/* Counts the commands that have not ended. */
size_t exec_count_running(exec_table *t);
/* Returns the id of the sandbox's start command (exec_spec.start); 0: none was begun, or it was
 * never forked. */
uint64_t exec_table_start_id(exec_table *t);
/* exec_table_start() returns whether the start command may be begun. made: this process has made
 * the box. */
enum exec_start {
    EXEC_START_DUE,
    EXEC_START_BEGUN,  /* or the outcome of the last try is not known yet */
    EXEC_START_EARLY,  /* the box has not reported yet what runs in it */
    EXEC_START_UNSURE, /* records are lost: it may have been begun */
};
enum exec_start exec_table_start(exec_table *t, bool made);
/* Counts the execs that keep the sandbox from being idle: commands and verbs that have not ended,
 * but neither its start command nor shells of sessions, whose commands session_count_busy() counts.
 * *ret_last_ns: when one last began or ended (monotonic; 0: not in this process). */
size_t exec_count_busy(exec_table *t, uint64_t *ret_last_ns);
/* Returns how many out-of-memory kills of the box commands have in their end records; without those
 * of the last seconds, which may be the end of the box itself. */
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
    bool started; /* init has forked; its execve may still fail */
    bool runs;    /* the execve has succeeded, as an exec_probe() found */
    bool start;   /* it is the sandbox's start command */
    bool stdin_open;
    bool lingering;     /* ended, but something still holds its streams */
    uint64_t begun_ns;  /* real time at which it was begun */
    char command[128];  /* for people: the argv, shortened */
    uint64_t length[2]; /* present lengths: out, err */
    exec_end end;
} exec_state;
void exec_get(exec *x, exec_state *ret_state);
const char *exec_how_name(enum exec_how how);
/* Returns a NOT_STARTED end as the caller's error (user_not_found, cwd_not_found, exec_failed ...),
 * or NULL for any other end. */
err *exec_end_error(const exec_end *end) ERR_MUST;

/* Reads at most max bytes of stream (1 out, 2 err) at offset. *ret_n is 0 at the present end. If
 * the offset lies in a hole, *ret_n is 0 and *ret_gap_to (> offset) is where bytes continue. */
err *exec_read(exec *x, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
               uint64_t *ret_gap_to) ERR_MUST;

/* A registered follower of a stream. Bytes that it has not read yet are not dropped; at the ceiling
 * the command waits for it, as long as it advances at least every 60 s. */
typedef struct exec_hold exec_hold;
exec_hold *exec_hold_new(exec *x, int stream, uint64_t at);
void exec_hold_move(exec_hold *h, uint64_t at); /* at: the next byte it will read */
void exec_hold_free(exec_hold *h);

/* Called after bytes or an end have arrived, on any thread. It must not block, and must not call
 * exec_* functions on this thread. exec_unwatch() returns when it is not running. */
typedef struct exec_watch {
    void (*notify)(void *arg);
    void *arg;
    struct exec_watch *next; /* of the exec's list */
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

/* Appends to stdin. offset UINT64_MAX: at the end; otherwise it must be the present length, else
 * ERR_CONFLICT (kind "offset", the message names the length). eof: stdin ends behind the bytes. A
 * repeated end does nothing if it has no bytes, or the same offset and length. */
err *exec_stdin(exec *x, const void *p, size_t n, uint64_t offset, bool eof) ERR_MUST;
/* Sends the whole stdin of a command and ends it. Bytes that an earlier call, or an earlier
 * process, has appended are not repeated. A command that ended, or closed its stdin, before it read
 * anything is no error: its end says why. After any other error it is killed, because it would wait
 * for ever. */
err *exec_stdin_all(exec *x, const void *p, size_t n) ERR_MUST;
uint64_t exec_stdin_length(exec *x); /* bytes appended so far */
uint64_t exec_stdin_taken(exec *x);  /* of them, bytes that the command has received */
err *exec_signal(exec *x, int signo, uint32_t scope) ERR_MUST;
/* Asks the box whether the command's program runs. If so, sets exec_state.runs and notifies
 * watchers. */
err *exec_probe(exec *x) ERR_MUST;
err *exec_resize(exec *x, uint16_t rows, uint16_t cols) ERR_MUST;

/* ---- pause ---- */
/* Pauses a table, as the sandbox is paused since that real time: nothing is started or signalled
 * (ERR_SANDBOX_PAUSED), and no time limit runs. Also for a table that was opened during the
 * pause. */
void exec_table_pause(exec_table *t, uint64_t since_ns);
/* Records in the journal that the sandbox was paused until now, for time limits after a restart.
 * Call it before any other step of a resume. If that resume fails, the next call replaces the
 * record. */
err *exec_table_note_pause(exec_table *t, uint64_t now_ns) ERR_MUST;
void exec_table_resume(exec_table *t);
bool exec_table_is_paused(exec_table *t);
/* Holds the time limits during a snapshot, which freezes the sandbox for a part of the time.
 * Commands can be started; they wait inside. exec_table_let_go() makes limits run again, later by
 * the time the sandbox was frozen (UINT64_MAX: the whole time). Both do nothing if it is paused. */
void exec_table_hold(exec_table *t);
void exec_table_let_go(exec_table *t, uint64_t still_ns);
uint64_t exec_held_ns(exec *x);          /* time that its table was held so far */
size_t exec_table_pauses(exec_table *t); /* number of pauses so far */
/* Returns the table's clock, by which time limits are counted: monotonic time without the
 * pauses. */
uint64_t exec_table_clock(exec_table *t);
/* Returns the time by that clock at which a command's time limit begins: later than the clock while
 * a snapshot holds the sandbox. */
uint64_t exec_table_begin_clock(exec_table *t);
/* Sets a timer by that clock. Does nothing during a pause: to be set again after the resume. */
void exec_table_timer(exec_table *t, pump_timer *timer, uint64_t at_ns);
/* Returns what is left of a time limit that began at a real time. */
uint64_t exec_table_left(exec_table *t, uint64_t begin_ns, uint64_t timeout_ms);

/* ---- reset: the sandbox continues in another box, with the next ids ---- */
/* Begins a reset with a record in the journal, before it takes effect. No command can be started
 * (ERR_UNAVAILABLE) until exec_table_reset_undo() or exec_table_reset_end(). ret_first: the first
 * id of the new box. key may be NULL. */
err *exec_table_reset_begin(exec_table *t, const char *box, const exec_key *key,
                            uint64_t *ret_first) ERR_MUST;
void exec_table_reset_undo(exec_table *t);
/* Moves the table to the new box. Commands that have not ended were killed; the start command is
 * due again. Takes a reference to the box. */
void exec_table_reset_end(exec_table *t, box *x);
/* Prepares the table of a sandbox that was hibernated before a restart: it has no box until a reset
 * brings one. */
void exec_table_sleep(exec_table *t, backend *b);
/* Returns in *ret_was whether the last reset had this key. ERR_IDEMPOTENCY_MISMATCH if its body was
 * another. */
err *exec_table_reset_was(exec_table *t, const exec_key *key, bool *ret_was) ERR_MUST;
uint64_t exec_table_reset_id(exec_table *t); /* first id of this box; 0: it was never reset */

/* ---- for sessions ---- */
uint64_t exec_id(const exec *x);
void exec_mark_shell(exec *x);
void exec_table_touch(exec_table *t); /* a command of a session has begun or ended */
const char *exec_table_sandbox(const exec_table *t);
bool exec_table_is_over(exec_table *t); /* the sandbox has ended */
pump *exec_table_pump(exec_table *t);
void exec_pump_beside(exec *x, pump_job *j); /* j runs on the exec's lane */
/* A record of a session or a command, which exec_start_session() appends before BEGIN; otherwise
 * that function is like exec_start(). The record gets the id of the exec, which is also the
 * session's if it has none yet. */
typedef struct exec_log_entry {
    journal_rec *rec;
    uint32_t *ret_index; /* or NULL */
} exec_log_entry;
err *exec_start_session(exec_table *t, const exec_spec *spec, const exec_key *key,
                        const exec_log_entry *log, exec **ret_exec, bool *ret_replay) ERR_MUST;
/* Returns true if a start with this key would be a replay. */
bool exec_is_known(exec_table *t, const exec_key *key);
/* exec_log() appends a record of a session, exec_log_read() reads one, exec_log_each() reads all,
 * in order. */
err *exec_log(exec_table *t, journal_rec *r, uint32_t *ret_index) ERR_MUST;
/* Appends an end record of a session that counts bytes of this exec. */
err *exec_log_end(exec *x, journal_rec *r, uint32_t *ret_index) ERR_MUST;
/* Called by exec_table_ask_ooms(), on the backend's thread or before it returns, with the box's
 * count of kills for memory if that has risen since the last check; else with 0. */
typedef void oom_done(void *arg, uint32_t ooms);
void exec_table_ask_ooms(exec_table *t, oom_done *done, void *arg);
err *exec_log_read(exec_table *t, uint32_t index, journal_rec *ret_rec) ERR_MUST;
err *exec_log_each(exec_table *t, void (*each)(void *arg, uint32_t index, const journal_rec *r),
                   void *arg) ERR_MUST;
/* Appends a whole frame to stdin, at its present length and over any ceiling: a session has one
 * command at a time. */
err *exec_feed(exec *x, const void *p, size_t n, uint64_t offset) ERR_MUST;
/* Reads the first n bytes that were fed to an exec that has not ended. */
err *exec_feed_read(exec *x, size_t n, buf *out) ERR_MUST;
/* Signals a part of an exec's processes, also with SP_TO_PID and SP_TO_BELOW (wire/spine.h). Not
 * recorded as a kill of the exec. */
err *exec_signal_part(exec *x, int signo, uint32_t scope, uint32_t pid, uint64_t since_ns) ERR_MUST;
/* Returns true if some of these signals have not been answered: what they kill may still be
 * dying. */
bool exec_signals_pending(exec *x);
/* Sets the lengths (out, err) at which a session's new command begins: ceilings count from
 * there. */
void exec_set_base(exec *x, const uint64_t base[2]);
uint64_t exec_dropped(exec *x, int stream, uint64_t from, uint64_t to);
uint64_t exec_length(exec *x, int stream);
