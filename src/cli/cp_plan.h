/* What `bothy cp` makes of the words it is given: which side is a sandbox's, and what a copy will
 * be called. docker cp's rules; no I/O. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* One side as the user wrote it. */
typedef struct place {
    char *sandbox;    /* NULL: here */
    const char *path; /* in the word */
} place;
/* "SANDBOX:PATH"; what begins with '/' or '.' is a path of ours. */
void place_parse(const char *word, place *ret_place);
void place_done(place *p);

bool path_ends_with_slash(const char *path);
/* "dir/." and ".": what lies in it, not the directory itself. */
bool path_wants_content(const char *path);
/* Not "/", and its last part is neither "." nor "..". */
bool path_has_name(const char *path);

/* What is at a path. */
enum found {
    FOUND_NOTHING,
    FOUND_DIR,
    FOUND_OTHER
};
typedef struct plan {
    char *dir;    /* of the archive's content */
    char *name;   /* the source's in it; "": its content at the top */
    bool parents; /* dir is made */
} plan;
void plan_done(plan *p);
/* Where a source goes when `found` is at the target. */
err *plan_make(const char *from, bool from_dir, const char *to, enum found found,
               plan *ret_plan) ERR_MUST;
err *plan_no_directory(const char *path) ERR_MUST;
