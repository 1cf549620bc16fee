/* The verbs every door uses: create, find, list, exec, delete, keys, images.
 *
 * An engine owns the live sandboxes of one cell. Any thread may call it. Nothing here waits for a
 * sandbox or a pull: what takes time calls back. Locks: engine → sandbox; neither is held across
 * the backend's, the store's or a peer's I/O, except that a create and a delete wait for one commit
 * of the store. */
#pragma once

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
    int kit_fd;      /* bothy-kit, sealed; -1: none. Not owned */
    bool prefer_kit; /* also for what the backend gives by itself: ports, measurements. For tests */
    int state_dir; /* what is remembered over a restart beside the store; -1: nothing. Not owned */
    const clock_source *clock;
    limits defaults;         /* of a sandbox whose spec says nothing */
    limits most;             /* that callers but admins may ask for; 0: any */
    uint64_t ttl_ms;         /* default; 0: none */
    uint64_t queue_ms;       /* how long a create may wait for a slot */
    uint64_t keep_record_ms; /* after the end */
    uint64_t keep_spool_ms;
    bool network_for_users;  /* else only administrators may ask for one */
    uint64_t keep_paused_ms; /* then a paused one ends */
    bool rebooted;           /* the machine was started since the store was last in use */
    bool same_boot;          /* it was not; neither: that is not known */
    quota quota;             /* of callers whose key says nothing else; not of admins */
} engine_options;

/* Everything named in the options must outlive the engine. */
err *engine_new(const engine_options *o, engine **ret_engine) ERR_MUST;
/* Brings store, backend and journals together after a start: what is owned is attached, what nobody
 * owns is destroyed, what vanished gets its cause. Once, before the doors open. */
err *engine_reconcile(engine *e) ERR_MUST;
void engine_free(engine *e);

/* ---- who is asking ---- */
enum caller_role {
    CALLER_NOBODY,
    CALLER_READ,
    CALLER_USER,
    CALLER_ADMIN
};
typedef struct caller {
    char *owner;
    enum caller_role role;
    char key[9];         /* its id; "": by peer */
    uint64_t expires_ns; /* the key; 0: never */
    unsigned removals;   /* of keys, when this one was read: caller_has_lapsed() */
    bool by_token;       /* no key: a token that was made of the owner's epoch */
    uint64_t epoch;      /* that one */
    quota quota;         /* the key's own */
    bool granted;        /* a user for whom an administrator has chosen network and limits */
} caller;
void caller_free(caller *c);
/* By bearer key; ERR_UNAUTHENTICATED. */
err *caller_by_key(engine *e, const char *key, caller **ret_caller) ERR_MUST;
/* By unix peer credentials: uid 0 and our own are admin, the group is user `uid:<n>`. */
err *caller_by_peer(int socket, gid_t group, caller **ret_caller) ERR_MUST;
/* Returns true if the caller's key was removed or has expired, or if a key was removed that ends
 * its token. Cheap: the store is read only after a removal. Any thread, a caller for each. */
bool caller_has_lapsed(engine *e, caller *c);
/* Grows whenever a key is removed that could have read tokens of this owner's sandboxes. */
uint64_t engine_key_epoch(engine *e, const char *owner);
/* ERR_FORBIDDEN unless the caller has at least this role. */
err *caller_require(const caller *c, enum caller_role role) ERR_MUST;

/* ---- keys; admin only ---- */
typedef struct key_request {
    const char *owner, *role, *note /* or NULL */;
    uint64_t ttl_ms; /* 0: for ever */
    quota quota;
} key_request;
/* Creates a key. *ret_secret is the key itself; only its hash is stored, so it cannot be shown
 * again. Free it with secret_freep. */
err *engine_key_create(engine *e, const caller *c, const key_request *k, key_row *ret_row,
                       char **ret_secret) ERR_MUST;
/* A copy of the store in a file without a name. Not in it: journals, spools, what images consist
 * of. */
err *engine_backup(engine *e, const caller *c, int *ret_fd) ERR_MUST;
err *engine_key_list(engine *e, const caller *c, key_row **ret_rows, size_t *ret_n) ERR_MUST;
/* From the next request on. has: which members of q are meant. */
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
    const void *body; /* what the key was sent with, byte for byte */
    size_t nbody;
} idempotency;

/* Called once, from any thread, maybe before engine_create returns. On success sb is the
 * receiver's reference. */
typedef void created_fn(void *arg, err *failure, sandbox *sb, bool replay);
/* Takes what is in spec and leaves it empty. Returns a reference to what is being created, for
 * engine_create_leave; NULL if it is another caller's, or was answered already. */
sandbox *engine_create(engine *e, const caller *c, sandbox_spec *spec, enum pull_policy pull,
                       const idempotency *idem, created_fn *done, void *arg) ERR_MUST;
/* Cancels a create whose caller disconnected. Without an idempotency key no one can claim the
 * result, so the create leaves the queue, or the sandbox ends if it already runs: when this returns
 * it is gone and counts no more, and its box is destroyed soon after. A create with a key goes on.
 * Any thread; does not wait. */
void engine_create_leave(engine *e, sandbox *sb);
/* A fresh slot of the same image under the same id, owner, labels, limits and time; ids of execs go
 * on. What runs is killed, sessions end, files are the image's again, the start command runs again.
 * env and secrets of `with` are the new ones (a template's are taken again), queue_ms how long it
 * may wait; the rest of it is not looked at, and it is left empty. One that fails leaves the
 * sandbox as it was. done as of a create. Waits while another call changes the sandbox. */
void engine_reset(engine *e, const caller *c, sandbox *sb, sandbox_spec *with,
                  const idempotency *idem, created_fn *done, void *arg);
/* What a sandbox of the caller's lives that is created without a ttl; 0: for ever. */
uint64_t engine_default_ttl(const engine *e, const caller *c);
/* So long, or the longest that the caller's key allows. */
uint64_t engine_ttl_within(const engine *e, const caller *c, uint64_t ttl_ms);
/* By id or name; gone ones by id until forgotten. What is not the caller's is ERR_NOT_FOUND. */
err *engine_find(engine *e, const caller *c, const char *id_or_name,
                 sandbox **ret_sandbox) ERR_MUST;
/* The sandbox that a create of the caller's with this key has made, or is making; it makes none.
 * NULL: there is none, or the key is too old. ERR_IDEMPOTENCY_MISMATCH, unless idem has no body. */
err *engine_find_by_key(engine *e, const caller *c, const idempotency *idem,
                        sandbox **ret_sandbox) ERR_MUST;
/* May the caller have a sandbox with network: open here? ERR_FORBIDDEN, ERR_UNSUPPORTED. */
err *engine_check_network(engine *e, const caller *c) ERR_MUST;
/* For doors whose callers prove in another way that it is theirs (a token of the sandbox): one that
 * lives or is being made, as a reference; NULL: there is none. */
sandbox *engine_find_live(engine *e, const char *id);
/* The same for all of them; free the array and each. */
/* Once a second the keeper looks for what nobody uses any more: a door's, before it decides which
 * sandboxes are idle. NULL takes it away, after a look that is under way. */
void engine_on_look(engine *e, void (*look)(void *arg), void *arg);
sandbox **engine_live_all(engine *e, size_t *ret_n);
/* Answers when the intent is committed and the kill is sent. Of a gone one: success. kind:
 * CAUSE_REQUESTED, or of an administrator CAUSE_BUDGET or CAUSE_POLICY; detail may be NULL. */
err *engine_delete(engine *e, const caller *c, sandbox *sb, enum cause_kind kind,
                   const char *detail) ERR_MUST;
/* The same with any cause and without a check of rights: for the operator, not for requests.
 * why->by: who ends it. */
err *engine_end_for(engine *e, sandbox *sb, const cause *why) ERR_MUST;

typedef struct sandbox_patch {
    bool has_ttl, has_idle, has_ttl_pauses;
    uint64_t ttl_ms, idle_ms;
    bool ttl_pauses;
    bool ttl_only_later;  /* has_ttl: an end that is later already stays */
    const json_t *labels; /* NULL, or an object: strings are set, nulls removed */
    limits limits;        /* 0: stays */
} sandbox_patch;
/* All of it or nothing; answers when it is committed and in force. One at a time for a sandbox. */
err *engine_update(engine *e, const caller *c, sandbox *sb, const sandbox_patch *p) ERR_MUST;
/* Sets the time (real, ns) when the sandbox ends, at most 30 days from now. For the operator, whose
 * objects name a point in time. The keeper ends a running sandbox then. A hibernated one is not
 * woken; the operator, which hibernated it, also ends it. Waits for a commit. ERR_UNAVAILABLE:
 * another call is changing the sandbox. */
err *engine_end_at(engine *e, sandbox *sb, uint64_t ends_ns) ERR_MUST;

/* A stream is attached to it: it is not idle until the end. False, without an end: it is gone. */
bool sandbox_stream_begin(sandbox *sb);
void sandbox_stream_end(sandbox *sb);

/* Everything inside stands still and stays as it is; the time to live does not run. Waits for a
 * commit and for the freezer. Of a paused one: success. ERR_SANDBOX_GONE, ERR_CONFLICT,
 * ERR_UNSUPPORTED, ERR_TIMEOUT: something would not stand still, and all goes on. ERR_UNAVAILABLE:
 * a snapshot is being taken. A resume likewise. */
err *engine_pause(engine *e, const caller *c, sandbox *sb) ERR_MUST;
typedef struct resumed { /* all 0: it was not paused */
    uint64_t took_ns, paused_ns;
} resumed;
err *engine_resume(engine *e, const caller *c, sandbox *sb, resumed *ret_resumed) ERR_MUST;
/* ERR_SANDBOX_PAUSED, for verbs that would wait inside; of any other state NULL. */
err *engine_awake(sandbox *sb) ERR_MUST;

/* Its box goes; its record stays, and what the backend keeps beside a box. Waits for a commit. Of
 * one that sleeps: success. Commands, files, sessions and ports wait for it to wake, a minute at
 * most; what else is asked of it answers ERR_UNAVAILABLE until then. */
err *engine_hibernate(engine *e, const caller *c, sandbox *sb) ERR_MUST;
/* Waits until a hibernated sandbox is awake, or until the box of an interrupted create has answered
 * after a restart of bothyd; a minute at most. Returns why the sandbox cannot be used, or NULL.
 * Request threads only. */
err *engine_wait_awake(sandbox *sb) ERR_MUST;
/* A new box for one that sleeps: as engine_reset, whose `with` it takes. Of one that is awake:
 * success. */
void engine_wake(engine *e, const caller *c, sandbox *sb, sandbox_spec *with, created_fn *done,
                 void *arg);
/* Told when somebody asks something of one that sleeps; must not wait. Before the doors open. */
void engine_on_asleep(engine *e, void (*wanted)(void *arg, const char *id), void *arg);
/* Asked when a box has ended because somebody outside took it away, or with its machine: whether
 * what it worked on is kept. Then the sandbox sleeps and does not end, which is told (`asleep`).
 * Must not wait, nor ask anything of the engine. */
void engine_on_taken(engine *e, bool (*taken)(void *arg, const char *id, bool asleep), void *arg);
/* Sets the function that is asked when a sandbox has been idle for its idle time. It returns true
 * if it hibernates the sandbox; the engine does not end it then. It must not wait or call the
 * engine. */
void engine_on_idle(engine *e, bool (*idle)(void *arg, const char *id), void *arg);
/* bothyd is about to stop: requests that wait for one to wake are answered now (`unavailable`), and
 * no other waits. Any thread. */
void engine_let_go(engine *e);

/* Which walls held when they were tried, and what this node does not enforce. */
typedef struct receipt {
    box_walls walls;
    uint32_t open;     /* RECEIPT_OPEN_* */
    const char *klass; /* what its box was made of, box_timing's; NULL: not known */
} receipt;
#define RECEIPT_OPEN_DISK   1u /* the store has no quotas */
#define RECEIPT_OPEN_SWAP   2u /* the kernel does not account swap */
#define RECEIPT_OPEN_MEMORY 4u /* the backend has no controller for it, nor for these */
#define RECEIPT_OPEN_CPU    8u
#define RECEIPT_OPEN_PIDS   16u

typedef struct sandbox_view { /* a copy; sandbox_view_done() frees */
    char id[SANDBOX_ID_LEN + 1];
    char box[SANDBOX_ID_LEN + 1]; /* of its box, for the backend: its own, unless it was reset */
    char *owner, *name, *state, *cause /* JSON or NULL */, *image_name, *user, *cwd;
    char *door;   /* sandbox_spec's, or NULL */
    image *image; /* or NULL when it is not here any more */
    uint8_t digest[32];
    char **labels;
    limits limits;
    bool read_only, setuid;
    enum network_grant network;
    uint32_t umask;
    json_t *tmpfs;                          /* array, as the API shows it */
    char *template;                         /* that it was made of; or NULL */
    char *snapshot;                         /* likewise, by id; or NULL */
    bool secrets;                           /* it was given some, or its files may hold some */
    json_t *start;                          /* its start command, as the API takes it; or NULL */
    uint64_t start_exec;                    /* its exec while the sandbox lives; 0: not begun */
    uint64_t created_ns, ends_ns, ended_ns; /* ends: of a paused one, when it is not kept longer */
    uint64_t paused_ns;                     /* since when; 0: it is not paused */
    uint64_t ttl_left_ns;                   /* UINT64_MAX: none, or it has ended */
    resume_estimate resume;                 /* of a paused one */
    uint64_t idle_ms;                       /* 0: it may be idle for ever */
    bool ttl_pauses;                        /* sandbox_spec's */
    uint64_t idle_for_ns;                   /* UINT64_MAX: nobody looks */
    receipt receipt;
    size_t live_execs;
    bool has_timing; /* of its create; not kept over a restart */
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
/* Whose its commands are if nobody else is named; NULL or "" is root. It stays. */
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
/* ret_next is the cursor for the next page, or NULL at the end. */
err *engine_list(engine *e, const caller *c, const sandbox_filter *f, sandbox_view **ret_views,
                 size_t *ret_n, char **ret_next) ERR_MUST;

/* ---- snapshots: what a sandbox has written, over its image ---- */
#define SNAPSHOTS_MAX 256u /* of an owner */
/* Files only: no processes, memory, env, secrets, tmpfs. It stands still for as long as it takes,
 * and goes on, or stays paused. Blocking, minutes at most; few at a time: ERR_UNAVAILABLE.
 * ret_still_ns: how long it stood still. */
err *engine_snapshot(engine *e, const caller *c, sandbox *sb, snapshot_row *ret_snapshot,
                     uint64_t *ret_still_ns) ERR_MUST;
/* The same without waiting. done is called once, from another thread, unless this fails at once.
 * The row is NULL after a failure, which is done's to free. */
typedef void snapshot_done(void *arg, err *failure, const snapshot_row *row, uint64_t still_ns);
err *engine_snapshot_start(engine *e, const caller *c, sandbox *sb, snapshot_done *done,
                           void *arg) ERR_MUST;
/* What is not the caller's is ERR_NOT_FOUND. */
err *engine_snapshot_find(engine *e, const caller *c, const char *id,
                          snapshot_row *ret_snapshot) ERR_MUST;
/* sb NULL: of all. */
err *engine_snapshot_list(engine *e, const caller *c, const sandbox *sb, snapshot_row **ret_rows,
                          size_t *ret_n) ERR_MUST;
/* Sandboxes that were made of it stay; its room is free when the last of them has ended.
 * ERR_CONFLICT if a template of the owner names it. */
err *engine_snapshot_remove(engine *e, const caller *c, const char *id) ERR_MUST;

/* ---- forks ---- */
#define FORK_MAX 100u
typedef struct fork_request {
    unsigned count;
    bool despite_secrets; /* also of one that was given secrets, which its files may hold */
    /* Of each child; what it does not say is as of the parent. Not so: name, env, secrets, ttl and
     * door, which are not kept or are each one's own. */
    sandbox_spec spec;
    bool (*is_left)(void *arg); /* with done's arg: nobody wants it any more; or NULL */
} fork_request;
/* Called once, from another thread. The children are borrowed; after a failure there are none. */
typedef void fork_done(void *arg, err *failure, sandbox *const *children, size_t n,
                       uint64_t still_ns);
/* Sandboxes that begin with the files of this one, all of them or none, of the caller. Takes the
 * spec. Does not wait; done is not called if this fails at once. ERR_CONFLICT (kind "secrets"). */
err *engine_fork(engine *e, const caller *c, sandbox *sb, fork_request *r, fork_done *done,
                 void *arg) ERR_MUST;

/* ---- templates: named recipes ---- */
#define TEMPLATES_MAX     256u /* of an owner */
#define TEMPLATE_SPEC_MAX (128u << 10)
typedef struct template_view { /* template_view_done() frees */
    char id[SANDBOX_ID_LEN + 1];
    char *owner, *name;
    bool public; /* everybody may use it by its name, behind their own */
    sandbox_spec spec;
    uint64_t created_ns, changed_ns;
} template_view;
void template_view_done(template_view *t);
/* Name, public and spec of t, which are taken. env is kept in the store: secrets are refused. Only
 * an administrator makes public ones. ERR_CONFLICT, ERR_QUOTA_EXCEEDED. */
err *engine_template_create(engine *e, const caller *c, template_view *t,
                            template_view *ret_made) ERR_MUST;
/* By id or name. What is not the caller's and not public is ERR_NOT_FOUND. */
err *engine_template_find(engine *e, const caller *c, const char *id_or_name,
                          template_view *ret_template) ERR_MUST;
/* Likewise, to show or change it: an administrator names another owner's by its name, too, unless
 * several have it (ERR_CONFLICT). A create does not take such a one. */
err *engine_template_manage(engine *e, const caller *c, const char *id_or_name,
                            template_view *ret_template) ERR_MUST;
/* As create, in the place of the one that was found: of its id and its time. */
err *engine_template_update(engine *e, const caller *c, template_view *t,
                            template_view *ret_made) ERR_MUST;
/* Sandboxes that were made of it stay as they are. */
err *engine_template_remove(engine *e, const caller *c, const char *id_or_name) ERR_MUST;
err *engine_template_list(engine *e, const caller *c, template_view **ret_templates,
                          size_t *ret_n) ERR_MUST;

/* ---- events: what is the caller's, or everything ---- */
typedef struct event_filter {
    uint64_t after; /* the last number seen */
    size_t max;
    const char *sandbox; /* or NULL */
    unsigned types;      /* bit n: EVENT_TYPES[n]; 0: all */
} event_filter;
extern const char *const EVENT_TYPES[]; /* NULL-terminated */
/* ret_next: where to go on; ret_more: there are more now. Rows are freed by event_row_done. */
err *engine_event_list(engine *e, const caller *c, const event_filter *f, event_row **ret_rows,
                       size_t *ret_n, uint64_t *ret_next, bool *ret_more) ERR_MUST;
/* ERR_NOT_FOUND (kind "cursor") for a number that has never been. ret_gap: events after it have
 * been forgotten; the oldest that is kept is one behind it. */
err *engine_event_check(engine *e, uint64_t after, uint64_t *ret_gap) ERR_MUST;
uint64_t engine_event_last(engine *e);
/* notify: from the store's thread after a commit with events; must not block. */
typedef struct event_watch {
    void (*notify)(void *arg);
    void *arg;
    struct event_watch *prev, *next;
} event_watch;
void engine_event_watch(engine *e, event_watch *w);
void engine_event_unwatch(engine *e, event_watch *w); /* it is not being called then */
unsigned engine_event_watchers(engine *e);

/* ---- execs ---- */
/* ERR_SANDBOX_GONE with its cause, ERR_SANDBOX_PAUSED; else as exec_start. */
err *engine_exec(engine *e, const caller *c, sandbox *sb, exec_spec *spec, const idempotency *idem,
                 exec **ret_exec, bool *ret_replay) ERR_MUST;
/* Also of gone sandboxes while their spools are kept. */
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
/* The hashes of a command's key; false: it has none. */
bool engine_session_key(const caller *c, sandbox *sb, session *s, const idempotency *idem,
                        exec_key *ret_key);
err *engine_session_run(sandbox *sb, session *s, const command_spec *spec, const exec_key *key,
                        uint64_t *ret_seq, bool *ret_replay) ERR_MUST;

/* ---- ports ---- */
/* May the caller reach ports of this sandbox, and can this node? As engine_exec says no. */
err *engine_port_check(engine *e, const caller *c, sandbox *sb) ERR_MUST;
/* A socket for a port on the sandbox's loopback, not connected yet (backend.h). Does not wait; done
 * is called once, from any thread, and does not wait either. */
void engine_port_socket(sandbox *sb, uint16_t port, socket_done *done, void *arg);
/* The backend gives none, and the kit connects instead: what engine_port_socket() brings is
 * connected to that port, or it says ERR_PORT_CLOSED with an errno; its end is an exec_tunnel()'s.
 */
bool engine_port_connects(const engine *e);
enum cap_level engine_socket_cap(const engine *e);

/* ---- measurements ---- */
/* What each of these has used, in their order; free it. None is `known` where nobody counts or
 * answers, or it does not live any more. Waits, two seconds at most where the kit is asked. */
box_usage *engine_usage(engine *e, const sandbox_view *views, size_t n);
enum cap_level engine_stats_cap(const engine *e);

/* ---- the rest ---- */
image_store *engine_images(engine *e);
err *engine_prune_images(engine *e, const caller *c, bool all, uint64_t *ret_bytes) ERR_MUST;
backend *engine_backend(const engine *e);
const char *engine_cell(engine *e);
typedef struct engine_counts {
    size_t creating, running, paused;
} engine_counts;
engine_counts engine_count(engine *e);
/* NULL when ready; else why not. ret_pooled: ret_pool was filled. */
err *engine_ready(engine *e, pool_status *ret_pool, bool *ret_pooled) ERR_MUST;
