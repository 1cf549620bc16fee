/* The store: one SQLite file, WAL, one writer thread with group commit.
 *
 * Blocking writes return when their commit is durable; queued ones return at once and are in the
 * order of the calls. Reads use a connection of the calling thread's pool and see every write that
 * has returned. Env and secrets are never stored. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "core/quota.h"

#define STORE_VERSION 8 /* user_version of the file */

typedef struct store store;

/* sync: "full" or "normal". Migrates an older file; refuses a newer one with a remedy. */
err *store_open(int dirfd, const char *path, const char *sync, store **ret_store) ERR_MUST;
void store_close(store *s);

/* Returns when every write queued before is committed. */
err *store_flush(store *s) ERR_MUST;

typedef struct sandbox_row {
    char id[SANDBOX_ID_LEN + 1];
    char *owner;
    char *name;  /* or NULL */
    char *state; /* "creating", "running", "paused", "gone" */
    char *cause; /* JSON object, or NULL while it lives */
    char *image; /* name as asked for */
    uint8_t digest[32];
    char *spec; /* JSON: limits, labels, user, cwd, flags: everything but env and secrets */
    uint64_t created_ns, ttl_ns /* absolute, 0: none */, ended_ns;
    char *walls; /* JSON: which walls held, and when; NULL until it runs */
    uint64_t
        paused_ns;   /* since when it is, or was last, paused; ttl_ns stands still from then on */
    bool pending;    /* its limits may be others than the spec's */
    uint8_t key[16]; /* hash of (owner, verb, idempotency key); zero: none */
    uint8_t body[16];
} sandbox_row;
void sandbox_row_done(sandbox_row *r);

/* ERR_CONFLICT (kind "name") if the owner has a live one of that name; ERR_CONFLICT (kind "key") if
 * the key is taken. */
err *store_sandbox_insert(store *s, const sandbox_row *r) ERR_MUST;
/* The same in two steps, for who has something else to do meanwhile: the row takes its place among
 * the queued writes now and is borrowed until the end, which waits for the commit. */
typedef struct store_pending store_pending;
store_pending *store_sandbox_insert_begin(store *s, const sandbox_row *r);
err *store_pending_end(store *s, store_pending *p) ERR_MUST;
/* ERR_CONFLICT (kind "name") as above, from what is committed. */
err *store_sandbox_name_free(store *s, const char *owner, const char *name) ERR_MUST;
/* State, cause and times of an existing row. */
err *store_sandbox_state(store *s, const char *id, const char *state, const char *cause,
                         uint64_t ended_ns) ERR_MUST;
void store_sandbox_state_queued(store *s, const char *id, const char *state, const char *cause,
                                uint64_t ended_ns);
/* One watcher, called on the writer's thread for each of these: settled false after a try that failed
 * and will be repeated, true once when it is written or given up. NULL: none from the return on.
 * notify must not wait for the store. */
void store_state_watch(store *s, void (*notify)(void *arg, const char *id, bool settled),
                       void *arg);
/* It runs, and these are its walls. */
void store_sandbox_running_queued(store *s, const char *id, const char *state, const char *walls);
/* It is paused (since paused_ns) or runs again, unless it has ended: ERR_NOT_FOUND. */
err *store_sandbox_pause(store *s, const char *id, const char *state, uint64_t paused_ns,
                         uint64_t ttl_ns) ERR_MUST;
/* Of one that runs: another box and its walls. Both texts are borrowed until the end. */
typedef struct sandbox_reset {
    const char *id, *spec, *walls;
} sandbox_reset;
store_pending *store_sandbox_reset_begin(store *s, const sandbox_reset *r);
/* Ends what store_sandbox_pending began. */
err *store_sandbox_spec(store *s, const char *id, const char *spec, uint64_t ttl_ns) ERR_MUST;
/* Its limits are about to be changed; or, settled, are known to be the row's. */
err *store_sandbox_pending(store *s, const char *id, bool pending) ERR_MUST;
/* Frees the idempotency key of a failed create. */
void store_sandbox_free_key_queued(store *s, const char *id);
err *store_sandbox_get(store *s, const char *id, sandbox_row *ret_row) ERR_MUST;
/* Rows oldest first, in pages. An owner's cursor is one of its own rows. */
typedef struct sandbox_page {
    const char *after; /* the last id seen, or "" */
    size_t max;
    const char *owner; /* NULL: everybody's */
    bool without_gone;
} sandbox_page;
err *store_sandbox_list(store *s, const sandbox_page *page, sandbox_row **ret_rows,
                        size_t *ret_n) ERR_MUST;
err *store_sandbox_by_key(store *s, const uint8_t key[16], sandbox_row *ret_row) ERR_MUST;
/* Ids of what ended from one time up to before another, in that order; by an index, however many
 * rows there are.
 */
err *store_sandbox_ended(store *s, uint64_t from_ns, uint64_t before_ns,
                         char (**ret_ids)[SANDBOX_ID_LEN + 1], size_t *ret_n) ERR_MUST;
/* Forgets rows that ended before the time, and events of before it, a thousand rows at most; the rows'
 * ids come back for the spools. None: there are no more. */
err *store_sandbox_forget(store *s, uint64_t before_ns, char (**ret_ids)[SANDBOX_ID_LEN + 1],
                          size_t *ret_n) ERR_MUST;

typedef struct key_row {
    char id[9]; /* shown in lists */
    char *owner;
    char *role; /* "admin", "user", "read" */
    char *note; /* or NULL */
    uint8_t sha256[32];
    uint64_t created_ns, expires_ns /* 0: never */;
    quota quota;
} key_row;
void key_row_done(key_row *r);
err *store_key_insert(store *s, const key_row *r) ERR_MUST;
err *store_key_by_hash(store *s, const uint8_t sha256[32], key_row *ret_row) ERR_MUST;
err *store_key_list(store *s, key_row **ret_rows, size_t *ret_n) ERR_MUST;
/* Calls back for every owner of whom keys were removed, with their number. The owner "" stands for
 * all: keys of administrators count there. The count and the removal are one commit. */
err *store_epoch_each(store *s, void (*each)(void *arg, const char *owner, uint64_t epoch),
                      void *arg) ERR_MUST;
err *store_key_get(store *s, const char *id, key_row *ret_row) ERR_MUST;
err *store_key_quota(store *s, const char *id, const quota *q) ERR_MUST;
err *store_key_remove(store *s, const char *id) ERR_MUST;

typedef struct image_row {
    uint8_t digest[32];
    char *name;
    char *config; /* JSON as image/ wrote it */
    uint64_t created_ns;
} image_row;
void image_row_done(image_row *r);
err *store_image_put(store *s, const image_row *r) ERR_MUST;
err *store_image_remove(store *s, const char *name) ERR_MUST;
err *store_image_list(store *s, image_row **ret_rows, size_t *ret_n) ERR_MUST;

typedef struct template_row {
    char id[SANDBOX_ID_LEN + 1];
    char *owner;
    char *name;
    bool public;
    char *spec; /* JSON as engine/ wrote it: no secrets, but env, which is of the recipe */
    uint64_t created_ns, changed_ns;
} template_row;
void template_row_done(template_row *r);
/* ERR_CONFLICT (kind "template") if the owner has one of that name, or a public one has it already;
 * ERR_QUOTA_EXCEEDED over max of the owner's. */
err *store_template_insert(store *s, const template_row *r, size_t max) ERR_MUST;
/* By id, or by name: the owner's own before a public one. everybody: by id also those of others. */
err *store_template_find(store *s, const char *owner, bool everybody, const char *id_or_name,
                         template_row *ret_row) ERR_MUST;
/* By name, whoever owns it: ERR_CONFLICT (kind "template") if several owners have one of that name. */
err *store_template_by_name(store *s, const char *name, template_row *ret_row) ERR_MUST;
/* name, public and spec of the row of this id, if nobody changed it after r->changed_ns: else
 * ERR_CONFLICT (kind "template"), as for a name that is taken. */
err *store_template_update(store *s, const template_row *r, uint64_t now_ns) ERR_MUST;
err *store_template_remove(store *s, const char *id) ERR_MUST;
/* The owner's and public ones, or all; by name. */
err *store_template_list(store *s, const char *owner, bool everybody, template_row **ret_rows,
                         size_t *ret_n) ERR_MUST;

typedef struct snapshot_row {
    char id[SANDBOX_ID_LEN + 1];
    char *owner;
    char sandbox[SANDBOX_ID_LEN + 1]; /* that it was taken of */
    char *image;                      /* the name of that one's */
    uint64_t bytes, entries, created_ns;
    bool secrets; /* that one was given some: its files may hold them */
    bool fork;    /* it is the means of a fork that is under way, or was when we were killed */
} snapshot_row;
void snapshot_row_done(snapshot_row *r);
/* ERR_QUOTA_EXCEEDED over max of the owner's, as the insert will say. Those of forks do not count.
 */
err *store_snapshot_room(store *s, const char *owner, size_t max) ERR_MUST;
err *store_snapshot_insert(store *s, const snapshot_row *r, size_t max) ERR_MUST;
/* ERR_NOT_FOUND (kind "snapshot"). owner NULL: anybody's; forks: also one that is a fork's. */
err *store_snapshot_find(store *s, const char *owner, const char *id, bool forks,
                         snapshot_row *ret_row) ERR_MUST;
err *store_snapshot_remove(store *s, const char *id) ERR_MUST;
/* Oldest first, those of forks or the others; owner NULL: everybody's, sandbox NULL: of any. */
err *store_snapshot_list(store *s, const char *owner, const char *sandbox, bool forks,
                         snapshot_row **ret_rows, size_t *ret_n) ERR_MUST;

/* Builds of templates: what becomes of them, and which tags of the template they have. */
#define BUILD_ID_LEN 36 /* a UUID */
typedef struct build_row {
    char id[BUILD_ID_LEN + 1];
    char template[SANDBOX_ID_LEN + 1]; /* its id, also before there is one */
    char *owner, *name;
    char *tags;     /* JSON: an array of strings */
    char *state;    /* waiting, building, ready, error */
    char *spec;     /* JSON: of sandboxes that are made of it */
    char *reason;   /* JSON, of an error; or NULL */
    char *snapshot; /* its files; or NULL */
    uint64_t created_ns, changed_ns;
} build_row;
void build_row_done(build_row *r);
void build_rows_free(build_row *rows, size_t n);
/* ERR_QUOTA_EXCEEDED over max of the owner's; one that is ready and has neither tags nor files any
 * more makes room, the oldest first. */
err *store_build_insert(store *s, const build_row *r, size_t max) ERR_MUST;
/* Oldest first; owner NULL: everybody's; of: the id of a build or of a template, NULL: all. */
err *store_build_list(store *s, const char *owner, const char *of, build_row **ret_rows,
                      size_t *ret_n) ERR_MUST;
/* Tags, state, spec, reason, snapshot and changed_ns of the row with this id; all rows in one
 * commit. A row that is gone is ERR_NOT_FOUND (kind "build"). */
err *store_build_update(store *s, const build_row *rows, size_t n) ERR_MUST;
err *store_build_remove(store *s, const char *id) ERR_MUST; /* a missing one is success */
/* Those that wait, failed or have neither tags nor files any more, and have not changed since. */
err *store_build_forget(store *s, uint64_t before_ns) ERR_MUST;

/* Events: append-only, resumable by number. The file makes them of what happens to sandboxes, in
 * the same commit: their type is the state it came to ("creating", "running", "gone", …), or
 * "updated" when its spec or its time has changed. They are forgotten with the records. */
typedef struct event_row {
    uint64_t seq, time_ns;
    char *sandbox, *owner, *type, *detail; /* owner NULL: of an earlier version; detail: or NULL */
} event_row;
void event_row_done(event_row *r);
typedef struct event_page {
    uint64_t after; /* the last number seen; 0: from the oldest */
    size_t max;
    const char *owner, *sandbox; /* NULL: any */
} event_page;
err *store_event_list(store *s, const event_page *page, event_row **ret_rows,
                      size_t *ret_n) ERR_MUST;
/* The newest number that was ever committed, 0 if none was; does not wait. */
uint64_t store_event_last(store *s);
/* The oldest that is kept, 0 if none is. */
err *store_event_first(store *s, uint64_t *ret_seq) ERR_MUST;
/* Called on the writer's thread after a commit with events; one watcher. NULL: none from the return
 * on. notify must not call it. */
void store_event_watch(store *s, void (*notify)(void *arg), void *arg);

/* ---- backup.c ---- */

/* A copy as of now, in a file without a name; writers are not held up. ERR_CONFLICT: one is being
 * made already. */
err *store_backup(store *s, int *ret_fd) ERR_MUST;
typedef struct store_restored {
    int version;
    uint64_t sandboxes, live, keys, images;
} store_restored;
/* Nobody may have the store open. Tries the file out first: what is no store, a newer or a damaged
 * one is refused, and nothing is changed. The store before it stays beside it. */
err *store_restore(int dirfd, int from_fd, store_restored *ret_what) ERR_MUST;
