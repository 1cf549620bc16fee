/* The verbs that all doors share: create, find, list, exec, delete, keys, images.
 *
 * An engine owns the live sandboxes of one cell. Any thread may call it. No call waits for a pull:
 * long operations call back. A create and a delete wait for one commit of the store; other calls
 * that wait say so. Locks: engine → sandbox; neither is held during I/O of the backend, the store
 * or a peer. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/err.h"
#include "core/cause.h"
#include "core/lifecycle.h"
#include "core/pause.h"
#include "core/quota.h"
#include "core/spec.h"
#include "exec/exec.h"
#include "image/image.h"
#include "session/session.h"
#include "store/store.h"

typedef struct engine engine;
typedef struct sandbox sandbox; /* refcounted */

typedef struct engine_options {
    char cell[CELL_LEN + 1];
    backend *backend;
    store *store;
    image_store *images;
    exec_hub *execs;
    int kit_fd; /* bothy-kit, sealed; -1: none. Not owned */
    /* the kit also measures and connects to ports where the backend could. For tests */
    bool prefer_kit;
    int state_dir; /* data kept over a restart outside the store; -1: none. Not owned */
    const clock_source *clock;
    limits defaults;         /* of a sandbox whose spec sets none */
    limits most;             /* highest that callers other than admins may ask for; 0: any */
    uint64_t ttl_ms;         /* default; 0: none */
    uint64_t queue_ms;       /* how long a create may wait for a slot */
    uint64_t keep_record_ms; /* after the sandbox's end */
    uint64_t keep_spool_ms;
    bool network_for_users;  /* else only administrators may ask for network */
    uint64_t keep_paused_ms; /* a sandbox that is paused for longer ends */
    bool rebooted;           /* the machine was rebooted since the store was last in use */
    bool same_boot;          /* it was not rebooted; both flags false: not known */
    quota quota;             /* defaults for what a caller's key does not set; not for admins */
} engine_options;

/* Creates an engine and starts its threads. Everything named in the options must outlive it. */
err *engine_new(const engine_options *o, engine **ret_engine) ERR_MUST;
/* Reconciles store, backend and journals after a start: attaches boxes of known sandboxes, destroys
 * orphaned boxes, and records a cause for each sandbox whose box is missing. Once, before the doors
 * open. */
err *engine_reconcile(engine *e) ERR_MUST;
void engine_free(engine *e);

/* ---- callers ---- */
enum caller_role {
    CALLER_NOBODY,
    CALLER_READ,
    CALLER_USER,
    CALLER_ADMIN
};
typedef struct caller {
    char *owner;
    enum caller_role role;
    char key[9];         /* id of the key; "": none was sent */
    uint64_t expires_ns; /* when the key expires; 0: never */
    unsigned removals;   /* of keys, when this key was read: caller_has_lapsed() */
    bool by_token;       /* authenticated by a token made from the owner's key epoch */
    uint64_t epoch;      /* that epoch */
    quota quota;         /* the key's own */
    bool granted;        /* a user for whom an administrator has chosen network and limits */
} caller;
void caller_free(caller *c);
/* Returns the caller that a bearer key belongs to. ERR_UNAUTHENTICATED. */
err *caller_by_key(engine *e, const char *key, caller **ret_caller) ERR_MUST;
/* Returns the caller behind a unix socket: uid 0 and bothyd's own uid are admin, members of the
 * group are user `uid:<n>`. */
err *caller_by_peer(int socket, gid_t group, caller **ret_caller) ERR_MUST;
/* Returns true if the caller's key was removed or has expired, or if a key was removed that ends
 * its token. Cheap: the store is read only after a removal. Any thread, a caller for each. */
bool caller_has_lapsed(engine *e, caller *c);
/* Returns a number that grows whenever a key is removed that could have read tokens of this owner's
 * sandboxes. */
uint64_t engine_key_epoch(engine *e, const char *owner);
/* Returns ERR_FORBIDDEN unless the caller has at least this role. */
err *caller_require(const caller *c, enum caller_role role) ERR_MUST;

/* ---- keys; admin only ---- */
typedef struct key_request {
    const char *owner, *role, *note /* or NULL */;
    uint64_t ttl_ms; /* 0: never expires */
    quota quota;
} key_request;
/* Creates a key. *ret_secret is the key itself; only its hash is stored, so it cannot be shown
 * again. Free it with secret_freep. */
err *engine_key_create(engine *e, const caller *c, const key_request *k, key_row *ret_row,
                       char **ret_secret) ERR_MUST;
/* Writes a copy of the store into a file without a name. It holds neither journals and spools nor
 * the files of images. */
err *engine_backup(engine *e, const caller *c, int *ret_fd) ERR_MUST;
err *engine_key_list(engine *e, const caller *c, key_row **ret_rows, size_t *ret_n) ERR_MUST;
/* Members of a quota that engine_key_update() sets, from the caller's next request on. */
enum quota_member {
    QUOTA_SANDBOXES = 1,
    QUOTA_CREATES = 2,
    QUOTA_CREATING = 4,
    QUOTA_TTL = 8
};
err *engine_key_update(engine *e, const caller *c, const char *id, const quota *q, unsigned has,
                       key_row *ret_row) ERR_MUST;
err *engine_key_remove(engine *e, const caller *c, const char *id) ERR_MUST;

/* ---- sandboxes ---- */
typedef struct idempotency { /* key NULL: none */
    const char *key;
    const void *body; /* the request that the key was sent with, byte for byte */
    size_t nbody;
} idempotency;

/* Called once, from any thread, possibly before engine_create() returns. On success the receiver
 * owns the reference sb. */
typedef void created_fn(void *arg, err *failure, sandbox *sb, bool replay);
/* Creates a sandbox. Takes what is in spec and leaves it empty. Returns a reference to the sandbox
 * under way, for engine_create_leave(); NULL if the create joined another one with the same key, or
 * if done was called already. */
sandbox *engine_create(engine *e, const caller *c, sandbox_spec *spec, enum pull_policy pull,
                       const idempotency *idem, created_fn *done, void *arg) ERR_MUST;
/* Cancels a create whose caller disconnected. Without an idempotency key no one can claim the
 * result, so the create is cancelled, or the sandbox ended if it already runs. Such a sandbox stops
 * counting against the quota before this returns; its box is destroyed later. A create with a key
 * continues. Any thread; does not wait. */
void engine_create_leave(engine *e, sandbox *sb);
/* Gives the sandbox a fresh slot of the same image. Id, owner, labels, limits and times stay; ids
 * of execs continue. Running commands are killed, sessions end, files are the image's again, and
 * the start command runs again. env and secrets are taken from `with` (a template's env is read
 * again), and queue_ms, how long the reset may wait for a slot; its other members are ignored. A
 * failed reset leaves the sandbox as it was. done is called as for a create. Waits while another
 * call changes the sandbox. */
void engine_reset(engine *e, const caller *c, sandbox *sb, sandbox_spec *with,
                  const idempotency *idem, created_fn *done, void *arg);
/* Returns the TTL of a sandbox that the caller creates without one; 0: none. */
uint64_t engine_default_ttl(const engine *e, const caller *c);
/* Returns ttl_ms, or the caller's maximum if that is shorter. */
uint64_t engine_ttl_within(const engine *e, const caller *c, uint64_t ttl_ms);
/* Finds a sandbox by id or name; a gone one by id, until it is forgotten. ERR_NOT_FOUND, also for
 * other owners' sandboxes. */
err *engine_find(engine *e, const caller *c, const char *id_or_name,
                 sandbox **ret_sandbox) ERR_MUST;
/* Finds the sandbox that a create of this caller with this key has made or is making; creates none.
 * *ret_sandbox is NULL if there is none or the key is too old. ERR_IDEMPOTENCY_MISMATCH if the body
 * differs, unless idem has no body. */
err *engine_find_by_key(engine *e, const caller *c, const idempotency *idem,
                        sandbox **ret_sandbox) ERR_MUST;
/* Checks whether the caller may have a sandbox with network: open on this node. ERR_FORBIDDEN,
 * ERR_UNSUPPORTED. */
err *engine_check_network(engine *e, const caller *c) ERR_MUST;
/* Returns a reference to a sandbox that lives or is being made, or NULL. Checks no rights: for
 * doors whose callers prove theirs in another way (a token of the sandbox). */
sandbox *engine_find_live(engine *e, const char *id);
/* Sets the function that the keeper calls once a second, before it decides which sandboxes are
 * idle. A door ends there what its clients no longer use. NULL removes it and waits for a call
 * under way. */
void engine_on_look(engine *e, void (*look)(void *arg), void *arg);
/* Returns references to all sandboxes that live or are being made. Free the array and unref
 * each. */
sandbox **engine_live_all(engine *e, size_t *ret_n);
/* Ends a sandbox. Returns when the end is committed and the kill is sent. Success if it is gone
 * already. kind: CAUSE_REQUESTED, or from an administrator CAUSE_BUDGET or CAUSE_POLICY; detail may
 * be NULL. */
err *engine_delete(engine *e, const caller *c, sandbox *sb, enum cause_kind kind,
                   const char *detail) ERR_MUST;
/* Ends a sandbox with any cause and without a check of rights: for the operator, not for requests.
 * why->by: who ends it. */
err *engine_end_for(engine *e, sandbox *sb, const cause *why) ERR_MUST;

typedef struct sandbox_patch {
    bool has_ttl, has_idle, has_ttl_pauses;
    uint64_t ttl_ms, idle_ms;
    bool ttl_pauses;
    bool ttl_only_later;  /* with has_ttl: keep the present end if it is later */
    const json_t *labels; /* NULL, or an object: a string sets a label, null removes it */
    limits limits;        /* members that are 0 stay as they are */
} sandbox_patch;
/* Changes a sandbox, all of the patch or nothing. Returns when the change is committed and in
 * force. Changes of one sandbox run one at a time. */
err *engine_update(engine *e, const caller *c, sandbox *sb, const sandbox_patch *p) ERR_MUST;
/* Sets the time (real, ns) when the sandbox ends, at most 30 days from now. For the operator, whose
 * objects name a point in time. The keeper ends a running sandbox then. A hibernated one is not
 * woken; the operator, which hibernated it, also ends it. Waits for a commit. ERR_UNAVAILABLE:
 * another call is changing the sandbox. */
err *engine_end_at(engine *e, sandbox *sb, uint64_t ends_ns) ERR_MUST;

/* Marks a stream as attached: the sandbox is not idle until sandbox_stream_end(). Returns false if
 * the sandbox is gone; then there is no end to call. */
bool sandbox_stream_begin(sandbox *sb);
void sandbox_stream_end(sandbox *sb);

/* Freezes everything in the sandbox; its time to live stops. Waits for a commit and for the
 * freezer. Success if it is paused already. ERR_SANDBOX_GONE, ERR_CONFLICT, ERR_UNSUPPORTED.
 * ERR_TIMEOUT: a process could not be frozen, and all of them run again. ERR_UNAVAILABLE: a
 * snapshot is being taken. engine_resume() likewise. */
err *engine_pause(engine *e, const caller *c, sandbox *sb) ERR_MUST;
typedef struct resumed { /* all 0: it was not paused */
    uint64_t took_ns, paused_ns;
} resumed;
err *engine_resume(engine *e, const caller *c, sandbox *sb, resumed *ret_resumed) ERR_MUST;
/* Returns ERR_SANDBOX_PAUSED if the sandbox is paused, else NULL. For verbs that would wait
 * inside. */
err *engine_awake(sandbox *sb) ERR_MUST;

/* Hibernates a sandbox: its box is destroyed; its record stays, and so does what the backend keeps
 * beside a box. Waits for a commit. Success if it is hibernated already. Commands, files, sessions
 * and ports then wait for it to wake, a minute at most; other calls answer ERR_UNAVAILABLE. */
err *engine_hibernate(engine *e, const caller *c, sandbox *sb) ERR_MUST;
/* Waits until a hibernated sandbox is awake, or until the box of an interrupted create has answered
 * after a restart of bothyd; a minute at most. Returns why the sandbox cannot be used, or NULL.
 * Request threads only. */
err *engine_wait_awake(sandbox *sb) ERR_MUST;
/* Wakes a hibernated sandbox with a new box. `with` as in engine_reset(). Success if it is
 * awake. */
void engine_wake(engine *e, const caller *c, sandbox *sb, sandbox_spec *with, created_fn *done,
                 void *arg);
/* Sets the function that is called when a request finds its sandbox hibernated. It must not wait.
 * Call before the doors open. */
void engine_on_asleep(engine *e, void (*wanted)(void *arg, const char *id), void *arg);
/* Sets the function that is called when a box was taken away from outside, or lost with its
 * machine. It returns true if the sandbox's data is kept: the sandbox is then hibernated instead of
 * ended, and the function is called once more, with asleep set. It must not wait or call the
 * engine. */
void engine_on_taken(engine *e, bool (*taken)(void *arg, const char *id, bool asleep), void *arg);
/* Sets the function that is asked when a sandbox has been idle for its idle time. It returns true
 * if it hibernates the sandbox; the engine does not end it then. It must not wait or call the
 * engine. */
void engine_on_idle(engine *e, bool (*idle)(void *arg, const char *id), void *arg);
/* Tells the engine that bothyd is about to stop: requests that wait for a sandbox to wake are
 * answered at once (`unavailable`), and no other waits. Any thread. */
void engine_let_go(engine *e);

/* Records which walls held when they were checked, and what this node does not enforce. */
typedef struct receipt {
    box_walls walls;
    uint32_t open;     /* RECEIPT_OPEN_* */
    const char *klass; /* how its box was made, as box_timing.klass; NULL: not known */
} receipt;
#define RECEIPT_OPEN_DISK   1u /* the store has no quotas */
#define RECEIPT_OPEN_SWAP   2u /* the kernel does not account swap */
#define RECEIPT_OPEN_MEMORY 4u /* the backend cannot limit this; likewise the next two */
#define RECEIPT_OPEN_CPU    8u
#define RECEIPT_OPEN_PIDS   16u

typedef struct sandbox_view { /* a copy; sandbox_view_done() frees */
    char id[SANDBOX_ID_LEN + 1];
    char box[SANDBOX_ID_LEN + 1]; /* its box's id, for the backend: its own unless it was reset */
    char *owner, *name, *state, *cause /* JSON or NULL */, *image_name, *user, *cwd;
    char *door;   /* sandbox_spec.door, or NULL */
    image *image; /* NULL: it was removed from this node */
    uint8_t digest[32];
    char **labels;
    limits limits;
    bool read_only, setuid;
    enum network_grant network;
    uint32_t umask;
    json_t *tmpfs;       /* array, as the API shows it */
    char *template;      /* the template it was made from; or NULL */
    char *snapshot;      /* id of the snapshot it was made from; or NULL */
    bool secrets;        /* it was given secrets, or its files may hold some */
    json_t *start;       /* its start command, as the API takes it; or NULL */
    uint64_t start_exec; /* id of that exec while the sandbox lives; 0: not begun */
    uint64_t created_ns, ends_ns, ended_ns; /* ends_ns if paused: when it was paused for too long */
    uint64_t paused_ns;                     /* start of the pause; 0: not paused */
    uint64_t ttl_left_ns;                   /* UINT64_MAX: no TTL, or it has ended */
    resume_estimate resume;                 /* if it is paused */
    uint64_t idle_ms;                       /* 0: no idle limit */
    bool ttl_pauses;                        /* sandbox_spec.ttl_pauses */
    uint64_t idle_for_ns;                   /* UINT64_MAX: not measured */
    receipt receipt;
    size_t live_execs;
    bool has_timing; /* timing of its create; not kept over a restart */
    box_timing timing;
} sandbox_view;
void sandbox_get(sandbox *sb, sandbox_view *ret_view);
void sandbox_view_done(sandbox_view *v);
sandbox *sandbox_ref(sandbox *sb);
void sandbox_unref(sandbox *sb);
static inline void sandbox_unrefp(sandbox **sb)
{
    sandbox_unref(*sb);
}
const char *sandbox_id(const sandbox *sb);
/* Returns the user of commands that name none; NULL or "" is root. Immutable. */
const char *sandbox_user(const sandbox *sb);
const char *sandbox_owner(const sandbox *sb);
const char *sandbox_door(const sandbox *sb); /* sandbox_spec.door, or NULL */
enum lifecycle sandbox_state(sandbox *sb);   /* LIFE_GONE as soon as its end is decided */

typedef struct sandbox_filter {
    char **labels;     /* key=value or key, all must match; NULL: any */
    unsigned states;   /* bit n: enum lifecycle n; 0: all but gone */
    const char *name;  /* NULL: any */
    const char *after; /* id, or NULL */
    size_t max;
} sandbox_filter;
/* Lists sandboxes. *ret_next is the cursor for the next page, or NULL at the end. */
err *engine_list(engine *e, const caller *c, const sandbox_filter *f, sandbox_view **ret_views,
                 size_t *ret_n, char **ret_next) ERR_MUST;

/* ---- snapshots: what a sandbox has written, over its image ---- */
#define SNAPSHOTS_MAX 256u /* of an owner */
/* Takes a snapshot of the files of a sandbox: no processes, memory, env, secrets or tmpfs. The
 * sandbox is frozen meanwhile; afterwards it runs on, or stays paused. Blocking, minutes at most.
 * ERR_UNAVAILABLE: too many are under way. ret_still_ns: how long it was frozen. */
err *engine_snapshot(engine *e, const caller *c, sandbox *sb, snapshot_row *ret_snapshot,
                     uint64_t *ret_still_ns) ERR_MUST;
/* Called once, from another thread, when a snapshot has ended that engine_snapshot_start() began
 * without waiting; not called if that function itself fails. The row is NULL after a failure. Takes
 * ownership of failure. */
typedef void snapshot_done(void *arg, err *failure, const snapshot_row *row, uint64_t still_ns);
err *engine_snapshot_start(engine *e, const caller *c, sandbox *sb, snapshot_done *done,
                           void *arg) ERR_MUST;
/* Finds a snapshot. ERR_NOT_FOUND, also for other owners' snapshots. */
err *engine_snapshot_find(engine *e, const caller *c, const char *id,
                          snapshot_row *ret_snapshot) ERR_MUST;
/* Lists the snapshots of sb, or of all sandboxes if sb is NULL. */
err *engine_snapshot_list(engine *e, const caller *c, const sandbox *sb, snapshot_row **ret_rows,
                          size_t *ret_n) ERR_MUST;
/* Removes a snapshot. Sandboxes made from it stay; its disk space is freed when the last of them
 * has ended. ERR_CONFLICT if a template or a build of the owner needs it. */
err *engine_snapshot_remove(engine *e, const caller *c, const char *id) ERR_MUST;

/* ---- forks ---- */
#define FORK_MAX 100u
typedef struct fork_request {
    unsigned count;
    bool despite_secrets; /* even if the sandbox was given secrets, which its files may hold */
    /* Of each child; what it does not set is taken from the parent, but for name, env, secrets, ttl
     * and door, which are not kept or are each child's own. */
    sandbox_spec spec;
    /* called with done's arg; true: the caller has disconnected. Or NULL */
    bool (*is_left)(void *arg);
} fork_request;
/* Called once, from another thread. The children are borrowed; there are none after a failure. */
typedef void fork_done(void *arg, err *failure, sandbox *const *children, size_t n,
                       uint64_t still_ns);
/* Creates sandboxes, owned by the caller, that begin with the files of this one: all of them or
 * none. Takes the spec. Does not wait; done is not called if this itself fails. ERR_CONFLICT (kind
 * "secrets"). */
err *engine_fork(engine *e, const caller *c, sandbox *sb, fork_request *r, fork_done *done,
                 void *arg) ERR_MUST;

/* ---- templates: named recipes ---- */
#define TEMPLATES_MAX     256u /* of an owner */
#define TEMPLATE_SPEC_MAX (128u << 10)
typedef struct template_view { /* template_view_done() frees */
    char id[SANDBOX_ID_LEN + 1];
    char *owner, *name;
    bool public; /* any caller may use it by name, unless they have their own of that name */
    sandbox_spec spec;
    uint64_t created_ns, changed_ns;
} template_view;
void template_view_done(template_view *t);
/* Creates a template from name, public and spec of t. env is kept in the store: secrets are
 * refused. Only an administrator makes public ones. ERR_CONFLICT, ERR_QUOTA_EXCEEDED. */
err *engine_template_create(engine *e, const caller *c, template_view *t,
                            template_view *ret_made) ERR_MUST;
/* Finds a template by id or name. ERR_NOT_FOUND, also for other owners' templates that are not
 * public. */
err *engine_template_find(engine *e, const caller *c, const char *id_or_name,
                          template_view *ret_template) ERR_MUST;
/* Finds a template to show or change it: an administrator also finds one that only another owner
 * has, by its name. ERR_CONFLICT if several owners have one. A create does not search like this. */
err *engine_template_manage(engine *e, const caller *c, const char *id_or_name,
                            template_view *ret_template) ERR_MUST;
/* Replaces a template: t has the id and the times of the one that was found. Checks as a create
 * does. */
err *engine_template_update(engine *e, const caller *c, template_view *t,
                            template_view *ret_made) ERR_MUST;
/* Removes a template with its builds. Sandboxes made from it stay as they are. */
err *engine_template_remove(engine *e, const caller *c, const char *id_or_name) ERR_MUST;
err *engine_template_list(engine *e, const caller *c, template_view **ret_templates,
                          size_t *ret_n) ERR_MUST;

/* ---- events: of the caller's sandboxes, or of all ---- */
typedef struct event_filter {
    uint64_t after; /* the last number seen */
    size_t max;
    const char *sandbox; /* or NULL */
    unsigned types;      /* bit n: EVENT_TYPES[n]; 0: all */
} event_filter;
extern const char *const EVENT_TYPES[]; /* NULL-terminated */
/* Lists events that the caller may see. ret_next: the number to continue after; ret_more: more are
 * there now. Rows are freed by event_row_done(). */
err *engine_event_list(engine *e, const caller *c, const event_filter *f, event_row **ret_rows,
                       size_t *ret_n, uint64_t *ret_next, bool *ret_more) ERR_MUST;
/* Checks that reading can continue after this number. ERR_NOT_FOUND (kind "cursor") for a number
 * that no event has had yet. ret_gap: number of the last forgotten event if events after `after`
 * have been forgotten, else 0. */
err *engine_event_check(engine *e, uint64_t after, uint64_t *ret_gap) ERR_MUST;
uint64_t engine_event_last(engine *e);
/* Called on the store's thread after a commit with events; must not block. */
typedef struct event_watch {
    void (*notify)(void *arg);
    void *arg;
    struct event_watch *prev, *next;
} event_watch;
void engine_event_watch(engine *e, event_watch *w);
void engine_event_unwatch(engine *e, event_watch *w); /* notify is not running when this returns */
unsigned engine_event_watchers(engine *e);

/* ---- execs ---- */
/* Starts a command, as exec_start(). Also ERR_SANDBOX_GONE with the sandbox's cause, and
 * ERR_SANDBOX_PAUSED. */
err *engine_exec(engine *e, const caller *c, sandbox *sb, exec_spec *spec, const idempotency *idem,
                 exec **ret_exec, bool *ret_replay) ERR_MUST;
/* Finds a command, also of a gone sandbox while its journal is kept. */
err *engine_exec_find(sandbox *sb, const char *id, exec **ret_exec) ERR_MUST;
#define EXEC_LIST_MAX 1000 /* the newest ones */
err *engine_exec_list(sandbox *sb, exec ***ret_execs, size_t *ret_n) ERR_MUST;

/* ---- sessions ----
 *
 * The sessions of a gone sandbox can be found and listed while its journal is kept. Nothing can be
 * started in them: engine_session_run() only returns a command that was started earlier with the
 * same key. */
err *engine_session_new(engine *e, const caller *c, sandbox *sb, session_spec *spec,
                        const idempotency *idem, session **ret_session, bool *ret_replay) ERR_MUST;
err *engine_session_find(sandbox *sb, const char *id_or_name, session **ret_session) ERR_MUST;
err *engine_session_list(sandbox *sb, session ***ret_sessions, size_t *ret_n) ERR_MUST;
/* Computes the hashes of a command's key. Returns false if it has none. */
bool engine_session_key(const caller *c, sandbox *sb, session *s, const idempotency *idem,
                        exec_key *ret_key);
err *engine_session_run(sandbox *sb, session *s, const command_spec *spec, const exec_key *key,
                        uint64_t *ret_seq, bool *ret_replay) ERR_MUST;

/* ---- ports ---- */
/* Checks whether the caller may reach ports of this sandbox, and whether this node can. Fails as
 * engine_exec() does. */
err *engine_port_check(engine *e, const caller *c, sandbox *sb) ERR_MUST;
/* Makes a socket for a port on the sandbox's loopback, not connected yet (backend.h). Does not
 * wait; done is called once, from any thread, and must not wait. */
void engine_port_socket(sandbox *sb, uint16_t port, socket_done *done, void *arg);
/* Returns true if the kit makes the connections because the backend offers no sockets. The socket
 * of engine_port_socket() is then already connected to that port, or done gets ERR_PORT_CLOSED with
 * an errno; the socket ends as that of an exec_tunnel() does. */
bool engine_port_connects(const engine *e);
/* Returns the counter of requests that wait for a port of the sandbox to open; doors keep it. */
atomic_uint *engine_port_waits(sandbox *sb);
enum cap_level engine_socket_cap(const engine *e);

/* ---- measurements ---- */
/* Returns what each of these sandboxes has used, in their order; free it. An entry is not `known`
 * if the node does not count, the kit does not answer, or the sandbox does not live any more.
 * Waits, two seconds at most, where the kit is asked. */
box_usage *engine_usage(engine *e, const sandbox_view *views, size_t n);
enum cap_level engine_stats_cap(const engine *e);

/* ---- miscellaneous ---- */
image_store *engine_images(engine *e);
err *engine_prune_images(engine *e, const caller *c, bool all, uint64_t *ret_bytes) ERR_MUST;
backend *engine_backend(const engine *e);
const char *engine_cell(engine *e);
typedef struct engine_counts {
    size_t creating, running, paused;
} engine_counts;
engine_counts engine_count(engine *e);
/* Returns NULL when the node can make sandboxes, else why not. ret_pooled: ret_pool was filled. */
err *engine_ready(engine *e, pool_status *ret_pool, bool *ret_pooled) ERR_MUST;
