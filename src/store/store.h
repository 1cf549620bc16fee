/* The store: one SQLite file, WAL, one writer thread with group commit.
 *
 * Blocking writes return when their commit is durable. Queued writes return at once and are
 * executed in call order. Reads use a pooled connection and see every blocking write that has
 * returned. Env and secrets are never stored. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "core/quota.h"

#define STORE_VERSION 8 /* user_version of the file */

typedef struct store store;

/* Opens the store. sync: "full" or "normal". Migrates an older file; refuses a newer one with a
 * remedy. */
err *store_open(int dirfd, const char *path, const char *sync, store **ret_store) ERR_MUST;
void store_close(store *s);
/* Writes what is queued and empties the WAL, so that the next start need not check the pages. For a
 * process that ends without store_close(): the store stays in use, and a later write only makes the
 * next start check them. */
err *store_settle(store *s) ERR_MUST;

/* Returns when every write queued before is committed. */
err *store_flush(store *s) ERR_MUST;

typedef struct sandbox_row {
    char id[SANDBOX_ID_LEN + 1];
    char *owner;
    char *name;  /* or NULL */
    char *state; /* "creating", "running", "paused", "hibernated", "gone" */
    char *cause; /* JSON object, or NULL while it lives */
    char *image; /* as the caller wrote it */
    uint8_t digest[32];
    char *spec; /* JSON: limits, labels, user, cwd, flags: everything but env and secrets */
    uint64_t created_ns, ttl_ns /* absolute, 0: none */, ended_ns;
    char *walls;        /* JSON: the isolation checks that held, and when; NULL until it runs */
    uint64_t paused_ns; /* start of the current or last pause; the ttl stands still then */
    bool pending;       /* its actual limits may differ from the spec's */
    uint8_t key[16];    /* hash of (owner, verb, idempotency key); zero: none */
    uint8_t body[16];
} sandbox_row;
void sandbox_row_done(sandbox_row *r);

/* Inserts a row. ERR_CONFLICT (kind "name") if the owner has a live sandbox of that name;
 * ERR_CONFLICT (kind "key") if the idempotency key is taken. */
err *store_sandbox_insert(store *s, const sandbox_row *r) ERR_MUST;
/* Inserts in two steps, for callers with other work meanwhile. The first step queues the row, which
 * is borrowed until the second; the second waits for the commit. */
typedef struct store_pending store_pending;
store_pending *store_sandbox_insert_begin(store *s, const sandbox_row *r);
err *store_pending_end(store *s, store_pending *p) ERR_MUST;
/* Checks the committed rows only. ERR_CONFLICT (kind "name") if the owner has a live sandbox of
 * that name. */
err *store_sandbox_name_free(store *s, const char *owner, const char *name) ERR_MUST;
/* Sets state, cause and time of the end of an existing row. */
err *store_sandbox_state(store *s, const char *id, const char *state, const char *cause,
                         uint64_t ended_ns) ERR_MUST;
void store_sandbox_state_queued(store *s, const char *id, const char *state, const char *cause,
                                uint64_t ended_ns);
/* Sets the watcher of store_sandbox_state_queued() writes; there is one, called on the writer's
 * thread. settled false: a try failed and will be repeated. settled true, once: written or given
 * up. NULL removes it; no call follows the return. notify must not wait for the store. */
void store_state_watch(store *s, void (*notify)(void *arg, const char *id, bool settled),
                       void *arg);
/* Marks a sandbox as running and stores the isolation checks that held. */
void store_sandbox_running_queued(store *s, const char *id, const char *state, const char *walls);
/* Marks a sandbox as paused (since paused_ns) or running. ERR_NOT_FOUND if it has ended. */
err *store_sandbox_pause(store *s, const char *id, const char *state, uint64_t paused_ns,
                         uint64_t ttl_ns) ERR_MUST;
/* The new box of a reset sandbox and its isolation checks. The texts are borrowed until the write's
 * end. */
typedef struct sandbox_reset {
    const char *id, *spec, *walls;
} sandbox_reset;
store_pending *store_sandbox_reset_begin(store *s, const sandbox_reset *r);
/* Stores the new spec, and ends the change that store_sandbox_pending() began. */
err *store_sandbox_spec(store *s, const char *id, const char *spec, uint64_t ttl_ns) ERR_MUST;
/* Marks that the limits are about to change, or (false) that they are known to equal the row's. */
err *store_sandbox_pending(store *s, const char *id, bool pending) ERR_MUST;
/* Frees the idempotency key of a failed create. */
void store_sandbox_free_key_queued(store *s, const char *id);
err *store_sandbox_get(store *s, const char *id, sandbox_row *ret_row) ERR_MUST;
/* Pages of rows, oldest first. `after` must be a row of the owner if one is given. */
typedef struct sandbox_page {
    const char *after; /* the last id seen, or "" */
    size_t max;
    const char *owner; /* NULL: of all owners */
    bool without_gone;
} sandbox_page;
err *store_sandbox_list(store *s, const sandbox_page *page, sandbox_row **ret_rows,
                        size_t *ret_n) ERR_MUST;
err *store_sandbox_by_key(store *s, const uint8_t key[16], sandbox_row *ret_row) ERR_MUST;
/* Returns the ids of sandboxes that ended in [from_ns, before_ns), in order of their ends. Uses an
 * index, so the cost does not depend on the number of rows. */
err *store_sandbox_ended(store *s, uint64_t from_ns, uint64_t before_ns,
                         char (**ret_ids)[SANDBOX_ID_LEN + 1], size_t *ret_n) ERR_MUST;
/* Deletes rows that ended before the time, at most a thousand, and events before it. Returns the
 * rows' ids, so that their spools can be deleted. No ids: no more rows are left. */
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
/* Calls back for every owner who had keys removed, with the number of removals. Owner "" stands for
 * all owners: removals of administrators' keys count there. The count and the removal are one
 * commit. */
err *store_epoch_each(store *s, void (*each)(void *arg, const char *owner, uint64_t epoch),
                      void *arg) ERR_MUST;
err *store_key_get(store *s, const char *id, key_row *ret_row) ERR_MUST;
err *store_key_quota(store *s, const char *id, const quota *q) ERR_MUST;
err *store_key_remove(store *s, const char *id) ERR_MUST;

typedef struct image_row {
    uint8_t digest[32];
    char *name;
    char *config; /* JSON as written by image/ */
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
    char *spec; /* JSON as written by engine/: no secrets, but env, which belongs to the template */
    uint64_t created_ns, changed_ns;
} template_row;
void template_row_done(template_row *r);
/* Inserts a template. ERR_CONFLICT (kind "template") if the owner, or a public template, has the
 * name; ERR_QUOTA_EXCEEDED if the owner has max templates. */
err *store_template_insert(store *s, const template_row *r, size_t max) ERR_MUST;
/* Finds a template by id or name; the owner's own comes before a public one. everybody: by id also
 * those of other owners. */
err *store_template_find(store *s, const char *owner, bool everybody, const char *id_or_name,
                         template_row *ret_row) ERR_MUST;
/* Finds a template by name, of any owner. ERR_CONFLICT (kind "template") if several owners have
 * one. */
err *store_template_by_name(store *s, const char *name, template_row *ret_row) ERR_MUST;
/* Updates name, public and spec of the row with this id. ERR_CONFLICT (kind "template") if it
 * changed after r->changed_ns, or if the name is taken. */
err *store_template_update(store *s, const template_row *r, uint64_t now_ns) ERR_MUST;
err *store_template_remove(store *s, const char *id) ERR_MUST;
/* Lists the owner's and public templates, or all, by name. */
err *store_template_list(store *s, const char *owner, bool everybody, template_row **ret_rows,
                         size_t *ret_n) ERR_MUST;

typedef struct snapshot_row {
    char id[SANDBOX_ID_LEN + 1];
    char *owner;
    char sandbox[SANDBOX_ID_LEN + 1]; /* the sandbox it was taken of */
    char *image;                      /* name of that sandbox's image */
    uint64_t bytes, entries, created_ns;
    bool secrets; /* that sandbox had secrets, so its files may hold them */
    bool fork;    /* belongs to a fork in progress, or to one interrupted when bothyd was killed */
} snapshot_row;
void snapshot_row_done(snapshot_row *r);
/* Checks whether an insert would succeed: ERR_QUOTA_EXCEEDED if the owner has max snapshots.
 * Snapshots of forks do not count. */
err *store_snapshot_room(store *s, const char *owner, size_t max) ERR_MUST;
err *store_snapshot_insert(store *s, const snapshot_row *r, size_t max) ERR_MUST;
/* Finds a snapshot. ERR_NOT_FOUND (kind "snapshot"). owner NULL: of any owner; forks: also one of a
 * fork. */
err *store_snapshot_find(store *s, const char *owner, const char *id, bool forks,
                         snapshot_row *ret_row) ERR_MUST;
err *store_snapshot_remove(store *s, const char *id) ERR_MUST;
/* Lists snapshots, oldest first: those of forks, or the others. owner and sandbox NULL: any. */
err *store_snapshot_list(store *s, const char *owner, const char *sandbox, bool forks,
                         snapshot_row **ret_rows, size_t *ret_n) ERR_MUST;

/* Builds of templates: their state, and the tags of the template that they have. */
#define BUILD_ID_LEN 36 /* a UUID */
typedef struct build_row {
    char id[BUILD_ID_LEN + 1];
    char template[SANDBOX_ID_LEN + 1]; /* template id, set even before the template exists */
    char *owner, *name;
    char *tags;     /* JSON: an array of strings */
    char *state;    /* waiting, building, ready, error */
    char *spec;     /* JSON: spec for sandboxes made from it */
    char *reason;   /* JSON, why it failed; or NULL */
    char *snapshot; /* the snapshot with its files; or NULL */
    uint64_t created_ns, changed_ns;
} build_row;
void build_row_done(build_row *r);
void build_rows_free(build_row *rows, size_t n);
/* Inserts a build. ERR_QUOTA_EXCEEDED if the owner has max builds; the oldest ready build without
 * tags and files is deleted first to make room. */
err *store_build_insert(store *s, const build_row *r, size_t max) ERR_MUST;
/* Lists builds, oldest first. owner NULL: of all owners; of: the id of a build or of a template,
 * NULL: all. */
err *store_build_list(store *s, const char *owner, const char *of, build_row **ret_rows,
                      size_t *ret_n) ERR_MUST;
/* Updates tags, state, spec, reason, snapshot and changed_ns of the rows with these ids, all in one
 * commit. ERR_NOT_FOUND (kind "build") if a row is gone. */
err *store_build_update(store *s, const build_row *rows, size_t n) ERR_MUST;
err *store_build_remove(store *s, const char *id) ERR_MUST; /* succeeds if it is missing */
/* Deletes builds that were never started, have failed, or are ready but have neither tags nor a
 * snapshot, if they have not changed since before_ns. */
err *store_build_forget(store *s, uint64_t before_ns) ERR_MUST;

/* Events: append-only, resumable by number. Triggers of the file write them in the same commit as
 * the change of a sandbox. Their type is the new state ("creating", "running", "gone", …), "reset"
 * after a reset, or "updated" after another change of spec or ttl. They are deleted with the
 * sandboxes' rows. */
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
/* Returns the newest number ever committed, 0 if none. Does not wait. */
uint64_t store_event_last(store *s);
/* Returns the oldest kept number, 0 if none. */
err *store_event_first(store *s, uint64_t *ret_seq) ERR_MUST;
/* Sets the watcher, called on the writer's thread after a commit with events; there is one. NULL
 * removes it; no call follows the return. notify must not call this function. */
void store_event_watch(store *s, void (*notify)(void *arg), void *arg);

/* ---- backup.c ---- */

/* Makes a copy of the current state in a file without a name; writers are not blocked. ERR_CONFLICT
 * if another copy is being made. */
err *store_backup(store *s, int *ret_fd) ERR_MUST;
typedef struct store_restored {
    int version;
    uint64_t sandboxes, live, keys, images;
} store_restored;
/* Replaces the store by a copy. No process may have the store open. Checks the file first: if it is
 * no store, newer or damaged, it is refused and nothing is changed. The old store is kept beside
 * the new one. */
err *store_restore(int dirfd, int from_fd, store_restored *ret_what) ERR_MUST;
