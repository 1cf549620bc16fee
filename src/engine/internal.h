/* Shared by the files of this folder; no other folder includes it. */
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

/* Each snapshot and each fork has a thread until it ends. The backend copies few snapshots at a
 * time, in turn by owner; the time limit of a copy begins with its turn. */
#define SNAPSHOT_COPIES    2u
#define FREEZES            128u /* pauses at a time; the warden needs no thread for each */
#define FREEZES_OWNER      8u
#define LIMITINGS          4u /* changes of limits at a time; the warden has as many threads */
#define LIMITINGS_OWNER    2u
#define SNAPSHOTS_AT_ONCE  64u
#define SNAPSHOTS_OF_OWNER 16u

/* counters by a hash of the key: a removal makes few streams read the store */
#define KEY_REMOVALS 256u

typedef struct box_tie box_tie;

typedef struct left_create {
    sandbox *sb;
    bool decided; /* it was running, and its end is decided; the keeper records it */
} left_create;

struct engine {
    void (*asleep)(void *arg, const char *id); /* hibernate.c; set before the doors open */
    void *asleep_arg;
    bool (*taken)(void *arg, const char *id, bool asleep); /* under sleep.lock; hibernate.c */
    void *taken_arg;
    bool (*idle)(void *arg, const char *id); /* under sleep.lock; idle.c */
    void *idle_arg;
    engine_options o;
    pthread_mutex_t lock;
    map live;     /* id → sandbox, one reference each: creating, running, paused */
    map creating; /* 16 byte key hash → sandbox, no reference: creates under way with a key */
    pthread_t keeper;
    pthread_t sweeper;
    pthread_cond_t sweep_wake;
    map strays;   /* sweeper thread: ids of boxes that belonged to no sandbox at the last check */
    bool orphans; /* the sweeper must search for spools without a sandbox */
    uint64_t dropped_until; /* streams of sandboxes that ended before are removed; sweeper thread */
    uint64_t shed_until;    /* likewise, removed because the disk was short */
    pthread_cond_t wake;
    resume_times resumes;     /* how long resumes took */
    struct left_create *left; /* creates whose caller disconnected; the keeper cancels them */
    size_t nleft;
    pthread_t resetter;
    pthread_cond_t reset_wake;
    struct reset_job *resets; /* jobs whose box is made, or could not be made */
    struct ending *endings;   /* pid 1 has ended, with its reason; the keeper finishes them */
    map ended;               /* id → sandbox, one reference each, whose end is queued (ended.c) */
    struct sandbox *written; /* of those, for the keeper: linked by next_ended, a reference each */
    map buckets;             /* key id or owner → quota_bucket */
    struct sandbox *snapshotting[SNAPSHOTS_AT_ONCE]; /* under the lock, borrowed; NULL: none */
    struct sandbox *forking[SNAPSHOTS_AT_ONCE];      /* likewise */
    unsigned leaving;              /* threads that are done but still hold references (lock held) */
    pthread_mutex_t snapshot_lock; /* held while bytes of snapshots are counted and recorded */
    turns copies;                  /* copies of snapshots by the backend */
    turns freezes, limits;         /* pauses, and changes of limits */
    /* pending snapshot sweeps, queued when a snapshot or a sandbox made from one ends (lock
     * held) */
    unsigned sweeps;
    /* pending image prunes, queued when a sweep removed an image (lock held) */
    unsigned prunes;
    unsigned prune_wait; /* keeper thread: seconds until the next prune */
    bool pruning;        /* a thread prunes now (lock held) */
    struct build_desk *builds;
    pthread_mutex_t event_lock;
    event_watch *watches; /* under event_lock */
    _Atomic unsigned nwatches;
    struct {
        _Atomic unsigned removed;                /* keys removed so far */
        _Atomic unsigned removals[KEY_REMOVALS]; /* by a hash of the key's id */
        pthread_mutex_t lock;                    /* guards epochs; taken after all others */
        map epochs;                              /* owner → uint64_t, as the store has them */
    } keys;
    pthread_mutex_t look_lock; /* held while look runs, so that engine_on_look() waits for it */
    void (*look)(void *arg);
    void *look_arg;
    struct {
        pthread_mutex_t lock; /* taken after all others */
        pthread_cond_t changed;
        unsigned running; /* kit runs that measure */
    } usage;
    struct {
        pthread_mutex_t lock; /* taken after all others */
        pthread_cond_t changed;
        unsigned changes; /* counts sandboxes that woke or ended */
        unsigned waiting; /* requests that wait */
        bool over;        /* bothyd is stopping: no request waits any more */
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
    pthread_mutex_t event_lock;        /* serializes events of its box; taken before `lock` */
    char request[LOG_REQUEST_MAX + 1]; /* id of its create's request; "" after a restart */
    char *owner, *name, *image_name, *user, *cwd;
    bool read_only, setuid;
    enum network_grant network;
    uint32_t umask;
    json_t *tmpfs;  /* as the API shows it */
    json_t *start;  /* likewise: the start command; NULL: none */
    char *template; /* it was made from; NULL: none */
    char *snapshot; /* likewise */
    char *door;     /* a door's own state, or NULL */
    bool secrets;   /* it was given secrets, or its files may hold some */
    uint64_t created_ns;
    uint8_t key[16], body[16];
    bool has_key;
    /* under the lock */
    char **labels;
    limits limits;
    uint64_t idle_ms;
    bool ttl_pauses;              /* at the end of its TTL it is paused, not ended */
    unsigned uses;                /* streams and verbs under way */
    atomic_uint port_waits;       /* engine_port_waits(); needs no lock */
    uint64_t used_ns;             /* monotonic: when the last of them ended */
    struct usage_meter *measured; /* usage.lock; NULL: never measured by the kit */
    idle_meter *meter;            /* NULL: no idle limit */
    bool counted;                 /* in its owner's quota; under the engine's lock */
    limits raising;               /* of a change under way, for the quota; likewise. 0: as limits */
    char quota_key[9]; /* id of the key that created it; "": none, or bothyd was restarted since */
    enum lifecycle state;
    char *cause; /* set as soon as its end is decided */
    image *image;
    uint8_t digest[32];
    uint64_t ends_ns, ended_ns;
    uint64_t paused_ns;      /* LIFE_PAUSED: since when; the TTL does not run meanwhile */
    uint64_t pause_again_ns; /* monotonic: earliest retry of a failed pause at the TTL's end */
    unsigned pause_tries;    /* failed tries in a row */
    unsigned pause_resisted; /* tries in which a process could not be frozen */
    unsigned movers;         /* changes that wait for their turn */
    bool moving;             /* a pause, a resume or another change of its record is under way */
    bool copying;            /* a snapshot is under way: no pause, resume or reset begins */
    pthread_cond_t moved;    /* signalled when one of these has ended */
    uint64_t start_again_ns; /* monotonic: the start command is not begun before then */
    unsigned start_tries;
    int start_told; /* reason that was last logged why it was not begun; 0: none */
    receipt receipt;
    char box_id[SANDBOX_ID_LEN + 1];      /* id of its box: its own id, unless it was reset */
    char next_box_id[SANDBOX_ID_LEN + 1]; /* id of the box that a reset is making, or "" */
    exec_table *table;
    session_table *sessions; /* sessions of the table; NULL: not opened yet */
    box *box;
    struct box_tie *tie; /* argument of the box's events, owned by the box; NULL: it has ended */
    bool bound;          /* the table knows the box: events are delivered */
    bool distrusted;     /* the backend ended it because pid 1 violated the protocol */
    bool ending;         /* pid 1 has ended; the node is being asked why */
    create_waiter *waiters;
    sandbox_spec spec;      /* only while creating, because it holds env and secrets */
    bool recovering;        /* found in `creating` at start: init's claimed bit decides */
    uint64_t recover_by_ns; /* monotonic: when the recovery is given up */
    bool deleting;
    /* under the engine's lock; ended.c */
    struct sandbox *next_ended;
    bool end_destroys; /* its box is to be destroyed when the row of its end is written */
    bool end_early;    /* or as soon as the disk refuses the row */
    bool end_written, end_handed;
    /* under the lock */
    bool claiming;    /* a create has asked for its slot, or is about to */
    bool cancelled;   /* the create was cancelled */
    char *deleted_by; /* who deleted it; NULL: its caller disconnected. Immutable once cancelled */
    bool has_timing;
    box_timing timing;
    /* The two halves of a create, record and box. Each half is written by one thread, which then
     * decrements `halves`; the thread that finds 0 reads both. */
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
/* The id of a sandbox's box, for the backend. */
typedef struct box_name {
    char id[SANDBOX_ID_LEN + 1];
} box_name;
box_name sandbox_box(sandbox *sb);
box_name box_of_row(const sandbox_row *r);
sandbox *sandbox_new(engine *e, const char *owner);
sandbox *sandbox_from_row(engine *e, const sandbox_row *r);
void sandbox_to_row(const sandbox *sb, sandbox_row *ret_row); /* borrows all strings but spec */
/* Fills a spec from which a new box for this sandbox can be made. Leaves out env and secrets, which
 * are not kept: the caller adds them. The result must pass sandbox_spec_check() before a box is
 * made from it. */
void sandbox_to_spec(sandbox *sb, sandbox_spec *ret_spec);
/* Returns the sandbox of a row that was just read: the live one, one whose end is queued, or a gone
 * one made from the row. */
err *sandbox_of_row(engine *e, const sandbox_row *r, sandbox **ret_sandbox) ERR_MUST;
/* Changes the lifecycle state. Logs and returns false if the table forbids the step. Lock held. */
bool sandbox_enter(sandbox *sb, enum lifecycle state);
/* Returns NULL if commands can run in the sandbox, else why not: ERR_SANDBOX_GONE with its cause,
 * and others. sandbox_usable_locked(): lock held. */
err *sandbox_usable(sandbox *sb) ERR_MUST;
err *sandbox_usable_locked(sandbox *sb) ERR_MUST;
/* Returns the failure, or the sandbox's own error with its cause if the failure says that it has
 * ended. Takes ownership of failure. */
err *sandbox_told(sandbox *sb, err *failure) ERR_MUST;
void sandbox_files(sandbox *sb, uint32_t *ret_soft, uint32_t *ret_hard);
/* Sets the cause of the end: from now on the sandbox reads as gone. Returns false if it has a cause
 * already. Lock held. */
bool sandbox_decide(sandbox *sb, const cause *c);
/* Makes the sandbox gone in memory: sets the cause, ends its commands and takes it out of the live
 * map. */
void sandbox_finish(sandbox *sb, const cause *c);
/* Returns the JSON that the store keeps as the sandbox's spec. Lock held, or before other threads
 * know the sandbox. */
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
/* Returns a copy of the start command in the row of sandbox `id`, or NULL if it has none. A start
 * command that names no program counts as none, and is logged. */
json_t *start_of_row(const json_t *start, const char *id);

/* snapshot.c */
/* Gives the spec the image name of the snapshot that it names, if any. owner: whose snapshots may
 * be used; NULL: any. */
err *snapshot_apply(engine *e, const char *owner, sandbox_spec *spec) ERR_MUST;
void snapshot_reconcile(engine *e); /* at start */
/* Removes images of snapshots that have no record and that no live sandbox is made from. */
err *snapshot_sweep(engine *e) ERR_MUST;
/* Returns true if a sandbox that lives or is being made has this image. */
bool engine_uses_image(engine *e, const uint8_t digest[32]);
err *snapshot_check_can(engine *e, const caller *c) ERR_MUST;
/* Takes a place in `all` for a snapshot or a fork of sb. ERR_UNAVAILABLE if no place is free, or
 * the owner has too many. under_way_end() gives it back: engine's lock held, sb still referenced.
 * After it the caller drops its references and calls under_way_left(), which engine_free() waits
 * for. */
err *under_way_begin(engine *e, struct sandbox **all, const char *what, sandbox *sb) ERR_MUST;
void under_way_end(engine *e, struct sandbox **all, const sandbox *sb);
void under_way_left(engine *e);
/* Removes a snapshot, as engine_snapshot_remove(), for the build that made it. */
err *snapshot_remove_built(engine *e, const caller *c, const char *id) ERR_MUST;
/* Removes the record of a snapshot, without checking its owner or which templates and builds use
 * it. */
err *snapshot_forget(engine *e, const char *id) ERR_MUST;
/* Ends the children of forks that a kill interrupted. At start, after sandboxes are attached. */
err *forks_reconcile(engine *e) ERR_MUST;
void snapshot_let_go(engine *e, const sandbox *sb); /* sb has ended */
void snapshot_prune(engine *e);                     /* keeper thread */
/* Waits for snapshots, forks and prunes under way. The engine is stopping. */
void snapshot_wait_all(engine *e);

/* Settings of the image that a snapshot becomes; a NULL leaves the sandbox's or its image's own. */
typedef struct snapshot_config {
    char **env; /* replaces the image's env */
    const char *user, *cwd;
    bool fork;          /* the snapshot belongs to a fork */
    uint64_t max_bytes; /* of all the owner's snapshots together, from the caller's quota; 0: any */
} snapshot_config;
/* Takes a snapshot, as engine_snapshot(), with these settings. */
err *snapshot_as(engine *e, const caller *c, sandbox *sb, const snapshot_config *as,
                 snapshot_row *ret_snapshot, uint64_t *ret_still_ns) ERR_MUST;

/* build.c */
void builds_open(engine *e);
void builds_close(engine *e);              /* waits for builds under way; the engine is stopping */
err *builds_reconcile(engine *e) ERR_MUST; /* at start, when sandboxes are attached */
void builds_keep(engine *e);               /* keeper thread: forgets builds that ended long ago */
/* Removes the builds of a template that is being removed. */
void builds_forget(engine *e, const char *owner, const char *template);

/* template.c: the store's form of a spec. */
char *template_spec_text(const sandbox_spec *s);
err *template_spec_read(const char *name, const char *text, sandbox_spec *ret_spec) ERR_MUST;
/* Creates the template with this id, or replaces it. Takes the spec. */
err *template_put(engine *e, const caller *c, const char *id, const char *name,
                  sandbox_spec *spec) ERR_MUST;
/* template.c: fills a create's spec from its template, where the spec sets nothing. */
err *template_apply(engine *e, const caller *c, sandbox_spec *spec, bool *ret_public) ERR_MUST;

/* engine.c */
/* Returns references to the live sandboxes for which wanted returns true; free the array. wanted is
 * called with the engine's lock held, and may take the sandbox's. */
sandbox **engine_live_where(engine *e, bool (*wanted)(sandbox *sb), size_t *ret_n);
/* Returns the exec table; that of a gone sandbox is opened at the first call. */
err *sandbox_table(sandbox *sb, exec_table **ret_table) ERR_MUST;
/* Returns ERR_QUOTA_EXCEEDED if the owner has too many live commands. */
err *sandbox_check_commands(engine *e, const caller *c, const sandbox *sb) ERR_MUST;

/* session.c */
err *sandbox_sessions(sandbox *sb, session_table **ret_table) ERR_MUST;

/* hibernate.c. Returns the error for requests to a hibernated sandbox, and notifies the
 * engine_on_asleep() function so that it is woken. Lock held. */
err *asleep_error(const sandbox *sb) ERR_MUST;
/* Hibernates a sandbox whose box was taken away. Returns false if it cannot; the sandbox then ends.
 * Waits for a commit. Keeper thread. */
bool sleep_instead(sandbox *sb);
void sleep_changed(engine *e); /* one woke, became running, or ended; lock not needed */

/* receipt.c. Lock held, or before other threads know the sandbox. */
void receipt_take(sandbox *sb, const box_walls *w, const char *klass);
char *receipt_text(const receipt *r); /* for the store; NULL: nothing is known */
void receipt_read(receipt *r, const char *text);
/* Returns the index of a class in BOX_CLASSES; their number if it is none of them. */
size_t receipt_class(const char *klass);

/* create.c */
/* Asks the backend for a box with this id and the sandbox's image. done is called with the tie. */
void box_ask(sandbox *sb, const sandbox_spec *s, const char *id, box_tie *tie, create_done *done);
image *image_by_name_only(const char *name);

/* reset.c: the thread that makes resets durable. */
void *engine_resetter(void *arg); /* the engine */

/* box.c */
extern const box_events ENGINE_BOX_EVENTS;
/* The argument of a box's events: tells which sandbox the box belongs to. The box owns it until
 * `gone`. */
struct box_tie {
    sandbox *sb;             /* referenced */
    struct reset_job *reset; /* the job that makes this box; NULL: it is the sandbox's first one */
    /* under the sandbox's lock */
    bool bound;             /* events are delivered */
    bool loose;             /* the sandbox has left this box: its events are dropped */
    struct sp_hello *hello; /* an `attached` that came before it was bound: hello and records */
    char *gone_early;       /* a `gone` that came before it was bound */
};
box_tie *tie_new(sandbox *sb);
/* Frees a tie whose box sends no more events, and its reference to the sandbox. */
void tie_free(box_tie *t);
void tie_loosen(box_tie *t); /* drops later events; the caller must not use it again */
/* Marks the tie as bound and delivers early events. event_lock held; the exec table must know the
 * box already. Returns the reason of an early `gone` (owned), for tie_over() after the lock is
 * released, or NULL. */
char *tie_bind(box_tie *t);
/* Delivers a `gone` that tie_bind() returned; why NULL: does nothing. */
void tie_over(box_tie *t, const char *why);
/* Binds a box that create or attach returned to the sandbox and its exec table, and delivers early
 * events. */
void sandbox_bind(sandbox *sb, box_tie *t, box *x);
/* Ends a sandbox whose create was interrupted by a crash of bothyd and cannot be completed. */
void sandbox_give_up(sandbox *sb);

/* count.c */
void engine_count_init(engine *e);
void engine_count_verb(enum kit_verb verb, bool ok, uint64_t ns);
void engine_count_port(bool ok);

/* ending.c: starts to end a sandbox whose pid 1 ended by itself: asks the node why. Takes the
 * reference. Does not wait. */
void ending_begin(sandbox *sb, const char *why);
void ending_finish_all(engine *e); /* keeper thread */
void ending_drop_all(engine *e);   /* after the keeper has ended */
/* Returns the cause of a box that is found dead at start. Waits. */
cause ending_cause(engine *e, const char *id, char buffer[CAUSE_DETAIL_MAX]);

/* ended.c: ends whose row is queued. */
void ended_open(engine *e);
void ended_close(engine *e); /* after the keeper has ended */
/* Queues the row of an end; destroy: its box is destroyed once the row is written. Does not
 * wait. */
void end_record(sandbox *sb, const cause *c, bool destroy);
sandbox *ended_find(engine *e, const char *id); /* a reference, or NULL */
void ended_finish_all(engine *e);               /* keeper thread */
/* Ends a sandbox at start: known NULL: it has no box; else the cause of its end. Does not wait. */
void end_row(engine *e, const sandbox_row *row, const cause *known, bool destroy);

/* idle.c: marks a verb as under way if the sandbox is usable: one step, so that a sandbox in use is
 * never found idle. */
err *sandbox_use_begin(sandbox *sb) ERR_MUST;
void sandbox_use_end(sandbox *sb);
/* Ends idle sandboxes. Keeper thread. */
void idle_look(engine *e);
void sandbox_set_idle(sandbox *sb, uint64_t idle_ms); /* lock held, or sb is not shared yet */
/* Returns for how long nothing happened in the sandbox, in ns; UINT64_MAX: not measured. Lock
 * held. */
uint64_t sandbox_idle_for(sandbox *sb);

/* quota.c */
quota quota_of(const engine *e, const caller *c);
/* Returns ERR_FORBIDDEN for limits above those that the node allows this caller. */
err *quota_ceilings(const engine *e, const caller *c, const limits *l) ERR_MUST;
/* Counts the new limits of a live sandbox against the quota from now until quota_raised().
 * ERR_QUOTA_EXCEEDED. */
err *quota_raise(engine *e, const caller *c, sandbox *sb, const limits *to) ERR_MUST;
void quota_raised(engine *e, sandbox *sb);
/* Counts a create that has just entered; ERR_QUOTA_EXCEEDED with Retry-After. */
err *quota_admit(engine *e, const caller *c, sandbox *sb) ERR_MUST;
/* Returns ERR_QUOTA_EXCEEDED if the owner may not have so many more sandboxes. Only their number is
 * checked. */
err *quota_room(engine *e, const caller *c, unsigned more) ERR_MUST;
/* Returns how long to wait before a retry after a refusal that passes by itself (rate,
 * concurrency); 0: it does not. */
uint64_t quota_pause_ns(const err *refusal);
/* Sets a TTL that was not asked for (0) to `otherwise`, or to the caller's quota if that is
 * shorter. ERR_FORBIDDEN if a TTL that was asked for exceeds the quota. */
err *quota_ttl(const engine *e, const caller *c, uint64_t *ttl_ms, uint64_t otherwise) ERR_MUST;
void quota_done(engine *e);

/* events.c */
void events_open(engine *e);

/* ---- caller.c ---- */
err *keys_open(engine *e) ERR_MUST;
void keys_close(engine *e);

/* update.c: settles a change of limits that a kill interrupted, at start. */
void update_settle(engine *e, sandbox *sb);

/* sweep.c: retention */
void engine_recall_dropped(engine *e); /* before the sweeper starts */
void *engine_sweeper(void *arg);       /* the engine */
void sweep_orphans(engine *e);         /* at start, when sandboxes are attached; does not wait */

/* keep.c: TTL */
void *engine_keeper(void *arg);
/* Destroys a box without waiting for the node, if the backend can. */
void engine_destroy_soon(engine *e, const char *id, const char *what);
/* Ends a live sandbox for a reason of bothyd's own. */
void engine_end(sandbox *sb, const cause *c);
/* Ends a sandbox whose cause is decided already. */
void engine_end_decided(sandbox *sb, const cause *c);

/* pause.c */
/* Loads resume times that an earlier process saved. Before other threads use the engine. */
void pause_recall(engine *e);
/* Returns the sandbox's own time, by which its TTL runs: now, or the start of its pause. Lock
 * held. */
uint64_t sandbox_now(const sandbox *sb);
/* Begins a change of the sandbox's record, until sandbox_move_end(). Changes run one at a time:
 * waits for its turn. ERR_UNAVAILABLE if too many wait already, as each of them holds a request
 * thread. Lock not held. */
err *sandbox_move_begin(sandbox *sb) ERR_MUST;
err *sandbox_move_try(sandbox *sb) ERR_MUST; /* ERR_UNAVAILABLE instead of waiting */
void sandbox_move_end(sandbox *sb);
/* Begins a snapshot: until sandbox_copy_end() no other snapshot, pause, resume or reset of this
 * sandbox begins. Waits for those under way; the caller has a thread of its own. */
void sandbox_copy_begin(sandbox *sb);
void sandbox_copy_end(sandbox *sb);
/* Ends exec_table_hold(), for commands and sessions: their time limits run again. */
void sandbox_let_go(sandbox *sb, uint64_t still_ns);
/* Returns ERR_UNAVAILABLE if a snapshot is under way: pause, resume and reset do not wait for it.
 * Call after sandbox_move_begin(), so that none begins afterwards. */
err *sandbox_not_copied(sandbox *sb) ERR_MUST;
/* Freezes or thaws the box as the record says. At start, after sandbox_bind(). */
void sandbox_settle_pause(sandbox *sb, bool frozen);
/* Returns true if the sandbox is paused, not ended, at the end of its TTL. Lock held. */
bool pause_at_ttl(const sandbox *sb);
/* Resets the count of failed pause attempts, after the TTL changed or a pause succeeded. Lock
 * held. */
void pause_forgive(sandbox *sb);
/* Pauses one sandbox whose TTL is over, or schedules a retry; ends it if it can never be paused.
 * Returns false if none was due. Keeper thread. */
bool pause_look(engine *e);
/* Returns a reference to a sandbox that was paused for too long, or NULL. */
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
/* Takes the create out of the map of keys: no later create joins it. */
void create_forget(sandbox *sb);
/* Finds the sandbox of this key; leaves *ret_sandbox as it is if there is none. key_text is for the
 * message. */
err *create_find(engine *e, const char *key_text, const uint8_t key[16], const uint8_t body[16],
                 sandbox **ret_sandbox) ERR_MUST;
/* Makes these waiters wait for `first` instead, or calls them if it is made already. */
void create_hand_over(sandbox *first, create_waiter *w);

/* create.c: returns ERR_UNSUPPORTED for a limit that the caller asked for and the backend cannot
 * enforce. */
err *create_check_limits(const engine *e, const limits *l) ERR_MUST;
/* Calls all waiters of a create. Takes ownership of failure. */
void create_tell(sandbox *sb, err *failure);

/* cancel.c. Cancels a create; the create itself then calls its waiters. Returns false if the
 * sandbox is not being created. */
bool create_cancel(sandbox *sb, const char *by, err **ret_failure);
void create_cancel_left(engine *e); /* keeper thread */
bool create_cancelled(sandbox *sb);
err *create_cancel_error(sandbox *sb) ERR_MUST;
/* Notes that the claim is about to be sent: from now on a cancel goes to the backend. Returns false
 * if the create was cancelled before. */
bool create_begin_claim(sandbox *sb);

/* files.c: fills the spec of a kit run that is a tunnel and starts in "/". The spec borrows argv
 * and numbers. */
void kit_spec(const engine *e, const kit_request *rq, char numbers[KIT_NUMBERS],
              const char *argv[KIT_ARGC + 1], exec_spec *ret_spec);

/* usage.c */
void usage_open(engine *e);
void usage_close(engine *e); /* waits for what is under way */
/* Measures these sandboxes, as engine_usage(). */
void usage_of_live(engine *e, sandbox *const *sbs, size_t n, box_usage *ret);

/* engine.c */
/* Starts a transient exec in the sandbox, for a verb of the engine's own. */
err *engine_exec_for_verb(engine *e, const caller *c, sandbox *sb, exec_spec *spec,
                          exec **ret_exec) ERR_MUST;

void idempotency_hash(const char *owner, const char *verb, const char *scope, const idempotency *i,
                      uint8_t ret_key[16], uint8_t ret_body[16]);
