/* Where an entry goes: its parent directory, and room for its name. Inside the writer. */
#pragma once

#include "unpack/writer.h"

/* openat2 below the layer's root; -errno. */
int place_open(const writer *w, const char *path, int flags);
/* The parent of a normalised path, made if missing. The descriptor is the writer's and good until
 * the next call; ret_leaf points into path. */
err *place_parent(writer *w, const char *path, int *ret_dir, const char **ret_leaf) ERR_MUST;
void place_forget_parent(writer *w);

enum place_found {
    PLACE_FREE,
    PLACE_DIR,     /* a directory is there, and stays */
    PLACE_WHITEOUT /* a whiteout was there, and is gone */
};
/* Makes room for a name. want_dir: an existing directory is kept. */
err *place_clear(writer *w, int dir, const char *name, bool want_dir,
                 enum place_found *ret_found) ERR_MUST;

/* Remembers what a directory gets at the end. */
err *place_later(writer *w, dir_later d) ERR_MUST;
/* Gives it to them, and hands the opaque ones on. */
err *place_finish(writer *w) ERR_MUST;
