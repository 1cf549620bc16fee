/* What the files of the builder share. */
#pragma once

#include <stdatomic.h>

#include "engine/build.h"
#include "engine/internal.h"

#define BUILD_LABEL "bothy.build" /* of the sandboxes that builds run in */

/* One that is under way, or whose log is still kept. */
typedef struct build {
    char id[BUILD_ID_LEN + 1], template[SANDBOX_ID_LEN + 1];
    engine *e;
    caller who; /* as they were when it began */
    char *name;
    build_recipe recipe;
    limits limits;
    struct build *next; /* in the queue, or of those that are over, oldest first */
    _Atomic bool cancelled;
    bool runs, over; /* under the desk's lock */

    /* the thread's alone */
    sandbox *sb;
    char *user, *cwd; /* of the next step; cwd NULL: the user's home */
    char **env;       /* what steps have set */
    char *shell;
    char step[24]; /* for the log, and for the reason of a failure */

    pthread_mutex_t lock;
    build_line *lines;
    size_t nlines, bytes;
    bool full;
} build;

typedef struct upload_account upload_account;
/* All of an engine's. */
typedef struct build_desk {
    pthread_mutex_t lock;
    pthread_mutex_t tags;    /* held while tags change hands and ids are given; before `lock` */
    pthread_mutex_t uploads; /* held while room is taken, and for the two that follow */
    upload_account *accounts;
    uint64_t upload_bytes; /* of all owners, while anybody sends */
    uint64_t upload_owner_max, upload_node_max, upload_floor; /* tests have smaller ones */
    pthread_cond_t idle;                                      /* running fell to 0 */
    map known;                                                /* id → build */
    build *queue, *old;
    size_t nold;
    uint64_t old_bytes; /* of their logs */
    unsigned running;
    uint64_t swept_ns; /* uploads, last */
} build_desk;

/* ---- build.c ---- */
void build_free(build *b);
/* Whether another build of this owner may run now. With the desk's lock. */
bool build_has_place(build_desk *d, const char *owner);
/* Counts it as running, or puts it into the queue if there is no place for it; true: it runs. With
 * the desk's lock; `known` has it. */
bool build_place(build_desk *d, build *b);
/* The next one of the queue, counted as running: that of the owner with the fewest that run, or
 * the first of those. NULL: none may run. With the desk's lock. */
build *build_next(build_desk *d);
/* It is over: its log is kept for a while, its recipe is not. With the desk's lock. */
void build_retire(build_desk *d, build *b);
/* It is to end: cancelled, or we stop. */
bool build_is_off(build *b);
void build_say(build *b, const char *level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void build_say_line(build *b, const char *level, const char *p, size_t n);

/* ---- build_run.c ---- */
/* From the base to a snapshot that is recorded in *row (state, spec, snapshot). What was made for
 * it is gone, whatever the outcome, but for the snapshot of a success. */
err *build_run(build *b, build_row *row) ERR_MUST;
/* Runs a command in the sandbox to its end; its output goes to the log as of `level`, or if ret_out
 * is not NULL, stdout there (at most 1 MiB). An end other than exit status 0 is an error. */
typedef struct build_command {
    char **argv;
    const char *user;
    const char *cwd; /* NULL: the user's home */
    bool bare;       /* without what ENV steps have set */
    const char *level;
} build_command;
err *build_command_run(build *b, const build_command *c, buf *ret_out) ERR_MUST;

/* ---- build_step.c ---- */
err *build_step_run(build *b, const build_step *s) ERR_MUST;
/* `user`, their home and their sudo, as E2B has them. finalize: after the steps. */
err *build_provision(build *b, bool finalize) ERR_MUST;

/* With variables of the image and of earlier steps; commands in it are only text. */
err *build_expand(build *b, const char *value, char **ret_text) ERR_MUST;

/* ---- build_copy.c ---- */
err *build_copy(build *b, const build_step *s) ERR_MUST;
/* The part of a pattern before its first wildcard: what lies below it is copied. Pure. */
char *build_copy_source(const char *pattern);
/* An absolute path without ".", ".." and empty parts, without its first '/'. Pure. */
char *build_copy_target(const char *cwd, const char *path);

/* ---- build_upload.c ---- */
err *upload_open(engine *e, const char *owner, const char *hash, int *ret_fd) ERR_MUST;
void upload_sweep(engine *e); /* what nobody has used for a day */

/* ---- build_tags.c ---- */
err *build_publish(build *b, build_row *row) ERR_MUST;
/* The build is ready and gets its tags, and others of its template lose them. With the desk's
 * `tags` held, or alone. role: the builder's, which a template for everybody asks for. */
err *build_take_tags(engine *e, enum caller_role role, const build_row *row) ERR_MUST;
/* Files of those that no tag leads to any more go. */
void build_drop_bare(engine *e, build_row *rows, size_t n);
bool build_row_is(const build_row *r, const char *state);
bool build_has_tag(const build_row *r, const char *tag);
