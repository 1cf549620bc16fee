/* Builds: templates made from a base and steps, in a sandbox whose files become a snapshot.
 *
 *     engine_build_new()    gives the ids first, because the caller sends files under them
 *     engine_build_start()  hands the recipe to a thread of the engine and returns
 *     engine_build_find()   reports the state; engine_build_log() returns the log
 *
 * A finished build has tags of its template. The build with the tag "default" is also a template of
 * the native API, with the same id. The others are found by engine_build_spec(). A failed build
 * leaves only its row, with the reason, for a day. A build that is interrupted by a restart of
 * bothyd has failed. Any thread may call; objects of other owners are ERR_NOT_FOUND. */
#pragma once

#include "engine/engine.h"

#define BUILDS_MAX          1024u                /* rows per owner, failed builds included */
#define BUILDS_RUNNING      8u                   /* on the node; others wait */
#define BUILDS_SHARE        (BUILDS_RUNNING / 2) /* per owner, even if no other owner builds */
#define BUILDS_OWNER        32u                  /* under way or waiting, per owner */
#define BUILD_STEPS_MAX     1000u
#define BUILD_TAGS_MAX      32u
#define BUILD_TAG_LEN       64u
#define BUILD_LOG_MAX       (8u << 20)  /* bytes of messages; later ones are left out */
#define BUILD_LOGS_OWNER    (16u << 20) /* of finished builds; beyond it the oldest logs go */
#define BUILD_RECIPES_OWNER (16u << 20) /* bytes of steps, under way or waiting */
#define BUILD_LOG_LINE      (16u << 10)
#define BUILD_DEFAULT       "default"
#define UPLOAD_MAX          (UINT64_C(4) << 30) /* bytes of one file */
#define UPLOAD_OWNER_MAX    (UINT64_C(16) << 30)
#define UPLOAD_NODE_MAX     (UINT64_C(64) << 30)
#define UPLOAD_FLOOR        (UINT64_C(512) << 20) /* of the disk stays free for the store */
#define UPLOADS_OWNER       32u                   /* at a time */
#define UPLOAD_HASH_LEN     64u

enum build_verb {
    BUILD_RUN,     /* command, [user] */
    BUILD_COPY,    /* source in the upload, path, [owner], [mode] */
    BUILD_ENV,     /* name, value, … */
    BUILD_WORKDIR, /* path */
    BUILD_USER,    /* name, ["true": the user may use sudo] */
    BUILD_VERBS
};
extern const char *const BUILD_VERB_NAMES[BUILD_VERBS];
typedef struct build_step {
    enum build_verb verb;
    char **args;
    char *files; /* COPY: the hash of its upload */
} build_step;
typedef struct build_recipe {
    sandbox_spec base; /* one of image, template and snapshot; also env, start and network */
    bool as_user;      /* the base is an image; the first steps run as `user`, in their home */
    build_step *steps;
    size_t nsteps;
    char *start, *ready; /* shell commands, or NULL */
} build_recipe;
void build_recipe_done(build_recipe *r);

/* Returns true if the tag has docker's form and at most BUILD_TAG_LEN bytes. */
bool build_tag_valid(const char *tag);

/* Adds a build of the template with this name; once ready it gets the tags (NULL: "default").
 * limits: of the build and of sandboxes made from it. */
err *engine_build_new(engine *e, const caller *c, const char *name, char *const *tags,
                      const limits *l, build_row *ret_row) ERR_MUST;
/* Starts a build. Takes the recipe. ERR_CONFLICT unless the build is waiting. */
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
/* Returns copies of at most max lines from number `from` on; none if another process ran the
 * build. */
void engine_build_log(engine *e, const char *id, size_t from, size_t max, build_line **ret_lines,
                      size_t *ret_n);
void build_lines_free(build_line *lines, size_t n);

/* ---- templates and their tags ---- */
/* Resolves "name", "name:tag" or an id: returns the id of the template, and, if ret_spec is not
 * NULL, what a create from it sets (snapshot, limits, start). ERR_NOT_FOUND (kind "template"). */
err *engine_build_spec(engine *e, const caller *c, const char *text,
                       char ret_id[SANDBOX_ID_LEN + 1], sandbox_spec *ret_spec) ERR_MUST;
/* Lists the caller's ready builds that have a tag, of all templates or of one by name or id. Free
 * with build_rows_free(). */
err *engine_build_list(engine *e, const caller *c, const char *of, build_row **ret_rows,
                       size_t *ret_n) ERR_MUST;
err *engine_build_tag(engine *e, const caller *c, const char *text, char *const *tags,
                      char ret_build[BUILD_ID_LEN + 1]) ERR_MUST;
err *engine_build_untag(engine *e, const caller *c, const char *name, char *const *tags) ERR_MUST;
/* Removes a template by name or id, with all its builds; those under way end. For "name:tag"
 * removes the tag only. */
err *engine_build_remove(engine *e, const caller *c, const char *text) ERR_MUST;

/* ---- files for COPY ---- */
/* Returns the owner of a template, who may send files for its builds. Free it. ERR_NOT_FOUND. */
err *engine_build_owner(engine *e, const char *template, char **ret_owner) ERR_MUST;
bool build_hash_valid(const char *hash);
bool engine_upload_present(engine *e, const char *owner, const char *hash);
/* Stores a file under its hash, completely or not at all. read returns the next piece, 0 bytes at
 * the end. The hash is not checked: it is a name that the sender chose among the owner's own
 * files. */
typedef err *upload_read(void *arg, void *p, size_t max, size_t *ret_n);
err *engine_upload(engine *e, const char *owner, const char *hash, upload_read *read,
                   void *arg) ERR_MUST;
