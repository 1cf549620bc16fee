/* Builds: templates made of a base and steps, in a sandbox whose files become a snapshot.
 *
 *     engine_build_new()    gives the ids, before anything happens: the caller sends files for them
 *     engine_build_start()  hands the recipe to a thread of the engine's, and returns
 *     engine_build_find()   how it stands; engine_build_log() what it has said
 *
 * A build that is ready has tags of its template. The one with the tag "default" is a template of
 * the native API, under the id that was given. Others are found by engine_build_spec(). A build
 * that failed leaves nothing but its row, which says why, for a day. A build that a restart of
 * bothyd interrupts has failed. Any thread may call; what is not the caller's is ERR_NOT_FOUND. */
#pragma once

#include "engine/engine.h"

#define BUILDS_MAX          1024u                /* rows of an owner, those that failed included */
#define BUILDS_RUNNING      8u                   /* of the node; others wait */
#define BUILDS_SHARE        (BUILDS_RUNNING / 2) /* of an owner, also when no one else builds */
#define BUILDS_OWNER        32u                  /* under way or waiting, of an owner */
#define BUILD_STEPS_MAX     1000u
#define BUILD_TAGS_MAX      32u
#define BUILD_TAG_LEN       64u
#define BUILD_LOG_MAX       (8u << 20)  /* bytes that its messages take; then the end is left out */
#define BUILD_LOGS_OWNER    (16u << 20) /* of builds that are over: then the oldest go */
#define BUILD_RECIPES_OWNER (16u << 20) /* bytes of steps, under way or waiting */
#define BUILD_LOG_LINE      (16u << 10)
#define BUILD_DEFAULT       "default"
#define UPLOAD_MAX          (UINT64_C(4) << 30) /* bytes of one file */
#define UPLOAD_OWNER_MAX    (UINT64_C(16) << 30)
#define UPLOAD_NODE_MAX     (UINT64_C(64) << 30)
#define UPLOAD_FLOOR        (UINT64_C(512) << 20) /* of the disk stays free: the store is on it */
#define UPLOADS_OWNER       32u                   /* at a time */
#define UPLOAD_HASH_LEN     64u

enum build_verb {
    BUILD_RUN,     /* command, [user] */
    BUILD_COPY,    /* source in the upload, path, [owner], [mode] */
    BUILD_ENV,     /* name, value, … */
    BUILD_WORKDIR, /* path */
    BUILD_USER,    /* name, ["true": it may use sudo] */
    BUILD_VERBS
};
extern const char *const BUILD_VERB_NAMES[BUILD_VERBS];
typedef struct build_step {
    enum build_verb verb;
    char **args;
    char *files; /* COPY: the hash of its upload */
} build_step;
typedef struct build_recipe {
    sandbox_spec base; /* one of image, template and snapshot (its env, start), and its network */
    bool as_user;      /* the base is an image: steps begin as `user`, in their home */
    build_step *steps;
    size_t nsteps;
    char *start, *ready; /* shell commands, or NULL */
} build_recipe;
void build_recipe_done(build_recipe *r);

/* A tag as docker has them. */
bool build_tag_valid(const char *tag);

/* The template of this name gets the tags (NULL: "default") when it is ready; limits are those of
 * the build and of sandboxes that are made of it. */
err *engine_build_new(engine *e, const caller *c, const char *name, char *const *tags,
                      const limits *l, build_row *ret_row) ERR_MUST;
/* Takes the recipe. ERR_CONFLICT unless it waits. */
err *engine_build_start(engine *e, const caller *c, const char *template, const char *id,
                        build_recipe *r) ERR_MUST;
err *engine_build_find(engine *e, const caller *c, const char *template, const char *id,
                       build_row *ret_row) ERR_MUST;

typedef struct build_line {
    uint64_t at_ns;
    const char *level; /* debug, info, warn, error */
    char step[24];     /* "base", "1", …, "finalize" */
    char *text;
} build_line;
/* Copies of lines from number `from` on, at most max; none of what this process has not built. */
void engine_build_log(engine *e, const char *id, size_t from, size_t max, build_line **ret_lines,
                      size_t *ret_n);
void build_lines_free(build_line *lines, size_t n);

/* ---- templates and their tags ---- */
/* What the caller calls by "name", "name:tag" or an id: its template's id, and, if not NULL, what
 * a create of it says (snapshot, limits, start). ERR_NOT_FOUND, kind "template". */
err *engine_build_spec(engine *e, const caller *c, const char *text,
                       char ret_id[SANDBOX_ID_LEN + 1], sandbox_spec *ret_spec) ERR_MUST;
/* All ready builds of the caller's that have a tag, or those of one template by name or id;
 * build_rows_free(). */
err *engine_build_list(engine *e, const caller *c, const char *of, build_row **ret_rows,
                       size_t *ret_n) ERR_MUST;
err *engine_build_tag(engine *e, const caller *c, const char *text, char *const *tags,
                      char ret_build[BUILD_ID_LEN + 1]) ERR_MUST;
err *engine_build_untag(engine *e, const caller *c, const char *name, char *const *tags) ERR_MUST;
/* The template with all of its builds, by name or id; those under way end. Of "name:tag" the tag
 * alone. */
err *engine_build_remove(engine *e, const caller *c, const char *text) ERR_MUST;

/* ---- files for COPY ---- */
/* Who may send files for this template: its owner. Free it. ERR_NOT_FOUND. */
err *engine_build_owner(engine *e, const char *template, char **ret_owner) ERR_MUST;
bool build_hash_valid(const char *hash);
bool engine_upload_present(engine *e, const char *owner, const char *hash);
/* Whole under its hash, or not at all. read: the next piece, 0 bytes at the end. What the hash is
 * of only the sender knows: it is a name among the owner's own. */
typedef err *upload_read(void *arg, void *p, size_t max, size_t *ret_n);
err *engine_upload(engine *e, const char *owner, const char *hash, upload_read *read,
                   void *arg) ERR_MUST;
