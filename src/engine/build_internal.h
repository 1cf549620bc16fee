/* Shared by the files of the builder. */
#pragma once

#include <stdatomic.h>

#include "engine/build.h"
#include "engine/internal.h"

#define BUILD_LABEL "bothy.build" /* label of sandboxes in which builds run */

/* A build that is under way, or whose log is still kept. */
typedef struct build {
    char id[BUILD_ID_LEN + 1], template[SANDBOX_ID_LEN + 1];
    engine *e;
    caller who; /* the caller as it was when the build began */
    char *name;
    build_recipe recipe;
    limits limits;
    struct build *next; /* in the queue, or in the list of finished builds, oldest first */
    _Atomic bool cancelled;
    bool runs, over; /* under the desk's lock */

    /* used by the build's thread only */
    sandbox *sb;
    char *user, *cwd; /* for the next step; cwd NULL: the user's home */
    char **env;       /* set by steps so far */
    char *shell;
    char step[24]; /* present step, for the log and the reason of a failure */

    pthread_mutex_t lock;
    build_line *lines;
    size_t nlines, bytes;
    bool full;
} build;

typedef struct upload_account upload_account;
/* All builds of an engine. */
typedef struct build_desk {
    pthread_mutex_t lock;
    pthread_mutex_t tags;    /* held while tags are moved and ids are given; taken before `lock` */
    pthread_mutex_t uploads; /* guards the next two, and the taking of room */
    upload_account *accounts;
    /* size of all owners' uploads on the disk. Recounted when an upload begins while no other is
     * under way; outdated when none is */
    uint64_t upload_bytes;
    uint64_t upload_owner_max, upload_node_max, upload_floor; /* limits; tests lower them */
    pthread_cond_t idle;                                      /* running fell to 0 */
    map known;                                                /* id → build */
    build *queue, *old;
    size_t nold;
    uint64_t old_bytes; /* bytes of those logs */
    unsigned running;
    uint64_t swept_ns; /* when uploads were last swept */
} build_desk;

/* ---- build.c ---- */
void build_free(build *b);
/* Returns true if another build of this owner may run now. Desk's lock held. */
bool build_has_place(build_desk *d, const char *owner);
/* Counts the build as running, or queues it if there is no place. Returns true if it runs. Desk's
 * lock held; `known` has the build. */
bool build_place(build_desk *d, build *b);
/* Takes the next build from the queue and counts it as running: that of the owner with the fewest
 * running builds, or the first of those. Returns NULL if none may run. Desk's lock held. */
build *build_next(build_desk *d);
/* Moves a build to the finished ones: keeps its log for a while, frees its recipe. Desk's lock
 * held. */
void build_retire(build_desk *d, build *b);
/* Returns true if the build must end: it was cancelled, or the engine stops. */
bool build_is_off(build *b);
void build_say(build *b, const char *level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void build_say_line(build *b, const char *level, const char *p, size_t n);

/* ---- build_run.c ---- */
/* Runs a build from its base to a snapshot, which it records in *row (state, spec, snapshot).
 * Removes everything else that it made; after a failure also the snapshot. */
err *build_run(build *b, build_row *row) ERR_MUST;
/* Runs a command in the sandbox until it ends. Its output goes to the log with `level`; if ret_out
 * is not NULL, its stdout goes there instead (at most 1 MiB). Any end but exit status 0 is an
 * error. */
typedef struct build_command {
    char **argv;
    const char *user;
    const char *cwd; /* NULL: the user's home */
    bool bare;       /* without variables that ENV steps have set */
    const char *level;
} build_command;
err *build_command_run(build *b, const build_command *c, buf *ret_out) ERR_MUST;

/* ---- build_step.c ---- */
err *build_step_run(build *b, const build_step *s) ERR_MUST;
/* Makes the user `user` with home and sudo, as E2B does. finalize: after the steps. */
err *build_provision(build *b, bool finalize) ERR_MUST;

/* Expands variables of the image and of earlier steps in a value; commands in it stay text. */
err *build_expand(build *b, const char *value, char **ret_text) ERR_MUST;

/* ---- build_copy.c ---- */
err *build_copy(build *b, const build_step *s) ERR_MUST;
/* Returns the part of a pattern before its first wildcard: everything below it is copied. Pure. */
char *build_copy_source(const char *pattern);
/* Returns the absolute path without ".", ".." and empty parts, and without its first '/'. Pure. */
char *build_copy_target(const char *cwd, const char *path);

/* ---- build_upload.c ---- */
err *upload_open(engine *e, const char *owner, const char *hash, int *ret_fd) ERR_MUST;
void upload_sweep(engine *e); /* removes files that were not used for a day */

/* ---- build_tags.c ---- */
err *build_publish(build *b, build_row *row) ERR_MUST;
/* Marks the build as ready and gives it its tags; other builds of its template lose them. role: the
 * builder's role; a public template needs an administrator's. Desk's `tags` held, or no other
 * thread runs yet. */
err *build_take_tags(engine *e, enum caller_role role, const build_row *row) ERR_MUST;
/* Removes the snapshots of ready builds that have no tag any more. */
void build_drop_bare(engine *e, build_row *rows, size_t n);
bool build_row_is(const build_row *r, const char *state);
bool build_has_tag(const build_row *r, const char *tag);
