/* Shared by the files of this folder; no other folder includes it.
 *
 * Locks, in the order they are taken:
 *     exec.in_lock → table.lock → spool.lock → spool_set.lock, lane locks, the timer's lock
 *     table.lock → tunnel.lock → lane locks, the timer's lock
 *     exec.in_lock → exec.watch_lock → nothing
 *
 * No lock is held during a call on a descriptor of a sandbox (splice, ioctl, fcntl, the last
 * close): a command can hold its pipe's mutex in the kernel, and the call waits for it. Such calls
 * are made on lanes of the pump only, which survive that; closes elsewhere go through close_soon().
 * Backend functions may be called with or without table.lock: they only queue. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "base/buf.h"
#include "base/map.h"
#include "core/pause.h"
#include "exec/exec.h"
#include "exec/journal.h"
#include "exec/pump.h"
#include "exec/spool.h"

#define EXECS_MAX   1000000u /* in a sandbox's life: its journal and index stay below 0.6 GiB */
#define VERBS_MAX   750000u  /* of them for file verbs: reading files leaves room for commands */
#define LOGS_MAX    3000000u /* records of its sessions: a journal has less than 0.75 GiB of them */
#define KEY_LIFE_NS (UINT64_C(24) * 3600 * UINT64_C(1000000000))
#define OOMS_SETTLE_NS \
    (5 * NS_PER_S)    /* a box that ends so soon after its last kill for memory died of it */
#define EXEC_PROBE 1u /* cookie of an exec_probe(), which sends no signal */

/* Live commands and kept output of one owner, in all its sandboxes. */
struct exec_account {
    unsigned tables; /* hub's lock: tables that count here */
    _Atomic unsigned live;
    _Atomic int64_t bytes; /* of kept output */
    char owner[];
};

/* Execs whose streams must be on the disk before the journal with their ends. */
struct sync_due {
    uint64_t *id;
    size_t n, cap;
};

#define SYNC_LEFT_MAX 1024u
struct sync_left { /* what is left to sync of a table that was freed */
    int fd;        /* its journal */
    char sandbox[SANDBOX_ID_LEN + 1];
    struct sync_due due;
};

struct exec_hub {
    exec_options o;
    rlim_t descriptors; /* RLIMIT_NOFILE of this process */
    spool_set spools;
    pump *pump;
    pump_job sweep_job;
    pump_timer sweep_timer;
    _Atomic int full;              /* execs that wait for disk space */
    _Atomic int64_t spool_bytes;   /* of all tables */
    _Atomic uint64_t share;        /* an owner's share of the room for output */
    _Atomic uint64_t share_ns;     /* when the share was computed */
    _Atomic uint64_t tunnel_bytes; /* held in memory by all tunnels */
    pthread_mutex_t lock;
    map tables;   /* sandbox → exec_table, no reference; lock */
    map accounts; /* lock: by owner */
    pthread_t sync_thread;
    pthread_cond_t sync_wake;             /* lock */
    bool sync_stop;                       /* lock */
    struct sync_left left[SYNC_LEFT_MAX]; /* lock */
    size_t nleft;
};

/* sync.c: writes journals, and the output that their ends count, to the disk within about a
 * second. */
void sync_start(exec_hub *h);
void sync_stop(exec_hub *h);
/* Notes that an end was appended that counts bytes of this exec. table->lock held. */
void sync_note(exec_table *t, uint64_t id);
/* Takes over the journal of a table that is being freed, if it has unsynced records. Hub's lock
 * held; no reference to the table is left. */
void sync_leave(exec_hub *h, exec_table *t);

/* An exec in the journal. Only live or referenced execs have a struct exec, too. */
struct past {
    uint64_t id;
    uint32_t begin;
    uint32_t end;     /* record number + 1; 0: none */
    uint32_t asked;   /* as exec.asked */
    uint32_t gone[2]; /* record number + 1 of the mark by which a stream went as a whole; 0: none */
    bool evicted;     /* its streams were removed for space, or are removed with their verb */
    bool transient;
    uint8_t has; /* while the journal is read: a bit for each stream that has bytes */
    bool lost;   /* a power loss took bytes of its streams; spool_bytes does not count them */
};

struct frame_end { /* a shell's newest frame, while the journal is read */
    uint64_t at, n;
    uint64_t start[2]; /* where its output begins */
    uint64_t least[2]; /* lengths that its shell's streams had at least */
};

struct key_entry {
    uint8_t key[16], body[16];
    uint64_t id, real_ns;
};

struct exec_table {
    _Atomic(struct exec_account *) account; /* of its owner; NULL: not set */
    _Atomic int64_t counted;                /* part of spool_bytes that the account has */
    _Atomic unsigned refs;
    exec_hub *hub;
    char sandbox[SANDBOX_ID_LEN + 1];
    _Atomic int64_t spool_bytes; /* kept bytes of all streams; may be negative for a moment */

    pthread_mutex_t list_lock; /* taken before `lock`: one list at a time */
    pthread_mutex_t lock;      /* everything below */
    journal journal;
    uint64_t next_id;
    uint64_t start_id; /* of the last start command; 0: none, or it was never forked */
    char box_id[SANDBOX_ID_LEN + 1]; /* of the box, as the backend knows it */
    uint64_t reset_id;               /* lower ids ran in earlier boxes; 0: none did */
    struct journal_reset reset;      /* the last reset */
    struct journal_reset reset_next; /* the reset under way */
    bool shut;                       /* a reset is under way: no command is started */
    bool behind;                     /* ids were used that the journal does not have */
    struct past *past;               /* ascending ids */
    size_t npast, past_cap;
    size_t evicted; /* lower indexes of `past` are evicted, or live */
    map drops;      /* stream of an exec → spans: marks, except those in past.gone */
    struct sync_due due;
    uint32_t *logs; /* records of its sessions, in order */
    size_t nlogs, logs_cap;
    pump_party party; /* synchronizes itself, as close_job does */
    pump_job close_job;
    int *closing; /* descriptors of the sandbox, for close_job */
    size_t nclosing;
    map frame_ends; /* while it is opened: exec → struct frame_end */
    map carriers;   /* while it is opened: session → frame_end of its newest command */
    map keys;       /* key → key_entry */
    map execs;      /* id → exec, those in memory */
    map readers;    /* id → struct reader: what doors keep with execs */
    exec *live;     /* list; each is referenced */
    size_t nlive;
    size_t ntransient;         /* of these, transient ones */
    map tunnels;               /* id → struct tunnel, each is referenced */
    _Atomic unsigned ntunnels; /* of these, those that the box has */
    uint64_t ids_until;        /* lower ids without a BEGIN may belong to tunnels */
    bool had_transient;        /* the journal has transient execs */
    uint32_t live_max;
    backend *backend;
    const backend_ops *ops; /* also usable after the backend is freed: box_unref */
    box *box;
    bool frames;
    bool attached, gone, ended, bound, settled;
    pause_spans pauses;   /* pauses that have ended */
    uint64_t paused_real; /* start of the pause; 0: not paused */
    uint64_t paused_mono;
    bool briefly;           /* it is held, not paused: paused_* is the start of the hold */
    uint64_t held_ns;       /* held so far, in this process */
    uint64_t still_ns;      /* how much the table's clock is behind the monotonic one */
    uint64_t ooms;          /* the box's count at the last check while it lived */
    uint64_t ooms_before;   /* the count before it last rose */
    uint64_t ooms_ns;       /* when it last rose */
    uint64_t busy_ns;       /* monotonic: when a command last began or ended */
    struct sp_hello *early; /* HELLO that came before bind, with its records */
    void (*on_gone)(void *arg, const char *why);
    void *on_gone_arg;
};

/* Whether the memory limit killed an exec: the node is asked before END is written. */
enum oom_known {
    OOM_UNASKED,
    OOM_ASKED,
    OOM_NO,
    OOM_YES
};

/* The part of an exec that only its job touches. */
struct exec_io {
    bool installed; /* the descriptors have been checked */
    bool eof[2];
    bool ceiling[2];
    bool drained;
    bool saw_exit; /* the job knows that it has ended or is lost */
    bool acked;
    bool hung_up;  /* pty: no slave open now */
    bool tty_full; /* pty: input waits for room */
    buf tty;       /* pty: input taken from tty_in that is not written yet */
    bool full;     /* counts in hub->full */
    bool parked;   /* nothing is watched until the retry timer */
    unsigned backoff_ms;
    uint64_t window_ns; /* flood detection */
    uint64_t window_bytes;
    uint64_t in_sent; /* frames form: handed to the backend */
    uint64_t in_punched;
    bool in_eof_sent;
};

struct exec {
    _Atomic unsigned refs;
    exec_table *table; /* referenced */
    uint64_t id;
    uint32_t flags; /* JOURNAL_F_* */
    uint64_t begin_ns, timeout_ms;
    uint64_t asked_ns, exited_ns; /* monotonic, for metrics; 0: not in this process */
    uint8_t key[16];
    char command[JOURNAL_COMMAND_MAX];
    spool out[2];
    pump_job job;
    pump_job limit; /* its time limit: never waits for a call on the sandbox's pipes */
    pump_timer deadline, retry;
    uint64_t deadline_at; /* by the table's clock; 0: none. table->lock */
    struct exec_io io;
    _Atomic bool due, retry_due; /* timers that fired */
    _Atomic bool forgotten;      /* its streams were removed */
    _Atomic unsigned signals;    /* sent and not answered yet */
    _Atomic bool runs;           /* an exec_probe() reported that it runs */

    /* table->lock */
    exec *live_prev, *live_next;
    bool live;     /* in the list: not ended, or lingering */
    bool here;     /* queued by this process: the backend owes an answer */
    bool answered; /* `started` came */
    bool exited;   /* rec says how */
    bool lost;     /* nothing more will come from the box */
    bool reset;    /* lost because the sandbox has another box: it was killed */
    bool fetch_failed;
    bool stalled; /* frames form: bytes were dropped for want of room; fetch again */
    enum spool_status stalled_by;
    bool fetching; /* frames form: until the answer, frames are older than the fetch */
    bool timed_out;
    bool discarded; /* transient: its starter has discarded it */
    bool shell;     /* a session's shell: its commands count as busy, it does not */
    enum oom_known oom;
    uint32_t ooms; /* with OOM_YES */
    bool ended;
    bool stdin_over;  /* the command has closed it, or it was closed */
    bool in_resync;   /* frames form: send from in_taken on */
    bool taken_known; /* frames form: the box has reported in_taken on this connection */
    int refused;      /* errno of a refusal before fork, or -1: never sent */
    uint32_t asked;   /* bit per signal that a caller sent to end it (TERM, KILL, ...) */
    uint32_t pid;
    struct sp_rec rec;
    exec_end end;
    int fd[SP_FDS_MAX];     /* changed by the job (and once by `started`) under the lock */
    bool fds_have, fds_new; /* they have come; the job has not seen them yet */
    int keep_copy;          /* duplicate of fd[SP_FD_KEEP], from STARTED; the job closes it */
    bool stream_eof[2];     /* frames form */
    uint64_t at_exit[2];    /* frames form: lengths when `exited` came */
    buf tty_in;

    _Atomic uint32_t size; /* pty: rows and columns asked for, 16 bits each; 0: nothing new */

    pthread_mutex_t in_lock; /* guards appending to the stdin file */
    _Atomic uint64_t in_len, in_taken;
    _Atomic bool in_eof;

    pthread_mutex_t watch_lock;
    exec_watch *watches;
};

/* table.c */
/* All with table->lock held. */
struct past *table_past(exec_table *t, uint64_t id);
/* Drops the execs, the tunnels and the box's reference of a table. The pump has stopped. Without
 * the lock. */
void table_abandon(exec_table *t);
struct past *table_begin(exec_table *t, uint64_t id, uint32_t index, bool transient);
exec *table_exec_new(exec_table *t, uint64_t id, const struct journal_begin *b);
err *table_exec(exec_table *t, struct past *p, exec **ret_exec) ERR_MUST; /* a reference */
struct key_entry *table_key(exec_table *t, const uint8_t key[16]);
void table_key_put(exec_table *t, uint64_t id, const struct journal_begin *b);
void table_key_free(exec_table *t, const uint8_t key[16], uint64_t id);
/* If an exec with the end e was never forked, frees its key and makes its start command due
 * again. */
void table_never_forked(exec_table *t, uint64_t id, const uint8_t key[16],
                        const struct journal_end *e);
void table_live_add(exec *x);
void table_log(exec_table *t, uint32_t index);
/* Returns an error if no session and no command of one can be recorded any more. */
err *table_admit_log(const exec_table *t) ERR_MUST;
/* Without the lock. */
void table_live_drop(exec *x);

/* evict.c; without the lock */
/* Counts bytes of kept output; n < 0: bytes that are no longer kept. Any thread, with any lock
 * held. */
void table_count_bytes(exec_table *t, int64_t n);
/* Returns true if the sandbox, or its owner, keeps more output than it may. */
bool table_is_over(exec_table *t);
/* Evicts ended execs, then shortens live streams, until no more output is kept than may be. */
void table_make_room(exec_table *t);
/* Returns SPOOL_MORE, or why the stream must wait, because no room could be made: the disk is full
 * (SPOOL_NOSPACE), or a limit of the sandbox or its owner is reached (SPOOL_HELD). */
enum spool_status exec_choke(exec *x, int i);
/* Returns how many bytes a stream may move at a time. */
size_t exec_quantum(exec *x, size_t max);
bool table_marker(void *arg, int stream, uint64_t from, uint64_t to);
/* Removes the streams of a transient exec that has no writer any more. */
void table_forget_streams(exec *x);
static inline bool exec_is_transient(const exec *x)
{
    return x->flags & JOURNAL_F_TRANSIENT;
}

/* drops.c; table->lock held */
/* Notes a mark and returns how many of its bytes no earlier mark had. */
uint64_t drops_add(exec_table *t, struct past *p, const struct journal_mark *m, uint32_t index);
/* Gives an exec the marks of its streams. */
err *drops_load(exec_table *t, const struct past *p, exec *x) ERR_MUST;
void drops_free(exec_table *t);

/* exec.c */
/* Returns why nothing can be started now, or NULL. Lock held. */
err *table_admit(const exec_table *t) ERR_MUST;
void exec_notify(exec *x);
bool exec_key_is_set(const uint8_t key[16]);
void exec_end_of(const journal_rec *r, exec_end *ret_end);

/* finish.c */
/* Appends END if there is none. Returns false if the journal could not be written: try again. */
bool exec_finish(exec *x, enum exec_how how, int errnum, const uint64_t length[2]);
/* Returns false if the node must still report whether the exec was killed for memory; the job is
 * kicked when it does. */
bool exec_oom_known(exec *x, enum exec_how how);
enum exec_how exec_how_of(const exec *x, const struct sp_rec *rec);

/* reader.c */
void reader_ended(exec_table *t, uint64_t id); /* table->lock held */
void readers_free(exec_table *t);

/* reset.c */
/* table->lock held, while the journal is read */
void table_reset_load(exec_table *t, const journal_rec *r);
/* Returns a reference to the box that the exec runs in; NULL if there is none, or the sandbox has
 * left it. Without the lock. */
box *exec_box(exec *x);

/* tunnel.c. The first three with table->lock held, the rest without. */
/* Handle the tunnels in a HELLO. tunnels_meet() takes each of its records, and returns true if the
 * record is a tunnel's; tunnels_miss() handles tunnels that it lacks. tunnels_lose(): the box is
 * lost. */
bool tunnels_meet(exec_table *t, const struct sp_rec *rec);
void tunnels_miss(exec_table *t, const struct sp_hello *h, const struct sp_rec *recs);
void tunnels_lose(exec_table *t);
/* Handle events of the backend. Return false if the exec is no tunnel. */
bool tunnel_started(exec_table *t, uint64_t id, int errnum, int fd[SP_FDS_MAX]);
bool tunnel_frame(exec_table *t, uint64_t id, int stream, uint64_t offset, const void *p, size_t n);
bool tunnel_exited(exec_table *t, const struct sp_rec *rec);
bool tunnel_stdin_taken(exec_table *t, uint64_t id, uint64_t offset);
/* Drops all tunnels, for table_abandon(). */
void tunnels_abandon(exec_table *t);

/* job.c: one exec's work on its pump thread */
void job_init(exec *x);
void job_done(exec *x);

/* close.c */
void close_init(exec_table *t);
void close_done(exec_table *t);
/* Takes the descriptors, of which any may be -1, and closes them on a lane. Without the lock. */
void close_soon(exec_table *t, int *fd, size_t n);

/* pause.c; table->lock held */
uint64_t table_clock(const exec_table *t);
/* Returns what is left of a time limit that began at a real time. */
uint64_t table_left(const exec_table *t, uint64_t begin_ns, uint64_t timeout_ms);
void exec_deadline(exec *x, uint64_t left_ns);

/* io.c: the descriptors form; frames.c: the frames form. Called from the job. */
void io_install(exec *x);
void io_output(exec *x);
/* Moves the rest of the output after the exit. Returns false if the disk is full: try again
 * later. */
bool io_drain(exec *x);
void io_input(exec *x);
/* Moves the job to another lane if its output asks for it. Must be the last step of a run: the job
 * may be running on its new lane when this returns. */
void io_choose_lane(exec *x);
void io_close_all(exec *x);
/* Stops moving output until a later retry. why: only SPOOL_NOSPACE is reported as a full disk. */
void io_retry_later(exec *x, enum spool_status why);
void io_set_full(exec *x, bool full);
bool io_all_eof(const exec *x);
void frames_input(exec *x);
/* Writes a piece of stdin to a box; returns how many bytes it took. If it has no room for all
 * (EAGAIN), tries smaller pieces. 0: none fits until its next stdin_taken. */
size_t frames_write_piece(const backend_ops *ops, box *in, uint64_t id, uint64_t at, const char *p,
                          size_t n);
bool frames_is_full(err *e); /* true: no room now. Takes ownership of e */
void frames_refetch(exec *x);

/* input.c */
void input_path(const exec *x, char ret_path[SPOOL_PATH_MAX]);
err *input_make(exec *x, int *ret_keep) ERR_MUST;
void input_load(exec *x);
/* Cuts off what a kill left of an unfinished frame. The session's newest frame is [at, at + n) of
 * stdin. */
void input_mend(exec *x, uint64_t at, uint64_t n);
void input_punch(exec *x, uint64_t consumed);
void input_over(exec *x);
