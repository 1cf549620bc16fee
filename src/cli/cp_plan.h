/* Interprets the arguments of `bothy cp`: which side is the sandbox's, and the name of the copy.
 * Follows docker cp's rules. No I/O. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* One side as the user wrote it. */
typedef struct place {
    char *sandbox;    /* NULL: a local path */
    const char *path; /* points into the argument */
} place;
/* Parses "SANDBOX:PATH". A word that begins with '/' or '.' is a local path. */
void place_parse(const char *word, place *ret_place);
void place_done(place *p);

bool path_ends_with_slash(const char *path);
/* Returns true for "dir/." and ".": they mean the directory's content, not the directory. */
bool path_wants_content(const char *path);
/* Returns true if the path is not "/" and its last part is neither "." nor "..". */
bool path_has_name(const char *path);

/* The kind of file at a path. */
enum found {
    FOUND_NOTHING,
    FOUND_DIR,
    FOUND_OTHER
};
typedef struct plan {
    char *dir;    /* directory that receives the archive's content */
    char *name;   /* the source's name in it; "": its content at the top */
    bool parents; /* dir has to be made */
} plan;
void plan_done(plan *p);
/* Plans where a source goes if `found` is at the target. */
err *plan_make(const char *from, bool from_dir, const char *to, enum found found,
               plan *ret_plan) ERR_MUST;
err *plan_no_directory(const char *path) ERR_MUST;
