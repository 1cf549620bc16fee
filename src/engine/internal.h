/* What the files of the engine share. Nobody else includes this. */
#pragma once

#include <pthread.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/map.h"
#include "base/metric.h"
#include "core/cause.h"
#include "core/idle.h"
#include "core/lifecycle.h"
#include "engine/engine.h"
#include "engine/turns.h"
#include "wire/kit.h"

/* Each has a thread for as long as it takes. The backend copies few at a time, an owner's next one
 * in turn: its time limit begins when it has its turn. */
#define SNAPSHOT_COPIES    2u
#define FREEZES            128u /* pauses at a time; the warden needs no thread for each */
#define FREEZES_OWNER      8u
#define LIMITINGS          4u /* changes of limits at a time; the warden has as many threads */
#define LIMITINGS_OWNER    2u
#define SNAPSHOTS_AT_ONCE  64u
#define SNAPSHOTS_OF_OWNER 16u

#define KEY_REMOVALS 256u /* counters: a removed key makes few streams read the store */

typedef struct box_tie box_tie;

typedef struct left_create {
    sandbox *sb;
    bool decided; /* it was running: only its box has to go yet */
} left_create;

struct engine {
    void (*asleep)(void *arg, const char *id); /* hibernate.c; set before the doors open */
    void *asleep_arg;
    bool (*taken)(void *arg, const char *id, bool asleep); /* of sleep.lock; hibernate.c */
    void *taken_arg;
    bool (*idle)(void *arg, const char *id); /* of sleep.lock; idle.c */
    void *idle_arg;
    engine_options o;
    pthread_mutex_t lock;
    map live;     /* id → sandbox, one reference each: creating, running, paused */
    map creating; /* 16 byte key hash → sandbox, no reference: creates under way with a key */
    pthread_t keeper;
    pthread_t sweeper;
    pthread_cond_t sweep_wake;
    map strays;   /* the sweeper's: ids of boxes that belonged to no sandbox at its last look */
    bool orphans; /* the sweeper is to look for spools without a sandbox */
    uint64_t dropped_until; /* streams of what ended before are gone; the sweeper's */
    uint64_t shed_until;    /* likewise, because the disk was short */
    pthread_cond_t wake;
    resume_times resumes;     /* how long they took */
    struct left_create *left; /* whose caller has gone; the keeper cancels them */
    size_t nleft;
    pthread_t resetter;
    pthread_cond_t reset_wake;
    struct reset_job *resets; /* whose box has come, or will not */
    struct ending *endings;   /* pid 1 has ended, and why is known: the keeper finishes them */
    map ended;                /* id → sandbox, a reference each: their row is queued (ended.c) */
    struct sandbox *written;  /* of them, by next_ended: for the keeper, a reference each */
    map buckets;              /* key id or owner → quota_bucket */
    struct sandbox *snapshotting[SNAPSHOTS_AT_ONCE]; /* under the lock, borrowed; NULL: none */
    struct sandbox *forking[SNAPSHOTS_AT_ONCE];      /* likewise */
    unsigned leaving;                                /* likewise: over, but for what they hold */
    pthread_mutex_t snapshot_lock; /* held while bytes of snapshots are counted and recorded */
    turns copies;                  /* of snapshots, by the backend */
    turns freezes, limits;         /* pauses and changes of limits, likewise */
    unsigned sweeps;     /* likewise: still to come, as a snapshot, or who had one, is gone */
    unsigned prunes;     /* likewise: and as a sweep has found something */
    unsigned prune_wait; /* the keeper's: seconds until the next */
    bool pruning;        /* under the lock: a thread of its own does */
    struct build_desk *builds;
    pthread_mutex_t event_lock;
    event_watch *watches; /* under event_lock */
    _Atomic unsigned nwatches;
    struct {
        _Atomic unsigned removed;                /* keys, ever */
        _Atomic unsigned removals[KEY_REMOVALS]; /* by a hash of the key's id */
        pthread_mutex_t lock;                    /* of epochs; inside all others */
        map epochs;                              /* owner → uint64_t, as the store has them */
    } keys;
    pthread_mutex_t look_lock; /* held during a look: who takes its own away waits for it */
    void (*look)(void *arg);
    void *look_arg;
    struct {
        pthread_mutex_t lock; /* inside all others */
        pthread_cond_t changed;
        unsigned running; /* runs of the kit that measure */
    } usage;
    struct {
        pthread_mutex_t lock; /* inside all others */
        pthread_cond_t changed;
        unsigned changes; /* somebody woke, or ended */
        unsigned waiting; /* requests */
        bool over;        /* nobody waits any more: bothyd goes down */
    } sleep;
    bool stopping;
};

/* A caller that waits for the outcome of a create. */
typedef struct create_waiter {
    struct create_waiter *next;
    created_fn *done;
    void *arg;
    bool replay;
} create_waiter;

#define UMASK_DEFAULT 022u

struct sandbox {
    _Atomic int refs;
    engine *engine;
    pthread_mutex_t lock;
    /* immutable after it is made */
    char id[SANDBOX_ID_LEN + 1];
    pthread_mutex_t event_lock;        /* one event of its box at a time; before the other one */
    char request[LOG_REQUEST_MAX + 1]; /* id of its create's request; "" after a restart */
    char *owner, *name, *image_name, *user, *cwd;
    bool read_only, setuid;
    enum network_grant network;
    uint32_t umask;
    json_t *tmpfs;  /* as the API shows it */
    json_t *start;  /* likewise: the start command; NULL: none */
    char *template; /* that it was made of; NULL: none */
    char *snapshot; /* likewise */
    char *door;     /* what a door keeps with it, or NULL */
    bool secrets;   /* it was given some, or its files may hold some */
    uint64_t created_ns;
    uint8_t key[16], body[16];
    bool has_key;
    /* under the lock */
    char **labels;
    limits limits;
    uint64_t idle_ms;
    bool ttl_pauses;              /* when its time is over it is paused, not ended */
    unsigned uses;                /* streams and verbs under way */
    uint64_t used_ns;             /* monotonic: when the last of them ended */
    struct usage_meter *measured; /* under the engine's usage.lock; NULL: never by the kit */
    idle_meter *meter;            /* the keeper's; NULL: it has no idle time */
    bool counted;                 /* in its owner's quota; under the engine's lock */
    limits raising;               /* a change under way; likewise. 0: as limits */
    char quota_key[9]; /* id of the key that created it; "": none, or bothyd was restarted since */
    enum lifecycle state;
    char *cause; /* as soon as its end is decided */
    image *image;
    uint8_t digest[32];
    uint64_t ends_ns, ended_ns;
    uint64_t paused_ns;      /* PAUSED: since when, and ends_ns stands still from then on */
    uint64_t pause_again_ns; /* monotonic: a pause at its time's end failed; not before then */
    unsigned pause_tries;    /* how often in a row */
    unsigned pause_resisted; /* and how often of those it would not stand still */
    unsigned movers;         /* that wait for their turn */
    bool moving;             /* a pause, a resume or another change of its record is under way */
    bool copying;            /* a snapshot is: no pause, resume or reset; other changes may come */
    pthread_cond_t moved;    /* one of them is over */
    uint64_t start_again_ns; /* monotonic: the start command is not begun before then */
    unsigned start_tries;
    int start_told; /* why it was not, as the log has it; 0: nothing */
    receipt receipt;
    char box_id[SANDBOX_ID_LEN + 1];      /* of its box: its own, unless it was reset */
    char next_box_id[SANDBOX_ID_LEN + 1]; /* of the box that a reset is making, or "" */
    exec_table *table;
    session_table *sessions; /* of the table; NULL: nobody asked yet */
    box *box;
    struct box_tie *tie; /* to that box, which owns it; NULL: it has ended */
    bool bound;          /* the table knows the box: events may flow */
    bool distrusted;     /* the backend ended it for what its pid 1 said */
    bool ending;         /* pid 1 has ended, and why is being asked */
    create_waiter *waiters;
    sandbox_spec spec;      /* only while creating: env and secrets leave with it */
    bool recovering;        /* found in `creating` at start: init's claimed bit decides */
    uint64_t recover_by_ns; /* monotonic: then it is given up */
    bool deleting;
    /* under the engine's lock; ended.c */
    struct sandbox *next_ended;
    bool end_destroys; /* its box is to be destroyed when the row of its end is written */
    bool end_early;    /* or when the disk refuses it */
    bool end_written, end_handed;
    /* under the lock */
    bool claiming;    /* a create has asked for its slot, or is about to */
    bool cancelled;   /* a create nobody wants any more */
    char *deleted_by; /* who said so; NULL: its caller left. Immutable once cancelled */
    bool has_timing;
    box_timing timing;
    /* a create's two halves: each is written by one thread before it counts halves down, and read
     * by the one that finds 0 */
    _Atomic int halves;
    err *no_record, *no_box;
    bool recorded; /* the row is committed */
    box *made;
    box_tie *made_tie;
};

enum engine_metric {
    M_CREATES,
    M_CREATE_FAILED,
    M_CREATE_SECONDS,
    M_PHASE_SECONDS,
    M_CLAIMS,
    M_ENDED,
    M_EXECS,
    M_RESETS,
    M_RESETS_FAILED,
    M_LIVE,
    M_COUNT
};
extern metric ENGINE_METRICS[M_COUNT];

/* sandbox.c */
/* The id of its box, for the backend. */
typedef struct box_name {
    char id[SANDBOX_ID_LEN + 1];
} box_name;
box_name sandbox_box(sandbox *sb);
box_name box_of_row(const sandbox_row *r);
sandbox *sandbox_new(engine *e, const char *owner);
sandbox *sandbox_from_row(engine *e, const sandbox_row *r);
void sandbox_to_row(const sandbox *sb, sandbox_row *ret_row); /* borrows strings but spec */
/* What a box of it is asked to be, but for env and secrets; to be checked before it is used. */
void sandbox_to_spec(sandbox *sb, sandbox_spec *ret_spec);
/* The sandbox of a row that was just read: the live one, one whose end is queued, or a gone one
 * made from the row. */
err *sandbox_of_row(engine *e, const sandbox_row *r, sandbox **ret_sandbox) ERR_MUST;
/* The machine's step; logs and refuses what the table forbids. Caller holds the lock. */
bool sandbox_enter(sandbox *sb, enum lifecycle state);
/* NULL when something can be done in it; else ERR_SANDBOX_GONE with its cause, and so on. */
err *sandbox_usable(sandbox *sb) ERR_MUST;
err *sandbox_usable_locked(sandbox *sb) ERR_MUST;
/* The same failure, or if that is that it has ended, why. */
err *sandbox_told(sandbox *sb, err *failure) ERR_MUST;
void sandbox_files(sandbox *sb, uint32_t *ret_soft, uint32_t *ret_hard);
/* With the lock: from now on it reads as gone. False: it has a cause already. */
bool sandbox_decide(sandbox *sb, const cause *c);
/* Removes it from the live map, closes what it holds, remembers the cause. */
void sandbox_finish(sandbox *sb, const cause *c);
/* What the store keeps of it; with the lock, or before others know it. */
char *sandbox_spec_text(const sandbox *sb);
char *cause_json(const cause *c);

json_t *limits_json(const limits *l);
void limits_read(const json_t *o, limits *l);
json_t *strv_json(char *const *v);
char **strv_of_json(const json_t *list); /* of its strings; NULL: none */

/* start.c */
/* Begins the sandbox's start command unless it was begun before. Does not wait. made: this process
 * of bothyd has just made the box, so the command cannot have run in it yet. */
void sandbox_start(sandbox *sb, bool made);
/* Begins the start commands that are still due: bothyd was killed before it began them, or an
 * earlier try failed. Keeper thread only. */
void start_look(engine *e);
json_t *start_json(const start_spec *s); /* NULL: there is none */
/* A copy of what the store has of it; NULL: none that could be run. */
json_t *start_of_row(const json_t *start, const char *id);

/* snapshot.c */
/* The image of the snapshot that a spec names, if any, with the rights of this owner (NULL: any);
 * the spec gets its image's name. */
err *snapshot_apply(engine *e, const char *owner, sandbox_spec *spec) ERR_MUST;
void snapshot_reconcile(engine *e); /* at start */
/* Images of snapshots that are not recorded, and that nothing is made of, lose their names. */
err *snapshot_sweep(engine *e) ERR_MUST;
bool engine_uses_image(engine *e, const uint8_t digest[32]); /* one that lives, or is being made */
err *snapshot_check_can(engine *e, const caller *c) ERR_MUST;
/* A place for a snapshot or a fork of sb among `all`: an owner has some of them. It ends with the
 * lock, while sb is still there; the engine stays until it is left, when sb has been let go. */
err *under_way_begin(engine *e, struct sandbox **all, const char *what, sandbox *sb) ERR_MUST;
void under_way_end(engine *e, struct sandbox **all, const sandbox *sb);
void under_way_left(engine *e);
/* As engine_snapshot_remove(), by the build whose files they are. */
err *snapshot_remove_built(engine *e, const caller *c, const char *id) ERR_MUST;
/* Its record goes, without asking whose it is or what names it. */
err *snapshot_forget(engine *e, const char *id) ERR_MUST;
/* At start, when sandboxes are attached: a fork that was cut has no children. */
err *forks_reconcile(engine *e) ERR_MUST;
void snapshot_let_go(engine *e, const sandbox *sb); /* it has ended */
void snapshot_prune(engine *e);                     /* the keeper's */
void snapshot_wait_all(engine *e);                  /* for those under way, when it stops */

/* As engine_snapshot(); the image it becomes has these, where they are not NULL. */
typedef struct snapshot_config {
    char **env; /* all of it */
    const char *user, *cwd;
    bool fork;          /* it is recorded as the means of one */
    uint64_t max_bytes; /* of the owner's together, as the caller's quota says; 0: any */
} snapshot_config;
err *snapshot_as(engine *e, const caller *c, sandbox *sb, const snapshot_config *as,
                 snapshot_row *ret_snapshot, uint64_t *ret_still_ns) ERR_MUST;

/* build.c */
void builds_open(engine *e);
void builds_close(engine *e);              /* waits for those under way to notice */
err *builds_reconcile(engine *e) ERR_MUST; /* at start, when sandboxes are attached */
void builds_keep(engine *e);               /* the keeper's: what is over for long is forgotten */
/* A template goes, by whatever verb: its builds go with it. */
void builds_forget(engine *e, const char *owner, const char *template);

/* template.c: the store's form of a spec. */
char *template_spec_text(const sandbox_spec *s);
err *template_spec_read(const char *name, const char *text, sandbox_spec *ret_spec) ERR_MUST;
/* The template of this id: made, or in the place of what it was. Takes the spec. */
err *template_put(engine *e, const caller *c, const char *id, const char *name,
                  sandbox_spec *spec) ERR_MUST;
/* template.c: what a create's template says, where the spec says nothing. */
err *template_apply(engine *e, const caller *c, sandbox_spec *spec, bool *ret_public) ERR_MUST;

/* engine.c */
/* References to those that live and are wanted, malloc'ed. wanted is asked with the engine's lock
 * held, and may take the sandbox's. */
sandbox **engine_live_where(engine *e, bool (*wanted)(sandbox *sb), size_t *ret_n);
/* The journal; of a gone one it is opened when somebody asks. */
err *sandbox_table(sandbox *sb, exec_table **ret_table) ERR_MUST;
/* ERR_QUOTA_EXCEEDED: the owner has too many that live. */
err *sandbox_check_commands(engine *e, const caller *c, const sandbox *sb) ERR_MUST;

/* session.c */
err *sandbox_sessions(sandbox *sb, session_table **ret_table) ERR_MUST;

/* hibernate.c. Lock held; tells who wakes it. */
err *asleep_error(const sandbox *sb) ERR_MUST;
/* The keeper's, of one whose box was taken away: false, it cannot and ends. Waits for a commit. */
bool sleep_instead(sandbox *sb);
void sleep_changed(engine *e); /* one woke, was taken up, or ended; no lock is needed */

/* receipt.c. Caller holds the lock of a sandbox others know. */
void receipt_take(sandbox *sb, const box_walls *w, const char *klass);
char *receipt_text(const receipt *r); /* for the store; NULL: nothing is known */
void receipt_read(receipt *r, const char *text);
/* Its place in BOX_CLASSES, or after them. */
size_t receipt_class(const char *klass);

/* create.c */
/* Asks the backend for a box with this id; the image is the sandbox's. done gets the tie. */
void box_ask(sandbox *sb, const sandbox_spec *s, const char *id, box_tie *tie, create_done *done);
image *image_by_name_only(const char *name);

/* reset.c: the thread that makes resets durable. */
void *engine_resetter(void *arg); /* the engine */

/* box.c */
extern const box_events ENGINE_BOX_EVENTS;
/* What the box of a sandbox knows of it: the argument of its events. The box's until `gone`. */
struct box_tie {
    sandbox *sb;             /* referenced */
    struct reset_job *reset; /* that it is made for; NULL: the sandbox's first one */
    /* under the sandbox's lock */
    bool bound;             /* events may flow */
    bool loose;             /* nobody wants it any more */
    struct sp_hello *hello; /* an `attached` that came before: hello and records */
    char *gone_early;       /* a `gone` that came before */
};
box_tie *tie_new(sandbox *sb);
/* A box that was not made has none. */
void tie_free(box_tie *t);
void tie_loosen(box_tie *t); /* whose box goes, or has gone; it is not to be used again */
/* The sandbox's table knows the box, and its events stand still (event_lock): early ones are
 * flushed. A `gone` among them is given back (owned), for tie_over() without the lock. */
char *tie_bind(box_tie *t);
void tie_over(box_tie *t, const char *why); /* why NULL: it is not */
/* The box has come (create or attach); gives the sandbox's table to it and flushes early events. */
void sandbox_bind(sandbox *sb, box_tie *t, box *x);
/* Ends a sandbox whose create was interrupted by a crash of bothyd and cannot be completed. */
void sandbox_give_up(sandbox *sb);

/* count.c */
void engine_count_init(engine *e);
void engine_count_verb(enum kit_verb verb, bool ok, uint64_t ns);
void engine_count_port(bool ok);

/* ending.c: pid 1 has ended unasked; takes the reference. Does not wait. */
void ending_begin(sandbox *sb, const char *why);
void ending_finish_all(engine *e); /* the keeper's */
void ending_drop_all(engine *e);   /* the keeper has ended */
/* The same for one that is found dead at start. Waits. */
cause ending_cause(engine *e, const char *id, char buffer[CAUSE_DETAIL_MAX]);

/* ended.c: ends whose row is queued. */
void ended_open(engine *e);
void ended_close(engine *e); /* the keeper has ended */
/* Queues the row of an end; destroy: its box, too, behind the row. Does not wait. */
void end_record(sandbox *sb, const cause *c, bool destroy);
sandbox *ended_find(engine *e, const char *id); /* a reference, or NULL */
void ended_finish_all(engine *e);               /* the keeper's */
/* At start: ends what has no box (known NULL), or a dead one that ended so. Does not wait. */
void end_row(engine *e, const sandbox_row *row, const cause *known, bool destroy);

/* idle.c: a verb is under way. One step with sandbox_usable: what is in use is not found idle. */
err *sandbox_use_begin(sandbox *sb) ERR_MUST;
void sandbox_use_end(sandbox *sb);
/* One look; the keeper's. */
void idle_look(engine *e);
void sandbox_set_idle(sandbox *sb, uint64_t idle_ms); /* with the lock, or alone */
/* For how long nothing happened in it, ns; UINT64_MAX: nobody looks. Lock held. */
uint64_t sandbox_idle_for(sandbox *sb);

/* quota.c */
quota quota_of(const engine *e, const caller *c);
/* ERR_FORBIDDEN for limits above those that the node allows this caller. */
err *quota_ceilings(const engine *e, const caller *c, const limits *l) ERR_MUST;
/* A change of a live sandbox's limits, counted from now until quota_raised(). */
err *quota_raise(engine *e, const caller *c, sandbox *sb, const limits *to) ERR_MUST;
void quota_raised(engine *e, sandbox *sb);
/* Counts a create that has just entered; ERR_QUOTA_EXCEEDED with Retry-After. */
err *quota_admit(engine *e, const caller *c, sandbox *sb) ERR_MUST;
/* So many more at once, as far as their number is concerned. */
err *quota_room(engine *e, const caller *c, unsigned more) ERR_MUST;
/* When to ask again after a refusal that passes by itself (rate, concurrency); 0: it does not. */
uint64_t quota_pause_ns(const err *refusal);
/* Fills what is not asked for; ERR_FORBIDDEN beyond what the caller may have. */
err *quota_ttl(const engine *e, const caller *c, uint64_t *ttl_ms, uint64_t otherwise) ERR_MUST;
void quota_done(engine *e);

/* events.c */
void events_open(engine *e);

/* ---- caller.c ---- */
err *keys_open(engine *e) ERR_MUST;
void keys_close(engine *e);

/* update.c: a change of limits that a kill interrupted; at start. */
void update_settle(engine *e, sandbox *sb);

/* sweep.c: retention */
void engine_recall_dropped(engine *e); /* before the sweeper starts */
void *engine_sweeper(void *arg);       /* the engine */
void sweep_orphans(engine *e);         /* at start, when sandboxes are attached; does not wait */

/* keep.c: TTL */
void *engine_keeper(void *arg);
/* Of threads that others wait for: the node may be away. */
void engine_destroy_soon(engine *e, const char *id, const char *what);
/* Ends a live sandbox for a reason of our own. */
void engine_end(sandbox *sb, const cause *c);
/* The same when it is decided already. */
void engine_end_decided(sandbox *sb, const cause *c);

/* pause.c */
/* Before the engine is anybody's. */
void pause_recall(engine *e);
/* Its own time, by which its time to live runs: now, or when it was paused. Lock held. */
uint64_t sandbox_now(const sandbox *sb);
/* Changes of its record that wait for the store come one after the other. The first waits; the lock
 * must be held by neither. */
/* Waits for its turn, with few others: a thread of requests each. */
err *sandbox_move_begin(sandbox *sb) ERR_MUST;
err *sandbox_move_try(sandbox *sb) ERR_MUST; /* ERR_UNAVAILABLE instead of waiting */
void sandbox_move_end(sandbox *sb);
/* A snapshot's turn: no other of it, no pause and no resume until the end. Waits, with a thread of
 * its own. */
void sandbox_copy_begin(sandbox *sb);
void sandbox_copy_end(sandbox *sb);
/* After exec_table_hold(): commands and sessions, too. */
void sandbox_let_go(sandbox *sb, uint64_t still_ns);
/* ERR_UNAVAILABLE: one is under way, and who would pause, resume or reset does not wait for it.
 * While it is being moved: none begins. */
err *sandbox_not_copied(sandbox *sb) ERR_MUST;
/* At start: brings what is inside to what the record says. After it is bound. */
void sandbox_settle_pause(sandbox *sb, bool frozen);
/* With its lock: at the end of its time it is paused, not ended. */
bool pause_at_ttl(const sandbox *sb);
/* It has other time, or was paused: it may resist as often as at first. Lock held. */
void pause_forgive(sandbox *sb);
/* The keeper's: pauses one whose time is over, or puts it off; what can never be paused ends.
 * False: there was none. */
bool pause_look(engine *e);
/* One that was paused for too long, as a reference; NULL: there is none. */
sandbox *pause_expired(engine *e);
void pause_end(engine *e, sandbox *sb);

/* create_key.c */
enum key_outcome {
    KEY_NEW,
    KEY_JOINED,
    KEY_ANSWERED
};
/* Enters the sandbox as creating, unless the key belongs to one already. */
err *create_enter(engine *e, sandbox *sb, const idempotency *i, create_waiter *w,
                  enum key_outcome *ret_outcome, sandbox **ret_known) ERR_MUST;
/* Nobody joins it any more. */
void create_forget(sandbox *sb);
/* The sandbox of this key, or NULL; key_text is for the message. */
err *create_find(engine *e, const char *key_text, const uint8_t key[16], const uint8_t body[16],
                 sandbox **ret_sandbox) ERR_MUST;
/* These wait for first instead, or are told at once. */
void create_hand_over(sandbox *first, create_waiter *w);

/* create.c: what somebody asked for by name and the backend does not hold is `unsupported`. */
err *create_check_limits(const engine *e, const limits *l) ERR_MUST;
/* Tells everybody who waits for a create; failure is consumed. */
void create_tell(sandbox *sb, err *failure);

/* cancel.c. False: it is not being created. The create itself tells who waits. */
bool create_cancel(sandbox *sb, const char *by, err **ret_failure);
void create_cancel_left(engine *e); /* the keeper's */
bool create_cancelled(sandbox *sb);
err *create_cancel_error(sandbox *sb) ERR_MUST;
/* False: it was cancelled before; otherwise a cancel goes to the backend from now on. */
bool create_begin_claim(sandbox *sb);

/* files.c: a run of the kit that is a tunnel, from "/"; argv and numbers are the spec's. */
void kit_spec(const engine *e, const kit_request *rq, char numbers[KIT_NUMBERS],
              const char *argv[KIT_ARGC + 1], exec_spec *ret_spec);

/* usage.c */
void usage_open(engine *e);
void usage_close(engine *e); /* waits for what is under way */
/* As engine_usage(), of these. */
void usage_of_live(engine *e, sandbox *const *sbs, size_t n, box_usage *ret);

/* engine.c */
/* Starts a transient exec in the sandbox, for a verb of the engine's own. */
err *engine_exec_for_verb(engine *e, const caller *c, sandbox *sb, exec_spec *spec,
                          exec **ret_exec) ERR_MUST;

void idempotency_hash(const char *owner, const char *verb, const char *scope, const idempotency *i,
                      uint8_t ret_key[16], uint8_t ret_body[16]);
